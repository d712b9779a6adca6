/* Dense solvers over vectors of matrices for one instruction set, MFI_ISA: see solve_lanes.h. */
#include "solve_lanes.h"

#include <math.h>
#include <string.h>

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define STRING_(a) #a
#define STRING(a) STRING_(a)
#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define TILE 4 /* rows and columns of a product that stay in registers: 32 of them */
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#define TILE 3
#else
#define VECTOR_BYTES 16
#define TILE 3
#endif

enum {
    UNBLOCKED = 12,
    BLOCK = 8
}; /* orders up to UNBLOCKED are factored column by column, larger ones by BLOCK columns */

/* Step d of a transpose exchanges elements d apart: element j of LOW is j of a or j - d of b, of HIGH j + d of a or j of b. */
#define LOW_2_1 0, 2
#define HIGH_2_1 1, 3
#define LOW_4_1 0, 4, 2, 6
#define HIGH_4_1 1, 5, 3, 7
#define LOW_4_2 0, 1, 4, 5
#define HIGH_4_2 2, 3, 6, 7
#define LOW_8_1 0, 8, 2, 10, 4, 12, 6, 14
#define HIGH_8_1 1, 9, 3, 11, 5, 13, 7, 15
#define LOW_8_2 0, 1, 8, 9, 4, 5, 12, 13
#define HIGH_8_2 2, 3, 10, 11, 6, 7, 14, 15
#define LOW_8_4 0, 1, 2, 3, 8, 9, 10, 11
#define HIGH_8_4 4, 5, 6, 7, 12, 13, 14, 15
#define LOW_16_1 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HIGH_16_1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define LOW_16_2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH_16_2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW_16_4 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH_16_4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW_16_8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH_16_8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31

#define EXCHANGE(d, low, high)                                                                                         \
    for (int i = 0; i < LANES; i++)                                                                                    \
        if (!(i & (d))) {                                                                                              \
            const V a = t[i], b = t[i + (d)];                                                                          \
            t[i] = __builtin_shufflevector(a, b, low);                                                                 \
            t[i + (d)] = __builtin_shufflevector(a, b, high);                                                          \
        }
#if VECTOR_BYTES == 64
#define TRANSPOSE_f32                                                                                                  \
    EXCHANGE(1, LOW_16_1, HIGH_16_1)                                                                                   \
    EXCHANGE(2, LOW_16_2, HIGH_16_2) EXCHANGE(4, LOW_16_4, HIGH_16_4) EXCHANGE(8, LOW_16_8, HIGH_16_8)
#define TRANSPOSE_f64 EXCHANGE(1, LOW_8_1, HIGH_8_1) EXCHANGE(2, LOW_8_2, HIGH_8_2) EXCHANGE(4, LOW_8_4, HIGH_8_4)
#elif VECTOR_BYTES == 32
#define TRANSPOSE_f32 EXCHANGE(1, LOW_8_1, HIGH_8_1) EXCHANGE(2, LOW_8_2, HIGH_8_2) EXCHANGE(4, LOW_8_4, HIGH_8_4)
#define TRANSPOSE_f64 EXCHANGE(1, LOW_4_1, HIGH_4_1) EXCHANGE(2, LOW_4_2, HIGH_4_2)
#else
#define TRANSPOSE_f32 EXCHANGE(1, LOW_4_1, HIGH_4_1) EXCHANGE(2, LOW_4_2, HIGH_4_2)
#define TRANSPOSE_f64 EXCHANGE(1, LOW_2_1, HIGH_2_1)
#endif

#define T float
#define INTEGER int32_t
#define SIGN_OFF INT32_MAX
#define SQRT sqrtf
#define SUFFIX f32
#define TRANSPOSE TRANSPOSE_f32
#include "lane_loops_move.h"
#include "lane_loops_solve.h"
#undef T
#undef INTEGER
#undef SIGN_OFF
#undef SQRT
#undef SUFFIX
#undef TRANSPOSE

#define T double
#define INTEGER int64_t
#define SIGN_OFF INT64_MAX
#define SQRT sqrt
#define SUFFIX f64
#define TRANSPOSE TRANSPOSE_f64
#include "lane_loops_move.h"
#include "lane_loops_solve.h"

const mfi_lane_table CAT(mfi_lanes_, MFI_ISA) = {
    STRING(MFI_ISA),
    {VECTOR_BYTES / (int)sizeof(float), load_f32, store_f32, compute_f32, finish_f32},
    {VECTOR_BYTES / (int)sizeof(double), load_f64, store_f64, compute_f64, finish_f64},
};
