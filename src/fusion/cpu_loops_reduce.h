/* Reduction loops of cpu_loops.c, which includes this once: horizontal folds over lanes whose number does not depend on
 * the instruction set, and column accumulators. */

#define LANES 32

#define SUM_STEP(T, acc, value) ((acc) + (value))
#define PROD_STEP(T, acc, value) ((acc) * (value))
#define WRAP_SUM_STEP(T, acc, value) ((T)((U_##T)(acc) + (U_##T)(value)))
#define WRAP_PROD_STEP(T, acc, value) ((T)((U_##T)(acc) * (U_##T)(value)))
#define MAX_STEP(T, acc, value) ((value) > (acc) || (value) != (value) ? (value) : (acc)) /* a NaN in acc stays */
#define MIN_STEP(T, acc, value) ((value) < (acc) || (value) != (value) ? (value) : (acc))
#define ANY_STEP(T, acc, value) ((acc) | ((value) != 0))
#define ALL_STEP(T, acc, value) ((acc) & ((value) != 0))
#define COMPLEX_PROD_STEP(T, acc, value) m_cmul(acc, value)
#define U_int32_t uint32_t
#define U_int64_t uint64_t

/* How a partial result of a block goes into the wide state. */
M_INLINE void add_double(mfi_acc *acc, int part, double value) /* f64 sums keep what each addition loses */
{
    double old = acc->v[part], sum = old + value, rounded = sum - old;
    acc->v[part + 2] += (old - (sum - rounded)) + (value - rounded);
    acc->v[part] = sum;
}

M_INLINE void times_complex(mfi_acc *acc, double re, double im)
{
    double a = acc->v[0], b = acc->v[1];
    acc->v[0] = a * re - b * im;
    acc->v[1] = a * im + b * re;
}
#define INTO_sum_f32(acc, value) (acc)->v[0] += (double)(value)
#define INTO_sum_f64(acc, value) add_double(acc, 0, value)
#define INTO_sum_c64(acc, value) ((acc)->v[0] += (double)crealf(value), (acc)->v[1] += (double)cimagf(value))
#define INTO_sum_c128(acc, value) (add_double(acc, 0, creal(value)), add_double(acc, 1, cimag(value)))
#define INTO_prod_f32(acc, value) (acc)->v[0] *= (double)(value)
#define INTO_prod_f64(acc, value) (acc)->v[0] *= (value)
#define INTO_prod_c64(acc, value) times_complex(acc, (double)crealf(value), (double)cimagf(value))
#define INTO_prod_c128(acc, value) times_complex(acc, creal(value), cimag(value))
#define INTO_max_f32(acc, value) (acc)->v[0] = MAX_STEP(double, (acc)->v[0], (double)(value))
#define INTO_max_f64 INTO_max_f32
#define INTO_min_f32(acc, value) (acc)->v[0] = MIN_STEP(double, (acc)->v[0], (double)(value))
#define INTO_min_f64 INTO_min_f32
#define INTO_sum_i32(acc, value) (acc)->i = (int64_t)((uint64_t)(acc)->i + (uint64_t)(int64_t)(value))
#define INTO_sum_i64 INTO_sum_i32
#define INTO_prod_i32(acc, value) (acc)->i = (int64_t)((uint64_t)(acc)->i * (uint64_t)(int64_t)(value))
#define INTO_prod_i64 INTO_prod_i32
#define INTO_max_i32(acc, value) (acc)->i = MAX_STEP(int64_t, (acc)->i, (int64_t)(value))
#define INTO_max_i64 INTO_max_i32
#define INTO_min_i32(acc, value) (acc)->i = MIN_STEP(int64_t, (acc)->i, (int64_t)(value))
#define INTO_min_i64 INTO_min_i32
#define INTO_any(acc, value) (acc)->i |= (value)
#define INTO_all(acc, value) (acc)->i &= (value)

#define HALVE(A, STEP, half)                                                                                           \
    for (int j = 0; j < (half); j++)                                                                                   \
        lane[j] = STEP(A, lane[j], lane[j + (half)]);

