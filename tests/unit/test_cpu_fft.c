/* FFT steps of the CPU's providers: axes, layouts, padding, scaling, chains, against direct sums in double. */
#include "cpu_problem.h"

TestSuite(cpu_fft, .init = open_context, .fini = close_context);

static const mfi_provider *const providers[] = {&mfi_provider_ref, &mfi_provider_fftw};

typedef struct fft_case {
    mf_fft_kind kind;
    int batch_dims, naxes, layout;
    bool f64;
    mf_dtype in;
    int64_t batch[2], n[3], missing; /* missing: elements of the first axis that are not there */
    double scale;
    bool chain; /* add an array */
} fft_case;

/* Transform along one axis of a row-major array, by definition. */
static void dft(number *x, int64_t outer, int64_t n, int64_t inner, int sign)
{
    number *line = mfi_alloc((size_t)n * sizeof *line);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            for (int64_t k = 0; k < n; k++) {
                line[k] = 0;
                for (int64_t j = 0; j < n; j++)
                    line[k] += x[(o * n + j) * inner + i] * cexp(sign * 2 * M_PI * I * (double)(j * k % n) / (double)n);
            }
            for (int64_t k = 0; k < n; k++)
                x[(o * n + k) * inner + i] = line[k];
        }
    mf_free(line);
}

/* All of the input as a full complex array of the transform's lengths; half spectra are completed after the
 * transforms over the other axes, as numpy.fft.irfftn does. */
static number *expected(const fft_case *t, const array *in, const int64_t *in_shape, int64_t items)
{
    int64_t last = t->n[t->naxes - 1], bins = in_shape[t->naxes - 1], rows = 1;
    for (int a = 0; a + 1 < t->naxes; a++)
        rows *= t->n[a];
    int sign = t->kind == MF_FFT || t->kind == MF_RFFT ? -1 : 1;
    number *x = mfi_calloc((size_t)(items * rows * bins), sizeof *x);
    int64_t first = t->naxes > 1 ? t->n[0] : bins, have = first - t->missing;
    int64_t inner = items ? rows * bins / first : 0;
    for (int64_t i = 0; i < items; i++)
        for (int64_t j = 0; j < have; j++)
            for (int64_t k = 0; k < inner; k++)
                x[(i * first + j) * inner + k] = get_at(in, (i * have + j) * inner + k);
    int64_t outer = items, below = rows * bins;
    for (int a = 0; a + 1 < t->naxes; a++) {
        below /= t->n[a];
        dft(x, outer, t->n[a], below, sign);
        outer *= t->n[a];
    }
    if (t->kind == MF_IRFFT) {
        number *full = mfi_calloc((size_t)(items * rows * last), sizeof *full);
        for (int64_t r = 0; r < items * rows; r++)
            for (int64_t k = 0; k < last; k++) {
                number v = x[r * bins + (k < bins ? k : last - k)];
                full[r * last + k] = k == 0 || 2 * k == last ? creal(v) : k < bins ? v : conj(v);
            }
        mf_free(x);
        x = full;
    }
    dft(x, items * rows, last, 1, sign);
    return x;
}

static void compare(const fft_case *t, const mfi_provider *provider, const number *want, const array *out,
                    const array *plus, int64_t out_last)
{
    int64_t last = t->n[t->naxes - 1];
    double error = 0, norm = 1e-30;
    for (int64_t i = 0; i < out->count; i++) {
        number e = want[i / out_last * last + i % out_last] * t->scale + (t->chain ? get_at(plus, i) : 0);
        error += pow(cabs(e - get_at(out, i)), 2);
        norm += pow(cabs(e), 2);
    }
    cr_assert(sqrt(error) <= (t->f64 ? 1e-13 : 4e-7) * sqrt(norm),
              "%s kind %d f64 %d in %s batch %d (%lld %lld) axes %d (%lld %lld %lld) layout %d missing %lld: error %g",
              provider->name, (int)t->kind, t->f64, mf_dtype_name(t->in), t->batch_dims, (long long)t->batch[0],
              (long long)t->batch[1], t->naxes, (long long)t->n[0], (long long)t->n[1], (long long)t->n[2], t->layout,
              (long long)t->missing, sqrt(error / norm));
}

