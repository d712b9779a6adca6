/* Dense solvers in one compute type over LANES matrices side by side; included by ref_solve.c.
 *
 * Needs T (float or double), L (T, or a vector of LANES of T), LANES, COMPLEX, FN(name) and TARGET. A matrix is an
 * array of E, row by row; lane v of an element belongs to the v-th matrix. */

typedef struct FN(element) {
    L re;
#if COMPLEX
    L im;
#endif
} FN(element);
#define E FN(element)

#if COMPLEX
#define SUBTRACT_PRODUCT(c, a, b)                                                                                      \
    ((c).re -= (a).re * (b).re - (a).im * (b).im, (c).im -= (a).re * (b).im + (a).im * (b).re)
#define SUBTRACT_CONJUGATE(c, a, b) /* c -= a conj(b) */                                                               \
    ((c).re -= (a).re * (b).re + (a).im * (b).im, (c).im -= (a).im * (b).re - (a).re * (b).im)
#define DIVIDE_REAL(c, s) ((c).re /= (s), (c).im /= (s))
#else
#define SUBTRACT_PRODUCT(c, a, b) ((c).re -= (a).re * (b).re)
#define SUBTRACT_CONJUGATE(c, a, b) ((c).re -= (a).re * (b).re)
#define DIVIDE_REAL(c, s) ((c).re /= (s))
#endif

/* |re| + |im|, LAPACK's measure of a pivot. */
static inline T FN(magnitude)(const E *e, int v)
{
    T size = FABS(((const T *)&e->re)[v]);
#if COMPLEX
    size += FABS(((const T *)&e->im)[v]);
#endif
    return size;
}

/* The divisor of a row: 1 where a lane's is exactly 0, so that lanes that failed stay quiet. Notes the failure. */
static inline void FN(check_zero)(E *d, int64_t k, int32_t *info)
{
    for (int v = 0; v < LANES; v++)
        if (FN(magnitude)(d, v) == 0) {
            info[v] = info[v] ? info[v] : (int32_t)(k + 1);
            ((T *)&d->re)[v] = 1;
        }
}

/* row /= d, elementwise over `count` elements; scaled so that no intermediate overflows. */
TARGET static void FN(divide)(E *restrict row, int64_t count, const E *d)
{
#if COMPLEX
    E w;
    for (int v = 0; v < LANES; v++) {
        T re = ((const T *)&d->re)[v], im = ((const T *)&d->im)[v], s = 1 / FN(magnitude)(d, v);
        re *= s, im *= s;
        T t = s / (re * re + im * im);
        ((T *)&w.re)[v] = re * t, ((T *)&w.im)[v] = -im * t;
    }
    for (int64_t j = 0; j < count; j++) {
        L re = row[j].re * w.re - row[j].im * w.im;
        row[j].im = row[j].re * w.im + row[j].im * w.re;
        row[j].re = re;
    }
#else
    for (int64_t j = 0; j < count; j++)
        row[j].re /= d->re;
#endif
}

/* The lower factor of the lower triangle of m; `column` has room for n elements. */
TARGET static void FN(cholesky)(int64_t n, E *m, E *column, int32_t *info)
{
    for (int64_t k = 0; k < n; k++) {
        E *pivot = &m[k * n + k];
        L root;
        for (int v = 0; v < LANES; v++) {
            T d = ((T *)&pivot->re)[v];
            if (!(d > 0)) { /* NaN fails too */
                info[v] = info[v] ? info[v] : (int32_t)(k + 1);
                d = 1;
            }
            ((T *)&root)[v] = SQRT(d);
        }
        pivot->re = root;
#if COMPLEX
        pivot->im = root * 0;
#endif
        for (int64_t i = k + 1; i < n; i++) {
            E f = m[i * n + k];
            DIVIDE_REAL(f, root);
            m[i * n + k] = column[i] = f;
            E *restrict row = m + i * n;
            for (int64_t j = k + 1; j <= i; j++)
                SUBTRACT_CONJUGATE(row[j], f, column[j]);
        }
    }
}

static void FN(swap_rows)(E *a, E *b, int64_t count, int v)
{
    const int parts = (int)(sizeof(E) / sizeof(L));
    for (int64_t j = 0; j < count; j++)
        for (int part = 0; part < parts; part++) {
            T *x = (T *)(a + j) + part * LANES + v, *y = (T *)(b + j) + part * LANES + v, t = *x;
            *x = *y;
            *y = t;
        }
}

/* Bring the largest element of column k at or below the diagonal onto it, in each lane; NaN counts as the largest. */
static void FN(pivot)(int64_t n, int64_t nrhs, int64_t k, E *m, E *b)
{
    for (int v = 0; v < LANES; v++) {
        int64_t best = k;
        T most = FN(magnitude)(&m[k * n + k], v);
        for (int64_t i = k + 1; i < n && most == most; i++) {
            T size = FN(magnitude)(&m[i * n + k], v);
            if (!(size <= most)) {
                most = size;
                best = i;
            }
        }
        if (best != k) {
            FN(swap_rows)(m + k * n + k, m + best * n + k, n - k, v);
            FN(swap_rows)(b + k * nrhs, b + best * nrhs, nrhs, v);
        }
    }
}

