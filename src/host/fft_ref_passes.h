/* One Stockham pass per radix; included by fft_ref.c once per precision and instruction set.
 *
 * Needs T, VT (a vector of LANES of T), VU (the same, unaligned), LANES, FN(name) and TARGET.
 * A pass of radix R over signals of current length R * m, `s` of them side by side:
 *   y[q + s (R p + k)] = w^(p k) sum_j x[q + s (p + m j)] exp(-2 pi i j k / R),   q < s, p < m, k < R
 * with w^(p k) at [(k - 1) m + p] of the table. */

#define PASS_ARGUMENTS                                                                                                 \
    int64_t m, int64_t s, int64_t p, const T *restrict xr, const T *restrict xi, T *restrict yr, T *restrict yi,       \
        const T *restrict wr, const T *restrict wi

#define LOAD_SCALAR(j) ar[j] = xr[q + s * (p + m * (j))], ai[j] = xi[q + s * (p + m * (j))];
#define LOAD_VECTOR(j)                                                                                                 \
    ar[j] = *(const VU *)(xr + q + s * (p + m * (j))), ai[j] = *(const VU *)(xi + q + s * (p + m * (j)));
#define TURN(k)                                                                                                        \
    if (turned) {                                                                                                      \
        T cr = wr[((k)-1) * m + p], ci = wi[((k)-1) * m + p];                                                          \
        br = ar[k] * cr - ai[k] * ci;                                                                                  \
        bi = ar[k] * ci + ai[k] * cr;                                                                                  \
    }
#define STORE_SCALAR(k)                                                                                                \
    {                                                                                                                  \
        T br = ar[k], bi = ai[k];                                                                                      \
        TURN(k)                                                                                                        \
        yr[q + s * (radix * p + (k))] = br, yi[q + s * (radix * p + (k))] = bi;                                        \
    }
#define STORE_VECTOR(k)                                                                                                \
    {                                                                                                                  \
        VT br = ar[k], bi = ai[k];                                                                                     \
        TURN(k)                                                                                                        \
        *(VU *)(yr + q + s * (radix * p + (k))) = br, *(VU *)(yi + q + s * (radix * p + (k))) = bi;                    \
    }
#define STORE_FIRST(STORE)                                                                                             \
    {                                                                                                                  \
        const bool turned = false;                                                                                     \
        STORE(0)                                                                                                       \
    }

