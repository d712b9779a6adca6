/* Contiguous loops for every row of op.def, every conversion and every reduction, for one instruction set: MFI_ISA.
 * Plain C that the compiler vectorises; which loop runs on what is cpu_chain.c's business. */
#if !defined(__clang__)
#pragma GCC optimize(                                                                                                  \
    "no-thread-jumps") /* else limits become branches, and loops compute both sides: gelu takes 1.6 times as long */
#endif
#include "cpu_loops.h"
#include "cpu_math.h"
#include "small_float.h"

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define STRING_(a) #a
#define STRING(a) STRING_(a)
#define SECOND_(a, b, ...) b
#define SECOND(...) SECOND_(__VA_ARGS__)
/* A destination equals a source or is disjoint from it, so iterations never depend on each other. */
#if defined(__clang__)
#define INDEPENDENT
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* ---- operations ---- */

/* Types of op.def's rules, in terms of the section's T (the operands) and TR (the real type of T). */
#define RESULT_SAME T
#define RESULT_FLOAT T
#define RESULT_BOOL int32_t
#define RESULT_REAL TR
/* `where` alone has a first operand of another type. */
#define FIRST_where ~, int32_t
#define FIRST(name) SECOND(FIRST_##name, T, ~)
/* f32 functions that only hold up to M_TRIG_LIMIT, and libm's for blocks beyond. */
#define SLOW_sin ~, sinf
#define SLOW_cos ~, cosf
#define SLOW_tan ~, tanf
#define MF_K(v) ((T)(v))
#define UNUSED __attribute__((unused))

static bool beyond_trig_limit(int n, const float *a)
{
    int beyond = 0;
    for (int i = 0; i < n; i++)
        beyond |= !(fabsf(a[i]) <= M_TRIG_LIMIT);
    return beyond;
}

#define LOOP_1(name, R, expression)                                                                                    \
    UNUSED static void CAT(name##_, SUFFIX)(int n, unsigned scalar, void *dst, const void *pa, const void *pb,         \
                                            const void *pc)                                                            \
    {                                                                                                                  \
        (void)scalar, (void)pb, (void)pc;                                                                              \
        R *d = dst;                                                                                                    \
        const T *a = pa;                                                                                               \
        T (*slow)(T) = SLOW(name);                                                                                     \
        if (slow && beyond_trig_limit(n, pa)) {                                                                        \
            for (int i = 0; i < n; i++)                                                                                \
                d[i] = (R)slow(a[i]);                                                                                  \
            return;                                                                                                    \
        }                                                                                                              \
        INDEPENDENT for (int i = 0; i < n; i++)                                                                        \
        {                                                                                                              \
            UNUSED const T x = a[i];                                                                                   \
            d[i] = (R)(expression);                                                                                    \
        }                                                                                                              \
    }
#define BODY_2(R, X, Y, expression)                                                                                    \
    INDEPENDENT for (int i = 0; i < n; i++)                                                                            \
    {                                                                                                                  \
        UNUSED const T x = X, y = Y;                                                                                   \
        d[i] = (R)(expression);                                                                                        \
    }
#define LOOP_2(name, R, expression)                                                                                    \
    UNUSED static void CAT(name##_, SUFFIX)(int n, unsigned scalar, void *dst, const void *pa, const void *pb,         \
                                            const void *pc)                                                            \
    {                                                                                                                  \
        (void)pc;                                                                                                      \
        R *d = dst;                                                                                                    \
        const T *a = pa, *b = pb;                                                                                      \
        const T a0 = *a, b0 = *b;                                                                                      \
        if (scalar & MFI_SCALAR_A)                                                                                     \
            BODY_2(R, a0, b[i], expression)                                                                            \
        else if (scalar & MFI_SCALAR_B)                                                                                \
            BODY_2(R, a[i], b0, expression)                                                                            \
        else                                                                                                           \
            BODY_2(R, a[i], b[i], expression)                                                                          \
    }
#define BODY_3(R, A, X, Y, Z, expression)                                                                              \
    INDEPENDENT for (int i = 0; i < n; i++)                                                                            \
    {                                                                                                                  \
        UNUSED const A x = X;                                                                                          \
        UNUSED const T y = Y, z = Z;                                                                                   \
        d[i] = (R)(expression);                                                                                        \
    }                                                                                                                  \
    break;