/* row_i -= f row_k */
TARGET static inline void FN(eliminate)(E *restrict row, const E *restrict by, const E *factor, int64_t count)
{
    const E f = *factor;
    for (int64_t j = 0; j < count; j++)
        SUBTRACT_PRODUCT(row[j], f, by[j]);
}

/* b becomes the solution of the triangular system below or above the diagonal of m. */
TARGET static void FN(substitute)(int64_t n, int64_t nrhs, const E *m, E *b, bool lower, bool unit, int32_t *info)
{
    for (int64_t k = 0; k < n && !unit; k++) { /* the first zero counts, whatever the order of substitution */
        E d = m[k * n + k];
        FN(check_zero)(&d, k, info);
    }
    for (int64_t step = 0; step < n; step++) {
        int64_t i = lower ? step : n - 1 - step;
        for (int64_t done = 0; done < step; done++) {
            int64_t k = lower ? done : n - 1 - done;
            FN(eliminate)(b + i * nrhs, b + k * nrhs, &m[i * n + k], nrhs);
        }
        if (unit)
            continue;
        E d = m[i * n + i];
        FN(check_zero)(&d, i, info);
        FN(divide)(b + i * nrhs, nrhs, &d);
    }
}

/* b becomes the solution of m^H x = b, m lower. */
TARGET static void FN(substitute_adjoint)(int64_t n, int64_t nrhs, const E *m, E *b, int32_t *info)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        E d = m[i * n + i];
#if COMPLEX
        d.im = -d.im;
#endif
        FN(check_zero)(&d, i, info);
        FN(divide)(b + i * nrhs, nrhs, &d);
        for (int64_t k = 0; k < i; k++) {
            E f = m[i * n + k];
#if COMPLEX
            f.im = -f.im;
#endif
            FN(eliminate)(b + k * nrhs, b + i * nrhs, &f, nrhs);
        }
    }
}

TARGET static void FN(lu_solve)(int64_t n, int64_t nrhs, E *m, E *b, int32_t *info)
{
    for (int64_t k = 0; k < n; k++) {
        FN(pivot)(n, nrhs, k, m, b);
        FN(check_zero)(&m[k * n + k], k, info);
        for (int64_t i = k + 1; i < n; i++) {
            E f = m[i * n + k];
            FN(divide)(&f, 1, &m[k * n + k]);
            FN(eliminate)(m + i * n + k + 1, m + k * n + k + 1, &f, n - k - 1);
            FN(eliminate)(b + i * nrhs, b + k * nrhs, &f, nrhs);
        }
    }
    FN(substitute)(n, nrhs, m, b, false, false, info);
}

static void FN(compute)(const solve_group *g)
{
    E *m = g->m, *b = g->b;
    switch (g->solver) {
    case MFI_CHOLESKY:
        FN(cholesky)(g->n, m, g->column, g->info);
        break;
    case MFI_LU_SOLVE:
        FN(lu_solve)(g->n, g->nrhs, m, b, g->info);
        break;
    case MFI_POSV:
        FN(cholesky)(g->n, m, g->column, g->info);
        FN(substitute)(g->n, g->nrhs, m, b, true, false, g->info);
        FN(substitute_adjoint)(g->n, g->nrhs, m, b, g->info);
        break;
    case MFI_CHO_SOLVE:
        FN(substitute)(g->n, g->nrhs, m, b, true, false, g->info);
        FN(substitute_adjoint)(g->n, g->nrhs, m, b, g->info);
        break;
    default:
        FN(substitute)(g->n, g->nrhs, m, b, g->lower, g->unit, g->info);
    }
}

/* Lane v of a rows x cols matrix from memory; of a triangle only that part is read. */
static void FN(load)(void *to, int v, const solve_source *s)
{
    const int parts = (int)(sizeof(E) / sizeof(L));
    for (int64_t i = 0; i < s->rows; i++) {
        int64_t j0 = s->triangle == UPPER_PART ? i + s->strict : 0;
        int64_t j1 = s->triangle == LOWER_PART ? i + 1 - s->strict : s->cols;
        T *dst = (T *)((E *)to + i * s->cols) + v;
        for (int64_t j = j0; j < j1; j++) {
            const T *src = (const T *)s->data + (i * s->rs + j * s->cs) * parts;
            dst[j * parts * LANES] = src[0];
            if (parts == 2)
                dst[j * parts * LANES + LANES] = s->conjugate ? -src[parts - 1] : src[parts - 1];
        }
    }
}

/* The other way; a triangle is completed with zeros, a failed result is all NaN. */
static void FN(store)(const void *from, int v, const solve_source *s, bool failed)
{
    const int parts = (int)(sizeof(E) / sizeof(L));
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->cols; j++) {
            const T *src = (const T *)((const E *)from + i * s->cols + j) + v;
            T *dst = (T *)s->data + (i * s->rs + j * s->cs) * parts;
            bool outside = s->triangle == LOWER_PART && j > i;
            for (int part = 0; part < parts; part++) {
                T value = part && s->conjugate ? -src[part * LANES] : src[part * LANES];
                dst[part] = outside ? 0 : failed ? (T)NAN : value;
            }
        }
}

#undef E
#undef T
#undef L
#undef LANES
#undef FN
#undef TARGET
#undef FABS
#undef SQRT
#undef SUBTRACT_PRODUCT
#undef SUBTRACT_CONJUGATE
#undef DIVIDE_REAL