/* Along q, with one twiddle factor for all: the way of every pass but the first of a single signal. */
#define DEFINE_ALONG_Q(R, EACH, FROM1, BUTTERFLY)                                                                      \
    TARGET static inline __attribute__((always_inline)) void FN(along_q##R)(PASS_ARGUMENTS, const bool turned)         \
    {                                                                                                                  \
        const int64_t radix = R;                                                                                       \
        int64_t q = 0;                                                                                                 \
        for (; q + LANES <= s; q += LANES) {                                                                           \
            VT ar[R], ai[R];                                                                                           \
            EACH(LOAD_VECTOR)                                                                                          \
            BUTTERFLY(VT)                                                                                              \
            STORE_FIRST(STORE_VECTOR)                                                                                  \
            FROM1(STORE_VECTOR)                                                                                        \
        }                                                                                                              \
        for (; q < s; q++) {                                                                                           \
            T ar[R], ai[R];                                                                                            \
            EACH(LOAD_SCALAR)                                                                                          \
            BUTTERFLY(T)                                                                                               \
            STORE_FIRST(STORE_SCALAR)                                                                                  \
            FROM1(STORE_SCALAR)                                                                                        \
        }                                                                                                              \
    }

/* Along p, for s = 1: neighbours have their own factors, and results are spread out by the radix. */
#define LOAD_ALONG_P(j) ar[j] = *(const VU *)(xr + p + m * (j)), ai[j] = *(const VU *)(xi + p + m * (j));
#define TURN_ALONG_P(k)                                                                                                \
    {                                                                                                                  \
        VT cr = *(const VU *)(wr + ((k)-1) * m + p), ci = *(const VU *)(wi + ((k)-1) * m + p);                         \
        VT br = ar[k] * cr - ai[k] * ci;                                                                               \
        ai[k] = ar[k] * ci + ai[k] * cr;                                                                               \
        ar[k] = br;                                                                                                    \
    }
#define SPREAD(k)                                                                                                      \
    for (int l = 0; l < LANES; l++)                                                                                    \
        yr[radix * (p + l) + (k)] = ar[k][l], yi[radix * (p + l) + (k)] = ai[k][l];

#define DEFINE_PASS(R, EACH, FROM1, BUTTERFLY)                                                                         \
    DEFINE_ALONG_Q(R, EACH, FROM1, BUTTERFLY)                                                                          \
    TARGET static void FN(pass##R)(PASS_ARGUMENTS)                                                                     \
    {                                                                                                                  \
        const int64_t radix = R;                                                                                       \
        if (s == 1)                                                                                                    \
            for (; p + LANES <= m; p += LANES) {                                                                       \
                VT ar[R], ai[R];                                                                                       \
                EACH(LOAD_ALONG_P)                                                                                     \
                BUTTERFLY(VT)                                                                                          \
                FROM1(TURN_ALONG_P)                                                                                    \
                EACH(SPREAD)                                                                                           \
            }                                                                                                          \
        if (p == 0)                                                                                                    \
            FN(along_q##R)(m, s, p++, xr, xi, yr, yi, wr, wi, false);                                                  \
        for (; p < m; p++)                                                                                             \
            FN(along_q##R)(m, s, p, xr, xi, yr, yi, wr, wi, true);                                                     \
    }

DEFINE_PASS(2, EACH2, FROM1_2, BUTTERFLY2)
DEFINE_PASS(3, EACH3, FROM1_3, BUTTERFLY3)
DEFINE_PASS(4, EACH4, FROM1_4, BUTTERFLY4)
DEFINE_PASS(5, EACH5, FROM1_5, BUTTERFLY5)
DEFINE_PASS(8, EACH8, FROM1_8, BUTTERFLY8)

/* Any odd radix: pairs a_j +- a_(r-j) against a table of cosines and sines, r of each. */
#define SUM_PAIRS(V)                                                                                                   \
    V tr[MAX_RADIX / 2 + 1], ti[MAX_RADIX / 2 + 1], ur[MAX_RADIX / 2 + 1], ui[MAX_RADIX / 2 + 1];                      \
    V sum_r = ar[0], sum_i = ai[0];                                                                                    \
    for (int j = 1; j <= half; j++) {                                                                                  \
        tr[j] = ar[j] + ar[radix - j], ti[j] = ai[j] + ai[radix - j];                                                  \
        ur[j] = ar[j] - ar[radix - j], ui[j] = ai[j] - ai[radix - j];                                                  \
        sum_r += tr[j], sum_i += ti[j];                                                                                \
    }                                                                                                                  \
    V first_r = ar[0], first_i = ai[0];                                                                                \
    ar[0] = sum_r, ai[0] = sum_i;                                                                                      \
    for (int k = 1; k <= half; k++) {                                                                                  \
        V er = first_r + tr[1] * cosine[k], ei = first_i + ti[1] * cosine[k];                                          \
        V or_ = ur[1] * sine[k], oi = ui[1] * sine[k];                                                                 \
        for (int j = 2, jk = 2 * k % radix; j <= half; j++, jk = (jk + k) % radix) {                                   \
            er += tr[j] * cosine[jk], ei += ti[j] * cosine[jk];                                                        \
            or_ += ur[j] * sine[jk], oi += ui[j] * sine[jk];                                                           \
        }                                                                                                              \
        ar[k] = er + oi, ai[k] = ei - or_;                                                                             \
        ar[radix - k] = er - oi, ai[radix - k] = ei + or_;                                                             \
    }

TARGET static void FN(pass_odd)(int radix, const T *cosine, const T *sine, PASS_ARGUMENTS)
{
    if (radix < 3 || radix > MAX_RADIX)
        __builtin_unreachable();
    const int half = radix / 2;
    for (; p < m; p++) {
        const bool turned = p > 0;
        int64_t q = 0;
        for (; q + LANES <= s; q += LANES) {
            VT ar[MAX_RADIX], ai[MAX_RADIX];
            LOAD_VECTOR(0)
            for (int j = 1; j < radix; j++) {
                LOAD_VECTOR(j)
            }
            SUM_PAIRS(VT)
            STORE_FIRST(STORE_VECTOR)
            for (int k = 1; k < radix; k++)
                STORE_VECTOR(k)
        }
        for (; q < s; q++) {
            T ar[MAX_RADIX], ai[MAX_RADIX];
            LOAD_SCALAR(0)
            for (int j = 1; j < radix; j++) {
                LOAD_SCALAR(j)
            }
            SUM_PAIRS(T)
            STORE_FIRST(STORE_SCALAR)
            for (int k = 1; k < radix; k++)
                STORE_SCALAR(k)
        }
    }
}

static void FN(pass)(const fft_pass *pass, int64_t s, const void *const x[2], void *const y[2])
{
    const T *xr = x[0], *xi = x[1], *wr = pass->cosine, *wi = pass->sine;
    T *yr = y[0], *yi = y[1];
    switch (pass->radix) {
    case 2:
        FN(pass2)(pass->m, s, 0, xr, xi, yr, yi, wr, wi);
        break;
    case 3:
        FN(pass3)(pass->m, s, 0, xr, xi, yr, yi, wr, wi);
        break;
    case 4:
        FN(pass4)(pass->m, s, 0, xr, xi, yr, yi, wr, wi);
        break;
    case 5:
        FN(pass5)(pass->m, s, 0, xr, xi, yr, yi, wr, wi);
        break;
    case 8:
        FN(pass8)(pass->m, s, 0, xr, xi, yr, yi, wr, wi);
        break;
    default:
        FN(pass_odd)(pass->radix, pass->root_cosine, pass->root_sine, pass->m, s, 0, xr, xi, yr, yi, wr, wi);
    }
}

#undef T
#undef VT
#undef VU
#undef LANES
#undef FN
#undef TARGET
#undef PASS_ARGUMENTS
#undef LOAD_SCALAR
#undef LOAD_VECTOR
#undef TURN
#undef STORE_SCALAR
#undef STORE_VECTOR
#undef STORE_FIRST
#undef DEFINE_ALONG_Q
#undef LOAD_ALONG_P
#undef TURN_ALONG_P
#undef SPREAD
#undef DEFINE_PASS
#undef SUM_PAIRS
