// Batches of Hermitian eigenproblems: blocks of several groups of eigen.cuh, a matrix each.
#ifndef MF_DEVICE_EIGEN_BATCH_CUH
#define MF_DEVICE_EIGEN_BATCH_CUH

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

    struct item {
        i64 a, w, v, info;
    };
    static MF_DEVICE item locate(const args &p, i64 number)
    {
        item at = {0, 0, 0, 0};
        for (int d = ND - 1; d >= 0; d--) {
            i64 c = number % p.shape[d];
            number /= p.shape[d];
            at.a += c * p.a_stride[d];
            at.w += c * p.w_stride[d];
            at.v += c * p.v_stride[d];
            at.info += c * p.info_stride[d];
        }
        return at;
    }

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

    static MF_DEVICE void store(const group &g, const args &p, const item &at)
    {
        const int n = (int)p.n;
        for (int k = group::lane(); k < n; k += group::threads) {
            if (p.w)
                ((TW *)p.w)[at.w + k * p.w_stride[ND]] = narrow<TW>(convert<compute_t<TW>>(g.value(k)));
            if (!p.v)
                continue;
            TV *v = (TV *)p.v + at.v + k * p.v_stride[ND + 1];
            MF_UNROLL_BY_4
            for (int i = 0; i < n; i++)
                v[i * p.v_stride[ND]] = narrow<TV>(convert<compute_t<TV>>(g.element(i, k)));
        }
    }

    static MF_DEVICE void run(const args &p, i64 block, void *shared)
    {
        i64 number = block * groups + threadIdx.x / group::threads;
        bool here = number < p.items;
        item at = locate(p, here ? number : 0);
        group g((T *)shared + threadIdx.x / group::threads * group::elements);
        load(g, p, (const TA *)p.a + at.a);
        int info = g.run((int)p.n);
        if (!here)
            return;
        store(g, p, at);
        if (p.info && group::lane() == 0)
            ((i32 *)p.info)[at.info] = info;
    }
};

} // namespace mf
#endif