static void check(const fft_case *t)
{
    int nd = t->batch_dims + t->naxes;
    int64_t in_dims[5], out_dims[5], items = 1;
    mfi_problem *p = mfi_calloc(1, sizeof *p);
    mfi_fft *f = &p->u.fft;
    *f = (mfi_fft){.kind = t->kind, .naxes = t->naxes, .f64 = t->f64, .scale = t->scale};
    for (int d = 0; d < t->batch_dims; d++) {
        in_dims[d] = out_dims[d] = t->batch[d];
        items *= t->batch[d];
    }
    for (int a = 0; a < t->naxes; a++) {
        bool last = a == t->naxes - 1;
        f->n[a] = t->n[a];
        f->in_shape[a] = last && t->kind == MF_IRFFT ? t->n[a] / 2 + 1 : t->n[a];
        f->in_extent[a] = in_dims[t->batch_dims + a] = f->in_shape[a] - (a == 0 ? t->missing : 0);
        out_dims[t->batch_dims + a] = last && t->kind == MF_RFFT ? t->n[a] / 2 + 1 : t->n[a];
    }
    mf_dtype out_dtype = t->kind == MF_IRFFT ? (t->f64 ? MF_F64 : MF_F32) : (t->f64 ? MF_C128 : MF_C64);
    mfi_ctype type = mfi_compute_type(out_dtype);
    array in = array_new(0, t->in, nd, in_dims, t->layout), out = array_new(1, out_dtype, nd, out_dims, t->layout);
    array plus = array_new(2, out_dtype, nd, out_dims, PLAIN);
    void *slots[] = {in.memory, out.memory, plus.memory};
    fill_random(&in);
    fill_random(&plus);
    keep(&in);
    keep(&out);
    f->in = in.view;
    p->anchor = MFI_FFT;
    p->ndim = nd;
    memcpy(p->shape, out_dims, sizeof out_dims);
    add_instr(&p->chain, MFI_ACC, type);
    if (t->chain)
        add_plus(&p->chain, type, &plus.view);
    add_store(&p->chain, type, &out.view);
    number *want = expected(t, &in, f->in_shape, items);
    for (size_t i = 0; i < MFI_COUNT(providers); i++) {
        cr_assert(run_problem(providers[i], p, slots), "%s refused", providers[i]->name);
        compare(t, providers[i], want, &out, &plus, out_dims[nd - 1]);
        check_kept(&in, true, providers[i]->name);
        check_kept(&out, false, providers[i]->name);
    }
    mf_free(want);
    array_free(&in);
    array_free(&out);
    array_free(&plus);
    mf_free(p);
}

Test(cpu_fft, random_axes_layouts_and_types)
{
    for (int i = 0; i < 500; i++) {
        fft_case t = {.kind = (mf_fft_kind)draw(4), .batch_dims = draw(3), .naxes = 1 + draw(3), .layout = draw(2)};
        t.f64 = draw(2);
        t.batch[0] = 1 + draw(20), t.batch[1] = 1 + draw(3);
        for (int a = 0; a < 3; a++)
            t.n[a] = 1 + draw(t.naxes == 1 ? 70 : 9);
        int64_t first = t.naxes == 1 && t.kind == MF_IRFFT ? t.n[0] / 2 + 1 : t.n[0];
        t.missing = draw(3) == 0 && first > 1 ? draw((int)first) : 0;
        mf_dtype real = t.f64 ? MF_F64 : MF_F32, complex_dtype = t.f64 ? MF_C128 : MF_C64;
        mf_dtype narrow = draw(2) ? MF_F16 : MF_I32;
        t.in = t.kind == MF_RFFT ? (draw(3) ? real : narrow) : draw(3) ? complex_dtype : draw(2) ? real : narrow;
        t.scale = draw(2) ? 1 : 0.25;
        t.chain = draw(2);
        check(&t);
    }
}

