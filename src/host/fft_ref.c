/* Portable FFT of any length: planning, twiddle factors, the order of passes and Bluestein's algorithm.
 * The passes themselves are in fft_ref_passes.h, strided and real lines in fft_lines.c. */
#include "fft_ref.h"

#include <math.h>

#define MAX_RADIX 31 /* largest prime with a pass of its own; others go by Bluestein */
#define MAX_PASSES 64

typedef struct fft_pass {
    int radix;
    int64_t m;                     /* length left after this pass */
    void *cosine, *sine;           /* (radix - 1) * m factors each, float or double */
    void *root_cosine, *root_sine; /* odd radices: the radix-th roots of 1 */
} fft_pass;

typedef void pass_function(const fft_pass *pass, int64_t s, const void *const x[2], void *const y[2]);

struct mfi_fft1 {
    int64_t n;
    bool f64;
    pass_function *run;
    int passes;
    fft_pass pass[MAX_PASSES];
    /* Bluestein, always in doubles: a convolution of length inner->n with a chirp */
    mfi_fft1 *inner;
    double *chirp_re, *chirp_im;   /* exp(-pi i k^2 / n) */
    double *filter_re, *filter_im; /* transform of its conjugate, divided by inner->n */
};

/* ---- accurate roots of unity: product of a coarse and a fine table in long double ---- */

struct mfi_unit {
    int64_t n, fine;         /* k = coarse * fine + rest */
    long double (*table)[2]; /* `fine` entries of rest, then the coarse ones */
};

mfi_unit *mfi_unit_new(int64_t n)
{
    const long double tau = 6.283185307179586476925286766559005768L;
    mfi_unit *unit = mfi_calloc(1, sizeof *unit);
    if (!unit)
        return NULL;
    unit->n = n;
    unit->fine = 1;
    while (unit->fine * unit->fine < n)
        unit->fine *= 2;
    int64_t coarse = n / unit->fine + 1;
    unit->table = mfi_alloc((size_t)(unit->fine + coarse) * sizeof *unit->table);
    if (!unit->table) {
        mf_free(unit);
        return NULL;
    }
    for (int64_t i = 0; i < unit->fine + coarse; i++) {
        int64_t k = i < unit->fine ? i : (i - unit->fine) * unit->fine;
        unit->table[i][0] = cosl(tau * (long double)k / (long double)n);
        unit->table[i][1] = sinl(tau * (long double)k / (long double)n);
    }
    return unit;
}

void mfi_unit_get(const mfi_unit *unit, int64_t k, double *cosine, double *sine)
{
    /* fold into the first quarter turn, so that symmetric values are equal to the bit and the axes are exact */
    int64_t n = unit->n, e = 2 * k > n ? n - k : k;
    bool obtuse = 4 * e > n && n % 2 == 0;
    int64_t folded = obtuse ? n / 2 - e : e;
    const long double *a = unit->table[folded % unit->fine], *b = unit->table[unit->fine + folded / unit->fine];
    long double c = a[0] * b[0] - a[1] * b[1], s = a[0] * b[1] + a[1] * b[0];
    if (4 * folded == n)
        c = 0, s = 1;
    *cosine = (double)(obtuse ? -c : c);
    *sine = (double)(2 * k > n ? -s : s);
}

void mfi_unit_free(mfi_unit *unit)
{
    if (unit)
        mf_free(unit->table);
    mf_free(unit);
}

/* ---- passes ---- */

#define EACH2(M) M(0) M(1)
#define EACH3(M) EACH2(M) M(2)
#define EACH4(M) EACH3(M) M(3)
#define EACH5(M) EACH4(M) M(4)
#define EACH8(M) EACH5(M) M(5) M(6) M(7)
#define FROM1_2(M) M(1)
#define FROM1_3(M) M(1) M(2)
#define FROM1_4(M) FROM1_3(M) M(3)
#define FROM1_5(M) FROM1_4(M) M(4)
#define FROM1_8(M) FROM1_5(M) M(5) M(6) M(7)

#define BUTTERFLY2(V)                                                                                                  \
    {                                                                                                                  \
        V tr = ar[0] - ar[1], ti = ai[0] - ai[1];                                                                      \
        ar[0] += ar[1], ai[0] += ai[1];                                                                                \
        ar[1] = tr, ai[1] = ti;                                                                                        \
    }
