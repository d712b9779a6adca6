// Reductions over threads: the operators, then warps and blocks. Every order of combination is fixed, so results repeat
// bit for bit. All threads of the warp or block must call; all get the result.
#ifndef MATHFUSE_DEVICE_REDUCE_CUH
#define MATHFUSE_DEVICE_REDUCE_CUH

#include "mathfuse/device/elementwise.cuh"
#if !defined(__CUDACC__)
#include "mathfuse/device/emulate.h"
#endif

namespace mf
{

// ---- operators: identity<T>() and combine(x, y); maximum and minimum pass NaN on ----

struct op_sum {
    template <class T> static MF_DEVICE T identity() { return T{}; }
    template <class T> static MF_DEVICE T combine(T x, T y)
    {
        if constexpr (is_integer<T>)
            return m_iadd(x, y);
        else
            return x + y;
    }
};

struct op_prod {
    template <class T> static MF_DEVICE T identity() { return convert<T>(1); }
    template <class T> static MF_DEVICE T combine(T x, T y) { return multiply(x, y); }
};

template <class T> MF_DEVICE T lowest_of()
{
    if constexpr (is_integer<T>)
        return (T)(unsigned_t<T>(1) << (8 * sizeof(T) - 1));
    else
        return -inf_of<T>();
}

struct op_max {
    template <class T> static MF_DEVICE T identity() { return lowest_of<T>(); }
    template <class T> static MF_DEVICE T combine(T x, T y) { return maximum(x, y); }
};

struct op_min {
    template <class T> static MF_DEVICE T identity()
    {
        if constexpr (is_integer<T>)
            return (T) ~(unsigned_t<T>)lowest_of<T>();
        else
            return inf_of<T>();
    }
    template <class T> static MF_DEVICE T combine(T x, T y) { return minimum(x, y); }
};

struct op_any {
    template <class T> static MF_DEVICE T identity() { return T(0); }
    template <class T> static MF_DEVICE T combine(T x, T y) { return T(x != 0 || y != 0); }
};

struct op_all {
    template <class T> static MF_DEVICE T identity() { return T(1); }
    template <class T> static MF_DEVICE T combine(T x, T y) { return T(x != 0 && y != 0); }
};

// ---- running statistics that combine, for one pass over a row ----

// The maximum of what was seen and the sum of exp(x - maximum): the two numbers of a softmax.
template <class T> struct softmax_moments {
    T maximum, sum;
    static MF_DEVICE softmax_moments identity() { return {-inf_of<T>(), T(0)}; }
    MF_DEVICE void add(T x) { *this = combine(*this, softmax_moments{x, T(1)}); }
    static MF_DEVICE softmax_moments combine(softmax_moments a, softmax_moments b)
    {
        T m = m_max(a.maximum, b.maximum);
        T wa = a.maximum == m ? T(1) : m_exp(a.maximum - m), wb = b.maximum == m ? T(1) : m_exp(b.maximum - m);
        return {m, a.sum * wa + b.sum * wb};
    }
};

// Count, mean and sum of squared deviations (Welford; Chan's combination): no cancellation in the variance.
template <class T> struct variance_moments {
    T count, mean, squares;
    static MF_DEVICE variance_moments identity() { return {T(0), T(0), T(0)}; }
    MF_DEVICE void add(T x)
    {
        count += T(1);
        T delta = x - mean;
        mean += delta / count;
        squares += delta * (x - mean);
    }
    static MF_DEVICE variance_moments combine(variance_moments a, variance_moments b)
    {
        T n = a.count + b.count;
        if (n == 0)
            return a;
        T delta = b.mean - a.mean;
        return {n, a.mean + delta * (b.count / n), a.squares + b.squares + delta * delta * (a.count * b.count / n)};
    }
};

// ---- across threads ----

// x of the lane whose number differs by `mask`, within aligned groups of `width` lanes; for any type of 4-byte words.
template <class T> MF_DEVICE T shuffle_xor(T x, int mask)
{
    static_assert(sizeof(T) % 4 == 0, "moved as 4-byte words");
    union {
        T value;
        u32 word[sizeof(T) / 4];
    } a = {x};
    MF_UNROLL
    for (int i = 0; i < (int)(sizeof(T) / 4); i++)
        a.word[i] = __shfl_xor_sync(0xffffffffu, a.word[i], mask);
    return a.value;
}

// Over aligned groups of LANES threads of a warp (a power of two); the whole warp calls.
template <class Op, int LANES = 32, class T> MF_DEVICE T warp_reduce(T x)
{
    MF_UNROLL
    for (int mask = LANES / 2; mask > 0; mask /= 2)
        x = Op::combine(x, shuffle_xor(x, mask));
    return x;
}

// Over aligned groups of LANES of the block's THREADS (both powers of two). `scratch`: shared memory for THREADS / 32
// values; it may be used again after the return.
template <class Op, int LANES, int THREADS, class T> MF_DEVICE T group_reduce(T x, T *scratch)
{
    if constexpr (LANES <= 32) {
        return warp_reduce<Op, LANES>(x);
    } else {
        constexpr int warps = LANES / 32;
        int warp = (int)threadIdx.x / 32;
        x = warp_reduce<Op>(x);
        if (threadIdx.x % 32 == 0)
            scratch[warp] = x;
        __syncthreads();
        const T *mine = scratch + warp / warps * warps;
        x = mine[0];
        MF_UNROLL
        for (int i = 1; i < warps; i++)
            x = Op::combine(x, mine[i]);
        __syncthreads();
        return x;
    }
}

// Over a block of THREADS (a multiple of 32), one-dimensional.
template <class Op, int THREADS, class T> MF_DEVICE T block_reduce(T x, T *scratch)
{
    return group_reduce<Op, THREADS, THREADS>(x, scratch);
}

} // namespace mf

#endif
