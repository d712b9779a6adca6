/* Transforms on the GPU, cuFFT called directly, against the definition in double precision. One test: CUDA starts once.
 */
#include "gpu_harness.h"

extern const mfi_provider mfi_provider_cufft, mfi_provider_ref;
static const mfi_provider *provider;

typedef struct fft_case {
    mf_fft_kind kind;
    bool f64;
    int naxes;
    int64_t batch, n[4];
    int64_t cut;               /* elements missing along the first axis of the input */
    int64_t in_step, out_step; /* between elements */
    bool reversed;             /* axes in the other order in memory */
    mf_dtype in;               /* MF_DTYPE_COUNT: what the transform reads */
    double scale;
} fft_case;

/* Contiguous strides of shape, times step; reversed: the first axis is the innermost. */
static int64_t spread(mfi_view *v, int ndim, const int64_t *shape, int64_t step, bool reversed)
{
    for (int i = 0; i < ndim; i++) {
        int d = reversed ? i : ndim - 1 - i;
        v->strides[d] = step;
        step *= shape[d];
    }
    return step;
}

static mfi_problem fft_problem(const fft_case *c, slot *slots, int64_t *in_shape)
{
    mfi_problem p = {.anchor = MFI_FFT, .ndim = c->naxes + 1, .shape = {c->batch}};
    mfi_fft *f = &p.u.fft;
    mf_dtype z = c->f64 ? MF_C128 : MF_C64, r = c->f64 ? MF_F64 : MF_F32;
    mf_dtype in = c->in != MF_DTYPE_COUNT ? c->in : c->kind == MF_RFFT ? r : z, out = c->kind == MF_IRFFT ? r : z;
    *f = (mfi_fft){.kind = c->kind, .naxes = c->naxes, .f64 = c->f64, .scale = c->scale};
    f->in = (mfi_view){.slot = 0, .dtype = in, .alignment = 16};
    in_shape[0] = c->batch;
    for (int i = 0; i < c->naxes; i++) {
        int64_t bins = i == c->naxes - 1 ? c->n[i] / 2 + 1 : c->n[i];
        f->n[i] = c->n[i];
        p.shape[i + 1] = c->kind == MF_RFFT ? bins : c->n[i];
        f->in_shape[i] = c->kind == MF_IRFFT ? bins : c->n[i];
        f->in_extent[i] = in_shape[i + 1] = f->in_shape[i] - (i == 0 ? c->cut : 0);
    }
    make(&slots[0], in, spread(&f->in, p.ndim, in_shape, c->in_step, c->reversed));
    mfi_view result = {0};
    make(&slots[1], out, spread(&result, p.ndim, p.shape, c->out_step, c->reversed));
    mfi_ctype t = mfi_compute_type(out);
    int acc = append(&p, MFI_ACC, t, -1, -1, -1);
    operand(&p, MFI_STORE, t, 1, out, result.strides, acc);
    return p;
}

/* x of length n along one axis of a contiguous array [outer, n, inner], in place, by definition. */
static void dft(double complex *x, int64_t outer, int64_t n, int64_t inner, int sign)
{
    double complex *line = malloc((size_t)n * sizeof *line), *w = malloc((size_t)n * sizeof *w);
    for (int64_t i = 0; i < n; i++)
        w[i] = cexp(sign * 2 * M_PI * I * (double)i / (double)n);
    for (int64_t o = 0; o < outer * inner; o++) {
        double complex *base = x + o / inner * n * inner + o % inner;
        for (int64_t k = 0; k < n; k++) {
            line[k] = 0;
            for (int64_t j = 0; j < n; j++)
                line[k] += base[j * inner] * w[j * k % n];
        }
        for (int64_t k = 0; k < n; k++)
            base[k * inner] = line[k];
    }
    free(line);
    free(w);
}

/* The input as a full complex array of the transform's lengths; half spectra are completed as numpy's irfftn implies:
 * outer axes first, then the last from its first half, imaginary parts of DC and Nyquist dropped. */
static double complex *expected_fft(const fft_case *c, const mfi_problem *p, const slot *slots, const int64_t *in_shape)
{
    const mfi_fft *f = &p->u.fft;
    int64_t shape[6] = {c->batch}, total = c->batch, index[6];
    for (int i = 0; i < c->naxes; i++)
        total *= shape[i + 1] = f->in_shape[i];
    double complex *x = calloc((size_t)total, sizeof *x);
    for (int64_t i = 0; i < total; i++) {
        bool inside = true;
        int64_t rest = i;
        for (int d = c->naxes; d >= 0; d--) {
            index[d] = rest % shape[d];
            rest /= shape[d];
            inside = inside && index[d] < in_shape[d];
        }
        x[i] = inside ? get(&slots[0], at(&f->in, p->ndim, index)) : 0;
    }
    int sign = c->kind == MF_FFT || c->kind == MF_RFFT ? -1 : 1, last = c->naxes;
    int64_t inner = shape[last], outer = total / shape[last], bins = shape[last];
    for (int d = last - 1; d >= 1; d--) {
        dft(x, total / inner / shape[d], shape[d], inner, sign);
        inner *= shape[d];
    }
    if (c->kind != MF_IRFFT) {
        dft(x, outer, bins, 1, sign);
        return x;
    }
    int64_t n = c->n[c->naxes - 1];
    double complex *full = calloc((size_t)(outer * n), sizeof *full);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < n; k++) {
            double complex z = x[o * bins + (k < bins ? k : n - k)];
            full[o * n + k] = k == 0 || 2 * k == n ? creal(z) : k < bins ? z : conj(z);
        }
    dft(full, outer, n, 1, 1);
    free(x);
    return full;
}