#define LOOP_3(name, R, expression)                                                                                    \
    UNUSED static void CAT(name##_, SUFFIX)(int n, unsigned scalar, void *dst, const void *pa, const void *pb,         \
                                            const void *pc)                                                            \
    {                                                                                                                  \
        R *d = dst;                                                                                                    \
        const FIRST(name) *a = pa, a0 = *a;                                                                            \
        const T *b = pb, *c = pc, b0 = *b, c0 = *c;                                                                    \
        switch (scalar) {                                                                                              \
        case 0:                                                                                                        \
            BODY_3(R, FIRST(name), a[i], b[i], c[i], expression)                                                       \
        case MFI_SCALAR_A:                                                                                             \
            BODY_3(R, FIRST(name), a0, b[i], c[i], expression)                                                         \
        case MFI_SCALAR_B:                                                                                             \
            BODY_3(R, FIRST(name), a[i], b0, c[i], expression)                                                         \
        case MFI_SCALAR_C:                                                                                             \
            BODY_3(R, FIRST(name), a[i], b[i], c0, expression)                                                         \
        case MFI_SCALAR_A | MFI_SCALAR_B:                                                                              \
            BODY_3(R, FIRST(name), a0, b0, c[i], expression)                                                           \
        case MFI_SCALAR_A | MFI_SCALAR_C:                                                                              \
            BODY_3(R, FIRST(name), a0, b[i], c0, expression)                                                           \
        default:                                                                                                       \
            BODY_3(R, FIRST(name), a[i], b0, c0, expression)                                                           \
        }                                                                                                              \
    }

/* In loops an undefined row is 0, to compile; in the table it has a type of its own and becomes NULL. */
#define MF_NA 0

#define T int32_t
#define TR T
#define SUFFIX i32
#define SLOW(name) NULL
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) LOOP_##arity(name, RESULT_##rule, integer)
#include "mathfuse/def/op.def"
#undef T
#undef SUFFIX
#define T int64_t
#define SUFFIX i64
#include "mathfuse/def/op.def"
#undef T
#undef SUFFIX
#undef MF_OP
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) LOOP_##arity(name, RESULT_##rule, real)
#define T double
#define SUFFIX f64
#include "mathfuse/def/op.def"
#undef T
#undef SUFFIX
#undef SLOW
#define T float
#define SUFFIX f32
#define SLOW(name) SECOND(SLOW_##name, NULL, ~)
#include "mathfuse/def/op.def"
#undef T
#undef TR
#undef SUFFIX
#undef SLOW
#undef MF_OP
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) LOOP_##arity(name, RESULT_##rule, complex)
#define SLOW(name) NULL
#define T float _Complex
#define TR float
#define SUFFIX c64
#include "mathfuse/def/op.def"
#undef T
#undef TR
#undef SUFFIX
#define T double _Complex
#define TR double
#define SUFFIX c128
#include "mathfuse/def/op.def"
#undef T
#undef TR
#undef SUFFIX
#undef MF_OP
#undef MF_NA

/* ---- conversions ---- */

/* What a value becomes as each dtype; f is its float (rounded to odd from f64), s whether to saturate. */
M_INLINE int32_t integer_32(double x) /* toward zero; beyond the range the nearest integer, NaN gives 0 */
{
    return x != x ? 0 : x <= -0x1p31 ? INT32_MIN : x >= 0x1p31 ? INT32_MAX : (int32_t)x;
}

M_INLINE int64_t integer_64(double x)
{
    return x != x ? 0 : x <= -0x1p63 ? INT64_MIN : x >= 0x1p63 ? INT64_MAX : (int64_t)x;
}

