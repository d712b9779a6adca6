// Elementwise functions: the m_* that def/op.def is written in, then every row of it as mf::<name>(x, y, z) on compute
// types. Accurate versions only; the activations are right over the whole range, infinities and NaN included.
#ifndef MATHFUSE_DEVICE_ELEMENTWISE_CUH
#define MATHFUSE_DEVICE_ELEMENTWISE_CUH

#include "mathfuse/device/types.cuh"

namespace mf
{

// ---- functions that differ by precision only ----

#define MF_MATH_1(name, single, wide)                                                                                  \
    MF_DEVICE float name(float x)                                                                                      \
    {                                                                                                                  \
        return ::single(x);                                                                                            \
    }                                                                                                                  \
    MF_DEVICE double name(double x)                                                                                    \
    {                                                                                                                  \
        return ::wide(x);                                                                                              \
    }
#define MF_MATH_2(name, single, wide)                                                                                  \
    MF_DEVICE float name(float x, float y)                                                                             \
    {                                                                                                                  \
        return ::single(x, y);                                                                                         \
    }                                                                                                                  \
    MF_DEVICE double name(double x, double y)                                                                          \
    {                                                                                                                  \
        return ::wide(x, y);                                                                                           \
    }
MF_MATH_1(m_fabs, fabsf, fabs)
MF_MATH_1(m_sqrt, sqrtf, sqrt)
MF_MATH_1(m_cbrt, cbrtf, cbrt)
MF_MATH_1(m_exp, expf, exp)
MF_MATH_1(m_exp2, exp2f, exp2)
MF_MATH_1(m_expm1, expm1f, expm1)
MF_MATH_1(m_log, logf, log)
MF_MATH_1(m_log2, log2f, log2)
MF_MATH_1(m_log10, log10f, log10)
MF_MATH_1(m_log1p, log1pf, log1p)
MF_MATH_1(m_sin, sinf, sin)
MF_MATH_1(m_cos, cosf, cos)
MF_MATH_1(m_tan, tanf, tan)
MF_MATH_1(m_asin, asinf, asin)
MF_MATH_1(m_acos, acosf, acos)
MF_MATH_1(m_atan, atanf, atan)
MF_MATH_1(m_sinh, sinhf, sinh)
MF_MATH_1(m_cosh, coshf, cosh)
MF_MATH_1(m_tanh, tanhf, tanh)
MF_MATH_1(m_asinh, asinhf, asinh)
MF_MATH_1(m_acosh, acoshf, acosh)
MF_MATH_1(m_atanh, atanhf, atanh)
MF_MATH_1(m_erf, erff, erf)
MF_MATH_1(m_floor, floorf, floor)
MF_MATH_1(m_ceil, ceilf, ceil)
MF_MATH_1(m_trunc, truncf, trunc)
MF_MATH_1(m_rint, rintf, rint)
MF_MATH_2(m_pow, powf, pow)
MF_MATH_2(m_fmod, fmodf, fmod)
MF_MATH_2(m_fmax, fmaxf, fmax)
MF_MATH_2(m_fmin, fminf, fmin)
MF_MATH_2(m_hypot, hypotf, hypot)
MF_MATH_2(m_copysign, copysignf, copysign)
MF_MATH_2(m_atan2, atan2f, atan2)
#undef MF_MATH_1
#undef MF_MATH_2

MF_DEVICE float m_fma(float x, float y, float z)
{
    return ::fmaf(x, y, z);
}
MF_DEVICE double m_fma(double x, double y, double z)
{
    return ::fma(x, y, z);
}

MF_DEVICE float m_rsqrt(float x)
{
#if defined(__CUDA_ARCH__)
    return ::rsqrtf(x);
#else
    return 1.0f / ::sqrtf(x);
#endif
}
MF_DEVICE double m_rsqrt(double x)
{
    return 1.0 / ::sqrt(x);
}

// ---- real ----

template <class T> MF_DEVICE T m_max(T x, T y)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (same<T, float>) {
        float r;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
        return r;
    }
#endif
    return x > y || x != x ? x : y;
}

template <class T> MF_DEVICE T m_min(T x, T y)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (same<T, float>) {
        float r;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
        return r;
    }
#endif
    return x < y || x != x ? x : y;
}

template <class T> MF_DEVICE T m_sign(T x)
{
    return x > 0 ? T(1) : x < 0 ? T(-1) : x == 0 ? T(0) : x;
}

template <class T> MF_DEVICE i32 m_isinf(T x)
{
    return m_fabs(x) == inf_of<T>();
}

template <class T> MF_DEVICE i32 m_isfinite(T x)
{
    return m_fabs(x) < inf_of<T>();
}