static void fft(const fft_case *c)
{
    slot slots[MAX_SLOTS];
    int64_t in_shape[6], index[6], total = 1, lengths = 1;
    char what[160];
    snprintf(what, sizeof what, "fft kind %d %s batch %lld n %lld %lld %lld %lld cut %lld steps %lld %lld%s in %d",
             c->kind, c->f64 ? "f64" : "f32", (long long)c->batch, (long long)c->n[0], (long long)c->n[1],
             (long long)c->n[2], (long long)c->n[3], (long long)c->cut, (long long)c->in_step, (long long)c->out_step,
             c->reversed ? " reversed" : "", c->in);
    mfi_problem p = fft_problem(c, slots, in_shape);
    if (run(provider, &p, mfi_context_caps(context), slots, 2, 1, what)) {
        double complex *want = expected_fft(c, &p, slots, in_shape);
        double error = 0, norm = 0;
        for (int d = 0; d < p.ndim; d++)
            total *= p.shape[d];
        for (int i = 0; i < c->naxes; i++)
            lengths *= c->n[i];
        for (int64_t i = 0; i < total; i++) {
            int64_t rest = i;
            for (int d = p.ndim - 1; d >= 0; d--) {
                index[d] = rest % p.shape[d];
                rest /= p.shape[d];
            }
            int64_t last = c->n[c->naxes - 1],
                    full = c->kind == MF_RFFT ? i / p.shape[c->naxes] * last + index[c->naxes] : i;
            double complex w = want[full] * c->scale;
            double complex got = get(&slots[1], at(&p.chain.operand[0].view, p.ndim, index));
            error += pow(cabs(got - w), 2);
            norm += pow(cabs(w), 2);
        }
        error = sqrt(error / (norm > 0 ? norm : 1));
        cr_expect(error <= (c->f64 ? 1e-14 : 1e-6) * (1 + log2((double)lengths)), "%s: error %.3g", what, error);
        free(want);
    }
    release(slots, 2);
}

static void ffts(void)
{
    static const int64_t sizes[][4] = {{1}, {2}, {3}, {16}, {64}, {100}, {127}, {1000}, {1024}};
    static const int64_t planes[][4] = {{4, 6}, {1, 8}, {8, 1}, {5, 7}, {16, 32}};
    static const int64_t boxes[][4] = {{4, 6, 8}, {3, 5, 7}, {1, 1, 4}}, fourth[4] = {3, 4, 5, 6};
    for (int kind = MF_FFT; kind <= MF_IRFFT; kind++)
        for (int f64 = 0; f64 < 2; f64++) {
            fft_case c = {(mf_fft_kind)kind, f64, 1, 5, {0}, 0, 1, 1, false, MF_DTYPE_COUNT, 1};
            for (size_t i = 0; i < MFI_COUNT(sizes); i++) {
                memcpy(c.n, sizes[i], sizeof c.n);
                fft(&c);
            }
            fft_case variants[] = {c, c, c, c, c, c};
            variants[0].cut = 7;
            variants[1].in_step = 3;
            variants[2].out_step = 2;
            variants[3].reversed = true;
            variants[4].scale = 0.25;
            variants[5].in = kind == MF_RFFT ? MF_BF16 : MF_F32;
            for (size_t i = 0; i < MFI_COUNT(variants); i++) {
                variants[i].n[0] = 100;
                fft(&variants[i]);
            }
            for (int reversed = 0; reversed < 2; reversed++) {
                c.reversed = reversed;
                c.naxes = 2;
                for (size_t i = 0; i < MFI_COUNT(planes); i++) {
                    memcpy(c.n, planes[i], sizeof c.n);
                    fft(&c);
                }
                c.naxes = 3;
                for (size_t i = 0; i < MFI_COUNT(boxes); i++) {
                    memcpy(c.n, boxes[i], sizeof c.n);
                    fft(&c);
                }
                c.naxes = 4;
                memcpy(c.n, fourth, sizeof c.n);
                fft(&c);
            }
        }
}

Test(gpu, fft)
{
    provider = open_context(MFI_FFT) ? &mfi_provider_cufft : &mfi_provider_ref;
    ffts();
    mf_context_free(context);
}
