// Batches of QR decompositions: blocks of several groups of qr.cuh, a matrix each.
#ifndef MF_DEVICE_QR_BATCH_CUH
#define MF_DEVICE_QR_BATCH_CUH

#include "mathfuse/device/qr.cuh"
#include "mathfuse/device/reduce.cuh"

namespace mf
{

// 8-byte fields only, filled by the host in this order. m x n matrices, `inner` columns of Q and rows of R. Strides: ND batch dims,
// rows, columns. NULL: not wanted.
template <int ND> struct qr_args {
    i64 items, m, n, inner;
    void *a, *q, *r, *info;
    i64 shape[ND];
    i64 a_stride[ND + 2], q_stride[ND + 2], r_stride[ND + 2], info_stride[ND];
};

template <class T, int M, int C, class TA, class TQ, class TR, int ND, int THREADS> struct qr_batch {
    typedef solve::householder<T, M, C> group;
    typedef qr_args<ND> args;
    static constexpr int groups = THREADS / group::threads;
    static constexpr int BYTES = groups * group::elements * (int)sizeof(T);

    static MF_DEVICE bool is_finite(T x)
    {
        if constexpr (is_complex<T>)
            return m_fabs(x.re) < inf_of<real_t<T>>() && m_fabs(x.im) < inf_of<real_t<T>>();
        else
            return m_fabs(x) < inf_of<T>();
    }

    struct item {
        i64 a, q, r, info;
    };
    static MF_DEVICE item locate(const args &p, i64 number)
    {
        item at = {0, 0, 0, 0};
        for (int d = ND - 1; d >= 0; d--) {
            i64 c = number % p.shape[d];
            number /= p.shape[d];
            at.a += c * p.a_stride[d];
            at.q += c * p.q_stride[d];
            at.r += c * p.r_stride[d];
            at.info += c * p.info_stride[d];
        }
        return at;
    }

    // One column of a result.
    template <class S, class F> static MF_DEVICE void put(void *data, i64 offset, const i64 *stride, int count, F &&f)
    {
        S *to = (S *)data + offset + group::column() * stride[ND + 1];
        MF_UNROLL
        for (int i = 0; i < group::rows; i++)
            if (i < count)
                to[i * stride[ND]] = narrow<S>(convert<compute_t<S>>(f(i)));
    }

    static MF_DEVICE void run(const args &p, i64 block, void *shared)
    {
        __shared__ i32 scratch[THREADS / 32 > 0 ? THREADS / 32 : 1];
        i64 number = block * groups + threadIdx.x / group::threads;
        bool here = number < p.items;
        item at = locate(p, here ? number : 0);
        group g((T *)shared + threadIdx.x / group::threads * group::elements);
        int m = (int)p.m, n = (int)p.n, j = group::column();
        T x[group::rows];
        bool bad = false;
        const TA *a = (const TA *)p.a + at.a + j * p.a_stride[ND + 1];
        MF_UNROLL
        for (int i = 0; i < group::rows; i++) {
            x[i] = i < m && j < n ? convert<T>(widen(a[i * p.a_stride[ND]])) : T();
            bad = bad || !is_finite(x[i]);
        }
        bad = group_reduce<op_any, group::threads, THREADS>((i32)bad, scratch) != 0;
        g.factor(x, m, n);
        if (here && p.r && j < n)
            put<TR>(p.r, at.r, p.r_stride, (int)p.inner, [&](int i) {
                return i > j ? T() : bad ? solve::nan_number<T>() : x[i];
            });
        if (p.q) {
            g.form(x, m, n);
            if (here && j < p.inner)
                put<TQ>(p.q, at.q, p.q_stride, m, [&](int i) { return bad ? solve::nan_number<T>() : x[i]; });
        }
        if (here && p.info && j == 0)
            ((i32 *)p.info)[at.info] = bad ? -1 : 0;
    }
};

} // namespace mf
#endif
