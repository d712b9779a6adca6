// Small matrix products of a batch: a few results of one for each thread, which reads the factors where they lie, in memory or in the
// block's own. No barriers.
#ifndef MF_DEVICE_GEMM_SMALL_CUH
#define MF_DEVICE_GEMM_SMALL_CUH

#include "device/gemm_simple.cuh"

namespace mf
{

// M x N results a thread; rows and columns of a thread lie a stride apart, so that neighbours read neighbours. Places outside the
// result are computed from the last row or column inside, and dropped.
template <template <int> class Chain, class TA, class TB, class ACC, int ND, int M, int N, int THREADS, class A>
MF_DEVICE void gemm_small(const A &a, u32 number)
{
    typedef Chain<1> chain;
    typedef typename chain::index I;
    const i64 m = a.chain.shape[ND - 2], n = a.chain.shape[ND - 1];
    const i64 across = (n + N - 1) / N, down = (m + M - 1) / M, place = (i64)number * THREADS + threadIdx.x;
    const i64 column = place % across, row = place / across % down, batch = place / across / down;
    if (batch >= a.chain.points / (m * n))
        return;
    const TA *pa = (const TA *)a.a;
    const TB *pb = (const TB *)a.b;
    point<I, ND> p;
    gemm_batch<ND>(a, batch, p, pa, pb);
    const TA *from_a[M];
    const TB *from_b[N];
    ACC sum[M][N] = {};
    MF_UNROLL
    for (int i = 0; i < M; i++)
        from_a[i] = pa + (row + i * down < m ? row + i * down : m - 1) * a.a_stride[ND - 2];
    MF_UNROLL
    for (int j = 0; j < N; j++)
        from_b[j] = pb + (column + j * across < n ? column + j * across : n - 1) * a.b_stride[ND - 1];
    for (i64 k = 0; k < a.k; k++) {
        ACC x[M], y[N];
        MF_UNROLL
        for (int i = 0; i < M; i++)
            x[i] = convert<ACC>(widen(from_a[i][k * a.a_stride[ND - 1]]));
        MF_UNROLL
        for (int j = 0; j < N; j++)
            y[j] = convert<ACC>(widen(from_b[j][k * a.b_stride[ND - 2]]));
        MF_UNROLL
        for (int i = 0; i < M; i++)
            MF_UNROLL
        for (int j = 0; j < N; j++)
            sum[i][j] = multiply_add(x[i], y[j], sum[i][j]);
    }
    MF_UNROLL
    for (int i = 0; i < M; i++)
        MF_UNROLL
    for (int j = 0; j < N; j++) {
        if (row + i * down >= m || column + j * across >= n)
            continue;
        typename chain::inputs in;
        p.c[ND - 2] = (I)(row + i * down);
        p.c[ND - 1] = (I)(column + j * across);
        in.acc[0] = sum[i][j];
        chain::template load<0, true>(a.chain, p, in);
        chain::finish(a.chain, p, in, typename chain::row{});
    }
}

} // namespace mf

#endif
