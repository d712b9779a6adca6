/* The m_* functions of op.def on the CPU, selected by the type of their arguments. f32 is in cpu_math_f32.h; f64 has
 * loops of its own only for the exponential family and otherwise uses libm, as complex numbers do.
 * Integers wrap. Division of integers by 0 gives 0, and a negative integer power the integer part of the result. */
#ifndef MFI_CPU_MATH_H
#define MFI_CPU_MATH_H

#include <complex.h>

#include "cpu_math_f32.h"

/* ---- f64 ---- */

/* e^r - 1 for |r| <= ln(2)/2, where `low` is what r lacks. */
M_INLINE double m_expm1_reduced(double r, double low)
{
    double p = 2.09112987659402e-09;
    p = p * r + 2.5100472505694996e-08;
    p = p * r + 2.7557282838800484e-07;
    p = p * r + 2.7557268275905696e-06;
    p = p * r + 2.4801587317228724e-05;
    p = p * r + 0.00019841269863171557;
    p = p * r + 0.0013888888888886537;
    p = p * r + 0.008333333333330039;
    p = p * r + 0.041666666666666664;
    p = p * r + 0.16666666666666669;
    double square = r * r;
    return r + (0.5 * square + (square * r * p + (low + low * r)));
}

/* x + low = n ln2 + (r + *rest): the high part of ln2 has trailing zeros, so n times it is exact. */
M_INLINE double m_reduce_ln2(double x, double low, double *shifted, double *rest)
{
    *shifted = x * (1 / M_LN2) + M_SHIFTER;
    double n = *shifted - M_SHIFTER;
    double high = x - n * 6.93147180369123816490e-01, tail = low - n * 1.90821492927058770002e-10;
    double r = high + tail;
    *rest = (high - r) + tail;
    return r;
}

/* exp(x + low) = result * *scale * *scale2, |low| far below |x|; the product may be subnormal or overflow. */
M_INLINE double m_exp_parts(double x, double low, double *scale, double *scale2)
{
    double t = m_limit(x, -760, 720), shifted, rest, r = m_reduce_ln2(t, low, &shifted, &rest);
    double half = (shifted - M_SHIFTER) * 0.5 + M_SHIFTER, other = shifted - (half - M_SHIFTER);
    *scale = m_power2(half);
    *scale2 = m_power2(other);
    return 1 + m_expm1_reduced(r, rest);
}

M_INLINE double m_exp_f64(double x)
{
    double scale, scale2, y = m_exp_parts(x, 0, &scale, &scale2);
    return y * scale * scale2;
}

M_INLINE double m_tanh_f64(double x)
{
    double t = m_limit(2 * fabs(x), 0, 80), shifted, rest, r = m_reduce_ln2(t, 0, &shifted, &rest);
    double scale = m_power2(shifted), e = m_expm1_reduced(r, rest) * scale + (scale - 1);
    return copysign(e / (e + 2), x);
}

/* x * sigmoid(t + low), with x = 1 for sigmoid itself: exp's argument is never positive and its scale comes last, so no
 * tail is lost to overflow or to a subnormal intermediate. */
M_INLINE double m_gate(double x, double t, double low)
{
    double sign = t > 0 ? -1 : 1, scale, scale2, y = m_exp_parts(sign * t, sign * low, &scale, &scale2);
    double q = x * (t > 0 ? 1 : scale) * (t > 0 ? 1 : y) / (1 + y * scale * scale2);
    return t > 0 ? q : t < -800 ? x * 0 : q * scale2;
}

M_INLINE double m_sigmoid_f64(double x)
{
    return m_gate(1, x, 0);
}

M_INLINE double m_silu_f64(double x)
{
    return x == -INFINITY ? NAN : m_gate(x, x, 0);
}

/* 2 sqrt(2/pi) (x + 0.044715 x^3). As an argument of exp it is large in the tail, where its rounding error would show: that
 * goes into *rest. */
