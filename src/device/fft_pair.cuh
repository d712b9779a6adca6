// Transforms of twice the points that a block holds, with their chains, by the two blocks of a cluster. A first transform ends
// with the even bins in block 0 and the odd ones in block 1, where a second begins: halves change hands once for each.
#ifndef MF_DEVICE_FFT_PAIR_CUH
#define MF_DEVICE_FFT_PAIR_CUH

#include "device/fft_chain.cuh"
#if defined(__CUDACC__)
#include "device/ptx_sm90.cuh"
#endif

namespace mf
{

// Emulated, where blocks do not meet, each does the work of both, and stores its own.
#if defined(__CUDACC__)
constexpr int fft_held = 1;
#else
constexpr int fft_held = 2;
#endif

// F: a transform of half the points. The table: that of F, then the roots of the whole for each lane.
template <class F> struct fft_half {
    typedef F part;
    typedef typename F::real real;
    static constexpr int threads = F::threads;
    static constexpr int half = F::elements / 2, points = F::size, lanes = F::lanes, direction = F::direction;
    static constexpr int roots = (F::table_size + 1) / 2 * 2, table_size = roots + lanes;
    static constexpr int received = (F::shared_bytes + 15) / 16 * 16; // where what the other block sends arrives
    static constexpr int shared_bytes = received + points / 2 * (int)sizeof(cplx<real>);
    static_assert(F::ffts == 1 && F::where::full && F::elements % 2 == 0, "halves of one signal");

    static MF_HOST_DEVICE cplx<real> table_entry(int i)
    {
        if (i < roots)
            return F::table_entry(i);
        fft::turn w = fft::turn_of(i - roots, 2 * points);
        return cplx<real>{(real)w.c, (real)-w.s};
    }
    // Element i of block `rank`'s share of the first half; the other half's lies `points` after it.
    static MF_DEVICE int index(int i, int rank) { return F::lane() + (half * rank + i) * lanes; }
    // The root to the power of index(i, rank); `table` has this lane's.
    static MF_DEVICE cplx<real> root(const cplx<real> *table, int i, int rank)
    {
        cplx<real> w = table[roots + F::lane()];
        w = rank ? fft::times_fixed<fft::forward, 4>(w, 1) : w;
        return fft::times_fixed<fft::forward, 4 * half>(w, i);
    }
};

MF_DEVICE void fft_pair_arrive()
{
#if defined(__CUDACC__)
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
MF_DEVICE void fft_pair_wait()
{
#if defined(__CUDACC__)
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

#if defined(__CUDACC__)
MF_DEVICE void fft_send(u32 to, cplx<float> x)
{
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x.re), "f"(x.im) : "memory");
}
MF_DEVICE void fft_send(u32 to, cplx<double> x)
{
    asm volatile("st.shared::cluster.v2.f64 [%0], {%1, %2};" ::"r"(to), "d"(x.re), "d"(x.im) : "memory");
}
#endif

#if defined(__CUDACC__)
// x[FROM + i] of half of the elements change places with the other block's, between two waits for it.
template <class H, int FROM, class T, int E>
MF_DEVICE void fft_swap_half(cplx<T> (&x)[E], const cplx<T> *mine, u32 other)
{
    fft_pair_wait();
    MF_UNROLL
    for (int i = 0; i < E / 2; i++)
        fft_send(other + i * H::lanes * (int)sizeof(cplx<T>), x[FROM + i]);
    fft_pair_arrive();
    fft_pair_wait();
    MF_UNROLL
    for (int i = 0; i < E / 2; i++)
        x[FROM + i] = mine[i * H::lanes];
}
#endif

// The second half of block 0's x and the first of block 1's change places.
template <class H, class T, int E> MF_DEVICE void fft_swap(cplx<T> (&x)[fft_held][E], void *shared, int rank)
{
#if defined(__CUDACC__)
    cplx<T> *mine = (cplx<T> *)((char *)shared + H::received) + threadIdx.x;
    u32 other;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(shared_address(mine)), "r"(rank ^ 1));
    if (rank == 0)
        fft_swap_half<H, E / 2>(x[0], mine, other);
    else
        fft_swap_half<H, 0>(x[0], mine, other);
#else
    (void)shared, (void)rank;
    for (int i = 0; i < E / 2; i++) {
        cplx<T> sent = x[0][E / 2 + i];
        x[0][E / 2 + i] = x[1][i];
        x[1][i] = sent;
    }
#endif
}

