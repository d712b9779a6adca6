/* Moving lines into and out of the planes of real and imaginary parts; included by fft_lines.c once per precision.
 * Needs T and FN(name). Element j of column c is at [j * columns + c] of a plane. */

/* Complex elements. */
static void FN(gather)(const mfi_lines *in, int64_t first, int64_t columns, int64_t length, T *restrict re,
                       T *restrict im)
{
    const T *data = (const T *)in->data + 2 * first * in->dist;
    if (columns == 1 && in->stride == 1) {
        for (int64_t j = 0; j < length; j++)
            re[j] = data[2 * j], im[j] = data[2 * j + 1];
        return;
    }
    for (int64_t j = 0; j < length; j++) {
        const T *row = data + 2 * j * in->stride;
        for (int64_t c = 0; c < columns; c++) {
            re[j * columns + c] = row[2 * c * in->dist];
            im[j * columns + c] = row[2 * c * in->dist + 1];
        }
    }
}

static void FN(scatter)(const mfi_lines *out, int64_t first, int64_t columns, int64_t length, const T *restrict re,
                        const T *restrict im)
{
    T *data = (T *)out->data + 2 * first * out->dist;
    if (columns == 1 && out->stride == 1) {
        for (int64_t j = 0; j < length; j++)
            data[2 * j] = re[j], data[2 * j + 1] = im[j];
        return;
    }
    for (int64_t j = 0; j < length; j++) {
        T *row = data + 2 * j * out->stride;
        for (int64_t c = 0; c < columns; c++) {
            row[2 * c * out->dist] = re[j * columns + c];
            row[2 * c * out->dist + 1] = im[j * columns + c];
        }
    }
}

/* Real elements j = start, start + step, …: `length` of them, into one plane. */
static void FN(gather_real)(const mfi_lines *in, int64_t first, int64_t columns, int64_t start, int64_t step,
                            int64_t length, T *restrict plane)
{
    const T *data = (const T *)in->data + first * in->dist + start * in->stride;
    for (int64_t j = 0; j < length; j++)
        for (int64_t c = 0; c < columns; c++)
            plane[j * columns + c] = data[j * step * in->stride + c * in->dist];
}

static void FN(scatter_real)(const mfi_lines *out, int64_t first, int64_t columns, int64_t start, int64_t step,
                             int64_t length, const T *restrict plane)
{
    T *data = (T *)out->data + first * out->dist + start * out->stride;
    for (int64_t j = 0; j < length; j++)
        for (int64_t c = 0; c < columns; c++)
            data[j * step * out->stride + c * out->dist] = plane[j * columns + c];
}

/* From the transform Z of z_j = x_2j + i x_2j+1 to the spectrum X of x, in place:
 * X_k = E_k + w^k O_k with E = (Z_k + conj Z_m-k) / 2, O = (Z_k - conj Z_m-k) / 2i, w = exp(-2 pi i / n). */
static void FN(split)(const mfi_line_plan *plan, int64_t columns, T *re, T *im)
{
    int64_t m = plan->m;
    for (int64_t c = 0; c < columns; c++) {
        T r = re[c], i = im[c];
        re[c] = r + i, im[c] = 0;
        re[m * columns + c] = r - i, im[m * columns + c] = 0;
    }
    for (int64_t k = 1; 2 * k <= m; k++) {
        const T cosine = (T)plan->turn[2 * k], sine = (T)plan->turn[2 * k + 1];
        T *ar = re + k * columns, *ai = im + k * columns, *br = re + (m - k) * columns, *bi = im + (m - k) * columns;
        for (int64_t c = 0; c < columns; c++) {
            T er = (ar[c] + br[c]) * (T)0.5, ei = (ai[c] - bi[c]) * (T)0.5;
            T or_ = (ai[c] + bi[c]) * (T)0.5, oi = (br[c] - ar[c]) * (T)0.5;
            T tr = or_ * cosine + oi * sine, ti = oi * cosine - or_ * sine;
            ar[c] = er + tr, ai[c] = ei + ti;
            br[c] = er - tr, bi[c] = ti - ei;
        }
    }
}

