/* The f32 functions of op.def for the CPU: branch-free, so that loops over them vectorise.
 *
 * They compute in double with polynomials good to about 1e-9, and round once: errors stay near half an ulp over the
 * whole range, subnormal results included, and no range needs code of its own. Coefficients are Chebyshev fits of our
 * own. */
#ifndef MFI_CPU_MATH_F32_H
#define MFI_CPU_MATH_F32_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define M_INLINE static inline __attribute__((always_inline, unused))
#define M_LN2 0.69314718055994530942
#define M_SHIFTER 0x1.8p52 /* adding it leaves the nearest integer in the low bits */

M_INLINE uint64_t m_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

M_INLINE double m_from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

M_INLINE double m_limit(double x, double lo, double hi) /* NaN stays; in this form it is two instructions */
{
    x = lo > x ? lo : x;
    return hi < x ? hi : x;
}

M_INLINE float m_narrow_limit(float x, float lo, float hi)
{
    x = lo > x ? lo : x;
    return hi < x ? hi : x;
}

/* 2^n for |n| < 1023, from n + M_SHIFTER. */
M_INLINE double m_power2(double shifted)
{
    return m_from_bits((m_bits(shifted) << 52) + 0x3ff0000000000000u);
}

/* 2^f - 1 for |f| <= 1/2, in pairs: short chains keep the units busy. */
M_INLINE double m_exp2m1_small(double f)
{
    double square = f * f;
    double low = 0.6931471880441807 + 0.24022650760723566 * f, middle = 0.05550357028060032 + 0.009618082482680665 * f;
    double high = 0.0013390909304169672 + 0.0001545320271879925 * f;
    return (low + square * (middle + square * high)) * f;
}

/* 2^x for |x| <= 1020. A NaN from f32 has nothing in the low bits that n is added from, and stays NaN. */
M_INLINE double m_wide_exp2(double x)
{
    double shifted = x + M_SHIFTER, f = x - (shifted - M_SHIFTER);
    return m_from_bits(m_bits(1 + m_exp2m1_small(f)) + (m_bits(shifted) << 52));
}

M_INLINE double m_wide_exp(double x) /* |x| <= 700 */
{
    return m_wide_exp2(x * (1 / M_LN2));
}

M_INLINE double m_wide_expm1(double x) /* |x| <= 700 */
{
    double y = x * (1 / M_LN2), shifted = y + M_SHIFTER, scale = m_power2(shifted);
    return copysign(m_exp2m1_small(y - (shifted - M_SHIFTER)) * scale + (scale - 1), x);
}

/* log(u), where u = 1 + x was rounded and x is exact near 0; for log itself x = u - 1. */
M_INLINE double m_wide_log_of(double u, double x)
{
    const uint64_t one = 0x3ff0000000000000u, root_half = 0x3fe6a09e667f3bcdu;
    uint64_t biased = (m_bits(u) + (one - root_half)) >> 52; /* exponent for a mantissa in [sqrt 1/2, sqrt 2) */
    double mantissa = m_from_bits(m_bits(u) - (biased << 52) + one);
    double e = m_from_bits(biased | 0x4330000000000000u) - (0x1p52 + 1023);
    double f = e == 0 ? x : mantissa - 1, s = f / (2 + f), z = s * s;
    double p = 0.2361748136386535;
    p = p * z + 0.28534993254039226;
    p = p * z + 0.40000385582878556;
    p = p * z + 0.6666666524302618;
    p = p * z + 2.0000000000083924;
    double y = e * M_LN2 + s * p;
    y = u > 0 ? y : u == 0 ? -INFINITY : NAN;
    return u == INFINITY ? u : y;
}

M_INLINE double m_wide_log(double x)
{
    return m_wide_log_of(x, x - 1);
}

M_INLINE double m_wide_log1p(double x)
{
    return m_wide_log_of(1 + x, x);
}

/* erfc(z) for z >= 0, to full relative accuracy. */
M_INLINE double m_wide_erfc(double z)
{
    double t = 1 / (1 + 0.4 * z);
    double p = 0.022975506212738923;
    p = p * t - 0.16712913618572167;
    p = p * t + 0.5051405581116387;
    p = p * t - 0.7950305633645806;
    p = p * t + 0.6896833328924534;
    p = p * t - 0.41417021340280097;
    p = p * t + 0.25175041786227437;
    p = p * t + 0.06633932696807533;
    p = p * t + 0.1828740291921699;
    p = p * t + 0.2060995835577634;
    p = p * t + 0.22579550093430945;
    p = p * t + 0.2256716572425255;
    return m_wide_exp(m_limit(-z * z, -700, 0)) * (t * p);
}

/* atan(y / x) in [0, pi/2] for y, x >= 0. */
M_INLINE double m_wide_atan(double y, double x)
{
    double high = y > 2.414213562373095 * x, middle = y > 0.4142135623730951 * x;
    double num = high ? -x : middle ? y - x : y, den = high ? y : middle ? y + x : x;
    double offset = high ? 1.5707963267948966 : middle ? 0.7853981633974483 : 0;
    double s = num / den, z = s * s;
    double p = 0.047057295885237;
    p = p * z - 0.08455426503962427;
    p = p * z + 0.1104035418385071;
    p = p * z - 0.14281577905250847;
    p = p * z + 0.1999988346566031;
    p = p * z - 0.333333320925389;
    p = p * z + 0.9999999999782941;
    return offset + s * p;
}

