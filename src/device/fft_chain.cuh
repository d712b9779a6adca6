// Transforms with chains of scalar code in the same kernel: transform, chain; or transform, chain, transform, chain.
#ifndef MF_DEVICE_FFT_CHAIN_CUH
#define MF_DEVICE_FFT_CHAIN_CUH

#include "device/chain.cuh"
#include "mathfuse/device/fft.cuh"

namespace mf
{

// Before the chains' arguments; 8-byte fields only. Dims are those of the last chain's domain, the transform's axis last.
template <int ND> struct fft_head {
    i64 signals;       // blocks take F::ffts each
    const void *in;    // element 0
    const void *table; // of the transforms
    i64 in_stride[ND];
    i64 in_extent;   // elements of a signal that exist; others read as zero
    double scale[2]; // after each transform
};
template <int ND, class L> struct fft_args {
    fft_head<ND> fft;
    L last;
};
template <int ND, class M, class L> struct fft_pair_args {
    fft_head<ND> fft;
    M middle;
    L last;
};

// ---- what each kind of transform reads, leaves in registers, and gives ----

template <class T, class S> MF_DEVICE cplx<T> fft_element(const S *x)
{
    return cplx<T>{(T)widen(*x), T(0)};
}
template <class T, class S> MF_DEVICE cplx<T> fft_element(const cplx<S> *x)
{
    return fft::widen_to<T>(*x);
}

// Complex: element k of a signal is x[i] with k = index(i), before and after.
template <class T, int N, int DIR, class C> struct fft_complex : fft::block<T, N, DIR, C> {
    typedef fft::block<T, N, DIR, C> base;
    static constexpr int points = 1; // of the result that f takes at once in each_result

    template <class S> static MF_DEVICE void read(cplx<T> (&x)[base::elements], const S *signal, i64 stride, i64 extent)
    {
        MF_UNROLL
        for (int i = 0; i < base::elements; i++) {
            int k = base::index(i);
            x[i] = base::valid(i) && k < extent ? fft_element<T>(signal + k * stride) : cplx<T>{T(0), T(0)};
        }
    }
    // x[i] = f(k, x[i]) for each element; f(k, z) for each, to be written.
    template <class F> static MF_DEVICE void each_bin(cplx<T> (&x)[base::elements], F &&f)
    {
        base::for_each([&](int i, i64) { x[i] = f(base::index(i), x[i]); });
    }
    template <class F> static MF_DEVICE void each_result(const cplx<T> (&x)[base::elements], F &&f)
    {
        base::for_each([&](int i, i64) { f(base::index(i), &x[i]); });
    }
};

// Real to the bins 0 ... N/2. Even N: bins 0 and N/2 are the parts of x[0] in lane 0. Odd N: all N bins.
template <class T, int N, class C> struct fft_real : fft::real_forward<T, N, C> {
    typedef fft::real_forward<T, N, C> base;
    static constexpr bool even = N % 2 == 0;
    static constexpr int points = 1;

    template <class S> static MF_DEVICE T sample(const S *signal, int k, i64 stride, i64 extent)
    {
        return k < extent ? (T)widen(signal[k * stride]) : T(0);
    }
    template <class S> static MF_DEVICE void read(cplx<T> (&x)[base::elements], const S *signal, i64 stride, i64 extent)
    {
        MF_UNROLL
        for (int i = 0; i < base::elements; i++) {
            int k = base::index(i);
            x[i] = cplx<T>{T(0), T(0)};
            if (!base::valid(i))
                continue;
            if constexpr (even)
                x[i] = cplx<T>{sample(signal, 2 * k, stride, extent), sample(signal, 2 * k + 1, stride, extent)};
            else
                x[i].re = sample(signal, k, stride, extent);
        }
    }
    // f has a real signal's symmetry to keep: what it makes of the imaginary parts at 0 and N/2 is dropped.
    template <class F> static MF_DEVICE void each_bin(cplx<T> (&x)[base::elements], F &&f)
    {
        base::for_each([&](int i, i64) {
            int k = base::index(i);
            if constexpr (even) {
                if (k == 0) {
                    T first = f(0, cplx<T>{x[i].re, T(0)}).re;
                    x[i] = cplx<T>{first, f(N / 2, cplx<T>{x[i].im, T(0)}).re};
                } else {
                    x[i] = f(k, x[i]);
                }
            } else if (k == 0) {
                x[i] = cplx<T>{f(0, cplx<T>{x[i].re, T(0)}).re, T(0)};
            } else if (2 * k < N) {
                x[i] = f(k, x[i]);
            } else {
                cplx<T> y = f(N - k, cplx<T>{x[i].re, -x[i].im});
                x[i] = cplx<T>{y.re, -y.im};
            }
        });
    }
    template <class F> static MF_DEVICE void each_result(const cplx<T> (&x)[base::elements], F &&f)
    {
        base::for_each([&](int i, i64) {
            int k = base::index(i);
            cplx<T> z = x[i];
            if (k == 0) {
                if constexpr (even) {
                    cplx<T> end = {z.im, T(0)};
                    f(N / 2, &end);
                }
                z.im = T(0);
            }
            if (even || 2 * k < N)
                f(k, &z);
        });
    }
};

// The bins 0 ... N/2 to N real numbers, laid out as by fft_real. The results are pairs of neighbours if N is even.
template <class T, int N, class C> struct fft_hermitian : fft::real_inverse<T, N, C> {
    typedef fft::real_inverse<T, N, C> base;
    static constexpr bool even = N % 2 == 0;
    static constexpr int points = even ? 2 : 1;

    template <class S> static MF_DEVICE cplx<T> bin(const S *bins, int k, i64 stride, i64 extent)
    {
        return k < extent ? fft_element<T>(bins + k * stride) : cplx<T>{T(0), T(0)};
    }
    template <class S> static MF_DEVICE void read(cplx<T> (&x)[base::elements], const S *bins, i64 stride, i64 extent)
    {
        MF_UNROLL
        for (int i = 0; i < base::elements; i++) {
            int k = base::index(i);
            x[i] = cplx<T>{T(0), T(0)};
            if (!base::valid(i))
                continue;
            x[i] = bin(bins, even || 2 * k < N ? k : N - k, stride, extent);
            if (k == 0)
                x[i].im = even ? bin(bins, N / 2, stride, extent).re : T(0);
            else if (!even && 2 * k > N)
                x[i].im = -x[i].im;
        }
    }
    template <class F> static MF_DEVICE void each_result(const cplx<T> (&x)[base::elements], F &&f)
    {
        base::for_each([&](int i, i64) {
            const T both[2] = {x[i].re, x[i].im};
            f(points * base::index(i), both);
        });
    }
};

// ---- the kernels ----

template <class T> MF_DEVICE T fft_scaled(T x, double s)
{
    return x * (T)s;
}
template <class T> MF_DEVICE cplx<T> fft_scaled(cplx<T> x, double s)
{
    return cplx<T>{x.re * (T)s, x.im * (T)s};
}

template <class Chain, class P, class A, class Z>
MF_DEVICE void fft_finish(const A &a, const P &p, const Z *z, double s)
{
    typename Chain::inputs in;
    MF_UNROLL
    for (int i = 0; i < Chain::points; i++)
        in.acc[i] = fft_scaled(z[i], s);
    Chain::template load<0, true>(a, p, in);
    Chain::finish(a, p, in, typename Chain::row{});
}

// Where the signal of this thread begins; false: there is none left for it.
template <class F, int ND, class A, class I>
MF_DEVICE bool fft_begin(const A &a, u32 block, point<I, ND> &p, i64 &offset)
{
    i64 signal = (i64)block * F::ffts + F::signal();
    offset = 0;
    if (signal >= a.fft.signals)
        return false;
    unravel<0, ND - 1, 1>(a.last, (I)signal, p);
    MF_UNROLL
    for (int d = 0; d < ND - 1; d++)
        offset += (i64)p.c[d] * a.fft.in_stride[d];
    return true;
}

// Transform F of signals stored as S, then the chain.
template <class F, class S, template <int> class Last, int ND, class A>
MF_DEVICE void fft_chain(const A &a, u32 block, void *shared)
{
    typedef typename F::real T;
    typedef Last<F::points> last;
    cplx<T> x[F::elements] = {};
    typename last::point p;
    i64 offset;
    bool here = fft_begin<F, ND>(a, block, p, offset);
    if (here)
        F::read(x, (const S *)a.fft.in + offset, a.fft.in_stride[ND - 1], a.fft.in_extent);
    F::run(x, shared, (const cplx<T> *)a.fft.table);
    if (here)
        F::each_result(x, [&](int k, const auto *z) {
            p.c[ND - 1] = k;
            fft_finish<last>(a.last, p, z, a.fft.scale[0]);
        });
}

// Transform F of signals stored as S, the middle chain, transform G of what that makes of each bin, then the last chain.
template <class F, class G, class S, template <int> class Middle, template <int> class Last, int ND, class A>
MF_DEVICE void fft_pair(const A &a, u32 block, void *shared)
{
    typedef typename F::real T;
    typedef Middle<1> middle;
    typedef Last<G::points> last;
    cplx<T> x[F::elements] = {};
    typename last::point p;
    i64 offset;
    bool here = fft_begin<F, ND>(a, block, p, offset);
    if (here)
        F::read(x, (const S *)a.fft.in + offset, a.fft.in_stride[ND - 1], a.fft.in_extent);
    F::run(x, shared, (const cplx<T> *)a.fft.table);
    if (here)
        F::each_bin(x, [&](int k, cplx<T> z) {
            typename middle::inputs in;
            p.c[ND - 1] = k;
            in.acc[0] = fft_scaled(z, a.fft.scale[0]);
            middle::template load<0, true>(a.middle, p, in);
            return middle::value(a.middle, p, in);
        });
    G::run(x, shared, (const cplx<T> *)a.fft.table);
    if (here)
        G::each_result(x, [&](int k, const auto *z) {
            p.c[ND - 1] = k;
            fft_finish<last>(a.last, p, z, a.fft.scale[1]);
        });
}

// Fill the table of F, an entry a thread.
template <class F> MF_DEVICE void fft_fill_table(cplx<typename F::real> *table)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < F::table_size)
        table[i] = F::table_entry(i);
}

} // namespace mf

#endif