/* The other way, twice the result: Z_k = (X_k + conj X_m-k) + i (X_k - conj X_m-k) exp(2 pi i k / n). */
static void FN(join)(const mfi_line_plan *plan, int64_t columns, T *re, T *im)
{
    int64_t m = plan->m;
    for (int64_t c = 0; c < columns; c++) {
        T first = re[c], last = re[m * columns + c];
        re[c] = first + last, im[c] = first - last;
    }
    for (int64_t k = 1; 2 * k <= m; k++) {
        const T cosine = (T)plan->turn[2 * k], sine = (T)plan->turn[2 * k + 1];
        T *ar = re + k * columns, *ai = im + k * columns, *br = re + (m - k) * columns, *bi = im + (m - k) * columns;
        for (int64_t c = 0; c < columns; c++) {
            T er = ar[c] + br[c], ei = ai[c] - bi[c], dr = ar[c] - br[c], di = ai[c] + bi[c];
            T or_ = dr * cosine - di * sine, oi = dr * sine + di * cosine;
            ar[c] = er - oi, ai[c] = ei + or_;
            br[c] = er + oi, bi[c] = or_ - ei;
        }
    }
}

static void FN(forward_real)(const mfi_line_plan *plan, const mfi_lines *in, int64_t first, int64_t columns, T *re,
                             T *im, void *scratch)
{
    if (plan->halved) {
        FN(gather_real)(in, first, columns, 0, 2, plan->m, re);
        FN(gather_real)(in, first, columns, 1, 2, plan->m, im);
    } else {
        FN(gather_real)(in, first, columns, 0, 1, plan->m, re);
        memset(im, 0, (size_t)(plan->m * columns) * sizeof(T));
    }
    mfi_fft1_run(plan->fft, re, im, columns, false, scratch);
    if (plan->halved)
        FN(split)(plan, columns, re, im);
    else
        memset(im, 0, (size_t)columns * sizeof(T)); /* the sum of reals is real, to the bit */
}

static void FN(inverse_real)(const mfi_line_plan *plan, const mfi_lines *out, int64_t first, int64_t columns, T *re,
                             T *im, void *scratch)
{
    int64_t m = plan->m;
    if (plan->halved) {
        FN(join)(plan, columns, re, im);
    } else {
        memset(im, 0, (size_t)columns * sizeof(T));
        for (int64_t k = m / 2 + 1; k < m; k++)
            for (int64_t c = 0; c < columns; c++) {
                re[k * columns + c] = re[(m - k) * columns + c];
                im[k * columns + c] = -im[(m - k) * columns + c];
            }
    }
    mfi_fft1_run(plan->fft, re, im, columns, true, scratch);
    FN(scatter_real)(out, first, columns, 0, plan->halved ? 2 : 1, m, re);
    if (plan->halved)
        FN(scatter_real)(out, first, columns, 1, 2, m, im);
}

static void FN(transform)(const mfi_line_plan *plan, mfi_lines in, mfi_lines out, int64_t first, int64_t columns, T *re,
                          T *im, void *scratch)
{
    int64_t bins = plan->n / 2 + 1;
    switch (plan->kind) {
    case MF_RFFT:
        FN(forward_real)(plan, &in, first, columns, re, im, scratch);
        FN(scatter)(&out, first, columns, bins, re, im);
        break;
    case MF_IRFFT:
        FN(gather)(&in, first, columns, bins, re, im);
        FN(inverse_real)(plan, &out, first, columns, re, im, scratch);
        break;
    default:
        FN(gather)(&in, first, columns, plan->n, re, im);
        mfi_fft1_run(plan->fft, re, im, columns, plan->kind == MF_IFFT, scratch);
        FN(scatter)(&out, first, columns, plan->n, re, im);
    }
}

#undef T
#undef FN
