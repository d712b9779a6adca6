/* Loops of one type; included by ref_gemm.c. Needs T, FN(name) and COMPLEX. Complex numbers are pairs of T. */

enum { FN(width) = 1 + COMPLEX };

/* c[j] += sum over four rows of b; `a` holds their factors. */
static inline void FN(add_rows)(T *restrict c, const T *restrict b, int64_t bk, const T *a, int64_t n)
{
    const T *b0 = b, *b1 = b + bk * FN(width), *b2 = b1 + bk * FN(width), *b3 = b2 + bk * FN(width);
#if COMPLEX
    const T a0r = a[0], a0i = a[1], a1r = a[2], a1i = a[3], a2r = a[4], a2i = a[5], a3r = a[6], a3i = a[7];
    for (int64_t j = 0; j < 2 * n; j += 2) {
        T re = a0r * b0[j] - a0i * b0[j + 1] + (a1r * b1[j] - a1i * b1[j + 1]);
        T im = a0r * b0[j + 1] + a0i * b0[j] + (a1r * b1[j + 1] + a1i * b1[j]);
        c[j] += re + (a2r * b2[j] - a2i * b2[j + 1] + (a3r * b3[j] - a3i * b3[j + 1]));
        c[j + 1] += im + (a2r * b2[j + 1] + a2i * b2[j] + (a3r * b3[j + 1] + a3i * b3[j]));
    }
#else
    const T a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];
    for (int64_t j = 0; j < n; j++)
        c[j] += a0 * b0[j] + a1 * b1[j] + (a2 * b2[j] + a3 * b3[j]);
#endif
}

static inline void FN(add_row)(T *restrict c, const T *restrict b, const T *a, int64_t n)
{
#if COMPLEX
    const T ar = a[0], ai = a[1];
    for (int64_t j = 0; j < 2 * n; j += 2) {
        c[j] += ar * b[j] - ai * b[j + 1];
        c[j + 1] += ar * b[j + 1] + ai * b[j];
    }
#else
    const T a0 = a[0];
    for (int64_t j = 0; j < n; j++)
        c[j] += a0 * b[j];
#endif
}

static void FN(multiply_block)(const mfi_gemm *g, int64_t l0, int64_t l1, int64_t j0, int64_t j1)
{
    const int w = FN(width);
    for (int64_t i = 0; i < g->m; i++) {
        const T *a = (const T *)g->a + i * g->am * w;
        const T *b = (const T *)g->b + j0 * w;
        T *c = (T *)g->c + (i * g->cm + j0) * w, factor[8];
        int64_t l = l0;
        for (; l + 4 <= l1; l += 4) {
            for (int r = 0; r < 4; r++)
                for (int part = 0; part < w; part++)
                    factor[r * w + part] = a[(l + r) * g->ak * w + part];
            FN(add_rows)(c, b + l * g->bk * w, g->bk, factor, j1 - j0);
        }
        for (; l < l1; l++)
            FN(add_row)(c, b + l * g->bk * w, a + l * g->ak * w, j1 - j0);
    }
}

static void FN(multiply)(const mfi_gemm *g)
{
    for (int64_t i = 0; i < g->m; i++)
        memset((T *)g->c + i * g->cm * FN(width), 0, (size_t)g->n * FN(width) * sizeof(T));
    for (int64_t j = 0; j < g->n; j += BLOCK_N)
        for (int64_t l = 0; l < g->k; l += BLOCK_K)
            FN(multiply_block)(g, l, mfi_min64(l + BLOCK_K, g->k), j, mfi_min64(j + BLOCK_N, g->n));
}

#undef T
#undef FN
