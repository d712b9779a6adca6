// Transforms of real signals on top of the complex ones.
#ifndef MATHFUSE_DEVICE_FFT_REAL_CUH
#define MATHFUSE_DEVICE_FFT_REAL_CUH

#include "mathfuse/device/fft_block.cuh"

namespace mf
{
namespace fft
{

// N real numbers to the bins 0 ... N/2 and back. Even N: half as many complex numbers, even and odd samples side by side;
// x[i] is bin index(i), and the real bin N/2 rides as the imaginary part of bin 0. Odd N: a complex transform; x[i] is bin
// index(i) of all N. Traits and shared memory as for block; the table is the same for both directions, but not block's.
template <class T, int N, int DIR, bool EVEN, class C> struct real_method;

template <class T, int N, int DIR, class C> struct real_method<T, N, DIR, true, C> : block<T, N / 2, DIR, C> {
    typedef block<T, N / 2, DIR, C> half;
    typedef typename half::where where;
    using half::elements;
    static constexpr int size = N, roots = (half::table_size + 1) / 2 * 2, table_size = roots + N / 2;
    static constexpr int shared_bytes = half::signal_bytes * half::ffts;

    static MF_HOST_DEVICE cplx<T> table_entry(int i)
    {
        if (i < roots)
            return half::table_entry(i);
        turn w = turn_of(i - roots, N);
        return cplx<T>{(T)w.c, (T)-w.s};
    }
    // Samples to or from memory: `signal` is aligned to two of them.
    template <class S> static MF_DEVICE void load_real(cplx<T> (&x)[elements], const S *signal)
    {
        half::load(x, (const cplx<S> *)(const void *)signal);
    }
    template <class S> static MF_DEVICE void store_real(const cplx<T> (&x)[elements], S *signal)
    {
        half::store(x, (cplx<S> *)(void *)signal);
    }
    template <class S> static MF_DEVICE void load_bins(cplx<T> (&x)[elements], const cplx<S> *bins)
    {
        half::load(x, bins);
        if (half::lane() == 0)
            x[0].im = (T)widen(bins[N / 2].re);
    }
    template <class S> static MF_DEVICE void store_bins(const cplx<T> (&x)[elements], cplx<S> *bins)
    {
        half::store(x, bins);
        if (half::lane() == 0) {
            bins[0] = narrow_to<S>(cplx<T>{x[0].re, T(0)});
            bins[N / 2] = narrow_to<S>(cplx<T>{x[0].im, T(0)});
        }
    }
    // By a real signal's bins 0 ... N/2.
    template <class S> static MF_DEVICE void multiply(cplx<T> (&x)[elements], const cplx<S> *bins)
    {
        cplx<T> ends = {x[0].re * (T)widen(bins[0].re), x[0].im * (T)widen(bins[N / 2].re)};
        half::multiply(x, bins);
        if (half::lane() == 0)
            x[0] = ends;
    }
    // Bin k of the packed signal to that of the real one, or back, from bins k and N/2 - k and root k.
    static MF_DEVICE cplx<T> paired(cplx<T> x, cplx<T> opposite, cplx<T> root)
    {
        cplx<T> z = {opposite.re, -opposite.im}, even = x + z, odd = x - z;
        if constexpr (DIR == forward) {
            cplx<T> w = cplx<T>{odd.im, -odd.re} * root;
            return cplx<T>{(even.re + w.re) * T(0.5), (even.im + w.im) * T(0.5)};
        } else {
            cplx<T> w = times_root<inverse>(odd, root);
            return cplx<T>{even.re - w.im, even.im + w.re};
        }
    }
    static MF_DEVICE void pair_up(cplx<T> (&x)[elements], void *shared, const cplx<T> *table)
    {
        cplx<T> opposite[elements];
        exchange<natural<where>, mirrored<where>, typename half::base>(x, opposite, half::own(shared), half::lane());
        const cplx<T> *root = table + roots + half::lane();
        half::for_each([&](int i, i64 offset) { x[i] = paired(x[i], opposite[i], root[offset]); });
    }
    static MF_DEVICE void run(cplx<T> (&x)[elements], void *shared, const cplx<T> *table)
    {
        bool first = half::lane() == 0;
        if constexpr (DIR == forward)
            half::run(x, shared, table);
        cplx<T> ends = {x[0].re + x[0].im, x[0].re - x[0].im};
        pair_up(x, shared, table);
        x[0] = first ? ends : x[0];
        if constexpr (DIR == inverse)
            half::run(x, shared, table);
    }
    // As run, where the first COUNT bins alone are used after it, or are not zero before it; COUNT <= N / 2.
    template <int COUNT> static MF_DEVICE void run_part(cplx<T> (&x)[elements], void *shared, const cplx<T> *table)
    {
        constexpr int HEAD = (COUNT + half::lanes - 1) / half::lanes; // elements of a thread that may be among them
        if constexpr (2 * HEAD > elements || !where::full) {
            run(x, shared, table);
        } else if constexpr (DIR == forward) {
            half::run(x, shared, table);
            cplx<T> end = {x[0].re + x[0].im, x[0].re - x[0].im}, opposite[elements];
            exchange<tail<HEAD>, mirrored_head<HEAD>, typename half::base>(x, opposite, half::own(shared),
                                                                           half::lane());
            MF_UNROLL
            for (int i = 0; i < HEAD; i++)
                x[i] = paired(x[i], opposite[i], table[roots + half::index(i)]);
            x[0] = half::lane() == 0 ? end : x[0];
        } else {
            cplx<T> end = {x[0].re + x[0].im, x[0].re - x[0].im}, opposite[elements] = {};
            exchange<head<HEAD>, mirrored_tail<HEAD>, typename half::base>(x, opposite, half::own(shared),
                                                                           half::lane());
            MF_UNROLL
            for (int i = 0; i < HEAD; i++) {
                const int last = elements - 1 - i;
                x[i] = paired(x[i], cplx<T>{T(0), T(0)}, table[roots + half::index(i)]);
                x[last] = paired(cplx<T>{T(0), T(0)}, opposite[last], table[roots + half::index(last)]);
            }
            x[0] = half::lane() == 0 ? end : x[0];
            half::template run_ends<HEAD>(x, shared, table);
        }
    }

  private:
    // Of a thread's elements the first or the last COUNT, as `natural` and `mirrored` have them.
    template <int COUNT> struct head : natural<where> {
        static MF_DEVICE bool valid(int lane, int slot) { return slot < COUNT && where::valid(lane, slot); }
    };
    template <int COUNT> struct tail : natural<where> {
        static MF_DEVICE bool valid(int lane, int slot) { return slot >= elements - COUNT && where::valid(lane, slot); }
    };
    template <int COUNT> struct mirrored_head : mirrored<where> {
        static MF_DEVICE bool valid(int lane, int slot)
        {
            return slot < COUNT && where::valid(lane, slot) && (slot > 0 || lane > 0);
        }
    };
    template <int COUNT> struct mirrored_tail : mirrored<where> {
        static MF_DEVICE bool valid(int lane, int slot)
        {
            return slot >= elements - COUNT && where::limit - where::at(lane, slot) < COUNT * where::lanes;
        }
    };
};

template <class T, int N, int DIR, class C> struct real_method<T, N, DIR, false, C> : block<T, N, DIR, C> {
    typedef block<T, N, DIR, C> whole;
    using whole::elements;

    template <class S> static MF_DEVICE void load_real(cplx<T> (&x)[elements], const S *signal)
    {
        MF_UNROLL
        for (int i = 0; i < elements; i++) {
            x[i] = {whole::valid(i) ? (T)widen(signal[whole::index(i)]) : T(0), T(0)};
        }
    }
    template <class S> static MF_DEVICE void store_real(const cplx<T> (&x)[elements], S *signal)
    {
        whole::for_each([&](int i, i64) { signal[whole::index(i)] = narrow<S>(x[i].re); });
    }
    template <class S> static MF_DEVICE cplx<T> bin(const cplx<S> *bins, int k)
    {
        cplx<T> b = widen_to<T>(bins[2 * k < N ? k : N - k]);
        return cplx<T>{b.re, k == 0 ? T(0) : 2 * k < N ? b.im : -b.im};
    }
    template <class S> static MF_DEVICE void load_bins(cplx<T> (&x)[elements], const cplx<S> *bins)
    {
        MF_UNROLL
        for (int i = 0; i < elements; i++) {
            x[i] = whole::valid(i) ? bin(bins, whole::index(i)) : cplx<T>{T(0), T(0)};
        }
    }
    template <class S> static MF_DEVICE void store_bins(const cplx<T> (&x)[elements], cplx<S> *bins)
    {
        whole::for_each([&](int i, i64) {
            int k = whole::index(i);
            if (2 * k < N)
                bins[k] = narrow_to<S>(cplx<T>{x[i].re, k == 0 ? T(0) : x[i].im});
        });
    }
    template <class S> static MF_DEVICE void multiply(cplx<T> (&x)[elements], const cplx<S> *bins)
    {
        whole::for_each([&](int i, i64) { x[i] = x[i] * bin(bins, whole::index(i)); });
    }
};

template <class T, int N> using default_real_config = default_config<T, N % 2 == 0 ? N / 2 : N>;
template <class T, int N, class C = default_real_config<T, N>>
using real_forward = real_method<T, N, forward, N % 2 == 0, C>;
template <class T, int N, class C = default_real_config<T, N>>
using real_inverse = real_method<T, N, inverse, N % 2 == 0, C>;

} // namespace fft
} // namespace mf

#endif
