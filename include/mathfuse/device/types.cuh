// Element types on the device and the host: storage formats, their exact conversions, complex numbers, packs of
// elements. Compiles with NVRTC (no standard library), nvcc and a host C++17 compiler.
#ifndef MATHFUSE_DEVICE_TYPES_CUH
#define MATHFUSE_DEVICE_TYPES_CUH

#if !defined(__CUDACC_RTC__)
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

#ifndef MF_DEVICE
#if defined(__CUDACC__)
#define MF_DEVICE __device__ __forceinline__
#else
#define MF_DEVICE inline
#endif
#endif

// Also on the host under nvcc: for what constants are computed with.
#ifndef MF_HOST_DEVICE
#if defined(__CUDACC__)
#define MF_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define MF_HOST_DEVICE inline
#endif
#endif

#ifndef MF_UNROLL
#if defined(__CUDACC__)
#define MF_UNROLL _Pragma("unroll")
#define MF_UNROLL_BY_4 _Pragma("unroll 4")
#define MF_ROLL _Pragma("unroll 1")
#else
#define MF_UNROLL
#define MF_UNROLL_BY_4
#define MF_ROLL
#endif
#endif

namespace mf
{

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long uintptr_t;
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;

// Storage formats: bits only; arithmetic is done on widened values.
struct b8 {
    u8 bits;
};
struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};
struct e4m3 {
    u8 bits;
};
struct e5m2 {
    u8 bits;
};
struct i8 {
    signed char bits;
};

template <class T> struct alignas(2 * sizeof(T)) cplx {
    T re, im;
};
typedef cplx<float> c64;
typedef cplx<double> c128;

// ---- what a type is ----

template <class T> struct compute_of {
    typedef float type; // f16, bf16, e4m3, e5m2, float
};
template <> struct compute_of<b8> {
    typedef i32 type;
};
template <> struct compute_of<i8> {
    typedef i32 type;
};
template <> struct compute_of<i32> {
    typedef i32 type;
};
template <> struct compute_of<i64> {
    typedef i64 type;
};
template <> struct compute_of<double> {
    typedef double type;
};
template <class T> struct compute_of<cplx<T>> {
    typedef cplx<T> type;
};
template <class T> using compute_t = typename compute_of<T>::type;

template <class T> struct real_of {
    typedef T type;
};
template <class T> struct real_of<cplx<T>> {
    typedef T type;
};
template <class T> using real_t = typename real_of<T>::type;

template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;
template <class T> constexpr bool is_complex = false;
template <class T> constexpr bool is_complex<cplx<T>> = true;
template <class T> constexpr bool is_integer = same<T, i32> || same<T, i64>;
template <class T> constexpr bool is_real = same<T, float> || same<T, double>;

// ---- bits ----

MF_DEVICE u32 bits_of(float x)
{
#if defined(__CUDA_ARCH__)
    return __float_as_uint(x);
#else
    u32 u;
    memcpy(&u, &x, sizeof u);
    return u;
#endif
}

MF_DEVICE float float_of(u32 u)
{
#if defined(__CUDA_ARCH__)
    return __uint_as_float(u);
#else
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
#endif
}

MF_DEVICE double double_of(u64 u)
{
#if defined(__CUDA_ARCH__)
    return __longlong_as_double((long long)u);
#else
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
#endif
}

template <class T> MF_DEVICE T inf_of()
{
    if constexpr (same<T, double>)
        return double_of(0x7ff0000000000000ull);
    else
        return float_of(0x7f800000u);
}

template <class T> MF_DEVICE T nan_of()
{
    if constexpr (same<T, double>)
        return double_of(0x7ff8000000000000ull);
    else
        return float_of(0x7fc00000u);
}

// ---- widening: exact ----

MF_DEVICE i32 widen(b8 x)
{
    return x.bits != 0;
}
MF_DEVICE i32 widen(i8 x)
{
    return x.bits;
}
MF_DEVICE i32 widen(i32 x)
{
    return x;
}
MF_DEVICE i64 widen(i64 x)
{
    return x;
}
MF_DEVICE float widen(float x)
{
    return x;
}
MF_DEVICE double widen(double x)
{
    return x;
}
template <class T> MF_DEVICE cplx<T> widen(cplx<T> x)
{
    return x;
}
MF_DEVICE float widen(bf16 x)
{
    return float_of((u32)x.bits << 16);
}