#define BUTTERFLY3(V)                                                                                                  \
    {                                                                                                                  \
        const V c = (V){0} + (float)0.5, s = (V){0} + ROOT3_2;                                                         \
        V tr = ar[1] + ar[2], ti = ai[1] + ai[2], ur = (ar[1] - ar[2]) * s, ui = (ai[1] - ai[2]) * s;                  \
        V mr = ar[0] - tr * c, mi = ai[0] - ti * c;                                                                    \
        ar[0] += tr, ai[0] += ti;                                                                                      \
        ar[1] = mr + ui, ai[1] = mi - ur;                                                                              \
        ar[2] = mr - ui, ai[2] = mi + ur;                                                                              \
    }
/* Radix 4 on the elements a, b, c, d; results are left there in the order 0, 1, 2, 3. */
#define FOUR(V, a, b, c, d)                                                                                            \
    {                                                                                                                  \
        V t0r = ar[a] + ar[c], t0i = ai[a] + ai[c], t1r = ar[a] - ar[c], t1i = ai[a] - ai[c];                          \
        V t2r = ar[b] + ar[d], t2i = ai[b] + ai[d], t3r = ar[b] - ar[d], t3i = ai[b] - ai[d];                          \
        ar[a] = t0r + t2r, ai[a] = t0i + t2i, ar[c] = t0r - t2r, ai[c] = t0i - t2i;                                    \
        ar[b] = t1r + t3i, ai[b] = t1i - t3r, ar[d] = t1r - t3i, ai[d] = t1i + t3r;                                    \
    }
#define BUTTERFLY4(V) FOUR(V, 0, 1, 2, 3)
#define BUTTERFLY5(V)                                                                                                  \
    {                                                                                                                  \
        V t1r = ar[1] + ar[4], t1i = ai[1] + ai[4], u1r = ar[1] - ar[4], u1i = ai[1] - ai[4];                          \
        V t2r = ar[2] + ar[3], t2i = ai[2] + ai[3], u2r = ar[2] - ar[3], u2i = ai[2] - ai[3];                          \
        V x1r = ar[0] + t1r * COS72 - t2r * COS36, x1i = ai[0] + t1i * COS72 - t2i * COS36;                            \
        V x2r = ar[0] - t1r * COS36 + t2r * COS72, x2i = ai[0] - t1i * COS36 + t2i * COS72;                            \
        V y1r = u1r * SIN72 + u2r * SIN36, y1i = u1i * SIN72 + u2i * SIN36;                                            \
        V y2r = u1r * SIN36 - u2r * SIN72, y2i = u1i * SIN36 - u2i * SIN72;                                            \
        ar[0] += t1r + t2r, ai[0] += t1i + t2i;                                                                        \
        ar[1] = x1r + y1i, ai[1] = x1i - y1r, ar[4] = x1r - y1i, ai[4] = x1i + y1r;                                    \
        ar[2] = x2r + y2i, ai[2] = x2i - y2r, ar[3] = x2r - y2i, ai[3] = x2i + y2r;                                    \
    }
#define BUTTERFLY8(V)                                                                                                  \
    {                                                                                                                  \
        FOUR(V, 0, 2, 4, 6)                                                                                            \
        FOUR(V, 1, 3, 5, 7)                                                                                            \
        V b1r = (ar[3] + ai[3]) * ROOT1_2, b1i = (ai[3] - ar[3]) * ROOT1_2;                                            \
        V b3r = (ai[7] - ar[7]) * ROOT1_2, b3i = (ar[7] + ai[7]) * -ROOT1_2;                                           \
        V b0r = ar[1], b0i = ai[1], b2r = ai[5], b2i = -ar[5];                                                         \
        V e0r = ar[0], e0i = ai[0], e1r = ar[2], e1i = ai[2], e2r = ar[4], e2i = ai[4], e3r = ar[6], e3i = ai[6];      \
        ar[0] = e0r + b0r, ai[0] = e0i + b0i, ar[4] = e0r - b0r, ai[4] = e0i - b0i;                                    \
        ar[1] = e1r + b1r, ai[1] = e1i + b1i, ar[5] = e1r - b1r, ai[5] = e1i - b1i;                                    \
        ar[2] = e2r + b2r, ai[2] = e2i + b2i, ar[6] = e2r - b2r, ai[6] = e2i - b2i;                                    \
        ar[3] = e3r + b3r, ai[3] = e3i + b3i, ar[7] = e3r - b3r, ai[7] = e3i - b3i;                                    \
    }