#define REAL_OF_i32(x) (x)
#define REAL_OF_i64(x) (x)
#define REAL_OF_f32(x) (x)
#define REAL_OF_f64(x) (x)
#define REAL_OF_c64(x) crealf(x)
#define REAL_OF_c128(x) creal(x)
#define ODD_OF_i32(x) mfi_round_to_odd((double)(x))
#define ODD_OF_i64(x) odd_of_integer(x)
#define ODD_OF_f32(x) (x)
#define ODD_OF_f64(x) mfi_round_to_odd(x)
#define ODD_OF_c64(x) crealf(x)
#define ODD_OF_c128(x) mfi_round_to_odd(creal(x))
#define I32_OF_i32(x) (x)
#define I32_OF_i64(x) ((int32_t)(uint32_t)(uint64_t)(x))
#define I32_OF_f32(x) integer_32((double)(x))
#define I32_OF_f64(x) integer_32(x)
#define I32_OF_c64(x) integer_32((double)crealf(x))
#define I32_OF_c128(x) integer_32(creal(x))
#define I64_OF_i32(x) (x)
#define I64_OF_i64(x) (x)
#define I64_OF_f32(x) integer_64((double)(x))
#define I64_OF_f64(x) integer_64(x)
#define I64_OF_c64(x) integer_64((double)crealf(x))
#define I64_OF_c128(x) integer_64(creal(x))

#define CLAMP_8(x) ((x) < -128 ? -128 : (x) > 127 ? 127 : (x))
#define I8_OF_i32(x, saturate) ((saturate) ? CLAMP_8(x) : (int8_t)(uint8_t)(x))
#define I8_OF_i64(x, saturate) I8_OF_i32(x, saturate)
#define I8_OF_f32(x, saturate) CLAMP_8(I32_OF_f32(x))
#define I8_OF_f64(x, saturate) CLAMP_8(I32_OF_f64(x))
#define I8_OF_c64(x, saturate) CLAMP_8(I32_OF_c64(x))
#define I8_OF_c128(x, saturate) CLAMP_8(I32_OF_c128(x))

/* i64 to f32, rounding to odd: what does not fit in 40 bits is folded into a last bit that no small float can see. */
M_INLINE float odd_of_integer(int64_t x)
{
    uint64_t magnitude = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    uint64_t folded =
        magnitude >> 40 ? magnitude >> 24 << 24 | (uint64_t)((magnitude & 0xffffff) != 0) << 24 : magnitude;
    return mfi_round_to_odd(x < 0 ? -(double)folded : (double)folded);
}

#define CONVERT(name, S, D, expression)                                                                                \
    static void name(int n, void *dst, const void *src)                                                                \
    {                                                                                                                  \
        const S *a = src;                                                                                              \
        D *d = dst;                                                                                                    \
        INDEPENDENT for (int i = 0; i < n; i++)                                                                        \
        {                                                                                                              \
            const S x = a[i];                                                                                          \
            d[i] = expression;                                                                                         \
        }                                                                                                              \
    }