MF_DEVICE float widen(f16 x)
{
#if defined(__CUDA_ARCH__)
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#else
    u32 magnitude = x.bits & 0x7fffu, sign = (u32)(x.bits & 0x8000u) << 16;
    u32 normal = (magnitude << 13) + (112u << 23);
    u32 subnormal = bits_of((float)(i32)magnitude * 0x1p-24f);
    return float_of(sign | (magnitude < 0x400 ? subnormal : magnitude >= 0x7c00 ? normal + (112u << 23) : normal));
#endif
}

MF_DEVICE float widen(e5m2 x)
{
    return widen(f16{(u16)(x.bits << 8)}); // a half without its low mantissa byte
}

MF_DEVICE float widen(e4m3 x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    u32 pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((u16)x.bits));
    return widen(f16{(u16)pair});
#else
    u32 magnitude = x.bits & 0x7fu, sign = (u32)(x.bits & 0x80u) << 24;
    u32 normal = (magnitude << 20) + (120u << 23);
    u32 subnormal = bits_of((float)(i32)magnitude * 0x1p-9f);
    return float_of(sign | (magnitude < 8 ? subnormal : magnitude == 0x7f ? 0x7fc00000u : normal));
#endif
}

// ---- between compute types ----

// f64 to f32 rounding to odd, so that a second rounding to a narrower format gives what one rounding would have given.
MF_DEVICE float round_to_odd(double x)
{
    float nearest = (float)x;
    double back = nearest;
    bool larger = (back < 0 ? -back : back) > (x < 0 ? -x : x);
    bool inexact = back != x && x == x;
    return float_of((bits_of(nearest) - (larger ? 1u : 0u)) | (inexact ? 1u : 0u));
}

// The same for integers: bits that no narrow float can tell apart are folded into one, so that a double holds the rest.
MF_DEVICE float round_to_odd(i64 x)
{
    u64 magnitude = x < 0 ? 0 - (u64)x : (u64)x;
    u64 folded = magnitude >> 40 ? magnitude >> 24 << 24 | (u64)((magnitude & 0xffffff) != 0) << 24 : magnitude;
    return round_to_odd(x < 0 ? -(double)folded : (double)folded);
}

// A real number as an integer: NaN is 0, what is out of range the nearest that is in.
template <class T, class S> MF_DEVICE T to_integer(S x)
{
    constexpr T largest = (T)(sizeof(T) == 4 ? 0x7fffffffll : 0x7fffffffffffffffll);
    constexpr S bound = sizeof(T) == 4 ? S(2147483648.0) : S(9223372036854775808.0);
    return x != x ? 0 : x <= -bound ? -largest - 1 : x >= bound ? largest : (T)x;
}

// Real to complex has no imaginary part, complex to real drops it; integers wrap into narrower ones.
template <class T, class S> MF_DEVICE T convert(S x)
{
    if constexpr (is_integer<T> && is_real<S>)
        return to_integer<T>(x);
    else if constexpr (is_integer<T> && is_complex<S>)
        return to_integer<T>(x.re);
    else if constexpr (is_complex<T> && is_complex<S>)
        return T{(real_t<T>)x.re, (real_t<T>)x.im};
    else if constexpr (is_complex<T>)
        return T{(real_t<T>)x, real_t<T>(0)};
    else if constexpr (is_complex<S>)
        return (T)x.re;
    else
        return (T)x;
}

// ---- narrowing: to nearest, ties to even ----

// |x| rounded to a format of MANTISSA bits and exponent bias BIAS, as its bits without the sign; exponents that are too
// large carry on upwards. magnitude: the bits of |x|, not NaN.
template <int MANTISSA, int BIAS> MF_DEVICE u32 round_small(u32 magnitude)
{
    constexpr int shift = 23 - MANTISSA;
    u32 normal =
        (magnitude - ((u32)(127 - BIAS) << 23) + ((1u << (shift - 1)) - 1) + (magnitude >> shift & 1)) >> shift;
    // Below the smallest normal number: adding a power of two whose last place is the format's makes the FPU round.
    constexpr u32 magic = (u32)(127 + 24 - BIAS - MANTISSA) << 23;
    u32 subnormal = bits_of(float_of(magnitude) + float_of(magic)) - magic;
    return magnitude < (u32)(128 - BIAS) << 23 ? subnormal : normal;
}