M_INLINE double m_gelu_argument(double clamped, double *rest)
{
    const double a = 1.5957691216057308, a_low = -9.96930880911092e-17; /* 2 sqrt(2/pi) */
    double square = clamped * clamped;
    double square_low = __builtin_fma(clamped, clamped, -square);
    double inner = 0.044715 * square, inner_low = __builtin_fma(0.044715, square, -inner) + 0.044715 * square_low;
    inner_low += 2.1960211427085595e-18 * square; /* what the constant lacks */
    double sum = 1 + inner, big = inner > 1 ? inner : 1, small = inner > 1 ? 1 : inner;
    double sum_low = (big - sum + small) + inner_low;
    double c = a * clamped, c_low = __builtin_fma(a, clamped, -c) + a_low * clamped;
    double t = c * sum;
    *rest = __builtin_fma(c, sum, -t) + (c * sum_low + c_low * sum);
    return t;
}

M_INLINE double m_gelu_f64(double x)
{
    double low, t = m_gelu_argument(m_limit(x, -60, 60), &low);
    return x == -INFINITY ? NAN : m_gate(x, t, low);
}

M_INLINE double m_gelu_grad_f64(double x)
{
    double clamped = m_limit(x, -60, 60), low, t = m_gelu_argument(clamped, &low);
    double slope = clamped * (1.5957691216057308 + 0.21406444881780072 * (clamped * clamped));
    double y = m_gate(1, t, low) * __builtin_fma(m_gate(1, -t, -low), slope, 1.0);
    return x != x ? x : y;
}

M_INLINE double m_gelu_erf_f64(double x)
{
    const double c = 0.70710678118654752440, c_low = -4.833646656726457e-17;
    double z = -c * x, low = __builtin_fma(-c, x, -z) - c_low * x, y = erfc(z);
    y -= z > 0 && z < 100 ? y * low * (z + sqrt(z * z + 1.5)) : 0; /* erfc'(z)/erfc(z), nearly: low is tiny */
    return x == -INFINITY ? NAN : 0.5 * x * y;
}