// NumPy's: exact where x / y is not, x / 0 is inf or NaN.
template <class T> MF_DEVICE T m_floordiv(T x, T y)
{
    if (y == 0)
        return x / y;
    T mod = m_fmod(x, y), div = (x - mod) / y;
    if (mod != 0 && (y < 0) != (mod < 0))
        div -= T(1);
    if (div == 0)
        return m_copysign(T(0), x / y);
    T down = m_floor(div);
    return div - down > T(0.5) ? down + T(1) : down;
}

template <class T> MF_DEVICE T m_remainder(T x, T y)
{
    T mod = m_fmod(x, y);
    if (mod == 0)
        return m_copysign(T(0), y);
    return (y < 0) != (mod < 0) && mod == mod ? mod + y : mod;
}

template <class T> MF_DEVICE T m_logaddexp(T x, T y)
{
    if (x == y)
        return x + T(0.693147180559945309417232);
    T d = x - y;
    return d > 0 ? x + m_log1p(m_exp(-d)) : d <= 0 ? y + m_log1p(m_exp(d)) : d;
}

// 1 / d for d in [1, 2], to within an ulp and without the branches of a general division.
MF_DEVICE float reciprocal_1_2(float d)
{
#if defined(__CUDA_ARCH__)
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
    return m_fma(r, m_fma(-d, r, 1.0f), r);
#else
    return 1.0f / d;
#endif
}
MF_DEVICE double reciprocal_1_2(double d)
{
    return 1.0 / d;
}

// 1 / (1 + exp(-x)), given e = exp(-|x|): no overflow, no cancellation. At -inf, x times this is NaN, as the formulas
// say.
template <class T> MF_DEVICE T logistic(bool negative, T e)
{
    T r = reciprocal_1_2(T(1) + e);
    return negative ? e * r : r;
}

template <class T> MF_DEVICE T m_sigmoid(T x)
{
    return logistic(x < 0, m_exp(-m_fabs(x)));
}

template <class T> MF_DEVICE T m_silu(T x)
{
    return x * m_sigmoid(x);
}

// 2^x for x <= 0, subnormal results included.
MF_DEVICE float exp2_negative(float x)
{
#if defined(__CUDA_ARCH__)
    float r;
    asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    return ::exp2f(x);
#endif
}
MF_DEVICE double exp2_negative(double x)
{
    return ::exp2(x);
}

// x/2 (1 + tanh u) is x / (1 + exp(-2u)); with log2(e) in the polynomial that is one ex2, and the lower tail keeps its
// digits.
template <class T> MF_DEVICE T m_gelu(T x)
{
    const T c1 = T(2.30220819814432488913),
            c3 = T(0.10294323958002348741); // 2 sqrt(2/pi) log2(e), and 0.044715 times that
    T u = m_fabs(x) * m_fma(x * x, c3, c1);
    return x * logistic(x < 0, exp2_negative(-u));
}

// s (1 + (1 - s) x d), with s = 1 / (1 + exp(-2u)) and d the derivative of 2u; beyond |x| = 60 it is 0 or 1.
template <class T> MF_DEVICE T m_gelu_grad(T x)
{
    const T c1 = T(2.30220819814432488913), c3 = T(0.10294323958002348741);
    const T d1 = T(1.59576912160573071176), d3 = T(0.21406444881780072467);
    T t = m_min(m_max(x, T(-60)), T(60)), square = t * t;
    T e = exp2_negative(-(m_fabs(t) * m_fma(square, c3, c1)));
    return logistic(t < 0, e) * m_fma(logistic(t > 0, e), t * m_fma(square, d3, d1), T(1));
}

MF_DEVICE float normal_cdf(float x)
{
#if defined(__CUDA_ARCH__)
    return ::normcdff(x);
#else
    return (float)(0.5 * ::erfc(-(double)x * 0.70710678118654752440));
#endif
}
MF_DEVICE double normal_cdf(double x)
{
#if defined(__CUDA_ARCH__)
    return ::normcdf(x);
#else
    return 0.5 * ::erfc(-x * 0.70710678118654752440);
#endif
}

template <class T> MF_DEVICE T m_gelu_erf(T x)
{
    return x * normal_cdf(x);
}

template <class T> MF_DEVICE T m_softplus(T x)
{
    return m_max(x, T(0)) + m_log1p(m_exp(-m_fabs(x)));
}

// ---- integers: wrap around, never trap ----

template <class T> struct unsigned_of {
    typedef u32 type;
};
template <> struct unsigned_of<i64> {
    typedef u64 type;
};
template <class T> using unsigned_t = typename unsigned_of<T>::type;