#define ROOT3_2 ((T)0.866025403784438646763723170752936183)
#define ROOT1_2 ((T)0.707106781186547524400844362104849039)
#define COS72 ((T)0.309016994374947424102293417182819059)
#define COS36 ((T)0.809016994374947424102293417182819059)
#define SIN72 ((T)0.951056516295153572116439333379382143)
#define SIN36 ((T)0.587785252292473129168705954639072769)

typedef float floats __attribute__((vector_size(32)));
typedef float floats_unaligned __attribute__((vector_size(32), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(32)));
typedef double doubles_unaligned __attribute__((vector_size(32), aligned(8), may_alias));

#define T float
#define VT floats
#define VU floats_unaligned
#define LANES 8
#define FN(name) name##_f32
#define TARGET
#include "fft_ref_passes.h"
#define T double
#define VT doubles
#define VU doubles_unaligned
#define LANES 4
#define FN(name) name##_f64
#define TARGET
#include "fft_ref_passes.h"
#if defined(__x86_64__)
#define T float
#define VT floats
#define VU floats_unaligned
#define LANES 8
#define FN(name) name##_f32_avx2
#define TARGET __attribute__((target("avx2")))
#include "fft_ref_passes.h"
#define T double
#define VT doubles
#define VU doubles_unaligned
#define LANES 4
#define FN(name) name##_f64_avx2
#define TARGET __attribute__((target("avx2")))
#include "fft_ref_passes.h"
#endif

static pass_function *choose_pass(bool f64)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return f64 ? pass_f64_avx2 : pass_f32_avx2;
#endif
    return f64 ? pass_f64 : pass_f32;
}

/* ---- planning ---- */

/* Factors of n in the order of the passes, 8 and 4 first; 0 if one is too large. */
static int factorise(int64_t n, int *radix)
{
    int count = 0;
    while (n % 8 == 0 && n != 16)
        radix[count++] = 8, n /= 8;
    while (n % 4 == 0)
        radix[count++] = 4, n /= 4;
    if (n % 2 == 0)
        radix[count++] = 2, n /= 2;
    for (int f = 3; f <= MAX_RADIX && n > 1; f += 2)
        while (n % f == 0)
            radix[count++] = f, n /= f;
    return n == 1 ? count : 0;
}

static mf_status fill_table(void **out, bool f64, int64_t count, const mfi_unit *unit, int64_t rows, bool sine)
{
    size_t bytes = (size_t)(rows * count) * (f64 ? sizeof(double) : sizeof(float));
    *out = mfi_alloc_aligned(bytes);
    if (!*out)
        return MFI_NO_MEMORY(bytes);
    int64_t step = unit->n / (rows ? (rows + 1) * count : 1);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t p = 0; p < count; p++) {
            double c, s;
            mfi_unit_get(unit, (row + 1) * p * step % unit->n, &c, &s);
            double value = sine ? -s : c;
            if (f64)
                ((double *)*out)[row * count + p] = value;
            else
                ((float *)*out)[row * count + p] = (float)value;
        }
    return MF_OK;
}

/* cos and sin of 2 pi j / radix, j < radix. */
static mf_status fill_roots(fft_pass *pass, bool f64, const mfi_unit *unit)
{
    size_t bytes = (size_t)pass->radix * (f64 ? sizeof(double) : sizeof(float));
    pass->root_cosine = mfi_alloc_aligned(bytes);
    pass->root_sine = mfi_alloc_aligned(bytes);
    if (!pass->root_cosine || !pass->root_sine)
        return MFI_NO_MEMORY(2 * bytes);
    for (int j = 0; j < pass->radix; j++) {
        double c, s;
        mfi_unit_get(unit, unit->n / pass->radix * j, &c, &s);
        if (f64)
            ((double *)pass->root_cosine)[j] = c, ((double *)pass->root_sine)[j] = s;
        else
            ((float *)pass->root_cosine)[j] = (float)c, ((float *)pass->root_sine)[j] = (float)s;
    }
    return MF_OK;
}

