// What generated chains and the skeletons share: arguments, points of the domain, memory accesses of operands.
//
// A generated chain<V> evaluates V neighbouring points of the domain's last dim at a time. It has
//   inputs      what load() fetched, as stored; acc[V], the anchor's results
//   row         results of reductions and values computed from them
//   load<P, CACHED>(a, p, in)       fetch what phase P needs (CACHED: and no earlier phase needed)
//   start, add, across, derive      of phase P: identities; one point; over threads; row values that follow
//   finish(a, p, in, r)             stores of the V points
//   value(a, p, in)                 instead: what goes on to the kernel's next part; values: all that it stores
//   finish_row(a, p, r)             stores of the row
#ifndef MF_DEVICE_CHAIN_CUH
#define MF_DEVICE_CHAIN_CUH

#include "mathfuse/device/reduce.cuh"

namespace mf
{

// First of all in a kernel that may be started before those ahead of it in its stream have ended: until they have; the next may
// start.
MF_DEVICE void begin_kernel()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Kernel arguments: 8-byte fields only, filled by the host in this order. ND dims, N operands; E: some have extents.
template <int ND, int N, bool E> struct chain_args {
    i64 points;        // of the domain; with reductions: rows
    i64 columns;       // points of a row, in vectors
    i64 splits, chunk; // blocks that share a row, and the vectors each takes
    void *work;
    i64 shape[ND];
    u64 divisor[ND]; // see unravel
    void *data[N];
    i64 stride[N][ND];
    i64 extent[E ? N : 1][ND];
};

template <int P> struct phase {
};

template <class I, int ND> struct point {
    I c[ND];
};

// Index n along dims [FIRST, FIRST + COUNT), the last one in steps of V. 32-bit division by multiplication: the low
// half of the divisor is the magic number, the high half the shift; valid below 2^31.
template <int FIRST, int COUNT, int V, class A, class I, int ND>
MF_DEVICE void unravel(const A &a, I n, point<I, ND> &p)
{
    if constexpr (COUNT > 0) {
        constexpr int last = FIRST + COUNT - 1;
        MF_UNROLL
        for (int d = last; d > FIRST; d--) {
            I q;
            I extent = d == last ? (I)(a.shape[d] / V) : (I)a.shape[d];
            if constexpr (sizeof(I) == 4)
                q = (I)(((u32)((u64)(u32)n * (u32)a.divisor[d] >> 32) + (u32)n) >> (u32)(a.divisor[d] >> 32));
            else
                q = n / extent;
            p.c[d] = (n - q * extent) * (d == last ? V : 1);
            n = q;
        }
        p.c[FIRST] = COUNT == 1 ? n * V : n;
    }
}

// ---- operands ----

// V neighbouring elements, `A` bytes of alignment.
template <int A, class T, int V> MF_DEVICE void fetch_unit(pack<T, V> &out, const void *data, i64 offset)
{
    load_pack<A>(out, (const T *)data + offset);
}

template <int A, class T, int V> MF_DEVICE void fetch_strided(pack<T, V> &out, const void *data, i64 offset, i64 stride)
{
    MF_UNROLL
    for (int i = 0; i < V; i++) {
        pack<T, 1> one;
        load_pack<A>(one, (const T *)data + offset + i * stride);
        out.v[i] = one.v[0];
    }
}

template <int A, class T, int V> MF_DEVICE void put_unit(const pack<T, V> &in, void *data, i64 offset)
{
    store_pack<A>((T *)data + offset, in);
}

template <int A, class T, int V> MF_DEVICE void put_strided(const pack<T, V> &in, void *data, i64 offset, i64 stride)
{
    MF_UNROLL
    for (int i = 0; i < V; i++) {
        pack<T, 1> one = {{in.v[i]}};
        store_pack<A>((T *)data + offset + i * stride, one);
    }
}

// What an operand with extents reads outside of them.
template <class T, int V> MF_DEVICE void fetch_zero(pack<T, V> &out)
{
    MF_UNROLL
    for (int i = 0; i < V; i++)
        out.v[i] = T{};
}

// Does phase P fetch an operand that the phases of bit mask MASK need?
template <int P, unsigned MASK, bool CACHED> MF_HOST_DEVICE constexpr bool fetches()
{
    return (MASK >> P & 1) && (!CACHED || (MASK & ((1u << P) - 1)) == 0);
}

} // namespace mf

#endif