/* asin(x) / x from z = x * x <= 1/4. */
M_INLINE double m_wide_asin_ratio(double z)
{
    double p = 0.0347484248080839;
    p = p * z + 0.0074010072390753795;
    p = p * z + 0.024650862660604088;
    p = p * z + 0.03010250689966149;
    p = p * z + 0.04466113930866896;
    p = p * z + 0.07499941908754719;
    p = p * z + 0.16666667364186447;
    return p * z + 0.9999999999863537;
}

/* x less the nearest multiple n of pi/2, |x| <= M_TRIG_LIMIT; the low bits of *shifted are those of n. */
#define M_TRIG_LIMIT 1048576.0f
M_INLINE double m_wide_reduce(double x, double *shifted)
{
    *shifted = x * 0.63661977236758134308 + M_SHIFTER;
    double n = *shifted - M_SHIFTER;
    return x - n * 1.57079632673412561417e+00 - n * 6.07710050650619224932e-11; /* the first product is exact */
}

M_INLINE double m_wide_sin_small(double r)
{
    double z = r * r, p = 2.7165327459456964e-06;
    p = p * z - 0.00019839113508526276;
    p = p * z + 0.008333328486140905;
    p = p * z - 0.16666666628511248;
    return r * (p * z + 0.9999999999951928);
}

M_INLINE double m_wide_cos_small(double r)
{
    double z = r * r, p = 2.4370910069426623e-05;
    p = p * z - 0.0013886520653686812;
    p = p * z + 0.04166661344054243;
    p = p * z - 0.4999999958105491;
    return p * z + 0.999999999947218;
}

/* sin(r + (n + quarter) pi/2), by the last bits of n + quarter. */
M_INLINE double m_wide_turn(double r, double shifted, uint64_t quarter)
{
    uint64_t n = m_bits(shifted) + quarter;
    double y = n & 1 ? m_wide_cos_small(r) : m_wide_sin_small(r);
    return m_from_bits(m_bits(y) ^ (n & 2) << 62);
}

/* ---- the functions ---- */

M_INLINE float m_exp_f32(float x)
{
    return (float)m_wide_exp(m_narrow_limit(x, -150, 130));
}

M_INLINE float m_exp2_f32(float x)
{
    return (float)m_wide_exp2(m_narrow_limit(x, -200, 200));
}

M_INLINE float m_expm1_f32(float x)
{
    return (float)m_wide_expm1(m_narrow_limit(x, -150, 130));
}

M_INLINE float m_log_f32(float x)
{
    return (float)m_wide_log(x);
}

M_INLINE float m_log2_f32(float x)
{
    return (float)(m_wide_log(x) * (1 / M_LN2));
}

M_INLINE float m_log10_f32(float x)
{
    return (float)(m_wide_log(x) * 0.43429448190325182765);
}

M_INLINE float m_log1p_f32(float x)
{
    return (float)copysign(m_wide_log1p(x), x);
}

M_INLINE float m_logaddexp_f32(float x, float y)
{
    double a = x, b = y, larger = a > b ? a : b, gap = a == b ? 0 : fabs(a - b);
    double sum = larger + m_wide_log1p(m_wide_exp(m_limit(-gap, -700, 0)));
    return (float)(a != a || b != b ? a + b : sum);
}

M_INLINE float m_sinh_f32(float x)
{
    double e = m_wide_expm1(m_narrow_limit(fabsf(x), 0, 100));
    return (float)copysign(0.5 * (e + e / (e + 1)), x);
}

M_INLINE float m_cosh_f32(float x)
{
    double e = m_wide_exp(m_narrow_limit(fabsf(x), 0, 100));
    return (float)(0.5 * (e + 1 / e));
}

M_INLINE float m_tanh_f32(float x)
{
    double e = m_wide_expm1(2 * (double)m_narrow_limit(x, -30, 30));
    return (float)(e / (e + 2));
}

M_INLINE float m_asinh_f32(float x)
{
    double a = fabs((double)x), square = a * a;
    double y = m_wide_log1p(a + square / (1 + sqrt(1 + square)));
    return (float)copysign(a == INFINITY ? a : y, x);
}

M_INLINE float m_acosh_f32(float x)
{
    double t = (double)x - 1;
    double y = m_wide_log1p(t + sqrt(t * (t + 2)));
    return (float)(x < 1 ? NAN : y);
}

M_INLINE float m_atanh_f32(float x)
{
    double a = fabs((double)x);
    return (float)copysign(0.5 * m_wide_log1p(2 * a / (1 - a)), x);
}

