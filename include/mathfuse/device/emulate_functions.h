// Functions and vector types that device code finds without an include, for emulate.h: atomics, loads, bits,
// mathematics.
#ifndef MATHFUSE_DEVICE_EMULATE_FUNCTIONS_H
#define MATHFUSE_DEVICE_EMULATE_FUNCTIONS_H

#include <math.h>
#include "mathfuse/device/emulate_block.h"

// Blocks run one after the other and threads switch at collectives only, so plain updates are atomic.
#define MF_EMULATE_ATOMIC(name, expression)                                                                            \
    template <class T, class S> MF_EMULATE_OWN inline T name(T *address, S value)                                      \
    {                                                                                                                  \
        T old = *address, x = (T)value;                                                                                \
        *address = (expression);                                                                                       \
        return old;                                                                                                    \
    }
MF_EMULATE_ATOMIC(atomicAdd, (T)(old + x))
MF_EMULATE_ATOMIC(atomicSub, (T)(old - x))
MF_EMULATE_ATOMIC(atomicMin, x < old ? x : old)
MF_EMULATE_ATOMIC(atomicMax, x > old ? x : old)
MF_EMULATE_ATOMIC(atomicAnd, (T)(old &x))
MF_EMULATE_ATOMIC(atomicOr, (T)(old | x))
MF_EMULATE_ATOMIC(atomicXor, (T)(old ^ x))
MF_EMULATE_ATOMIC(atomicExch, x)
MF_EMULATE_ATOMIC(atomicInc, old >= x ? T(0) : (T)(old + 1))
MF_EMULATE_ATOMIC(atomicDec, old == 0 || old > x ? x : (T)(old - 1))
#undef MF_EMULATE_ATOMIC

template <class T, class S, class R> MF_EMULATE_OWN inline T atomicCAS(T *address, S expected, R value)
{
    T old = *address;
    if (old == (T)expected)
        *address = (T)value;
    return old;
}

#define MF_EMULATE_VECTOR(type, name)                                                                                  \
    struct alignas(2 * sizeof(type)) name##2                                                                           \
    {                                                                                                                  \
        type x, y;                                                                                                     \
    };                                                                                                                 \
    struct alignas(16) name##4                                                                                         \
    {                                                                                                                  \
        type x, y, z, w;                                                                                               \
    };                                                                                                                 \
    inline name##2 make_##name##2(type x, type y)                                                                      \
    {                                                                                                                  \
        return {x, y};                                                                                                 \
    }                                                                                                                  \
    inline name##4 make_##name##4(type x, type y, type z, type w)                                                      \
    {                                                                                                                  \
        return {x, y, z, w};                                                                                           \
    }
MF_EMULATE_VECTOR(float, float)
MF_EMULATE_VECTOR(double, double)
MF_EMULATE_VECTOR(int, int)
MF_EMULATE_VECTOR(unsigned, uint)
#undef MF_EMULATE_VECTOR

template <class T> inline T __ldg(const T *p)
{
    return *p;
}
template <class T> inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> inline void __stcs(T *p, T x)
{
    *p = x;
}
template <class A, class B> inline auto min(A a, B b) -> decltype(a + b)
{
    return a < b ? a : b;
}
template <class A, class B> inline auto max(A a, B b) -> decltype(a + b)
{
    return a > b ? a : b;
}
template <class R, class T> inline R mf_emulate_bits(T x)
{
    static_assert(sizeof(R) == sizeof(T), "the same size");
    R r;
    memcpy(&r, &x, sizeof r);
    return r;
}
inline unsigned __float_as_uint(float x)
{
    return mf_emulate_bits<unsigned>(x);
}
inline int __float_as_int(float x)
{
    return mf_emulate_bits<int>(x);
}
inline float __uint_as_float(unsigned x)
{
    return mf_emulate_bits<float>(x);
}
inline float __int_as_float(int x)
{
    return mf_emulate_bits<float>(x);
}
inline long long __double_as_longlong(double x)
{
    return mf_emulate_bits<long long>(x);
}
inline double __longlong_as_double(long long x)
{
    return mf_emulate_bits<double>(x);
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}
inline float __fdividef(float x, float y)
{
    return x / y;
}
inline float __expf(float x)
{
    return expf(x);
}
inline float __logf(float x)
{
    return logf(x);
}
inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}
inline void __trap()
{
    mf::emulate::report("thread %d called __trap", mf::emulate::now.self->number);
    mf::emulate::give_up();
}

#endif
