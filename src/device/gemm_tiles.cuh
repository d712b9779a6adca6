// A matrix product on tensor cores (f32, c64: exact, on plain ones): any strides, alignment and extents, factors of one
// dtype, the chain applied to the sums of a tile in vectors of its last dim.
#ifndef MF_DEVICE_GEMM_TILES_CUH
#define MF_DEVICE_GEMM_TILES_CUH

#include "device/gemm_args.cuh"
#include "mathfuse/device/gemm.cuh"

namespace mf
{

template <bool ROWS> struct gemm_layout {
    typedef gemm::rows type;
};
template <> struct gemm_layout<false> {
    typedef gemm::columns type;
};

// A_ROWS: shared memory keeps a along k, else along m; B_ROWS: b along n, else along k: as global memory does.
template <class T_, int M, int N, int K, int THREADS, bool A_ROWS, bool B_ROWS> struct gemm_tiles_config {
    typedef T_ T;
    typedef gemm::block<T, M, N, K, THREADS, typename gemm::default_math<T>::type, typename gemm_layout<A_ROWS>::type,
                        typename gemm_layout<B_ROWS>::type>
        block;
    typedef typename block::sum sum;
    static constexpr int part_of(int rows)
    {
        return rows * (N + 4) * (int)sizeof(sum) > 40960 ? part_of(rows / 2) : rows;
    }
    // Two stages of factors; later PART rows of sums at a time.
    static constexpr int PART = part_of(M), LD = N + 4;
    static constexpr int A_BYTES = block::a_elements * (int)sizeof(T), B_BYTES = block::b_elements * (int)sizeof(T);
    static constexpr int STAGES_BYTES = 2 * (A_BYTES + B_BYTES), SUMS_BYTES = PART * LD * (int)sizeof(sum);
    static constexpr int BYTES = STAGES_BYTES > SUMS_BYTES ? STAGES_BYTES : SUMS_BYTES;
    static_assert(A_BYTES % 16 == 0 && B_BYTES % 16 == 0, "stages start at vectors");
    static_assert(BYTES <= 48128, "what a kernel may have without asking, less what the system takes");
};

// V elements at a time where that is a copy of 4, 8 or 16 bytes.
template <class TILE, int V, int LD, class T>
MF_DEVICE void gemm_tiles_fetch(T *shared, const matrix_view<const T> &from, i64 row, i64 column)
{
    constexpr int vector = LD % V ? 1 : V;
    if constexpr (vector * sizeof(T) >= 4)
        TILE::template load_async<vector>(shared, from, row, column);
    else
        TILE::load(shared, from, row, column);
}

template <class T> MF_DEVICE matrix_view<const T> gemm_turned(const matrix_view<const T> &v)
{
    return {v.data, v.columns, v.rows, v.column_stride, v.row_stride};
}

template <class C, class T> MF_DEVICE const T *gemm_tiles_stage(const void *shared, i64 number, int offset)
{
    return (const T *)((const unsigned char *)shared + (number & 1) * (C::A_BYTES + C::B_BYTES) + offset);
}

// The sums of the tile at (row, column) of a x b.
template <class C, bool A_ROWS, bool B_ROWS, int VA, int VB>
MF_DEVICE void gemm_tiles_multiply(typename C::sum (&sum)[C::block::elements],
                                   const matrix_view<const typename C::T> &a, const matrix_view<const typename C::T> &b,
                                   i64 row, i64 column, void *shared)
{
    typedef typename C::T T;
    typedef typename C::block G;
    const i64 k = a.columns, steps = (k + G::k - 1) / G::k;
    auto fetch = [&](i64 step) {
        T *to_a = (T *)gemm_tiles_stage<C, T>(shared, step, 0),
          *to_b = (T *)gemm_tiles_stage<C, T>(shared, step, C::A_BYTES);
        i64 at = step * G::k;
        gemm_tiles_fetch<typename G::a_tile, VA, G::lda>(to_a, A_ROWS ? a : gemm_turned(a), A_ROWS ? row : at,
                                                         A_ROWS ? at : row);
        gemm_tiles_fetch<typename G::b_tile, VB, G::ldb>(to_b, B_ROWS ? b : gemm_turned(b), B_ROWS ? at : column,
                                                         B_ROWS ? column : at);
    };
    if (steps > 0)
        fetch(0);
    copy_commit();
    for (i64 step = 0; step < steps; step++) {
        if (step + 1 < steps)
            fetch(step + 1);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        G::run(sum, gemm_tiles_stage<C, T>(shared, step, 0), gemm_tiles_stage<C, T>(shared, step, C::A_BYTES));
        __syncthreads();
    }
}

// One block computes tile `number`. V: points that the chain takes at once; n is a multiple of it. `shared`: C::BYTES.
template <template <int> class Chain, class T, int ND, int M, int N, int K, int THREADS, bool A_ROWS, bool B_ROWS,
          int VA, int VB, int V, class A>
MF_DEVICE void gemm_tiles(const A &a, u32 number, void *shared)
{
    typedef gemm_tiles_config<T, M, N, K, THREADS, A_ROWS, B_ROWS> C;
    typedef typename C::block G;
    typedef Chain<V> chain;
    typedef typename chain::index I;
    typedef typename C::sum S;
    i64 m = a.chain.shape[ND - 2], n = a.chain.shape[ND - 1], tile = number;
    i64 tiles_n = (n + N - 1) / N, tiles_m = (m + M - 1) / M;
    i64 n0 = tile % tiles_n * N, m0 = tile / tiles_n % tiles_m * M;
    point<I, ND> p;
    const T *from_a = (const T *)a.a, *from_b = (const T *)a.b;
    gemm_batch<ND>(a, tile / tiles_n / tiles_m, p, from_a, from_b);
    S sum[G::elements] = {};
    gemm_tiles_multiply<C, A_ROWS, B_ROWS, VA, VB>(
        sum, matrix_view<const T>{from_a, m, a.k, a.a_stride[ND - 2], a.a_stride[ND - 1]},
        matrix_view<const T>{from_b, a.k, n, a.b_stride[ND - 2], a.b_stride[ND - 1]}, m0, n0, shared);
    S *sums = (S *)shared;
    for (int first = 0; first < M; first += C::PART) {
        if (first)
            __syncthreads();
        G::for_each(sum, [&](int row, int column, S &x) {
            if (row >= first && row < first + C::PART)
                sums[(row - first) * C::LD + column] = x;
        });
        __syncthreads();
#if defined(__CUDACC__)
#pragma unroll 1 // several chains at once would spill
#endif
        for (int e = (int)threadIdx.x; e < C::PART * (N / V); e += THREADS) {
            int row = e / (N / V), column = e % (N / V) * V;
            if (m0 + first + row >= m || n0 + column >= n)
                continue;
            typename chain::inputs in;
            p.c[ND - 2] = (I)(m0 + first + row);
            p.c[ND - 1] = (I)(n0 + column);
            MF_UNROLL
            for (int i = 0; i < V; i++)
                in.acc[i] = sums[row * C::LD + column + i];
            chain::template load<0, true>(a.chain, p, in);
            chain::finish(a.chain, p, in, typename chain::row{});
        }
    }
    __syncthreads();
}

} // namespace mf

#endif
