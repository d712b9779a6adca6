// Elementwise kernels: every point of the domain once. `block` of `blocks`: this block's number and how many there are.
#ifndef MF_DEVICE_MAP_CUH
#define MF_DEVICE_MAP_CUH

#include "device/chain.cuh"

namespace mf
{

// Blocks of THREADS x U vectors of V points; all loads of a thread are in flight before its first store. TAIL: the
// number of points is no multiple of V, and the last block does the rest one by one.
template <template <int> class Chain, int ND, int V, int THREADS, int U, bool TAIL, class A>
MF_DEVICE void map(const A &a, u32 block, u32 blocks)
{
    typedef typename Chain<V>::index I;
    I vectors = (I)(a.points / V), first = (I)block * (THREADS * U) + (I)threadIdx.x;
    if (first - (I)threadIdx.x + THREADS * U <= vectors) {
        typename Chain<V>::inputs in[U];
        point<I, ND> p[U];
        MF_UNROLL
        for (int u = 0; u < U; u++) {
            unravel<0, ND, V>(a, first + u * THREADS, p[u]);
            Chain<V>::template load<0, true>(a, p[u], in[u]);
        }
        MF_UNROLL
        for (int u = 0; u < U; u++)
            Chain<V>::finish(a, p[u], in[u], typename Chain<V>::row{});
    } else {
        for (I n = first; n < vectors && n < first + THREADS * U; n += THREADS) {
            typename Chain<V>::inputs in;
            point<I, ND> p;
            unravel<0, ND, V>(a, n, p);
            Chain<V>::template load<0, true>(a, p, in);
            Chain<V>::finish(a, p, in, typename Chain<V>::row{});
        }
    }
    if constexpr (TAIL) {
        I n = vectors * V + (I)threadIdx.x;
        if (block == blocks - 1 && n < (I)a.points) {
            typename Chain<1>::inputs in;
            point<I, ND> p;
            unravel<0, ND, 1>(a, n, p);
            Chain<1>::template load<0, true>(a, p, in);
            Chain<1>::finish(a, p, in, typename Chain<1>::row{});
        }
    }
}

// For operands whose neighbouring elements lie along dim D instead of the last: blocks take 64 x 64 tiles of the two,
// so that the lines they fetch are used up while they are in the first-level cache. 256 threads.
template <template <int> class Chain, int ND, int D, class A> MF_DEVICE void map_tiles(const A &a, u32 block)
{
    typedef Chain<1> chain;
    typedef typename chain::index I;
    constexpr int U = 4;
    i64 tiles_c = (a.shape[ND - 1] + 63) / 64, tiles_r = (a.shape[D] + 63) / 64, n = block;
    i64 column = n % tiles_c * 64 + threadIdx.x % 64, row = n / tiles_c % tiles_r * 64 + threadIdx.x / 64;
    n = n / tiles_c / tiles_r;
    point<I, ND> p;
    MF_UNROLL
    for (int d = ND - 2; d >= 0; d--) {
        if (d == D)
            continue;
        p.c[d] = (I)(n % a.shape[d]);
        n /= a.shape[d];
    }
    p.c[ND - 1] = (I)column;
    if (column >= a.shape[ND - 1])
        return;
    for (int pass = 0; pass < 16 / U; pass++, row += 4 * U) {
        typename chain::inputs in[U];
        MF_UNROLL
        for (int u = 0; u < U; u++) {
            p.c[D] = (I)(row + 4 * u);
            if (row + 4 * u < a.shape[D])
                chain::template load<0, true>(a, p, in[u]);
        }
        MF_UNROLL
        for (int u = 0; u < U; u++) {
            p.c[D] = (I)(row + 4 * u);
            if (row + 4 * u < a.shape[D])
                chain::finish(a, p, in[u], typename chain::row{});
        }
    }
}

} // namespace mf

#endif