M_INLINE float m_erf_f32(float x)
{
    double z = m_limit(fabs((double)x), 0, 4), p = 1.5132605688566965e-09; /* -log(erfc(z)) / z */
    p = p * z - 2.6750643719374456e-08;
    p = p * z + 7.137981975439358e-08;
    p = p * z + 2.2184434267003052e-06;
    p = p * z - 3.0329019074073474e-05;
    p = p * z + 0.00019992321938256468;
    p = p * z - 0.0008058939907301522;
    p = p * z + 0.0018772629859390003;
    p = p * z - 0.00030831610589675306;
    p = p * z - 0.01909558786267322;
    p = p * z + 0.10276684698699741;
    p = p * z + 0.6366201751496675;
    p = p * z + 1.1283791623485524;
    return (float)copysign(m_wide_expm1(-z * p), x);
}

/* At -inf the definitions of silu and both gelus are 0 * inf: NaN. */
M_INLINE float m_sigmoid_f32(float x)
{
    return (float)(1 / (1 + m_wide_exp(-m_narrow_limit(x, -200, 200))));
}

M_INLINE float m_silu_f32(float x)
{
    double y = x / (1 + m_wide_exp(-m_narrow_limit(x, -200, 200)));
    return x == -INFINITY ? NAN : (float)y;
}

M_INLINE float m_gelu_f32(float x)
{
    /* -2 sqrt(2/pi) log2(e), and that times 0.044715; beyond |x| = 20 exp's argument counts no more */
    double t = m_narrow_limit(x, -20, 20), y = t * (-2.3022081981443248 - 0.1029432395800235 * (t * t));
    double z = x / (1 + m_wide_exp2(y));
    return x == -INFINITY ? NAN : (float)z;
}

/* s (1 + (1 - s) x d), with s = sigmoid(2u) and d = d(2u)/dx: 2 sqrt(2/pi) (1 + 3 * 0.044715 x^2). */
M_INLINE float m_gelu_grad_f32(float x)
{
    double t = m_narrow_limit(x, -20, 20), square = t * t;
    double e = m_wide_exp2(t * (-2.3022081981443248 - 0.1029432395800235 * square)), s = 1 / (1 + e);
    double y = s * (1 + e * s * (t * (1.5957691216057308 + 0.21406444881780072 * square)));
    return x != x ? x : (float)y;
}

M_INLINE float m_gelu_erf_f32(float x)
{
    double half = 0.5 * m_wide_erfc(fabs((double)x) * 0.70710678118654752440);
    double y = x * (x < 0 ? half : 1 - half);
    return x == -INFINITY ? NAN : (float)y;
}

M_INLINE float m_softplus_f32(float x)
{
    double a = fabs((double)x);
    return (float)((x > 0 ? x : 0) + m_wide_log1p(m_wide_exp(m_limit(-a, -700, 0))));
}

/* sin, cos and tan hold for |x| <= M_TRIG_LIMIT; the loops hand blocks with larger arguments to libm. */
M_INLINE float m_sin_f32(float x)
{
    double shifted, r = m_wide_reduce(x, &shifted);
    double y = m_wide_turn(r, shifted, 0);
    return x == 0 ? x : (float)y;
}

M_INLINE float m_cos_f32(float x)
{
    double shifted, r = m_wide_reduce(x, &shifted);
    return (float)m_wide_turn(r, shifted, 1);
}

M_INLINE float m_tan_f32(float x)
{
    double shifted, r = m_wide_reduce(x, &shifted);
    double y = m_wide_turn(r, shifted, 0) / m_wide_turn(r, shifted, 1);
    return x == 0 ? x : (float)y;
}

M_INLINE float m_asin_f32(float x)
{
    double a = fabs((double)x), z = 0.5 * (1 - a), s = sqrt(z);
    double far_side = 1.5707963267948966 - 2 * s * m_wide_asin_ratio(z), near_side = a * m_wide_asin_ratio(a * a);
    return (float)copysign(a > 0.5 ? far_side : near_side, x);
}

M_INLINE float m_acos_f32(float x)
{
    double a = fabs((double)x), z = 0.5 * (1 - a), s = sqrt(z), side = 2 * s * m_wide_asin_ratio(z);
    double near_side = 1.5707963267948966 - x * m_wide_asin_ratio(a * a);
    return (float)(a > 0.5 ? (x < 0 ? 3.14159265358979323846 - side : side) : near_side);
}

M_INLINE float m_atan_f32(float x)
{
    return (float)copysign(m_wide_atan(fabs((double)x), 1), x);
}

M_INLINE float m_atan2_f32(float y, float x)
{
    double a = fabs((double)y), b = fabs((double)x);
    int both_infinite = a == INFINITY && b == INFINITY, both_zero = a == 0 && b == 0;
    a = both_infinite ? 1 : a;
    b = both_infinite || both_zero ? 1 : b;
    double r = m_wide_atan(a, b);
    return (float)copysign(copysign(1, x) < 0 ? 3.14159265358979323846 - r : r, y);
}

M_INLINE float m_hypot_f32(float x, float y)
{
    double a = x, b = y, r = sqrt(a * a + b * b);
    return fabs(a) == INFINITY || fabs(b) == INFINITY ? INFINITY : (float)r;
}

#endif
