// Host emulation: include this first and a kernel over the device headers compiles as C++17 and runs on the CPU, block
// by block, each thread a fiber. mf::emulate::launch(kernel, grid, block, shared_bytes, args...) returns NULL or a
// message.
//
// Reported: threads at different barriers or gone from one, collectives with differing masks or missing lanes, and,
// under AddressSanitizer, accesses beyond the dynamic shared memory. Compiled with -fsanitize=thread -DMF_EMULATE_CHECK
// and linked without it (one source file of the program), also races between two barriers and shared accesses out of
// bounds. Dynamic shared memory: MF_DYNAMIC_SHARED(type, name) in the kernel, the same on the device. Not emulated:
// blocks that wait for each other, raw asm.
#ifndef MATHFUSE_DEVICE_EMULATE_H
#define MATHFUSE_DEVICE_EMULATE_H

#if defined(__CUDACC__)
#error "emulate.h is for host compilers; nvcc and NVRTC need no emulation"
#endif

#include <math.h>
#include "mathfuse/device/emulate_launch.h"
#ifdef MF_EMULATE_CHECK
#include "mathfuse/device/emulate_check.h"
#endif

#define MF_EMULATE 1

// ---- the language ----

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n))) // and alignas does not follow __shared__ in standard C++
#define __shared__ thread_local // static within a function, and one copy for each host thread that launches
#define MF_DYNAMIC_SHARED(type, name) type *name = (type *)::mf::emulate::now.shared

#define threadIdx (::mf::emulate::now.self->index)
#define blockIdx (::mf::emulate::now.block)
#define blockDim (::mf::emulate::now.shape)
#define gridDim (::mf::emulate::now.grid)
#define warpSize 32

#define MF_EMULATE_HERE (::mf::emulate::site{__FILE__, __LINE__})
#define __syncthreads() ::mf::emulate::barrier("__syncthreads", MF_EMULATE_HERE, 0)
#define __syncthreads_count(p) ::mf::emulate::vote_barrier("__syncthreads_count", MF_EMULATE_HERE, (p) != 0, 0)
#define __syncthreads_and(p) ::mf::emulate::vote_barrier("__syncthreads_and", MF_EMULATE_HERE, (p) != 0, 1)
#define __syncthreads_or(p) ::mf::emulate::vote_barrier("__syncthreads_or", MF_EMULATE_HERE, (p) != 0, 2)
#define __syncwarp(...) ::mf::emulate::sync_warp(MF_EMULATE_HERE, ##__VA_ARGS__)
#define __shfl_sync(...) ::mf::emulate::shuffle_index(MF_EMULATE_HERE, __VA_ARGS__)
#define __shfl_up_sync(...) ::mf::emulate::shuffle_up(MF_EMULATE_HERE, __VA_ARGS__)
#define __shfl_down_sync(...) ::mf::emulate::shuffle_down(MF_EMULATE_HERE, __VA_ARGS__)
#define __shfl_xor_sync(...) ::mf::emulate::shuffle_exclusive(MF_EMULATE_HERE, __VA_ARGS__)
#define __ballot_sync(mask, p) ::mf::emulate::ballot("__ballot_sync", MF_EMULATE_HERE, mask, (p) != 0)
#define __any_sync(mask, p) (::mf::emulate::ballot("__any_sync", MF_EMULATE_HERE, mask, (p) != 0) != 0)
#define __all_sync(mask, p) (::mf::emulate::ballot("__all_sync", MF_EMULATE_HERE, mask, (p) == 0) == 0)
#define __match_any_sync(mask, x) ::mf::emulate::match("__match_any_sync", MF_EMULATE_HERE, mask, x)
#define __activemask() ::mf::emulate::active_mask()

namespace mf
{
namespace emulate
{

inline int vote_barrier(const char *what, site where, int vote, int result)
{
    barrier(what, where, vote);
    return now.votes[result];
}

inline int lane()
{
    return now.self->number % 32;
}

inline uint32_t active_mask()
{
    const warp *w = now.warps + now.self->number / 32;
    return w->present & ~w->exited;
}

inline void sync_warp(site where, uint32_t mask = 0xffffffffu)
{
    char none = 0;
    meet("__syncwarp", where, mask, &none, 1, nullptr);
}

template <class T> T shuffle(const char *what, site where, uint32_t mask, T x, int source, bool inside)
{
    static_assert(sizeof(T) <= exchange::bytes, "too large to shuffle");
    alignas(16) unsigned char all[32][exchange::bytes];
    meet(what, where, mask, &x, sizeof x, all);
    if (!inside || !(now.warps[now.self->number / 32].present >> source & 1))
        return x;
    if (!(mask >> source & 1)) {
        report("thread %d reads lane %d by %s, which its mask %08x leaves out (%s:%d)", now.self->number, source, what,
               mask, where.file, where.line);
        give_up();
    }
    memcpy(&x, all[source], sizeof x);
    return x;
}

template <class T> T shuffle_index(site where, uint32_t mask, T x, int source, int width = 32)
{
    return shuffle("__shfl_sync", where, mask, x, lane() / width * width + (source & (width - 1)), true);
}

template <class T> T shuffle_up(site where, uint32_t mask, T x, unsigned delta, int width = 32)
{
    bool inside = lane() % width >= (int)delta;
    return shuffle("__shfl_up_sync", where, mask, x, inside ? lane() - (int)delta : lane(), inside);
}

template <class T> T shuffle_down(site where, uint32_t mask, T x, unsigned delta, int width = 32)
{
    bool inside = lane() % width + (int)delta < width;
    return shuffle("__shfl_down_sync", where, mask, x, inside ? lane() + (int)delta : lane(), inside);
}

// As on the device: lanes of lower groups can be read, of higher ones not.
template <class T> T shuffle_exclusive(site where, uint32_t mask, T x, int flip, int width = 32)
{
    int source = lane() ^ flip;
    bool inside = source < 32 && source / width <= lane() / width;
    return shuffle("__shfl_xor_sync", where, mask, x, inside ? source : lane(), inside);
}

inline uint32_t ballot(const char *what, site where, uint32_t mask, bool p)
{
    unsigned char all[32][exchange::bytes], mine = p;
    meet(what, where, mask, &mine, 1, all);
    uint32_t present = now.warps[now.self->number / 32].present, result = 0;
    for (int i = 0; i < 32; i++)
        if ((mask & present) >> i & 1)
            result |= (uint32_t)all[i][0] << i;
    return result;
}

template <class T> uint32_t match(const char *what, site where, uint32_t mask, T x)
{
    unsigned char all[32][exchange::bytes];
    meet(what, where, mask, &x, sizeof x, all);
    uint32_t present = now.warps[now.self->number / 32].present, result = 0;
    for (int i = 0; i < 32; i++)
        if (((mask & present) >> i & 1) && memcmp(all[i], &x, sizeof x) == 0)
            result |= 1u << i;
    return result;
}

} // namespace emulate
} // namespace mf

// ---- functions of the device ----

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