Test(cpu_fft, few_long_and_many_short)
{
    static const fft_case cases[] = {
        {.kind = MF_FFT, .naxes = 1, .n = {1013}, .scale = 1, .in = MF_C64},
        {.kind = MF_RFFT, .naxes = 2, .n = {96, 130}, .scale = 0.5, .in = MF_F32, .chain = true},
        {.kind = MF_IRFFT, .naxes = 2, .n = {96, 131}, .scale = 1, .in = MF_C64},
        {.kind = MF_IFFT, .naxes = 2, .n = {64, 50}, .batch_dims = 1, .batch = {3}, .scale = 1, .in = MF_C64},
        {.kind = MF_FFT, .naxes = 1, .n = {7}, .batch_dims = 1, .batch = {5001}, .scale = 1, .in = MF_C64},
        {.kind = MF_IRFFT, .naxes = 1, .n = {16}, .batch_dims = 2, .batch = {301, 3}, .scale = 1, .in = MF_C64},
        {.kind = MF_RFFT, .naxes = 1, .n = {9}, .batch_dims = 1, .batch = {777}, .scale = 3, .in = MF_F32},
    };
    for (size_t i = 0; i < MFI_COUNT(cases); i++)
        for (int layout = PLAIN; layout <= ODD; layout++)
            for (int f64 = 0; f64 < 2; f64++) {
                fft_case t = cases[i];
                t.layout = layout;
                t.f64 = f64;
                t.in = !f64 ? t.in : t.in == MF_C64 ? MF_C128 : MF_F64;
                check(&t);
            }
}

Test(cpu_fft, empty_batch)
{
    fft_case t = {.kind = MF_RFFT, .naxes = 1, .n = {16}, .batch_dims = 2, .batch = {0, 2}, .scale = 1, .in = MF_F32};
    check(&t);
}

/* A stride of 0 repeats one line; a reduction over more dims than the transform keeps whole rows together. */
Test(cpu_fft, repeated_input_and_reductions)
{
    int64_t n = 12;
    array in = array_new(0, MF_C64, 1, &n, PLAIN), out = array_new(1, MF_C64, 1, (int64_t[]){5}, PLAIN);
    void *slots[] = {in.memory, out.memory};
    fill_random(&in);
    mfi_problem p = {.anchor = MFI_FFT, .ndim = 3, .nreduce = 2, .shape = {5, 7, 12}};
    p.u.fft = (mfi_fft){.kind = MF_FFT, .naxes = 1, .n = {12}, .in_shape = {12}, .in_extent = {12}, .scale = 1};
    p.u.fft.in = in.view;
    p.u.fft.in.strides[0] = p.u.fft.in.strides[1] = 0;
    p.u.fft.in.strides[2] = 1;
    p.chain.phases = 1;
    add_instr(&p.chain, MFI_ACC, MFI_C64);
    mfi_instr *sum = add_instr(&p.chain, MFI_REDUCE, MFI_C64);
    sum->a = 0;
    sum->reduce = MF_SUM;
    sum->level = 1;
    add_store(&p.chain, MFI_C64, &out.view);
    p.chain.instr[2].level = 1;
    for (size_t i = 0; i < MFI_COUNT(providers); i++) {
        cr_assert(run_problem(providers[i], &p, slots));
        for (int64_t row = 0; row < 5; row++)
            cr_assert(cabs(get_at(&out, row) - 7 * 12 * get_at(&in, 0)) < 1e-3, "%s", providers[i]->name);
    }
    array_free(&in);
    array_free(&out);
}