template <class F> struct fft_pair {
    typedef typename F::real T;
    typedef fft_half<F> H;
    static constexpr int E = F::elements;
    // f(x, rank) for each block whose work this one does.
    template <class X, class C> static MF_DEVICE void each(X &x, int rank, C &&f)
    {
        MF_UNROLL
        for (int h = 0; h < fft_held; h++)
            f(x[h], fft_held == 1 ? rank : h);
    }
    static MF_DEVICE void run(cplx<T> (&x)[fft_held][E], void *shared, const cplx<T> *table)
    {
        MF_UNROLL
        for (int h = 0; h < fft_held; h++)
            F::run(x[h], shared, table);
    }
    // From index(i, rank) of both halves of the signal to the bins' of this block.
    static MF_DEVICE void forth(cplx<T> (&x)[fft_held][E], void *shared, const cplx<T> *table, int rank)
    {
        each(x, rank, [&](cplx<T>(&y)[E], int r) {
            MF_UNROLL
            for (int i = 0; i < E / 2; i++) {
                cplx<T> low = y[i], high = y[E / 2 + i];
                y[i] = low + high;
                y[E / 2 + i] = fft::times_root<F::direction>(low - high, H::root(table, i, r));
            }
        });
        fft_swap<H>(x, shared, rank);
        fft_pair_arrive(); // what came has been read
        run(x, shared, table);
    }
    // And from the even or odd ones back.
    static MF_DEVICE void back(cplx<T> (&x)[fft_held][E], void *shared, const cplx<T> *table, int rank)
    {
        run(x, shared, table);
        fft_swap<H>(x, shared, rank);
        each(x, rank, [&](cplx<T>(&y)[E], int r) {
            MF_UNROLL
            for (int i = 0; i < E / 2; i++) {
                fft::combine<F::direction>(y[i], y[E / 2 + i], H::root(table, i, r));
            }
        });
    }
};

// As fft_chain, of fft_half<F> or of it and fft_half<G>; blocks 2 s and 2 s + 1 have signal s. `shared`: fft_half::shared_bytes.
template <class H, class H2, class S, class Before, class Middle, class Last, int ND, bool UNIT, i64 HAVE, i64 KEEP,
          bool SCALED, class A>
MF_DEVICE void fft_pair_chain(const A &a, u32 block, void *shared)
{
    typedef typename H::part F;
    typedef typename H2::part G;
    typedef typename F::real T;
    constexpr int E = F::elements;
    const cplx<T> *table = (const cplx<T> *)a.fft.table;
    const int rank = (int)(block % 2);
    cplx<T> x[fft_held][E];
    typename Last::point p;
    fft_pair_arrive(); // the other block is there
    fft_place<F, ND>(a, block / 2, p);
    fft_with<S, Before, ND, UNIT, HAVE, T>(a, p, [&](auto &&get) {
        fft_pair<F>::each(x, rank, [&](cplx<T>(&y)[E], int r) {
            MF_UNROLL
            for (int i = 0; i < E; i++) {
                int k = 2 * F::index(i) + r;
                if constexpr (is_chain<Middle>)
                    k = H::index(i % (E / 2), r) + i / (E / 2) * H::points;
                y[i] = fft_element<T>(get(k));
            }
        });
    });
    if constexpr (is_chain<Middle>) {
        fft_pair<F>::forth(x, shared, table, rank);
        fft_place<F, ND>(a, block / 2, p);
        fft_pair<F>::each(x, rank, [&](cplx<T>(&y)[E], int r) {
            MF_UNROLL
            for (int i = 0; i < E; i++) {
                typename Middle::inputs in;
                p.c[ND - 1] = 2 * F::index(i) + r;
                in.acc[0] = SCALED ? fft_scaled(y[i], (T)a.fft.scale[0]) : y[i];
                Middle::template load<0, true>(a.middle, p, in);
                y[i] = Middle::value(a.middle, p, in);
            }
        });
    }
    fft_pair<G>::back(x, shared, table, rank);
    fft_place<F, ND>(a, block / 2, p);
    MF_UNROLL
    for (int i = 0; i < E; i++) {
        const int k = H::index(i % (E / 2), rank) + i / (E / 2) * H::points;
        if (KEEP && k >= KEEP)
            continue;
        p.c[ND - 1] = k;
        fft_finish<Last>(a.last, p, &x[fft_held == 1 ? 0 : rank][i], (T)a.fft.scale[1]);
    }
}

} // namespace mf

#endif