#define STORES(S, from)                                                                                                \
    CONVERT(from##_to_bool, S, uint8_t, x != 0)                                                                        \
    CONVERT(from##_to_i32, S, int32_t, I32_OF_##from(x))                                                               \
    CONVERT(from##_to_i64, S, int64_t, I64_OF_##from(x))                                                               \
    CONVERT(from##_to_f16_0, S, uint16_t, mfi_inline_f32_to_f16(ODD_OF_##from(x), false))                              \
    CONVERT(from##_to_f16_1, S, uint16_t, mfi_inline_f32_to_f16(ODD_OF_##from(x), true))                               \
    CONVERT(from##_to_bf16_0, S, uint16_t, mfi_inline_f32_to_bf16(ODD_OF_##from(x), false))                            \
    CONVERT(from##_to_bf16_1, S, uint16_t, mfi_inline_f32_to_bf16(ODD_OF_##from(x), true))                             \
    CONVERT(from##_to_f32, S, float, (float)REAL_OF_##from(x))                                                         \
    CONVERT(from##_to_f64, S, double, (double)REAL_OF_##from(x))                                                       \
    CONVERT(from##_to_c64, S, float _Complex, (float _Complex)x)                                                       \
    CONVERT(from##_to_c128, S, double _Complex, (double _Complex)x)                                                    \
    CONVERT(from##_to_e4m3_0, S, uint8_t, mfi_inline_f32_to_e4m3(ODD_OF_##from(x), false))                             \
    CONVERT(from##_to_e4m3_1, S, uint8_t, mfi_inline_f32_to_e4m3(ODD_OF_##from(x), true))                              \
    CONVERT(from##_to_e5m2_0, S, uint8_t, mfi_inline_f32_to_e5m2(ODD_OF_##from(x), false))                             \
    CONVERT(from##_to_e5m2_1, S, uint8_t, mfi_inline_f32_to_e5m2(ODD_OF_##from(x), true))                              \
    CONVERT(from##_to_i8_0, S, int8_t, (int8_t)I8_OF_##from(x, false))                                                 \
    CONVERT(from##_to_i8_1, S, int8_t, (int8_t)I8_OF_##from(x, true))
STORES(int32_t, i32)
STORES(int64_t, i64)
STORES(float, f32)
STORES(double, f64)
STORES(float _Complex, c64)
STORES(double _Complex, c128)
CONVERT(load_bool, uint8_t, int32_t, x != 0)
CONVERT(load_f16, uint16_t, float, mfi_inline_f16_to_f32(x))
CONVERT(load_bf16, uint16_t, float, mfi_inline_bf16_to_f32(x))
CONVERT(load_e4m3, uint8_t, float, mfi_inline_e4m3_to_f32(x))
CONVERT(load_e5m2, uint8_t, float, mfi_inline_e5m2_to_f32(x))
CONVERT(load_i8, int8_t, int32_t, x)

#define STORE_ROW(from)                                                                                                \
    {                                                                                                                  \
        [MF_BOOL] = {from##_to_bool, from##_to_bool}, [MF_I32] = {from##_to_i32, from##_to_i32},                       \
        [MF_I64] = {from##_to_i64, from##_to_i64}, [MF_F16] = {from##_to_f16_0, from##_to_f16_1},                      \
        [MF_BF16] = {from##_to_bf16_0, from##_to_bf16_1}, [MF_F32] = {from##_to_f32, from##_to_f32},                   \
        [MF_F64] = {from##_to_f64, from##_to_f64}, [MF_C64] = {from##_to_c64, from##_to_c64},                          \
        [MF_C128] = {from##_to_c128, from##_to_c128}, [MF_E4M3] = {from##_to_e4m3_0, from##_to_e4m3_1},                \
        [MF_E5M2] = {from##_to_e5m2_0, from##_to_e5m2_1}, [MF_I8] = {from##_to_i8_0, from##_to_i8_1},                  \
    }

#include "cpu_loops_reduce.h"

/* ---- the table ---- */

typedef struct undefined {
    int nothing;
} undefined;
#define MF_NA ((undefined){0})
#define x ((T){0})
#define y ((T){0})
#define z ((T){0})
#define DEFINED(ENUM, name, expression)                                                                                \
    [MF_OP_##ENUM] = _Generic((expression), undefined : (mfi_apply_loop *)0, default : CAT(name##_, SUFFIX)),

const mfi_loops CAT(mfi_loops_, MFI_ISA) = {
    .isa = STRING(MFI_ISA),
    .apply =
        {
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) DEFINED(ENUM, name, integer)
#define T int32_t
#define SUFFIX i32
            [MFI_I32] =
                {
#include "mathfuse/def/op.def"
                },
#undef T
#undef SUFFIX
#define T int64_t
#define SUFFIX i64
            [MFI_I64] =
                {
#include "mathfuse/def/op.def"
                },
#undef T
#undef SUFFIX
#undef MF_OP
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) DEFINED(ENUM, name, real)
#define T float
#define SUFFIX f32
            [MFI_F32] =
                {
#include "mathfuse/def/op.def"
                },
#undef T
#undef SUFFIX
#define T double
#define SUFFIX f64
            [MFI_F64] =
                {
#include "mathfuse/def/op.def"
                },
#undef T
#undef SUFFIX
#undef MF_OP
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) DEFINED(ENUM, name, complex)
#define T float _Complex
#define SUFFIX c64
            [MFI_C64] =
                {
#include "mathfuse/def/op.def"
                },
#undef T
#undef SUFFIX
#define T double _Complex
#define SUFFIX c128
            [MFI_C128] =
                {
#include "mathfuse/def/op.def"
                },
        },
    .load = {load_bool, i32_to_i32, i64_to_i64, load_f16, load_bf16, f32_to_f32, f64_to_f64, c64_to_c64, c128_to_c128,
             load_e4m3, load_e5m2, load_i8},
    .store = {STORE_ROW(i32), STORE_ROW(i64), STORE_ROW(f32), STORE_ROW(f64), STORE_ROW(c64), STORE_ROW(c128)},
    .fold = {REDUCE_ROWS(fold)},
    .column = {REDUCE_ROWS(column)},
};
