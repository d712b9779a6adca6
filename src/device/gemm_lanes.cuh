// Products whose batch is contiguous in memory, as of the terms of transforms: neighbouring threads take neighbouring products,
// so that every load and store is one line of memory. Plain cores; any dtype and accumulator, any other strides.
#ifndef MF_DEVICE_GEMM_LANES_CUH
#define MF_DEVICE_GEMM_LANES_CUH

#include "device/gemm_simple.cuh"

namespace mf
{

// LANES products beside each other; each thread computes ROWS x COLUMNS results of one. A block is four warps, two by two.
template <int LANES, int ROWS, int COLUMNS> struct gemm_lanes_tile {
    static constexpr int THREADS = 128, ACROSS = 2, DOWN = 2, PARTS = 32 / LANES;
    static constexpr int M = DOWN * PARTS * ROWS, N = ACROSS * COLUMNS;
    static constexpr int STEP = ROWS + COLUMNS > 12 ? 2 : ROWS + COLUMNS > 8 ? 4 : 8; // of k, in flight together
};

template <int N> struct gemm_lanes_steps {
    static constexpr int value = N;
};

// D: the batch dim that is contiguous. AA, AB: alignment of an element. Threads beyond the results repeat the last ones, and
// store nothing.
template <template <int> class Chain, class TA, class TB, class ACC, int ND, int D, int LANES, int ROWS, int COLUMNS,
          int AA, int AB, class A>
MF_DEVICE void gemm_lanes(const A &a, u32 number)
{
    typedef gemm_lanes_tile<LANES, ROWS, COLUMNS> tile;
    typedef Chain<1> chain;
    typedef typename chain::index I;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % LANES, part = (int)threadIdx.x % 32 / LANES;
    const i64 m = a.chain.shape[ND - 2], n = a.chain.shape[ND - 1], products = a.chain.shape[D];
    const i64 tiles_n = (n + tile::N - 1) / tile::N, tiles_l = (products + LANES - 1) / LANES,
              tiles_m = (m + tile::M - 1) / tile::M;
    i64 at = number;
    const i64 column0 = at % tiles_n * tile::N + warp % tile::ACROSS * COLUMNS;
    at /= tiles_n;
    const i64 product = at % tiles_l * LANES + lane, l = product < products ? product : products - 1;
    at /= tiles_l;
    const i64 row0 = at % tiles_m * tile::M + (warp / tile::ACROSS * tile::PARTS + part) * ROWS;
    at /= tiles_m;
    const TA *from_a = (const TA *)a.a + l * a.a_stride[D];
    const TB *from_b = (const TB *)a.b + l * a.b_stride[D];
    point<I, ND> p;
    p.c[D] = (I)l;
    MF_UNROLL
    for (int d = ND - 3; d >= 0; d--) {
        if (d == D)
            continue;
        i64 c = at % a.chain.shape[d];
        at /= a.chain.shape[d];
        p.c[d] = (I)c;
        from_a += c * a.a_stride[d];
        from_b += c * a.b_stride[d];
    }
    i64 row_at[ROWS], column_at[COLUMNS];
    MF_UNROLL
    for (int i = 0; i < ROWS; i++)
        row_at[i] = (row0 + i < m ? row0 + i : m - 1) * a.a_stride[ND - 2];
    MF_UNROLL
    for (int j = 0; j < COLUMNS; j++)
        column_at[j] = (column0 + j < n ? column0 + j : n - 1) * a.b_stride[ND - 1];
    ACC sum[ROWS][COLUMNS] = {};
    auto steps = [&](auto count) {
        pack<TA, 1> x[decltype(count)::value][ROWS];
        pack<TB, 1> y[decltype(count)::value][COLUMNS];
        MF_UNROLL
        for (int s = 0; s < decltype(count)::value; s++) {
            MF_UNROLL
            for (int i = 0; i < ROWS; i++)
                load_pack<AA>(x[s][i], from_a + row_at[i] + s * a.a_stride[ND - 1]);
            MF_UNROLL
            for (int j = 0; j < COLUMNS; j++)
                load_pack<AB>(y[s][j], from_b + column_at[j] + s * a.b_stride[ND - 2]);
        }
        MF_UNROLL
        for (int s = 0; s < decltype(count)::value; s++)
            MF_UNROLL
        for (int i = 0; i < ROWS; i++)
            MF_UNROLL
        for (int j = 0; j < COLUMNS; j++)
            sum[i][j] = multiply_add(convert<ACC>(widen(x[s][i].v[0])), convert<ACC>(widen(y[s][j].v[0])), sum[i][j]);
        from_a += decltype(count)::value * a.a_stride[ND - 1];
        from_b += decltype(count)::value * a.b_stride[ND - 2];
    };
    i64 k = 0;
    for (; k + tile::STEP <= a.k; k += tile::STEP)
        steps(gemm_lanes_steps<tile::STEP>{});
    for (; k < a.k; k++)
        steps(gemm_lanes_steps<1>{});
    MF_UNROLL
    for (int i = 0; i < ROWS; i++)
        MF_UNROLL
    for (int j = 0; j < COLUMNS; j++) {
        if (product >= products || row0 + i >= m || column0 + j >= n)
            continue;
        typename chain::inputs in;
        p.c[ND - 2] = (I)(row0 + i);
        p.c[ND - 1] = (I)(column0 + j);
        in.acc[0] = sum[i][j];
        chain::template load<0, true>(a.chain, p, in);
        chain::finish(a.chain, p, in, typename chain::row{});
    }
}

} // namespace mf

#endif
