// Batches of Hermitian eigenproblems: blocks of several groups of eigen.cuh, a matrix each.
#ifndef MF_DEVICE_EIGEN_BATCH_CUH
#define MF_DEVICE_EIGEN_BATCH_CUH

#include "device/batch.cuh"
#include "mathfuse/device/eigen.cuh"

namespace mf
{

// 8-byte fields only, filled by the host in this order. One triangle is read: of column >= row if `upper`, else of column <= row. It
// is that of the matrix below its diagonal, turned over or not, and conjugated if `conjugate`. Strides: ND batch dims, rows, columns.
// NULL: not wanted.
template <int ND> struct eigen_args {
    i64 items, n, upper, conjugate;
    void *a, *w, *v, *info;
    i64 shape[ND];
    i64 a_stride[ND + 2], w_stride[ND + 1], v_stride[ND + 2], info_stride[ND];
};

template <class T, int N, class TA, class TW, class TV, int ND, int THREADS> struct eigen_batch {
    typedef solve::eigen<T, N> group;
    typedef eigen_args<ND> args;
    static_assert(THREADS % 32 == 0, "whole warps");
    static constexpr int groups = THREADS / group::threads, depth = 8;
    static constexpr int BYTES = groups * group::elements * (int)sizeof(T);

    // `depth` rows at a time, so that their loads wait together.
    static MF_DEVICE void load(const group &g, const args &p, const TA *a)
    {
        const int n = (int)p.n;
        for (int j = group::lane(); j < n; j += group::threads)
            for (int first = 0; first < n; first += depth) {
                T value[depth];
                MF_UNROLL
                for (int k = 0; k < depth; k++) {
                    int i = first + k;
                    i = i < n ? i : n - 1; // of the other triangle, too: a load without a branch
                    value[k] = convert<T>(widen(a[i * p.a_stride[ND] + j * p.a_stride[ND + 1]]));
                }
                MF_UNROLL
                for (int k = 0; k < depth; k++) {
                    int i = first + k;
                    if (i < n && (p.upper ? j >= i : j <= i))
                        g.put(p.upper ? j : i, p.upper ? i : j, p.conjugate ? solve::conjugate_of(value[k]) : value[k]);
                }
            }
    }

    static MF_DEVICE void store(const group &g, const args &p, i64 number)
    {
        const int n = (int)p.n;
        TW *w = (TW *)p.w + (p.w ? batch_offset(p.shape, p.w_stride, number) : 0);
        TV *vectors = (TV *)p.v + (p.v ? batch_offset(p.shape, p.v_stride, number) : 0);
        for (int k = group::lane(); k < n; k += group::threads) {
            if (p.w)
                w[k * p.w_stride[ND]] = narrow<TW>(convert<compute_t<TW>>(g.value(k)));
            if (!p.v)
                continue;
            TV *v = vectors + k * p.v_stride[ND + 1];
            MF_UNROLL_BY_4
            for (int i = 0; i < n; i++)
                v[i * p.v_stride[ND]] = narrow<TV>(convert<compute_t<TV>>(g.element(i, k)));
        }
    }

    static MF_DEVICE void run(const args &p, i64 block, void *shared)
    {
        i64 number = block * groups + threadIdx.x / group::threads;
        bool here = number < p.items;
        group g((T *)shared + threadIdx.x / group::threads * group::elements);
        load(g, p, (const TA *)p.a + batch_offset(p.shape, p.a_stride, here ? number : 0));
        int info = g.run((int)p.n);
        if (!here)
            return;
        store(g, p, number);
        if (p.info && group::lane() == 0)
            ((i32 *)p.info)[batch_offset(p.shape, p.info_stride, number)] = info;
    }
};

} // namespace mf
#endif
