// Complex transforms of a thread and of a block; fft.cuh says how they are used.
#ifndef MATHFUSE_DEVICE_FFT_BLOCK_CUH
#define MATHFUSE_DEVICE_FFT_BLOCK_CUH

#include "mathfuse/device/fft_radix.cuh"
#if !defined(__CUDACC__)
#include "mathfuse/device/emulate.h"
#endif
namespace mf
{
namespace fft
{

template <int... R> struct radices {
    static constexpr radix_list list = {(int)sizeof...(R), {R...}, true};
};
struct by_length { // radices chosen from the length and the elements of a thread
};

// E elements in a thread, B signals in a block. SPLIT: real and imaginary parts pass through shared memory one after
// the other, which halves it. R: radices, first pass first, each a divisor of E. BESIDE: neighbouring threads have
// neighbouring signals, for those whose elements are far apart in memory and which lie beside each other there.
template <int E, int B = 1, bool SPLIT = false, class R = by_length, bool BESIDE = false> struct config {
    static constexpr int elements = E, ffts = B;
    static constexpr bool split = SPLIT, beside = BESIDE && B > 1;
    typedef R order;
};

MF_HOST_DEVICE constexpr int default_ffts(int threads)
{
    return threads >= 96 ? 1 : 128 / threads;
}

template <class T, int N> struct default_choice {
    static constexpr int work = work_length(N), elements = default_elements(work, sizeof(T) == 8);
    typedef config<elements, default_ffts((work + elements - 1) / elements), (work * sizeof(cplx<T>) >= 65536)> type;
};
template <class T, int N> using default_config = typename default_choice<T, N>::type;

template <int N, int E, class R> struct radix_order {
    static constexpr radix_list list = R::list;
};
template <int N, int E> struct radix_order<N, E, by_length> {
    static constexpr radix_list list = radices_of(N, E);
};

// A complex number of any storage type, as the type T that is computed with; and back.
template <class T, class S> MF_DEVICE cplx<T> widen_to(cplx<S> x)
{
    return cplx<T>{(T)widen(x.re), (T)widen(x.im)};
}
template <class S, class T> MF_DEVICE cplx<S> narrow_to(cplx<T> x)
{
    return cplx<S>{narrow<S>(x.re), narrow<S>(x.im)};
}

// ---- one thread ----

template <class T, int N, int DIR> struct thread {
    static_assert(N <= 64 && is_smooth(N), "a thread transforms lengths up to 64 of the primes up to 13");
    static MF_DEVICE void run(cplx<T> (&x)[N]) { butterfly<DIR, N>(x); }
};

// ---- a block: which elements a thread holds, and how they change hands ----

// Of N places in E elements of each thread, the first LIMIT are in use.
template <int N, int E, int LIMIT = N> struct layout {
    static constexpr int elements = E, limit = LIMIT, lanes = (N + E - 1) / E; // threads of one signal
    static constexpr bool full = lanes * E == LIMIT;
    static MF_DEVICE int at(int lane, int i) { return lane + i * lanes; }
    static MF_DEVICE bool valid(int lane, int i)
    {
        return full || (i + 1) * lanes <= LIMIT || (i * lanes < LIMIT && at(lane, i) < LIMIT);
    }
};

// In shared memory, every UNIT elements are followed by one more.
template <int UNIT> MF_HOST_DEVICE constexpr int padded(int i)
{
    return i + (int)((u32)i / (u32)UNIT);
}

// A place is a base that depends on the lane and an offset the compiler knows. Where they are padded alike by themselves
// and together, they are apart: the offset ends up in the instruction.
template <bool APART, int UNIT> MF_DEVICE int padded_sum(int base, int offset)
{
    return APART ? padded<UNIT>(base) + padded<UNIT>(offset) : padded<UNIT>(base + offset);
}

// Sources of a pass: lane + i lanes + k butterflies.
MF_HOST_DEVICE constexpr bool sources_apart(int n, int lanes, int r, int unit)
{
    int butterflies = n / r;
    if (is_power_of_2(n) && is_power_of_2(lanes) && is_power_of_2(unit))
        return true; // no bits in common
    return butterflies % unit == 0 && (butterflies <= lanes || lanes % unit == 0);
}
// Targets: for butterfly j = lane + i lanes, j / stride * stride * r + j % stride + k stride.
MF_HOST_DEVICE constexpr bool targets_apart(int n, int lanes, int r, int stride, int unit)
{
    if (is_power_of_2(n) && is_power_of_2(lanes) && is_power_of_2(unit))
        return true;
    if (n / r > lanes && (lanes % stride != 0 || lanes * r % unit != 0))
        return false;
    return stride % unit == 0 || unit % (stride * r) == 0;
}

template <int N, int LANES, int R, int STRIDE> struct pass {
    static constexpr int butterflies = N / R, each_lane = (butterflies + LANES - 1) / LANES, slots = each_lane * R;
    static constexpr int together = R; // so many slots are valid or not
    static constexpr bool full = each_lane * LANES == butterflies;
    static MF_DEVICE bool valid(int lane, int slot)
    {
        return full || (slot / R + 1) * LANES <= butterflies || lane + slot / R * LANES < butterflies;
    }
    // Butterfly j takes elements j + k N / R,
    template <int UNIT> static MF_DEVICE int source(int lane, int slot)
    {
        return padded_sum<sources_apart(N, LANES, R, UNIT), UNIT>(lane, slot / R * LANES + slot % R * butterflies);
    }
    // and its results go to j / STRIDE * STRIDE * R + j % STRIDE + k STRIDE.
    template <int UNIT> static MF_DEVICE int target(int lane, int slot)
    {
        int k = slot % R, q = slot / R * LANES;
        if constexpr (targets_apart(N, LANES, R, STRIDE, UNIT))
            return padded<UNIT>(lane / STRIDE * (STRIDE * R) + lane % STRIDE) +
                   padded<UNIT>(q / STRIDE * (STRIDE * R) + q % STRIDE + k * STRIDE);
        int j = lane + q;
        return padded<UNIT>(j / STRIDE * (STRIDE * R) + j % STRIDE + k * STRIDE);
    }
};

template <class L> struct natural { // the layout outside
    static constexpr int slots = L::elements, together = 1;
    static MF_DEVICE bool valid(int lane, int slot) { return L::valid(lane, slot); }
    template <int UNIT> static MF_DEVICE int source(int lane, int slot)
    {
        constexpr bool apart =
            (is_power_of_2(L::limit) && is_power_of_2(L::lanes) && is_power_of_2(UNIT)) || L::lanes % UNIT == 0;
        return padded_sum<apart, UNIT>(lane, slot * L::lanes);
    }
    template <int UNIT> static MF_DEVICE int target(int lane, int slot) { return source<UNIT>(lane, slot); }
};

template <class L> struct mirrored { // for element k of the layout outside, element -k
    static constexpr int slots = L::elements, together = 1;
    static MF_DEVICE bool valid(int lane, int slot) { return L::valid(lane, slot); }
    template <int UNIT> static MF_DEVICE int source(int lane, int slot)
    {
        int k = L::at(lane, slot);
        return padded<UNIT>(k == 0 ? 0 : L::limit - k);
    }
};

// Threads of a signal that lie within one warp need no more than the warp's barrier.
template <int LANES, class C> constexpr bool in_one_warp = LANES <= 32 && 32 % LANES == 0 && !C::beside;

template <bool IN_WARP> MF_DEVICE void sync_lanes()
{
    if constexpr (IN_WARP)
        __syncwarp();
    else
        __syncthreads();
}

// f(slot) for each of a lane's slots that are valid.
template <class PLACES, class C> MF_DEVICE void each_slot(int lane, C &&f)
{
    constexpr int group = PLACES::together;
    MF_UNROLL
    for (int i = 0; i < PLACES::slots; i += group) {
        if (PLACES::valid(lane, i)) {
            MF_UNROLL
            for (int k = 0; k < group; k++) {
                f(i + k);
            }
        }
    }
}

// out[slot of TO] = in[slot of FROM], through shared memory for one signal of transform F.
template <class FROM, class TO, class F, class T, int A, int B>
MF_DEVICE void exchange(const cplx<T> (&in)[A], cplx<T> (&out)[B], void *shared, int lane)
{
    constexpr int unit = F::unit;
    if constexpr (F::lanes == 1) {
        cplx<T> *all = (cplx<T> *)shared;
        MF_UNROLL
        for (int i = 0; i < FROM::slots; i++) {
            all[FROM::template target<unit>(0, i)] = in[i];
        }
        MF_UNROLL
        for (int i = 0; i < TO::slots; i++) {
            out[i] = all[TO::template source<unit>(0, i)];
        }
    } else if constexpr (F::split) {
        T *part = (T *)shared;
        MF_UNROLL
        for (int imaginary = 0; imaginary < 2; imaginary++) {
            const bool im = imaginary == 1;
            sync_lanes<F::in_warp>();
            each_slot<FROM>(lane,
                            [&](int i) { part[FROM::template target<unit>(lane, i)] = im ? in[i].im : in[i].re; });
            sync_lanes<F::in_warp>();
            each_slot<TO>(lane,
                          [&](int i) { (im ? out[i].im : out[i].re) = part[TO::template source<unit>(lane, i)]; });
        }
    } else {
        cplx<T> *all = (cplx<T> *)shared;
        sync_lanes<F::in_warp>();
        each_slot<FROM>(lane, [&](int i) { all[FROM::template target<unit>(lane, i)] = in[i]; });
        sync_lanes<F::in_warp>();
        each_slot<TO>(lane, [&](int i) { out[i] = all[TO::template source<unit>(lane, i)]; });
    }
}

// ---- roots between passes ----

// Of a pass with radix R after a product S of radices: powers of w = e^(-2 pi i m / (R S)) for each m < S. Powers of two:
// those of w^(2^i), an even number of them, so that each is rounded once. Others: 1, 4, 8 and 16, as far as needed; the
// thread makes the others in at most three products.
MF_HOST_DEVICE constexpr int powers_kept(int r)
{
    if (is_power_of_2(r))
        return r <= 2 ? 1 : (log2_of(r) + 1) / 2 * 2;
    return r <= 4 ? 1 : r <= 16 ? 2 : 4;
}
MF_HOST_DEVICE constexpr int power_kept(int r, int i)
{
    return is_power_of_2(r) ? 1 << i : i == 0 ? 1 : 2 << i;
}

MF_HOST_DEVICE constexpr int table_offset(radix_list list, int upto)
{
    int offset = 0, stride = 1;
    for (int p = 0; p < upto; p++) {
        if (p > 0)
            offset += (stride * powers_kept(list.radix[p]) + 1) / 2 * 2;
        stride *= list.radix[p];
    }
    return offset;
}

MF_HOST_DEVICE constexpr int stride_before(radix_list list, int p)
{
    int stride = 1;
    for (int i = 0; i < p; i++)
        stride *= list.radix[i];
    return stride;
}

// How many elements lie between two unused words: of the numbers about a line of memory, one that keeps places apart.
MF_HOST_DEVICE constexpr bool all_apart(radix_list list, int n, int lanes, int unit)
{
    bool apart = true;
    for (int p = 0; p < list.count; p++)
        apart = apart && (p == 0 || sources_apart(n, lanes, list.radix[p], unit)) &&
                (p + 1 == list.count || targets_apart(n, lanes, list.radix[p], stride_before(list, p), unit));
    return apart;
}
MF_HOST_DEVICE constexpr int unit_of(radix_list list, int n, int lanes, int line)
{
    if (all_apart(list, n, lanes, line))
        return line;
    for (int unit = 2 * line - 1; unit >= line / 2; unit--)
        if (all_apart(list, n, lanes, unit))
            return unit;
    return line;
}

// v[k] times w^k, from the kept powers of w.
template <int DIR, int R, class T> MF_DEVICE void times_powers(cplx<T> (&v)[R], const cplx<T> *kept)
{
    constexpr int K = powers_kept(R);
    pack<cplx<T>, K> w;
    load_pack<(K > 1 ? 16 : (int)sizeof(cplx<T>))>(w, kept);
    cplx<T> low[4], base = {};
    low[1] = w.v[0];
    low[2] = low[1] * low[1];
    low[3] = low[1] * low[2];
    cplx<T> w4 = w.v[K > 1 ? 1 : 0], w8 = K > 2 ? w.v[K > 2 ? 2 : 0] : w4 * w4, w12 = w8 * w4;
    MF_UNROLL
    for (int k = 0; k < R; k++) {
        const int p = k % 4, q = k / 4;
        if (p == 0 && q > 0) {
            const int low_q = q % 4;
            base = low_q == 1 ? w4 : low_q == 2 ? w8 : w12;
            if (q > 4)
                base = base * w.v[K > 2 ? 3 : 0];
            else if (q == 4)
                base = w.v[K > 2 ? 3 : 0];
        }
        if (k > 0)
            v[k] = times_root<DIR>(v[k], q == 0 ? low[p] : p == 0 ? base : base * low[p]);
    }
}

// The transform of v[k] times w^k, from the kept powers of w.
template <int DIR, int R, class T> MF_DEVICE void turned_butterfly(cplx<T> (&v)[R], const cplx<T> *kept)
{
    if constexpr (is_power_of_2(R)) {
        constexpr int K = powers_kept(R);
        pack<cplx<T>, K> w;
        load_pack<(K > 1 ? 16 : (int)sizeof(cplx<T>))>(w, kept);
        butterfly_times<DIR>(v, w.v);
    } else {
        times_powers<DIR>(v, kept);
        butterfly<DIR, R>(v);
    }
}

// Signals of less than half a warp share an access: their places are shifted to other banks. So are those of signals
// beside each other.
MF_HOST_DEVICE constexpr int apart_in_banks(int words, int lanes, int first_radix, bool beside)
{
    if (beside)
        return words / 2 * 2 + 1;
    while (lanes > 1 && lanes < 16 && words % 16 != first_radix / 2 % 16)
        words++;
    return words;
}

// ---- a block, lengths of the primes up to 13 ----

template <class T, int N, int DIR, class C> struct stockham {
    static constexpr radix_list list = radix_order<N, C::elements, typename C::order>::list;
    static constexpr int size = N, direction = DIR, elements = C::elements, ffts = C::ffts, passes = list.count;
    typedef layout<N, elements> where;
    static constexpr int lanes = where::lanes, threads = lanes * ffts;
    static constexpr bool split = C::split && lanes > 1, in_warp = in_one_warp<lanes, C>, beside = C::beside;
    static constexpr int word = (int)(split ? sizeof(T) : sizeof(cplx<T>));
    static constexpr int unit = unit_of(list, N, lanes, 128 / word), signal_words = padded<unit>(N - 1) + 1;
    static constexpr int signal_bytes = apart_in_banks(signal_words, lanes, list.radix[0], beside) * word;
    static constexpr int table_size = table_offset(list, passes);
    static_assert(threads <= 1024, "a block has at most 1024 threads: more elements in a thread, or fewer signals");
    static_assert(stride_before(list, passes) == N, "the radices' product is the length");

    template <int P> using pass_at = pass<N, lanes, list.radix[P < 14 ? P : 0], stride_before(list, P)>;
    template <int P> static constexpr bool in_place = pass_at<P>::full &&elements % list.radix[P] == 0 && where::full;

    static MF_HOST_DEVICE constexpr int most_slots()
    {
        int most = elements;
        for (int p = 0; p < passes; p++) {
            int r = list.radix[p], slots = (N / r + lanes - 1) / lanes * r;
            most = slots > most ? slots : most;
        }
        return most;
    }
    static constexpr int slots = most_slots();
    static constexpr bool exchanges = passes > 1 || !in_place<0>;

    template <int P = 1> static MF_HOST_DEVICE cplx<T> table_entry(int i)
    {
        if constexpr (P < passes) {
            constexpr int begin = table_offset(list, P), end = table_offset(list, P + 1),
                          kept = powers_kept(list.radix[P]);
            constexpr i64 n = (i64)stride_before(list, P) * list.radix[P];
            if (i >= end)
                return table_entry<P + 1>(i);
            turn w = turn_of((i64)((i - begin) / kept) * power_kept(list.radix[P], (i - begin) % kept), n);
            return cplx<T>{(T)w.c, (T)-w.s};
        } else {
            return cplx<T>{T(1), T(0)};
        }
    }

    // The butterflies of pass P on v, butterfly after butterfly.
    template <int P> static MF_DEVICE void transform(cplx<T> (&v)[slots], const cplx<T> *table, int lane)
    {
        typedef pass_at<P> here;
        constexpr int R = list.radix[P];
        MF_UNROLL
        for (int q = 0; q < here::each_lane; q++) {
            if (here::valid(lane, q * R)) {
                cplx<T> u[R];
                MF_UNROLL
                for (int k = 0; k < R; k++) {
                    u[k] = v[q * R + k];
                }
                if constexpr (P > 0) {
                    constexpr int stride = stride_before(list, P), offset = table_offset(list, P);
                    turned_butterfly<DIR>(u, table + offset + (lane + q * lanes) % stride * powers_kept(R));
                } else {
                    butterfly<DIR, R>(u);
                }
                MF_UNROLL
                for (int k = 0; k < R; k++) {
                    v[q * R + k] = u[k];
                }
            }
        }
    }

    template <int P>
    static MF_DEVICE void passes_from(cplx<T> (&v)[slots], void *shared, const cplx<T> *table, int lane)
    {
        transform<P>(v, table, lane);
        if constexpr (P + 1 < passes) {
            exchange<pass_at<P>, pass_at<P + 1>, stockham>(v, v, shared, lane);
            passes_from<P + 1>(v, shared, table, lane);
        }
    }

    // `shared`: of this signal. ENDS > 0: only the first and the last so many elements of a thread are not zero.
    template <int ENDS = 0>
    static MF_DEVICE void run_signal(cplx<T> (&x)[elements], void *shared, const cplx<T> *table, int lane)
    {
        constexpr int first = list.radix[0], last = list.radix[passes - 1];
        cplx<T> v[slots];
        if constexpr (in_place<0>) {
            MF_UNROLL
            for (int i = 0; i < elements; i++)
                v[i % (elements / first) * first + i / (elements / first)] = x[i];
        } else {
            exchange<natural<where>, pass_at<0>, stockham>(x, v, shared, lane);
        }
        if constexpr (ENDS == 1 && in_place<0> && first == elements && passes > 1) {
            butterfly_of_ends<DIR, first>(v);
            exchange<pass_at<0>, pass_at<1>, stockham>(v, v, shared, lane);
            passes_from<1>(v, shared, table, lane);
        } else {
            passes_from<0>(v, shared, table, lane);
        }
        if constexpr (in_place<passes - 1>) {
            MF_UNROLL
            for (int i = 0; i < elements; i++)
                x[i] = v[i % (elements / last) * last + i / (elements / last)];
        } else {
            exchange<pass_at<passes - 1>, natural<where>, stockham>(v, x, shared, lane);
        }
    }
};

// ---- other lengths: Bluestein's circular convolution with a chirp, whose transform is in the table ----

template <class T, int N, int DIR, class C> struct bluestein {
    static constexpr int work = work_length(N);
    typedef stockham<T, work, forward, C> there;
    typedef stockham<T, work, inverse, C> back;
    static constexpr int size = N, direction = DIR, elements = C::elements, ffts = C::ffts, passes = there::passes;
    typedef layout<work, elements, N> where;
    static constexpr int lanes = where::lanes, threads = lanes * ffts;
    static constexpr bool split = there::split, in_warp = there::in_warp, beside = there::beside;
    static constexpr int unit = there::unit, signal_bytes = there::signal_bytes;
    static constexpr bool exchanges = there::exchanges;
    static constexpr int chirp = (there::table_size + 1) / 2 * 2, spectrum = chirp + N, table_size = spectrum + work;

    static MF_HOST_DEVICE turn chirp_at(i64 n) { return turn_of(n * n % (2 * N), 2 * N); }

    static MF_HOST_DEVICE cplx<T> table_entry(int i)
    {
        if (i < chirp)
            return there::table_entry(i);
        if (i < spectrum) {
            turn w = chirp_at(i - chirp);
            return cplx<T>{(T)w.c, (T)-w.s};
        }
        double re = 1, im = 0; // the chirp is even, so its transform is a sum of cosines
        for (i64 n = 1; n < N; n++) {
            turn w = chirp_at(n), v = turn_of(n * (i - spectrum) % work, work);
            re += 2 * w.c * v.c;
            im += 2 * w.s * v.c;
        }
        return cplx<T>{(T)(re / work), (T)(im / work)};
    }

    template <int = 0>
    static MF_DEVICE void run_signal(cplx<T> (&x)[elements], void *shared, const cplx<T> *table, int lane)
    {
        MF_UNROLL
        for (int i = 0; i < elements; i++) {
            int n = where::at(lane, i);
            cplx<T> y = {x[i].re, -DIR * x[i].im}; // an inverse transform is a forward one between conjugations
            x[i] = where::valid(lane, i) ? y * table[chirp + n] : cplx<T>{T(0), T(0)};
        }
        there::template run_signal<>(x, shared, table, lane);
        MF_UNROLL
        for (int i = 0; i < elements; i++) {
            if (layout<work, elements>::valid(lane, i))
                x[i] = x[i] * table[spectrum + where::at(lane, i)];
        }
        back::template run_signal<>(x, shared, table, lane);
        MF_UNROLL
        for (int i = 0; i < elements; i++) {
            if (where::valid(lane, i)) {
                cplx<T> y = x[i] * table[chirp + where::at(lane, i)];
                x[i] = cplx<T>{y.re, -DIR * y.im};
            }
        }
    }
};

// ---- what users call ----

template <bool SMOOTH, class T, int N, int DIR, class C> struct method {
    typedef stockham<T, N, DIR, C> type;
};
template <class T, int N, int DIR, class C> struct method<false, T, N, DIR, C> {
    typedef bluestein<T, N, DIR, C> type;
};

// A complex transform of N. Traits: size, elements (of a thread), lanes (threads of a signal), ffts (signals of the
// block), threads, shared_bytes, table_size.
template <class T, int N, int DIR, class C = default_config<T, N>>
struct block : method<is_smooth(N), T, N, DIR, C>::type {
    typedef typename method<is_smooth(N), T, N, DIR, C>::type base;
    typedef typename base::where where;
    typedef T real;
    using base::elements;
    static constexpr int shared_bytes = base::exchanges ? base::signal_bytes * base::ffts : 0;

