// Batches of singular value decompositions: blocks of several groups of svd.cuh, a matrix each.
#ifndef MF_DEVICE_SVD_BATCH_CUH
#define MF_DEVICE_SVD_BATCH_CUH

#include "device/batch.cuh"
#include "mathfuse/device/svd.cuh"

namespace mf
{

// 8-byte fields only, filled by the host in this order. m x n matrices, n <= m; of wide ones the adjoint, whose vectors change places:
// `left` is what has m rows. Results are conjugated where told so; `along_rows`: rows are the axis whose elements lie side by side.
// Strides: ND batch dims, rows, columns. NULL: not wanted.
template <int ND> struct svd_args {
    i64 items, m, n, along_rows, conjugate, conjugate_left, conjugate_right;
    void *a, *s, *left, *right, *info;
    i64 shape[ND];
    i64 a_stride[ND + 2], s_stride[ND + 1], left_stride[ND + 2], right_stride[ND + 2], info_stride[ND];
};

template <class T, int M, int N, bool VECTORS, class TA, class TS, class TV, int ND, int THREADS> struct svd_batch {
    typedef solve::svd<T, M, N, VECTORS> group;
    typedef svd_args<ND> args;
    static_assert(THREADS % 32 == 0, "whole warps");
    static constexpr int groups = THREADS / group::threads, depth = 8;
    static constexpr int BYTES = groups * group::elements * (int)sizeof(T);

    // Lanes along one axis; `depth` elements of the other at a time, so that their loads wait together.
    static MF_DEVICE void load(const group &g, const args &p, const TA *a)
    {
        const bool rows = p.along_rows != 0;
        const int across = (int)(rows ? p.m : p.n), down = (int)(rows ? p.n : p.m);
        const i64 step = p.a_stride[rows ? ND : ND + 1], next = p.a_stride[rows ? ND + 1 : ND];
        for (int j = group::lane(); j < across; j += group::threads)
            for (int first = 0; first < down; first += depth) {
                T value[depth];
                MF_UNROLL
                for (int k = 0; k < depth; k++) {
                    int i = first + k < down ? first + k : down - 1;
                    value[k] = convert<T>(widen(a[i * next + j * step]));
                }
                MF_UNROLL
                for (int k = 0; k < depth; k++)
                    if (first + k < down)
                        g.put(rows ? j : first + k, rows ? first + k : j,
                              p.conjugate ? solve::conjugate_of(value[k]) : value[k]);
            }
    }

    // Element (i, k) of `rows` rows of vectors.
    template <class F>
    static MF_DEVICE void put(void *data, i64 at, const i64 *stride, int rows, int columns, i64 conjugate, F &&f)
    {
        if (!data)
            return;
        const bool down = stride[ND] < stride[ND + 1];
        const int across = down ? rows : columns, rest = down ? columns : rows;
        for (int j = group::lane(); j < across; j += group::threads) {
            TV *to = (TV *)data + at + j * stride[down ? ND : ND + 1];
            MF_UNROLL_BY_4
            for (int i = 0; i < rest; i++) {
                T x = down ? f(j, i) : f(i, j);
                to[i * stride[down ? ND + 1 : ND]] =
                    narrow<TV>(convert<compute_t<TV>>(conjugate ? solve::conjugate_of(x) : x));
            }
        }
    }

    static MF_DEVICE void run(const args &p, i64 block, void *shared)
    {
        i64 number = block * groups + threadIdx.x / group::threads;
        const bool here = number < p.items;
        const int m = (int)p.m, n = (int)p.n;
        group g((T *)shared + threadIdx.x / group::threads * group::elements);
        load(g, p, (const TA *)p.a + batch_offset(p.shape, p.a_stride, here ? number : 0));
        int info = g.run(m, n);
        if (!here)
            return;
        if (p.s)
            for (int k = group::lane(); k < n; k += group::threads)
                ((TS *)p.s)[batch_offset(p.shape, p.s_stride, number) + k * p.s_stride[ND]] =
                    narrow<TS>(convert<compute_t<TS>>(g.value(k)));
        if constexpr (VECTORS) {
            put(p.left, batch_offset(p.shape, p.left_stride, number), p.left_stride, m, n, p.conjugate_left,
                [&](int i, int k) { return g.left(i, k); });
            put(p.right, batch_offset(p.shape, p.right_stride, number), p.right_stride, n, n, p.conjugate_right,
                [&](int i, int k) { return g.right(i, k); });
        }
        if (p.info && group::lane() == 0)
            ((i32 *)p.info)[batch_offset(p.shape, p.info_stride, number)] = info;
    }
};

} // namespace mf
#endif