template <class T, bool SATURATE> struct rounding; // of a float

template <bool SATURATE> struct rounding<f16, SATURATE> {
    static MF_DEVICE f16 of(float x)
    {
#if defined(__CUDA_ARCH__)
        u16 bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
        if (SATURATE && (bits & 0x7fff) == 0x7c00)
            bits = (u16)((bits & 0x8000) | 0x7bff);
        return f16{bits};
#else
        u32 bits = bits_of(x), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
        u32 limit = SATURATE ? 0x7bff : 0x7c00, rounded = round_small<10, 15>(magnitude);
        rounded = rounded > limit ? limit : rounded;
        return f16{(u16)(sign | (magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : rounded))};
#endif
    }
};

template <bool SATURATE> struct rounding<bf16, SATURATE> {
    static MF_DEVICE bf16 of(float x)
    {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        u16 bits;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
        if (SATURATE && (bits & 0x7fff) == 0x7f80)
            bits = (u16)((bits & 0x8000) | 0x7f7f);
        return bf16{bits};
#else
        u32 bits = bits_of(x), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
        u32 limit = SATURATE ? 0x7f7f : 0x7f80, rounded = (magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16;
        rounded = rounded > limit ? limit : rounded;
        return bf16{(u16)(sign | (magnitude > 0x7f800000 ? 0x7fc0 | magnitude >> 16 : rounded))};
#endif
    }
};

// No infinity in this format: what rounds beyond 448 is NaN, or ±448 when saturating. 464 is the tie, and goes to 448.
template <bool SATURATE> struct rounding<e4m3, SATURATE> {
    static MF_DEVICE e4m3 of(float x)
    {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
        u16 pair;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
        return e4m3{(u8)(!SATURATE && (bits_of(x) & 0x7fffffff) > 0x43e80000 ? pair | 0x7f : pair)};
#else
        u32 bits = bits_of(x), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
        u32 rounded = round_small<3, 7>(magnitude);
        rounded = rounded > 0x7e ? (SATURATE ? 0x7e : 0x7f) : rounded;
        return e4m3{(u8)(sign | (magnitude > 0x7f800000 ? 0x7f : rounded))};
#endif
    }
};

// 61440 is the tie between the largest finite value, 57344, and infinity; it goes to infinity.
template <bool SATURATE> struct rounding<e5m2, SATURATE> {
    static MF_DEVICE e5m2 of(float x)
    {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
        u16 pair;
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
        u32 magnitude = bits_of(x) & 0x7fffffff;
        bool infinite = !SATURATE && magnitude >= 0x47700000 && magnitude <= 0x7f800000;
        return e5m2{(u8)(infinite ? (pair & 0x80) | 0x7c : pair)};
#else
        u32 bits = bits_of(x), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
        u32 limit = SATURATE ? 0x7b : 0x7c, rounded = round_small<2, 15>(magnitude);
        rounded = rounded > limit ? limit : rounded;
        return e5m2{(u8)(sign | (magnitude > 0x7f800000 ? 0x7e | (magnitude >> 21 & 3) : rounded))};
#endif
    }
};

template <class T> constexpr bool is_small_float = same<T, f16> || same<T, bf16> || same<T, e4m3> || same<T, e5m2>;

// An integer of any width, or what is left of the point, in 8 bits.
template <bool SATURATE, class S> MF_DEVICE i8 narrow_integer(S x)
{
    if constexpr (is_integer<S> && !SATURATE) {
        return i8{(signed char)(u8)x};
    } else if constexpr (is_integer<S>) {
        return i8{(signed char)(x < -128 ? -128 : x > 127 ? 127 : x)};
    } else {
        return narrow_integer<true>(convert<i32>(x));
    }
}

// A value of any compute type as storage type T. SATURATE: what is beyond the range of a 16- or 8-bit float becomes the
// largest finite value; else it becomes infinity, or NaN where there is none. Integers beyond i8's range wrap unless
// SATURATE.
template <class T, bool SATURATE = false, class S> MF_DEVICE T narrow(S x)
{
    if constexpr (same<T, b8> && is_complex<S>)
        return b8{(u8)(x.re != 0 || x.im != 0)};
    else if constexpr (same<T, b8>)
        return b8{(u8)(x != S(0))};
    else if constexpr (same<T, i8>)
        return narrow_integer<SATURATE>(x);
    else if constexpr (is_small_float<T> && same<S, float>)
        return rounding<T, SATURATE>::of(x);
    else if constexpr (is_small_float<T> && same<S, i64>)
        return rounding<T, SATURATE>::of(round_to_odd(x));
    else if constexpr (is_small_float<T>)
        return rounding<T, SATURATE>::of(round_to_odd(convert<double>(x)));
    else
        return convert<T>(x);
}

// Rounded to T and widened again.
template <class T, bool SATURATE = false, class S> MF_DEVICE compute_t<T> cast(S x)
{
    return widen(narrow<T, SATURATE>(x));
}

// ---- complex arithmetic ----

template <class T> MF_DEVICE cplx<T> operator+(cplx<T> x, cplx<T> y)
{
    return cplx<T>{x.re + y.re, x.im + y.im};
}
template <class T> MF_DEVICE cplx<T> operator-(cplx<T> x, cplx<T> y)
{
    return cplx<T>{x.re - y.re, x.im - y.im};
}
template <class T> MF_DEVICE cplx<T> operator-(cplx<T> x)
{
    return cplx<T>{-x.re, -x.im};
}
template <class T> MF_DEVICE cplx<T> operator*(cplx<T> x, cplx<T> y)
{
    return cplx<T>{x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}
template <class T> MF_DEVICE bool operator==(cplx<T> x, cplx<T> y)
{
    return x.re == y.re && x.im == y.im;
}
template <class T> MF_DEVICE bool operator!=(cplx<T> x, cplx<T> y)
{
    return !(x == y);
}

// ---- packs: neighbouring elements that move as one memory access where alignment allows ----

MF_HOST_DEVICE constexpr int smaller(int a, int b)
{
    return a < b ? a : b;
}

template <int BYTES> struct word_of;
template <> struct word_of<1> {
    typedef u8 type;
};
template <> struct word_of<2> {
    typedef u16 type;
};
template <> struct word_of<4> {
    typedef u32 type;
};
struct alignas(8) word8 {
    u32 w[2];
};
struct alignas(16) word16 {
    u32 w[4];
};
template <> struct word_of<8> {
    typedef word8 type;
};
template <> struct word_of<16> {
    typedef word16 type;
};

template <class T, int N> struct pack {
    T v[N];
};

// A = bytes to which the address is known to be aligned, a power of two.
template <int A, class T, int N> union pack_words {
    static constexpr int bytes = smaller(smaller(A, 16), (int)sizeof(T) * N);
    typedef typename word_of<bytes>::type word;
    pack<T, N> p;
    word w[sizeof(T) * N / bytes];
};

template <int A, class T, int N> MF_DEVICE void load_pack(pack<T, N> &out, const T *address)
{
    typedef pack_words<A, T, N> words;
    words x;
    MF_UNROLL
    for (int i = 0; i < (int)(sizeof(T) * N / words::bytes); i++)
        x.w[i] = ((const typename words::word *)(const void *)address)[i];
    out = x.p;
}

template <int A, class T, int N> MF_DEVICE void store_pack(T *address, const pack<T, N> &in)
{
    typedef pack_words<A, T, N> words;
    words x;
    x.p = in;
    MF_UNROLL
    for (int i = 0; i < (int)(sizeof(T) * N / words::bytes); i++)
        ((typename words::word *)(void *)address)[i] = x.w[i];
}

// ---- the block's dynamic shared memory; under emulate.h the emulator's ----

#if defined(__CUDACC__)
__device__ __forceinline__ unsigned char *dynamic_shared()
{
    extern __shared__ __align__(1024) unsigned char mf_dynamic_shared[];
    return mf_dynamic_shared;
}
#define MF_DYNAMIC_SHARED(type, name) type *name = (type *)::mf::dynamic_shared()
#endif

} // namespace mf

#endif