    static MF_DEVICE int lane()
    {
        if constexpr (base::ffts == 1)
            return (int)threadIdx.x;
        return (int)(base::beside ? threadIdx.x / (u32)base::ffts : threadIdx.x % (u32)base::lanes);
    }
    static MF_DEVICE int signal() // of the block's, this thread's
    {
        if constexpr (base::ffts == 1)
            return 0;
        return (int)(base::beside ? threadIdx.x % (u32)base::ffts : threadIdx.x / (u32)base::lanes);
    }
    static MF_DEVICE int index(int i) { return where::at(lane(), i); }     // of x[i]
    static MF_DEVICE bool valid(int i) { return where::valid(lane(), i); } // false: x[i] is no element

    // f(i, offset) for each i with an element; `offset` from this thread's first one, known to the compiler if the stride is.
    template <class F> static MF_DEVICE void for_each(F &&f)
    {
        int l = lane();
        MF_UNROLL
        for (int i = 0; i < elements; i++) {
            if (where::valid(l, i))
                f(i, (i64)(i * base::lanes));
        }
    }
    // From and to a signal whose elements lie `stride` apart, of any storage type; what is no element becomes zero.
    template <class S> static MF_DEVICE void load(cplx<T> (&x)[elements], const cplx<S> *src, i64 stride = 1)
    {
        const cplx<S> *mine = src + lane() * stride;
        if constexpr (!where::full) {
            MF_UNROLL
            for (int i = 0; i < elements; i++)
                x[i] = cplx<T>{T(0), T(0)};
        }
        for_each([&](int i, i64 offset) { x[i] = widen_to<T>(mine[offset * stride]); });
    }
    template <class S> static MF_DEVICE void store(const cplx<T> (&x)[elements], cplx<S> *dst, i64 stride = 1)
    {
        cplx<S> *mine = dst + lane() * stride;
        for_each([&](int i, i64 offset) { mine[offset * stride] = narrow_to<S>(x[i]); });
    }
    // x = x h, element by element.
    template <class S> static MF_DEVICE void multiply(cplx<T> (&x)[elements], const cplx<S> *h)
    {
        const cplx<S> *mine = h + lane();
        for_each([&](int i, i64 offset) { x[i] = x[i] * widen_to<T>(mine[offset]); });
    }
    static MF_DEVICE void *own(void *shared) { return (char *)shared + signal() * base::signal_bytes; }
    static MF_DEVICE void run(cplx<T> (&x)[elements], void *shared, const cplx<T> *table)
    {
        base::template run_signal<>(x, own(shared), table, lane());
    }
    // As run, where only the first and the last ENDS elements of a thread are not zero.
    template <int ENDS> static MF_DEVICE void run_ends(cplx<T> (&x)[elements], void *shared, const cplx<T> *table)
    {
        base::template run_signal<ENDS>(x, own(shared), table, lane());
    }
};

} // namespace fft
} // namespace mf

#endif
