/* The portable FFT against the definition of the transform, for every kind of length. */
#include <complex.h>
#include <criterion/criterion.h>
#include <math.h>

#include "fft_ref.h"

typedef double complex number;

static double noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / 8388608.0 - 1;
}

/* sum over j of x_j exp(sign 2 pi i j k / n), in double. */
static number bin(const number *x, int64_t n, int64_t k, int sign)
{
    number sum = 0;
    for (int64_t j = 0; j < n; j++)
        sum += x[j] * cexp(sign * 2 * M_PI * I * (double)(j * k % n) / (double)n);
    return sum;
}

static void store(void *data, bool f64, int64_t at, double value)
{
    if (f64)
        ((double *)data)[at] = value;
    else
        ((float *)data)[at] = (float)value;
}

static double load(const void *data, bool f64, int64_t at)
{
    return f64 ? ((const double *)data)[at] : (double)((const float *)data)[at];
}

/* `count` lines; `apart`: side by side with gaps, else one after the other. */
static void check(mf_fft_kind kind, int64_t n, bool f64, int64_t count, bool apart)
{
    int64_t half = n / 2 + 1, in_n = kind == MF_IRFFT ? half : n, out_n = kind == MF_RFFT ? half : n;
    int iw = kind == MF_RFFT ? 1 : 2, ow = kind == MF_IRFFT ? 1 : 2;
    size_t size = f64 ? 8 : 4;
    uint32_t state = (uint32_t)n * 7 + (uint32_t)kind;
    mfi_lines in = {mfi_alloc_aligned((size_t)(in_n * (count + 1) * iw) * size), apart ? count + 1 : 1,
                    apart ? 1 : in_n};
    mfi_lines out = {mfi_alloc_aligned((size_t)(out_n * (count + 1) * ow) * size), apart ? count + 1 : 1,
                     apart ? 1 : out_n};
    for (int64_t i = 0; i < in_n * (count + 1) * iw; i++)
        store(in.data, f64, i, noise(&state));
    mfi_line_plan *plan;
    cr_assert_eq(mfi_line_plan_new(&plan, kind, n, f64), MF_OK);
    void *scratch = mfi_alloc_aligned(mfi_line_scratch(plan));
    mfi_line_run(plan, in, out, count, scratch);
    number *x = mfi_alloc((size_t)n * sizeof *x);
    double error = 0, norm = 0;
    for (int64_t l = 0; l<count; l += count> 1 ? count - 1 : 1) {
        for (int64_t j = 0; j < n; j++) {
            int64_t from = kind == MF_IRFFT && j >= half ? n - j : j, at = (l * in.dist + from * in.stride) * iw;
            double im = iw == 2 ? load(in.data, f64, at + 1) : 0;
            if (kind == MF_IRFFT)
                im = j == 0 || 2 * j == n ? 0 : j < half ? im : -im;
            x[j] = load(in.data, f64, at) + I * im;
        }
        for (int64_t k = 0; k < out_n; k += out_n < 300 ? 1 : out_n / 7) {
            int64_t at = (l * out.dist + k * out.stride) * ow;
            number got = load(out.data, f64, at) + (ow == 2 ? I * load(out.data, f64, at + 1) : 0);
            number want = bin(x, n, k, kind == MF_IFFT || kind == MF_IRFFT ? 1 : -1);
            error += pow(cabs(got - want), 2);
            norm += pow(cabs(want), 2);
        }
    }
    /* relative error in the 2-norm; the direct sums are themselves only good to about n eps */
    double limit = f64 ? 1e-15 * (4 + sqrt((double)n)) : 1.2e-7 * 3;
    cr_assert(sqrt(error) <= limit * sqrt(norm) + 1e-300, "kind %d n %lld f64 %d count %lld apart %d: error %g",
              (int)kind, (long long)n, f64, (long long)count, apart, sqrt(error / norm));
    mf_free(x);
    mfi_free_aligned(scratch);
    mfi_free_aligned(in.data);
    mfi_free_aligned(out.data);
    mfi_line_plan_free(plan);
}