/* A: type of a narrow accumulator. */
#define REDUCTION(name, suffix, T, A, identity, STEP, INTO)                                                            \
    static void fold_##name##_##suffix(int n, const void *src, mfi_acc *acc)                                           \
    {                                                                                                                  \
        const T *a = src;                                                                                              \
        A total = identity;                                                                                            \
        int i = 0;                                                                                                     \
        if (n >= LANES) {                                                                                              \
            A lane[LANES];                                                                                             \
            for (int j = 0; j < LANES; j++)                                                                            \
                lane[j] = STEP(A, total, a[j]);                                                                        \
            for (i = LANES; i + LANES <= n; i += LANES)                                                                \
                for (int j = 0; j < LANES; j++)                                                                        \
                    lane[j] = STEP(A, lane[j], a[i + j]);                                                              \
            HALVE(A, STEP, 16)                                                                                         \
            HALVE(A, STEP, 8)                                                                                          \
            HALVE(A, STEP, 4)                                                                                          \
            HALVE(A, STEP, 2)                                                                                          \
            HALVE(A, STEP, 1)                                                                                          \
            total = lane[0];                                                                                           \
        }                                                                                                              \
        for (; i < n; i++)                                                                                             \
            total = STEP(A, total, a[i]);                                                                              \
        INTO(acc, total);                                                                                              \
    }                                                                                                                  \
    static void column_##name##_##suffix(int width, int rows, const void *src, void *dst)                              \
    {                                                                                                                  \
        const T *a = src;                                                                                              \
        A *acc = dst;                                                                                                  \
        for (int i = 0; i < rows; i++, a += width)                                                                     \
            INDEPENDENT for (int j = 0; j < width; j++)                                                                \
            {                                                                                                          \
                acc[j] = STEP(A, acc[j], a[j]);                                                                        \
            }                                                                                                          \
    }

#define COMMON(suffix, T)                                                                                              \
    REDUCTION(any, suffix, T, int32_t, 0, ANY_STEP, INTO_any)                                                          \
    REDUCTION(all, suffix, T, int32_t, 1, ALL_STEP, INTO_all)
#define INTEGER(suffix, T, lowest, highest)                                                                            \
    REDUCTION(sum, suffix, T, T, 0, WRAP_SUM_STEP, INTO_sum_##suffix)                                                  \
    REDUCTION(prod, suffix, T, T, 1, WRAP_PROD_STEP, INTO_prod_##suffix)                                               \
    REDUCTION(max, suffix, T, T, lowest, MAX_STEP, INTO_max_##suffix)                                                  \
    REDUCTION(min, suffix, T, T, highest, MIN_STEP, INTO_min_##suffix)                                                 \
    COMMON(suffix, T)
#define REAL(suffix, T)                                                                                                \
    REDUCTION(sum, suffix, T, T, 0, SUM_STEP, INTO_sum_##suffix)                                                       \
    REDUCTION(prod, suffix, T, T, 1, PROD_STEP, INTO_prod_##suffix)                                                    \
    REDUCTION(max, suffix, T, T, -(T)INFINITY, MAX_STEP, INTO_max_##suffix)                                            \
    REDUCTION(min, suffix, T, T, (T)INFINITY, MIN_STEP, INTO_min_##suffix)                                             \
    COMMON(suffix, T)
#define COMPLEX(suffix, T)                                                                                             \
    REDUCTION(sum, suffix, T, T, 0, SUM_STEP, INTO_sum_##suffix)                                                       \
    REDUCTION(prod, suffix, T, T, 1, COMPLEX_PROD_STEP, INTO_prod_##suffix)                                            \
    COMMON(suffix, T)
INTEGER(i32, int32_t, INT32_MIN, INT32_MAX)
INTEGER(i64, int64_t, INT64_MIN, INT64_MAX)
REAL(f32, float)
REAL(f64, double)
COMPLEX(c64, float _Complex)
COMPLEX(c128, double _Complex)

#define ORDERED_ROW(loop, name)                                                                                        \
    {                                                                                                                  \
        loop##_##name##_i32, loop##_##name##_i64, loop##_##name##_f32, loop##_##name##_f64                             \
    }
#define FULL_ROW(loop, name)                                                                                           \
    {                                                                                                                  \
        loop##_##name##_i32, loop##_##name##_i64, loop##_##name##_f32, loop##_##name##_f64, loop##_##name##_c64,       \
            loop##_##name##_c128                                                                                       \
    }
#define REDUCE_ROWS(loop)                                                                                              \
    [MF_SUM] = FULL_ROW(loop, sum), [MF_PROD] = FULL_ROW(loop, prod), [MF_MAX] = ORDERED_ROW(loop, max),               \
    [MF_MIN] = ORDERED_ROW(loop, min), [MF_ANY] = FULL_ROW(loop, any), [MF_ALL] = FULL_ROW(loop, all)