template <class T> MF_DEVICE T m_ineg(T x)
{
    return (T)(unsigned_t<T>(0) - (unsigned_t<T>)x);
}
template <class T> MF_DEVICE T m_iabs(T x)
{
    return x < 0 ? m_ineg(x) : x;
}
template <class T> MF_DEVICE T m_iadd(T x, T y)
{
    return (T)((unsigned_t<T>)x + (unsigned_t<T>)y);
}
template <class T> MF_DEVICE T m_isub(T x, T y)
{
    return (T)((unsigned_t<T>)x - (unsigned_t<T>)y);
}
template <class T> MF_DEVICE T m_imul(T x, T y)
{
    return (T)((unsigned_t<T>)x * (unsigned_t<T>)y);
}

template <class T> MF_DEVICE T m_ifloordiv(T x, T y)
{
    if (y == 0)
        return 0;
    if (y == -1)
        return m_ineg(x);
    T q = x / y;
    return x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}

template <class T> MF_DEVICE T m_iremainder(T x, T y)
{
    if (y == 0 || y == -1)
        return 0;
    T r = x % y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

// Words 0 and 1 of Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011) at the counter
// {x, x >> 32, 0, 0} under the key {y, y >> 32}; for 32-bit T word 0.
template <class T> MF_DEVICE T m_philox(T x, T y)
{
    u64 counter = (u64)(unsigned_t<T>)x, key = (u64)(unsigned_t<T>)y;
    u32 c0 = (u32)counter, c1 = (u32)(counter >> 32), c2 = 0, c3 = 0, k0 = (u32)key, k1 = (u32)(key >> 32);
    for (int round = 0; round < 10; round++) {
        u64 a = (u64)c0 * 0xd2511f53u, b = (u64)c2 * 0xcd9e8d57u;
        c0 = (u32)(b >> 32) ^ c1 ^ k0;
        c2 = (u32)(a >> 32) ^ c3 ^ k1;
        c1 = (u32)b;
        c3 = (u32)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return (T)((u64)c0 | (u64)c1 << 32);
}

// A negative power is 0, except of 1 and -1.
template <class T> MF_DEVICE T m_ipow(T x, T y)
{
    if (y < 0)
        return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    unsigned_t<T> result = 1, base = (unsigned_t<T>)x;
    for (; y; y >>= 1) {
        if (y & 1)
            result *= base;
        base *= base;
    }
    return (T)result;
}

// ---- complex; single precision goes through double where squares could overflow or cancel ----

template <class T> MF_DEVICE cplx<T> m_cmul(cplx<T> x, cplx<T> y)
{
    return x * y;
}
template <class T> MF_DEVICE T m_cabs(cplx<T> x)
{
    return m_hypot(x.re, x.im);
}
template <class T> MF_DEVICE cplx<T> m_conj(cplx<T> x)
{
    return cplx<T>{x.re, -x.im};
}
template <class T> MF_DEVICE T m_creal(cplx<T> x)
{
    return x.re;
}
template <class T> MF_DEVICE T m_cimag(cplx<T> x)
{
    return x.im;
}
template <class T> MF_DEVICE i32 m_ceq(cplx<T> x, cplx<T> y)
{
    return x == y;
}
template <class T> MF_DEVICE i32 m_cnonzero(cplx<T> x)
{
    return x.re != 0 || x.im != 0;
}
template <class T> MF_DEVICE i32 m_cisnan(cplx<T> x)
{
    return x.re != x.re || x.im != x.im;
}
template <class T> MF_DEVICE i32 m_cisinf(cplx<T> x)
{
    return m_isinf(x.re) || m_isinf(x.im);
}
template <class T> MF_DEVICE i32 m_cisfinite(cplx<T> x)
{
    return m_isfinite(x.re) && m_isfinite(x.im);
}

// Smith's method.
MF_DEVICE c128 m_cdiv(c128 x, c128 y)
{
    if (m_fabs(y.re) >= m_fabs(y.im)) {
        if (y.re == 0 && y.im == 0)
            return c128{x.re / m_fabs(y.re), x.im / m_fabs(y.re)};
        double r = y.im / y.re, s = 1 / (y.re + y.im * r);
        return c128{(x.re + x.im * r) * s, (x.im - x.re * r) * s};
    }
    double r = y.re / y.im, s = 1 / (y.im + y.re * r);
    return c128{(x.re * r + x.im) * s, (x.im * r - x.re) * s};
}

MF_DEVICE c64 m_cdiv(c64 x, c64 y)
{
    c128 q = m_cdiv(c128{x.re, x.im}, c128{y.re, y.im});
    return c64{(float)q.re, (float)q.im};
}

template <class T> MF_DEVICE cplx<T> m_crecip(cplx<T> x)
{
    return m_cdiv(cplx<T>{T(1), T(0)}, x);
}

template <class T> MF_DEVICE cplx<T> m_csqrt(cplx<T> x)
{
    if (x.re == 0 && x.im == 0)
        return cplx<T>{T(0), x.im};
    if (m_isinf(x.im))
        return cplx<T>{inf_of<T>(), x.im};
    if (m_isinf(x.re) && x.re < 0)
        return cplx<T>{x.im == x.im ? T(0) : x.im, m_copysign(inf_of<T>(), x.im)};
    if (m_isinf(x.re))
        return cplx<T>{x.re, x.im == x.im ? m_copysign(T(0), x.im) : x.im};
    // Scaled by powers of 4, so that |x| + |re| neither overflows nor loses digits below the normal range.
    const T large = same<T, double> ? T(0x1p1020) : T(0x1p124f), tiny = same<T, double> ? T(0x1p-1020) : T(0x1p-124f);
    bool big = m_fabs(x.re) > large || m_fabs(x.im) > large, small = m_fabs(x.re) < tiny && m_fabs(x.im) < tiny;
    const T up = same<T, double> ? T(0x1p108) : T(0x1p48f), root = same<T, double> ? T(0x1p-54) : T(0x1p-24f);
    T scale = big ? T(0.0625) : small ? up : T(1), back = big ? T(4) : small ? root : T(1);
    T re = x.re * scale, im = x.im * scale;
    T t = m_sqrt((m_hypot(re, im) + m_fabs(re)) * T(0.5));
    T other = m_fabs(im) / (T(2) * t);
    return re >= 0 ? cplx<T>{t * back, m_copysign(other, im) * back} : cplx<T>{other * back, m_copysign(t, im) * back};
}

template <class T> MF_DEVICE cplx<T> m_cexp(cplx<T> x)
{
    if (x.im == 0)
        return cplx<T>{m_exp(x.re), x.im};
    if (m_isinf(x.re) && x.re < 0)
        return cplx<T>{T(0), T(0)};
    if (m_isinf(x.re) && !m_isfinite(x.im))
        return cplx<T>{x.re, nan_of<T>()};
    T c = m_cos(x.im), s = m_sin(x.im);
    if (m_fabs(x.re) < T(80)) {
        T e = m_exp(x.re);
        return cplx<T>{e * c, e * s};
    }
    T e = m_exp(x.re * T(0.5)); // the product may be in range where exp(re) alone is not
    return cplx<T>{e * c * e, e * s * e};
}

MF_DEVICE c64 m_clog(c64 x)
{
    double re = x.re, im = x.im;
    float modulus = m_cisfinite(x) ? (float)(0.5 * ::log(re * re + im * im)) : m_log(m_hypot(x.re, x.im));
    return c64{modulus, m_atan2(x.im, x.re)};
}

MF_DEVICE c128 m_clog(c128 x)
{
    double a = m_fabs(x.re), b = m_fabs(x.im), h = m_hypot(a, b);
    double big = a > b ? a : b, small = a > b ? b : a;
    bool near_one = h > 0.5 && h < 2;
    double modulus = near_one ? 0.5 * m_log1p(m_fma(big - 1, big + 1, small * small)) : m_log(h);
    return c128{modulus, m_atan2(x.im, x.re)};
}

// ---- the table ----

template <class T> MF_DEVICE T m_na()
{
    static_assert(sizeof(T) == 0, "this operation is not defined for this type: see mathfuse/def/op.def");
    return T();
}

#define MF_K(v) (T(v))
#define MF_NA m_na<T>()
#define MF_RESULT_SAME T
#define MF_RESULT_FLOAT T
#define MF_RESULT_BOOL i32
#define MF_RESULT_REAL real_t<T>
#define MF_BODY(result, real, integer, complex)                                                                        \
    {                                                                                                                  \
        if constexpr (is_real<T>)                                                                                      \
            return (result)(real);                                                                                     \
        else if constexpr (is_integer<T>)                                                                              \
            return (result)(integer);                                                                                  \
        else                                                                                                           \
            return (result)(complex);                                                                                  \
    }
#define MF_FUNCTION_1(name, result, real, integer, complex)                                                            \
    template <class T> MF_DEVICE result name(T x) MF_BODY(result, real, integer, complex)
#define MF_FUNCTION_2(name, result, real, integer, complex)                                                            \
    template <class T> MF_DEVICE result name(T x, T y) MF_BODY(result, real, integer, complex)
#define MF_FUNCTION_3(name, result, real, integer, complex)                                                            \
    template <class X, class T> MF_DEVICE result name(X x, T y, T z) MF_BODY(result, real, integer, complex)
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc)                                                    \
    MF_FUNCTION_##arity(name, MF_RESULT_##rule, real, integer, complex)
#include "mathfuse/def/op.def"
#undef MF_OP
#undef MF_FUNCTION_1
#undef MF_FUNCTION_2
#undef MF_FUNCTION_3
#undef MF_BODY
#undef MF_RESULT_SAME
#undef MF_RESULT_FLOAT
#undef MF_RESULT_BOOL
#undef MF_RESULT_REAL
#undef MF_NA
#undef MF_K

} // namespace mf

#include "mathfuse/device/quick.cuh"

#endif