M_INLINE double m_softplus_f64(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

M_INLINE double m_logaddexp_f64(double x, double y)
{
    double gap = x == y ? 0 : fabs(x - y);
    return x != x || y != y ? x + y : (x > y ? x : y) + log1p(exp(-gap));
}

#define M_LIBM1(name)                                                                                                  \
    M_INLINE double m_##name##_f64(double x)                                                                           \
    {                                                                                                                  \
        return name(x);                                                                                                \
    }
#define M_LIBM2(name)                                                                                                  \
    M_INLINE double m_##name##_f64(double x, double y)                                                                 \
    {                                                                                                                  \
        return name(x, y);                                                                                             \
    }
M_LIBM1(exp2)
M_LIBM1(expm1)
M_LIBM1(log)
M_LIBM1(log2)
M_LIBM1(log10)
M_LIBM1(log1p)
M_LIBM1(sin)
M_LIBM1(cos)
M_LIBM1(tan)
M_LIBM1(asin)
M_LIBM1(acos)
M_LIBM1(atan)
M_LIBM1(sinh)
M_LIBM1(cosh)
M_LIBM1(asinh)
M_LIBM1(acosh)
M_LIBM1(atanh)
M_LIBM1(erf)
M_LIBM2(atan2)
M_LIBM2(hypot)

/* ---- both precisions ---- */

#define M_BOTH(T, suffix, libm)                                                                                        \
    M_INLINE T m_fabs_##suffix(T x)                                                                                    \
    {                                                                                                                  \
        return __builtin_fabs##libm(x);                                                                                \
    }                                                                                                                  \
    M_INLINE T m_sign_##suffix(T x)                                                                                    \
    {                                                                                                                  \
        return x != x ? x : (T)((x > 0) - (x < 0));                                                                    \
    }                                                                                                                  \
    M_INLINE T m_sqrt_##suffix(T x)                                                                                    \
    {                                                                                                                  \
        return __builtin_sqrt##libm(x);                                                                                \
    }                                                                                                                  \
    M_INLINE T m_rsqrt_##suffix(T x)                                                                                   \
    {                                                                                                                  \
        return 1 / __builtin_sqrt##libm(x);                                                                            \
    }                                                                                                                  \
    M_INLINE T m_cbrt_##suffix(T x)                                                                                    \
    {                                                                                                                  \
        return cbrt##libm(x);                                                                                          \
    }                                                                                                                  \
    M_INLINE T m_pow_##suffix(T x, T y)                                                                                \
    {                                                                                                                  \
        return pow##libm(x, y);                                                                                        \
    }                                                                                                                  \
    M_INLINE T m_fma_##suffix(T x, T y, T z)                                                                           \
    {                                                                                                                  \
        return __builtin_fma##libm(x, y, z);                                                                           \
    }                                                                                                                  \
    M_INLINE T m_max_##suffix(T x, T y)                                                                                \
    {                                                                                                                  \
        T z = x > y ? x : y;                                                                                           \
        return x != x ? x : z;                                                                                         \
    }                                                                                                                  \
    M_INLINE T m_min_##suffix(T x, T y)                                                                                \
    {                                                                                                                  \
        T z = x < y ? x : y;                                                                                           \
        return x != x ? x : z;                                                                                         \
    }                                                                                                                  \
    M_INLINE T m_fmax_##suffix(T x, T y)                                                                               \
    {                                                                                                                  \
        return (x > y) | (y != y) ? x : y;                                                                             \
    }                                                                                                                  \
    M_INLINE T m_fmin_##suffix(T x, T y)                                                                               \
    {                                                                                                                  \
        return (x < y) | (y != y) ? x : y;                                                                             \
    }                                                                                                                  \
    M_INLINE T m_copysign_##suffix(T x, T y)                                                                           \
    {                                                                                                                  \
        return __builtin_copysign##libm(x, y);                                                                         \
    }                                                                                                                  \
    M_INLINE T m_floor_##suffix(T x)                                                                                   \
    {                                                                                                                  \
        return __builtin_floor##libm(x);                                                                               \
    }                                                                                                                  \
    M_INLINE T m_ceil_##suffix(T x)                                                                                    \
    {                                                                                                                  \
        return __builtin_ceil##libm(x);                                                                                \
    }                                                                                                                  \
    M_INLINE T m_trunc_##suffix(T x)                                                                                   \
    {                                                                                                                  \
        return __builtin_trunc##libm(x);                                                                               \
    }                                                                                                                  \
    M_INLINE T m_rint_##suffix(T x)                                                                                    \
    {                                                                                                                  \
        return __builtin_rint##libm(x);                                                                                \
    }                                                                                                                  \
    M_INLINE int m_isinf_##suffix(T x)                                                                                 \
    {                                                                                                                  \
        return __builtin_fabs##libm(x) == (T)INFINITY;                                                                 \
    }                                                                                                                  \
    M_INLINE int m_isfinite_##suffix(T x)                                                                              \
    {                                                                                                                  \
        return __builtin_fabs##libm(x) < (T)INFINITY;                                                                  \
    }                                                                                                                  \
    M_INLINE T m_remainder_##suffix(T x, T y)                                                                          \
    {                                                                                                                  \
        T r = fmod##libm(x, y);                                                                                        \
        if (r == 0)                                                                                                    \
            return __builtin_copysign##libm(0, y);                                                                     \
        return (r < 0) != (y < 0) ? r + y : r;                                                                         \
    }                                                                                                                  \
    /* From the remainder, so that floor_divide and remainder belong together. */                                      \
    M_INLINE T m_floordiv_##suffix(T x, T y)                                                                           \
    {                                                                                                                  \
        if (y == 0)                                                                                                    \
            return x / y;                                                                                              \
        T r = fmod##libm(x, y), q = (x - r) / y;                                                                       \
        q -= r != 0 && (r < 0) != (y < 0);                                                                             \
        T down = __builtin_floor##libm(q);                                                                             \
        down += q - down > (T)0.5;                                                                                     \
        return q == 0 ? __builtin_copysign##libm(0, x / y) : down;                                                     \
    }
M_BOTH(float, f32, f)
M_BOTH(double, f64, )

/* ---- integers ---- */

/* Words 0 and 1 of Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011) at the counter
 * {x, x >> 32, 0, 0} under the key {y, y >> 32}. */
M_INLINE uint64_t m_philox_words(uint64_t x, uint64_t y)
{
    const uint64_t low = 0xffffffffu;
    uint64_t c0 = x & low, c1 = x >> 32, c2 = 0, c3 = 0, k0 = y & low, k1 = y >> 32;
    for (int round = 0; round < 10; round++) {
        uint64_t a = c0 * 0xd2511f53u, b = c2 * 0xcd9e8d57u;
        c0 = (b >> 32) ^ c1 ^ k0;
        c2 = (a >> 32) ^ c3 ^ k1;
        c1 = b & low;
        c3 = a & low;
        k0 = (k0 + 0x9e3779b9u) & low;
        k1 = (k1 + 0xbb67ae85u) & low;
    }
    return c0 | c1 << 32;
}

#define M_INTEGER(T, U, suffix)                                                                                        \
    M_INLINE T m_iadd_##suffix(T x, T y)                                                                               \
    {                                                                                                                  \
        return (T)((U)x + (U)y);                                                                                       \
    }                                                                                                                  \
    M_INLINE T m_isub_##suffix(T x, T y)                                                                               \
    {                                                                                                                  \
        return (T)((U)x - (U)y);                                                                                       \
    }                                                                                                                  \
    M_INLINE T m_imul_##suffix(T x, T y)                                                                               \
    {                                                                                                                  \
        return (T)((U)x * (U)y);                                                                                       \
    }                                                                                                                  \
    M_INLINE T m_ineg_##suffix(T x)                                                                                    \
    {                                                                                                                  \
        return (T)(0 - (U)x);                                                                                          \
    }                                                                                                                  \
    M_INLINE T m_iabs_##suffix(T x)                                                                                    \
    {                                                                                                                  \
        return x < 0 ? (T)(0 - (U)x) : x;                                                                              \
    }                                                                                                                  \
    M_INLINE T m_ifloordiv_##suffix(T x, T y)                                                                          \
    {                                                                                                                  \
        if (y == 0 || y == -1)                                                                                         \
            return y ? (T)(0 - (U)x) : 0;                                                                              \
        return (T)(x / y - (x % y != 0 && (x < 0) != (y < 0)));                                                        \
    }                                                                                                                  \
    M_INLINE T m_iremainder_##suffix(T x, T y)                                                                         \
    {                                                                                                                  \
        if (y == 0 || y == -1)                                                                                         \
            return 0;                                                                                                  \
        T r = x % y;                                                                                                   \
        return (T)(r != 0 && (r < 0) != (y < 0) ? r + y : r);                                                          \
    }                                                                                                                  \
    M_INLINE T m_ipow_##suffix(T x, T y)                                                                               \
    {                                                                                                                  \
        if (y < 0)                                                                                                     \
            return x == 1 || (x == -1 && !(y & 1)) ? 1 : x == -1 ? -1 : 0;                                             \
        U result = 1, base = (U)x;                                                                                     \
        for (; y; y >>= 1, base *= base)                                                                               \
            result *= y & 1 ? base : 1;                                                                                \
        return (T)result;                                                                                              \
    }                                                                                                                  \
    M_INLINE T m_philox_##suffix(T x, T y)                                                                             \
    {                                                                                                                  \
        return (T)m_philox_words((U)x, (U)y);                                                                          \
    }
M_INTEGER(int32_t, uint32_t, i32)
M_INTEGER(int64_t, uint64_t, i64)

/* ---- complex ---- */

#define M_COMPLEX(T, C, suffix, real, libm, CMPLX_)                                                                    \
    M_INLINE T m_creal_##suffix(C x)                                                                                   \
    {                                                                                                                  \
        return creal##libm(x);                                                                                         \
    }                                                                                                                  \
    M_INLINE T m_cimag_##suffix(C x)                                                                                   \
    {                                                                                                                  \
        return cimag##libm(x);                                                                                         \
    }                                                                                                                  \
    M_INLINE C m_conj_##suffix(C x)                                                                                    \
    {                                                                                                                  \
        return CMPLX_(creal##libm(x), -cimag##libm(x));                                                                \
    }                                                                                                                  \
    M_INLINE T m_cabs_##suffix(C x)                                                                                    \
    {                                                                                                                  \
        return m_hypot_##real(creal##libm(x), cimag##libm(x));                                                         \
    }                                                                                                                  \
    M_INLINE int m_ceq_##suffix(C x, C y)                                                                              \
    {                                                                                                                  \
        return creal##libm(x) == creal##libm(y) && cimag##libm(x) == cimag##libm(y);                                   \
    }                                                                                                                  \
    M_INLINE int m_cnonzero_##suffix(C x)                                                                              \
    {                                                                                                                  \
        return creal##libm(x) != 0 || cimag##libm(x) != 0;                                                             \
    }                                                                                                                  \
    M_INLINE int m_cisnan_##suffix(C x)                                                                                \
    {                                                                                                                  \
        return creal##libm(x) != creal##libm(x) || cimag##libm(x) != cimag##libm(x);                                   \
    }                                                                                                                  \
    M_INLINE int m_cisinf_##suffix(C x)                                                                                \
    {                                                                                                                  \
        return m_isinf_##real(creal##libm(x)) || m_isinf_##real(cimag##libm(x));                                       \
    }                                                                                                                  \
    M_INLINE int m_cisfinite_##suffix(C x)                                                                             \
    {                                                                                                                  \
        return m_isfinite_##real(creal##libm(x)) && m_isfinite_##real(cimag##libm(x));                                 \
    }                                                                                                                  \
    M_INLINE C m_cmul_##suffix(C x, C y)                                                                               \
    {                                                                                                                  \
        T a = creal##libm(x), b = cimag##libm(x), c = creal##libm(y), d = cimag##libm(y);                              \
        return CMPLX_(a * c - b * d, a * d + b * c);                                                                   \
    }                                                                                                                  \
    /* Smith's scaling: no overflow where the quotient has none. */                                                    \
    M_INLINE C m_cdiv_##suffix(C x, C y)                                                                               \
    {                                                                                                                  \
        T a = creal##libm(x), b = cimag##libm(x), c = creal##libm(y), d = cimag##libm(y);                              \
        if (c == 0 && d == 0)                                                                                          \
            return CMPLX_(a / fabs##libm(c), b / fabs##libm(c));                                                       \
        if (fabs##libm(c) >= fabs##libm(d)) {                                                                          \
            T ratio = d / c, scale = 1 / (c + d * ratio);                                                              \
            return CMPLX_((a + b * ratio) * scale, (b - a * ratio) * scale);                                           \
        }                                                                                                              \
        T ratio = c / d, scale = 1 / (d + c * ratio);                                                                  \
        return CMPLX_((a * ratio + b) * scale, (b * ratio - a) * scale);                                               \
    }                                                                                                                  \
    M_INLINE C m_crecip_##suffix(C x)                                                                                  \
    {                                                                                                                  \
        return m_cdiv_##suffix(CMPLX_((T)1, (T)0), x);                                                                 \
    }                                                                                                                  \
    M_INLINE C m_csqrt_##suffix(C x)                                                                                   \
    {                                                                                                                  \
        return csqrt##libm(x);                                                                                         \
    }                                                                                                                  \
    M_INLINE C m_cexp_##suffix(C x)                                                                                    \
    {                                                                                                                  \
        return cexp##libm(x);                                                                                          \
    }                                                                                                                  \
    M_INLINE C m_clog_##suffix(C x)                                                                                    \
    {                                                                                                                  \
        return clog##libm(x);                                                                                          \
    }
M_COMPLEX(float, float _Complex, c64, f32, f, __builtin_complex)
M_COMPLEX(double, double _Complex, c128, f64, , __builtin_complex)

/* ---- selection by type ---- */

#define M_R(name, x) _Generic((x), float : m_##name##_f32, default : m_##name##_f64)
#define M_I(name, x) _Generic((x), int32_t : m_##name##_i32, default : m_##name##_i64)
#define M_C(name, x) _Generic((x), float _Complex : m_##name##_c64, default : m_##name##_c128)
#define m_fabs(x) M_R(fabs, x)(x)
#define m_sign(x) M_R(sign, x)(x)
#define m_sqrt(x) M_R(sqrt, x)(x)
#define m_rsqrt(x) M_R(rsqrt, x)(x)
#define m_cbrt(x) M_R(cbrt, x)(x)
#define m_floordiv(x, y) M_R(floordiv, x)(x, y)
#define m_remainder(x, y) M_R(remainder, x)(x, y)
#define m_pow(x, y) M_R(pow, x)(x, y)
#define m_fma(x, y, z) M_R(fma, x)(x, y, z)
#define m_max(x, y) M_R(max, x)(x, y)
#define m_min(x, y) M_R(min, x)(x, y)
#define m_fmax(x, y) M_R(fmax, x)(x, y)
#define m_fmin(x, y) M_R(fmin, x)(x, y)
#define m_hypot(x, y) M_R(hypot, x)(x, y)
#define m_copysign(x, y) M_R(copysign, x)(x, y)
#define m_exp(x) M_R(exp, x)(x)
#define m_exp2(x) M_R(exp2, x)(x)
#define m_expm1(x) M_R(expm1, x)(x)
#define m_log(x) M_R(log, x)(x)
#define m_log2(x) M_R(log2, x)(x)
#define m_log10(x) M_R(log10, x)(x)
#define m_log1p(x) M_R(log1p, x)(x)
#define m_logaddexp(x, y) M_R(logaddexp, x)(x, y)
#define m_sin(x) M_R(sin, x)(x)
#define m_cos(x) M_R(cos, x)(x)
#define m_tan(x) M_R(tan, x)(x)
#define m_asin(x) M_R(asin, x)(x)
#define m_acos(x) M_R(acos, x)(x)
#define m_atan(x) M_R(atan, x)(x)
#define m_atan2(y, x) M_R(atan2, y)(y, x)
#define m_sinh(x) M_R(sinh, x)(x)
#define m_cosh(x) M_R(cosh, x)(x)
#define m_tanh(x) M_R(tanh, x)(x)
#define m_asinh(x) M_R(asinh, x)(x)
#define m_acosh(x) M_R(acosh, x)(x)
#define m_atanh(x) M_R(atanh, x)(x)
#define m_erf(x) M_R(erf, x)(x)
#define m_sigmoid(x) M_R(sigmoid, x)(x)
#define m_silu(x) M_R(silu, x)(x)
#define m_gelu(x) M_R(gelu, x)(x)
#define m_gelu_grad(x) M_R(gelu_grad, x)(x)
#define m_gelu_erf(x) M_R(gelu_erf, x)(x)
#define m_softplus(x) M_R(softplus, x)(x)
#define m_floor(x) M_R(floor, x)(x)
#define m_ceil(x) M_R(ceil, x)(x)
#define m_trunc(x) M_R(trunc, x)(x)
#define m_rint(x) M_R(rint, x)(x)
#define m_isinf(x) M_R(isinf, x)(x)
#define m_isfinite(x) M_R(isfinite, x)(x)
#define m_iadd(x, y) M_I(iadd, x)(x, y)
#define m_isub(x, y) M_I(isub, x)(x, y)
#define m_imul(x, y) M_I(imul, x)(x, y)
#define m_ineg(x) M_I(ineg, x)(x)
#define m_iabs(x) M_I(iabs, x)(x)
#define m_ifloordiv(x, y) M_I(ifloordiv, x)(x, y)
#define m_iremainder(x, y) M_I(iremainder, x)(x, y)
#define m_ipow(x, y) M_I(ipow, x)(x, y)
#define m_philox(x, y) M_I(philox, x)(x, y)
#define m_creal(x) M_C(creal, x)(x)
#define m_cimag(x) M_C(cimag, x)(x)
#define m_conj(x) M_C(conj, x)(x)
#define m_cabs(x) M_C(cabs, x)(x)
#define m_ceq(x, y) M_C(ceq, x)(x, y)
#define m_cnonzero(x) M_C(cnonzero, x)(x)
#define m_cisnan(x) M_C(cisnan, x)(x)
#define m_cisinf(x) M_C(cisinf, x)(x)
#define m_cisfinite(x) M_C(cisfinite, x)(x)
#define m_cmul(x, y) M_C(cmul, x)(x, y)
#define m_cdiv(x, y) M_C(cdiv, x)(x, y)
#define m_crecip(x) M_C(crecip, x)(x)
#define m_csqrt(x) M_C(csqrt, x)(x)
#define m_cexp(x) M_C(cexp, x)(x)
#define m_clog(x) M_C(clog, x)(x)

#endif
