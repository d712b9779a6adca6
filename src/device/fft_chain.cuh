// Transforms with chains of scalar code in the same kernel: [chain,] transform, chain [, transform, chain].
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
    double scale[2]; // after each transform
};
// A kernel's arguments are a struct of it, `fft`, and those of its chains in order: `before`, `middle`, `last`.
struct no_chain { // a chain that is not there
};
template <class C> constexpr bool is_chain = true;
template <> constexpr bool is_chain<no_chain> = false;

// ---- what each kind of transform reads, leaves in registers, and gives ----

template <class T> MF_DEVICE cplx<T> fft_element(T x)
{
    return cplx<T>{x, T(0)};
}
template <class T> MF_DEVICE cplx<T> fft_element(cplx<T> x)
{
    return x;
}

template <class T, class S> MF_DEVICE T fft_wide(const S *x)
{
    return (T)widen(*x);
}
template <class T, class S> MF_DEVICE cplx<T> fft_wide(const cplx<S> *x)
{
    return fft::widen_to<T>(*x);
}

// Complex: element k of a signal is x[i] with k = index(i), before and after.
template <class T, int N, int DIR, class C> struct fft_complex : fft::block<T, N, DIR, C> {
    typedef fft::block<T, N, DIR, C> base;
    static constexpr int points = 1; // of the result that f takes at once in each_result

    // run, where of each signal only the first HAVE elements are not zero, and of the results the first KEEP are used; 0: all.
    template <i64 HAVE, i64 KEEP>
    static MF_DEVICE void run_part(cplx<T> (&x)[base::elements], void *shared, const cplx<T> *table)
    {
        base::run(x, shared, table);
    }
    // `get(k)` is element k of the signal, of T or cplx<T>.
    template <class F> static MF_DEVICE void read(cplx<T> (&x)[base::elements], F &&get)
    {
        MF_UNROLL
        for (int i = 0; i < base::elements; i++)
            x[i] = base::valid(i) ? fft_element<T>(get(base::index(i))) : cplx<T>{T(0), T(0)};
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

    template <i64 HAVE, i64 KEEP>
    static MF_DEVICE void run_part(cplx<T> (&x)[base::elements], void *shared, const cplx<T> *table)
    {
        if constexpr (even && KEEP > 0 && KEEP <= N / 2)
            base::template run_part<(int)KEEP>(x, shared, table);
        else
            base::run(x, shared, table);
    }
    template <class F> static MF_DEVICE void read(cplx<T> (&x)[base::elements], F &&get)
    {
        MF_UNROLL
        for (int i = 0; i < base::elements; i++) {
            int k = base::index(i);
            x[i] = cplx<T>{T(0), T(0)};
            if (!base::valid(i))
                continue;
            if constexpr (even)
                x[i] = cplx<T>{get(2 * k), get(2 * k + 1)};
            else
                x[i].re = get(k);
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

    template <i64 HAVE, i64 KEEP>
    static MF_DEVICE void run_part(cplx<T> (&x)[base::elements], void *shared, const cplx<T> *table)
    {
        if constexpr (even && HAVE > 0 && HAVE <= N / 2)
            base::template run_part<(int)HAVE>(x, shared, table);
        else
            base::run(x, shared, table);
    }

    template <class F> static MF_DEVICE void read(cplx<T> (&x)[base::elements], F &&get)
    {
        MF_UNROLL
        for (int i = 0; i < base::elements; i++) {
            int k = base::index(i);
            x[i] = cplx<T>{T(0), T(0)};
            if (!base::valid(i))
                continue;
            x[i] = fft_element<T>(get(even || 2 * k < N ? k : N - k));
            if (k == 0)
                x[i].im = even ? fft_element<T>(get(N / 2)).re : T(0);
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

template <class T> MF_DEVICE T fft_scaled(T x, T s)
{
    return x * s;
}
template <class T> MF_DEVICE cplx<T> fft_scaled(cplx<T> x, T s)
{
    return cplx<T>{x.re * s, x.im * s};
}

template <class Chain, class T, class P, class A, class Z>
MF_DEVICE void fft_finish(const A &a, const P &p, const Z *z, T s)
{
    typename Chain::inputs in;
    MF_UNROLL
    for (int i = 0; i < Chain::points; i++)
        in.acc[i] = fft_scaled(z[i], s);
    Chain::template load<0, true>(a, p, in);
    Chain::finish(a, p, in, typename Chain::row{});
}

template <class C, class A, class P> MF_DEVICE auto fft_value(const A &a, P &p, int k)
{
    typename C::inputs in;
    p.c[sizeof(p.c) / sizeof(p.c[0]) - 1] = k;
    C::template load<0, true>(a, p, in);
    return C::value(a, p, in);
}

// use(get), where get(k) is element k of a signal: from memory as stored, or as the chain Before computes it; zero where the
// signal has ended. UNIT: neighbours lie side by side. HAVE: elements of a signal that exist, 0: all.
template <class S, class Before, int ND, bool UNIT, i64 HAVE, class T, class A, class P, class U>
MF_DEVICE void fft_with(const A &a, P p, U &&use)
{
    i64 offset = 0;
    const i64 stride = UNIT ? 1 : a.fft.in_stride[ND - 1];
    MF_UNROLL
    for (int d = 0; d < ND - 1; d++)
        offset += (i64)p.c[d] * a.fft.in_stride[d];
    const S *signal = (const S *)a.fft.in + offset;
    use([&](int k) {
        if constexpr (is_chain<Before>)
            return HAVE == 0 || k < HAVE ? fft_value<Before>(a.before, p, k)
                                         : decltype(fft_value<Before>(a.before, p, k)){};
        else
            return HAVE == 0 || k < HAVE ? fft_wide<T>(signal + k * stride) : decltype(fft_wide<T>(signal)){};
    });
}

// The signal of this thread, as a point; false: there is none left for it. Computed anew each time, as registers are what
// transforms lack.
template <class F, int ND, class A, class I> MF_DEVICE bool fft_place(const A &a, u32 block, point<I, ND> &p)
{
    asm volatile("" : "+r"(block));
    i64 signal = (i64)block * F::ffts + F::signal();
    if (F::ffts > 1 && signal >= a.fft.signals)
        return false;
    unravel<0, ND - 1, 1>(a.last, (I)signal, p);
    return true;
}

// Signals of S or of what chain Before makes: transform F and chain Last; or transform F, chain Middle on each bin,
// transform G, and chain Last. KEEP: only so many of the first terms are stored, 0: all. SCALED: F's scale is not 1.
template <class F, class G, class S, class Before, class Middle, class Last, int ND, bool UNIT, i64 HAVE, i64 KEEP,
          bool SCALED, class A>
MF_DEVICE void fft_chain(const A &a, u32 block, void *shared)
{
    typedef typename F::real T;
    const cplx<T> *table = (const cplx<T> *)a.fft.table;
    cplx<T> x[F::elements];
    typename Last::point p;
    if (fft_place<F, ND>(a, block, p)) {
        fft_with<S, Before, ND, UNIT, HAVE, T>(a, p, [&](auto &&get) { F::read(x, get); });
    } else {
        MF_UNROLL
        for (int i = 0; i < F::elements; i++)
            x[i] = cplx<T>{T(0), T(0)};
    }
    F::template run_part<HAVE, (is_chain<Middle> ? 0 : KEEP)>(x, shared, table);
    if constexpr (is_chain<Middle>) {
        const T scale = (T)a.fft.scale[0];
        if (fft_place<F, ND>(a, block, p))
            F::each_bin(x, [&](int k, cplx<T> z) {
                typename Middle::inputs in;
                p.c[ND - 1] = k;
                in.acc[0] = SCALED ? fft_scaled(z, scale) : z;
                Middle::template load<0, true>(a.middle, p, in);
                return Middle::value(a.middle, p, in);
            });
        G::template run_part<0, KEEP>(x, shared, table);
    }
    const T scale = (T)a.fft.scale[1];
    if (fft_place<F, ND>(a, block, p))
        G::each_result(x, [&](int k, const auto *z) {
            if (KEEP && k >= KEEP)
                return;
            p.c[ND - 1] = k;
            fft_finish<Last>(a.last, p, z, scale);
        });
}

// Entry i of the table of F.
template <class F> MF_DEVICE void fft_fill_table(cplx<typename F::real> *table, i64 i)
{
    if (i < F::table_size)
        table[i] = F::table_entry((int)i);
}

} // namespace mf

#endif