Test(fft_ref, every_small_length)
{
    for (int64_t n = 1; n <= 150; n++)
        for (int kind = MF_FFT; kind <= MF_IRFFT; kind++)
            for (int f64 = 0; f64 < 2; f64++) {
                check((mf_fft_kind)kind, n, f64, 1, false);
                check((mf_fft_kind)kind, n, f64, 19, true);
                check((mf_fft_kind)kind, n, f64, 3, false);
            }
}

Test(fft_ref, long_and_prime_lengths)
{
    static const int64_t lengths[] = {1013,  1024,        2048,      2187,  3125,  4096,  3 * 5 * 7 * 11 * 13,
                                      16384, 29 * 31 * 4, 131 * 128, 65536, 65537, 100000};
    for (size_t i = 0; i < MFI_COUNT(lengths); i++)
        for (int kind = MF_FFT; kind <= MF_IRFFT; kind++)
            for (int f64 = 0; f64 < 2; f64++)
                check((mf_fft_kind)kind, lengths[i], f64, 2, false);
}

Test(fft_ref, in_place)
{
    float x[2 * 24], y[2 * 24];
    for (int i = 0; i < 48; i++)
        x[i] = y[i] = (float)(i * i % 17);
    mfi_line_plan *there, *back;
    cr_assert_eq(mfi_line_plan_new(&there, MF_FFT, 24, false), MF_OK);
    cr_assert_eq(mfi_line_plan_new(&back, MF_IFFT, 24, false), MF_OK);
    void *scratch = mfi_alloc_aligned(mfi_line_scratch(there));
    mfi_lines lines = {x, 1, 24};
    mfi_line_run(there, lines, lines, 1, scratch);
    mfi_line_run(back, lines, lines, 1, scratch);
    for (int i = 0; i < 48; i++)
        cr_assert_float_eq(x[i] / 24, y[i], 1e-5);
    mfi_free_aligned(scratch);
    mfi_line_plan_free(there);
    mfi_line_plan_free(back);
}

/* One line's infinities and NaN must not reach its neighbours. */
Test(fft_ref, lines_are_independent)
{
    enum { N = 12, LINES = 16 };
    float x[LINES * N];
    float complex y[LINES * (N / 2 + 1)];
    for (int i = 0; i < LINES * N; i++)
        x[i] = i / N == 5 ? NAN : (float)(i % 7);
    mfi_line_plan *plan;
    cr_assert_eq(mfi_line_plan_new(&plan, MF_RFFT, N, false), MF_OK);
    void *scratch = mfi_alloc_aligned(mfi_line_scratch(plan));
    mfi_line_run(plan, (mfi_lines){x, 1, N}, (mfi_lines){y, 1, N / 2 + 1}, LINES, scratch);
    for (int l = 0; l < LINES; l++)
        cr_assert_eq(!isfinite(crealf(y[l * (N / 2 + 1)])), l == 5);
    mfi_free_aligned(scratch);
    mfi_line_plan_free(plan);
}

Test(fft_ref, unit_roots_are_symmetric_and_exact_on_the_axes)
{
    for (int64_t n = 1; n < 200; n++) {
        mfi_unit *unit = mfi_unit_new(n);
        for (int64_t k = 0; k < n; k++) {
            double c, s, c2, s2;
            mfi_unit_get(unit, k, &c, &s);
            mfi_unit_get(unit, (n - k) % n, &c2, &s2);
            cr_assert(c == c2 && s == -s2);
            cr_assert(fabs(c - cos(2 * M_PI * (double)k / (double)n)) < 2e-15);
            cr_assert(4 * k % n != 0 || fabs(c) + fabs(s) == 1);
        }
        mfi_unit_free(unit);
    }
}

Test(fft_ref, bad_lengths_are_refused)
{
    mfi_line_plan *plan;
    cr_assert_eq(mfi_line_plan_new(&plan, MF_FFT, 0, false), MF_E_SHAPE);
    cr_assert_null(plan);
}