static mf_status plan_passes(mfi_fft1 *plan, const int *radix, int count)
{
    mfi_unit *unit = mfi_unit_new(plan->n);
    if (!unit)
        return MFI_NO_MEMORY(sizeof *unit);
    mf_status status = MF_OK;
    int64_t left = plan->n;
    for (int i = 0; i < count && status == MF_OK; i++) {
        fft_pass *pass = &plan->pass[plan->passes++];
        pass->radix = radix[i];
        pass->m = left /= radix[i];
        status = fill_table(&pass->cosine, plan->f64, pass->m, unit, radix[i] - 1, false);
        if (status == MF_OK)
            status = fill_table(&pass->sine, plan->f64, pass->m, unit, radix[i] - 1, true);
        if (status == MF_OK && radix[i] > 5 && radix[i] != 8)
            status = fill_roots(pass, plan->f64, unit);
    }
    mfi_unit_free(unit);
    return status;
}

/* The cheapest length >= n with factors 2, 3 and 5 only. */
static int64_t fast_length(int64_t n)
{
    int64_t best = INT64_MAX;
    for (int64_t five = 1; five < 5 * n && five < best; five *= 5)
        for (int64_t three = five; three < 3 * n && three < best; three *= 3) {
            int64_t length = three;
            while (length < n)
                length *= 2;
            best = mfi_min64(best, length);
        }
    return best;
}

static mf_status plan_bluestein(mfi_fft1 *plan)
{
    int64_t n = plan->n, m = fast_length(2 * n - 1);
    size_t bytes = (size_t)(2 * n + 2 * m) * sizeof(double);
    MF_TRY(mfi_fft1_new(&plan->inner, m, true));
    plan->chirp_re = mfi_alloc_aligned(bytes);
    void *scratch = mfi_alloc_aligned(mfi_fft1_scratch(plan->inner, 1));
    mfi_unit *unit = mfi_unit_new(2 * n);
    if (!plan->chirp_re || !scratch || !unit) {
        mfi_free_aligned(scratch);
        mfi_unit_free(unit);
        return MFI_NO_MEMORY(bytes);
    }
    plan->chirp_im = plan->chirp_re + n;
    plan->filter_re = plan->chirp_im + n;
    plan->filter_im = plan->filter_re + m;
    memset(plan->filter_re, 0, 2 * (size_t)m * sizeof(double));
    int64_t square = 0; /* k^2 mod 2 n */
    for (int64_t k = 0; k < n; k++) {
        double c, s;
        mfi_unit_get(unit, square, &c, &s);
        plan->chirp_re[k] = c;
        plan->chirp_im[k] = -s;
        plan->filter_re[k] = plan->filter_re[k ? m - k : 0] = c / (double)m;
        plan->filter_im[k] = plan->filter_im[k ? m - k : 0] = s / (double)m;
        square += 2 * k + 1;
        if (square >= 2 * n)
            square -= 2 * n;
    }
    mfi_fft1_run(plan->inner, plan->filter_re, plan->filter_im, 1, false, scratch);
    mfi_free_aligned(scratch);
    mfi_unit_free(unit);
    return MF_OK;
}

mf_status mfi_fft1_new(mfi_fft1 **out, int64_t n, bool f64)
{
    *out = NULL;
    MF_REQUIRE(n >= 1 && n <= (int64_t)1 << 46, MF_E_SHAPE, "FFT of length %lld; lengths from 1 to 2^46 are allowed",
               (long long)n);
    mfi_fft1 *plan = mfi_calloc(1, sizeof *plan);
    if (!plan)
        return MFI_NO_MEMORY(sizeof *plan);
    plan->n = n;
    plan->f64 = f64;
    plan->run = choose_pass(f64);
    int radix[MAX_PASSES];
    int count = factorise(n, radix);
    mf_status status = count || n == 1 ? plan_passes(plan, radix, count) : plan_bluestein(plan);
    if (status != MF_OK) {
        mfi_fft1_free(plan);
        return status;
    }
    *out = plan;
    return MF_OK;
}

