// Functions for values that are rounded to 16 bits or fewer next: mf::quick::<name>(x) for the operations named here, on
// float. Straight code over the hardware's approximations, off by less than 2^-16 of the value; infinities, NaN, saturation
// and tails are those of mf::<name>.
#ifndef MATHFUSE_DEVICE_QUICK_CUH
#define MATHFUSE_DEVICE_QUICK_CUH

#include "mathfuse/device/elementwise.cuh"

namespace mf
{
namespace quick
{

// 2^x and 1 / x, where the result is subnormal 0.
MF_DEVICE float exp2_flushed(float x)
{
#if defined(__CUDA_ARCH__)
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    float r = ::exp2f(x);
    return r < 0x1p-126f ? 0 : r;
#endif
}
MF_DEVICE float reciprocal_flushed(float x)
{
#if defined(__CUDA_ARCH__)
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    float r = 1.0f / x;
    return r < 0x1p-126f ? 0 : r;
#endif
}

// The square of 2^(x/2): subnormal results come of a multiplication, which rounds them at no cost.
MF_DEVICE float exp2(float x)
{
    float half = exp2_flushed(0.5f * x);
    return half * half;
}
MF_DEVICE float exp(float x)
{
    float half = exp2_flushed(0.72134752044448170368f * x);
    return half * half;
}

// x / (1 + exp(-2u)) = x h / (1 + h^2) h for h = exp(u), given t = u log2(e): in the lower tail h^2 may be subnormal, h is
// not; from 2^13 on it makes no difference how large h is.
MF_DEVICE float times_logistic(float x, float t)
{
    float h = m_min(exp2_flushed(t), 0x1p20f);
    return x * (h * reciprocal_flushed(m_fma(h, h, 1.0f))) * h;
}

MF_DEVICE float sigmoid(float x)
{
    return times_logistic(1.0f, 0.72134752044448170368f * x);
}

MF_DEVICE float silu(float x)
{
    return times_logistic(x, 0.72134752044448170368f * x);
}

MF_DEVICE float gelu(float x)
{
    const float c1 = 1.15110409907216244556f, c3 = 0.05147161979001174371f; // half of m_gelu's
    return times_logistic(x, x * m_fma(x * x, c3, c1));
}

// 1 - 2 / (1 + exp(2x)); near 0, where that cancels, x - x^3/3 + 2x^5/15.
MF_DEVICE float tanh(float x)
{
    float square = x * x;
    float near = x * m_fma(square, m_fma(square, 0.13333333333333333333f, -0.33333333333333333333f), 1.0f);
    float far = m_fma(-2.0f, reciprocal_flushed(1.0f + exp2_flushed(2.88539008177792681472f * x)), 1.0f);
    return m_fabs(x) < 0.125f ? near : far;
}

MF_DEVICE float divide(float x, float y)
{
#if defined(__CUDA_ARCH__)
    float r;
    asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
#else
    return x / y;
#endif
}

MF_DEVICE float reciprocal(float x)
{
    return divide(1.0f, x);
}

MF_DEVICE float sqrt(float x)
{
#if defined(__CUDA_ARCH__)
    float r;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    return ::sqrtf(x);
#endif
}

} // namespace quick
} // namespace mf

#endif