void mfi_fft1_free(mfi_fft1 *plan)
{
    if (!plan)
        return;
    for (int i = 0; i < plan->passes; i++) {
        mfi_free_aligned(plan->pass[i].cosine);
        mfi_free_aligned(plan->pass[i].sine);
        mfi_free_aligned(plan->pass[i].root_cosine);
        mfi_free_aligned(plan->pass[i].root_sine);
    }
    mfi_fft1_free(plan->inner);
    mfi_free_aligned(plan->chirp_re);
    mf_free(plan);
}

/* ---- running ---- */

size_t mfi_fft1_scratch(const mfi_fft1 *plan, int64_t columns)
{
    if (plan->inner)
        return mfi_align_up(2 * (size_t)(plan->inner->n * columns) * sizeof(double), 64) +
               mfi_fft1_scratch(plan->inner, columns);
    return mfi_align_up(2 * (size_t)(plan->n * columns) * (plan->f64 ? sizeof(double) : sizeof(float)), 64);
}

static double get(const void *data, bool f64, int64_t i)
{
    return f64 ? ((const double *)data)[i] : ((const float *)data)[i];
}

static void put(void *data, bool f64, int64_t i, double value)
{
    if (f64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

static void run_bluestein(const mfi_fft1 *plan, void *re, void *im, int64_t columns, void *scratch)
{
    int64_t n = plan->n, m = plan->inner->n;
    double *ar = scratch, *ai = ar + m * columns;
    void *rest = (char *)scratch + mfi_align_up(2 * (size_t)(m * columns) * sizeof(double), 64);
    for (int64_t k = 0; k < n; k++)
        for (int64_t c = k * columns; c < (k + 1) * columns; c++) {
            double xr = get(re, plan->f64, c), xi = get(im, plan->f64, c);
            ar[c] = xr * plan->chirp_re[k] - xi * plan->chirp_im[k];
            ai[c] = xr * plan->chirp_im[k] + xi * plan->chirp_re[k];
        }
    memset(ar + n * columns, 0, (size_t)((m - n) * columns) * sizeof(double));
    memset(ai + n * columns, 0, (size_t)((m - n) * columns) * sizeof(double));
    mfi_fft1_run(plan->inner, ar, ai, columns, false, rest);
    for (int64_t k = 0; k < m; k++)
        for (int64_t c = k * columns; c < (k + 1) * columns; c++) {
            double xr = ar[c], xi = ai[c];
            ar[c] = xr * plan->filter_re[k] - xi * plan->filter_im[k];
            ai[c] = xr * plan->filter_im[k] + xi * plan->filter_re[k];
        }
    mfi_fft1_run(plan->inner, ar, ai, columns, true, rest);
    for (int64_t k = 0; k < n; k++)
        for (int64_t c = k * columns; c < (k + 1) * columns; c++) {
            put(re, plan->f64, c, ar[c] * plan->chirp_re[k] - ai[c] * plan->chirp_im[k]);
            put(im, plan->f64, c, ar[c] * plan->chirp_im[k] + ai[c] * plan->chirp_re[k]);
        }
}

void mfi_fft1_run(const mfi_fft1 *plan, void *re, void *im, int64_t columns, bool inverse, void *scratch)
{
    if (inverse) { /* with real and imaginary parts exchanged, the forward transform is the inverse one */
        void *swap = re;
        re = im;
        im = swap;
    }
    if (plan->inner) {
        run_bluestein(plan, re, im, columns, scratch);
        return;
    }
    size_t bytes = (size_t)(plan->n * columns) * (plan->f64 ? sizeof(double) : sizeof(float));
    void *from[2] = {re, im}, *to[2] = {scratch, (char *)scratch + bytes};
    int64_t s = columns;
    for (int i = 0; i < plan->passes; i++) {
        plan->run(&plan->pass[i], s, (const void *const *)from, to);
        s *= plan->pass[i].radix;
        for (int part = 0; part < 2; part++) {
            void *swap = from[part];
            from[part] = to[part];
            to[part] = swap;
        }
    }
    if (from[0] != re) {
        memcpy(re, from[0], bytes);
        memcpy(im, from[1], bytes);
    }
}
