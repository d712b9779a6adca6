// Dense solvers for matrices of 33 to 128 rows, a matrix for 1 to 8 warps that hold it in registers as tiles: a thread has every
// `block`-th row and some columns of every panel of `block` columns. Sizes are compile-time constants.
//
//   typedef mf::solve::tiles<float, 64, 1, 1> G;         // 64 unknowns, one right-hand side, one warp
//   extern __shared__ float memory[];                    // G::elements for each matrix of the block
//   G g(memory + threadIdx.x / G::threads * G::elements);
//   ...                                                  // g.line(i)[j] = A[i][j], g.side(i)[r] = b[i][r], all by all threads
//   int info = g.lu(false);                              // or g.cholesky(false); true: g.line(j)[i] is A[i][j]
//   g.finish();                                          // g.side(i)[r] is now x[i]
//
// T: float, double, c64 or c128. All threads of the matrix call together; with more than one warp they are a block. info: 0, or 1 +
// the index of the first pivot that is not positive (Cholesky; NaN is not) or zero (LU), as in LAPACK; the results are then of no
// use. Cholesky reads the lower triangle, and leaves L^H in the lines. LU: pivots as in solve_rows.cuh, to one part in 2^12.
//
// A panel is factored with a row for each thread, which finds pivots in its own order. Rows that it chose leave as lines of U; the
// rows above them, which it did not, move into the gaps; the rest follows by one product of rank `block`. Right-looking blocked
// elimination after G. H. Golub, C. F. Van Loan, Matrix Computations, 4th ed., sections 3.4.7 and 4.2.6.
#ifndef MATHFUSE_SOLVE_TILES_CUH
#define MATHFUSE_SOLVE_TILES_CUH

#include "mathfuse/device/solve_panels.cuh"

namespace mf
{
namespace solve
{

// N unknowns, 33 to 128; R right-hand sides, 0 for none (Cholesky).
template <class T, int N, int R, int WARPS> struct tiles : tile_lines<T, N, R, WARPS> {
    typedef tile_lines<T, N, R, WARPS> base;
    using base::block, base::crew, base::ld, base::names, base::padded, base::run, base::short_ld, base::sides;
    using base::line, base::side, base::some_sides, base::sync, base::thread, base::threads, base::vector, base::ways;
    using typename base::own_rows, typename base::real;
    static constexpr int panels = base::panels;
    explicit MF_DEVICE tiles(T *shared) : base(shared) {}

    typedef T tile[panels][panels * run];
    typedef T tile_sides[panels][some_sides];

    // P A = L U: lines of U, with L^-1 P b beside them.
    MF_DEVICE int lu(bool across)
    {
        tile a;
        begin<false, false>(a, across);
        lu_panels<(padded + crew - 1) / crew, 0>(a);
        return base::diagonal_info();
    }

    // A = L L^H: lines of L^H, with L^-1 b beside them.
    template <bool CONJUGATE = false> MF_DEVICE int cholesky(bool across)
    {
        tile a;
        int info = 0;
        begin<true, CONJUGATE>(a, across);
        cholesky_panels<(padded - block + threads - 1) / threads, 0>(a, info);
        if constexpr (WARPS > 1) {
            if (thread() == 0)
                *chosen() = (u32)info;
            sync();
            info = (int)*chosen();
        }
        return info;
    }

  private:
    using base::below, base::chosen, base::multipliers, base::waiting;

    static MF_DEVICE int row() { return thread() % block; }
    static MF_DEVICE int column() { return thread() / block * run; }

    template <int t> struct moving {
        static constexpr int rest = padded - (t + 1) * block, columns = rest / ways,
                             size = (columns + sides + vector - 1) / vector * vector;
        static_assert(rest == 0 || block * ways * size <= rest * (ld - short_ld), "they fit the lines that are free");
    };
    template <int t> MF_DEVICE T *moved(u32 k) const
    {
        return multipliers(t) + moving<t>::rest * short_ld + ((int)k * ways + thread() / block) * moving<t>::size;
    }

    // Elements that are `DOWN` and `ACROSS` from each other.
    template <bool LOWER, bool CONJUGATE, int DOWN, int ACROSS> static MF_DEVICE void take(tile &a, const T *own)
    {
        MF_UNROLL
        for (int p = 0; p < panels; p++) {
            MF_UNROLL
            for (int c = 0; c < (LOWER ? p + 1 : panels); c++) {
                T *to = a[p] + c * run;
                const T *from = own + p * block * DOWN + c * block * ACROSS;
                if constexpr (ACROSS == 1)
                    base::template read<run>(to, from);
                MF_UNROLL
                for (int e = 0; e < run && ACROSS != 1; e++)
                    to[e] = from[e * ACROSS];
                MF_UNROLL
                for (int e = 0; e < run && CONJUGATE; e++)
                    to[e] = conjugate_of(to[e]);
            }
        }
    }

    // From lines to tiles. What is beyond N is a unit matrix.
    template <bool LOWER, bool CONJUGATE> MF_DEVICE void begin(tile &a, bool across) const
    {
        if constexpr (padded > N) {
            for (int e = thread(); e < (padded - N) * padded; e += threads) {
                int i = N + e / padded, j = e % padded;
                line(i)[j] = from_real(real(i == j ? 1 : 0), T());
                if (j < N)
                    line(j)[i] = T();
            }
            sync();
        }
        for (int e = thread(); e < padded * R; e += threads)
            waiting(0)[e] = e < N * R ? side(e / (R > 0 ? R : 1))[e % (R > 0 ? R : 1)] : T();
        if (across)
            take<LOWER, CONJUGATE, 1, ld>(a, line(column()) + row());
        else
            take<LOWER, CONJUGATE, ld, 1>(a, line(row()) + column());
        sync();
    }

    template <int t> struct panel_number {
        static constexpr int value = t;
    };
    // f for the panel as a constant.
    template <int t, int END, class F> static MF_DEVICE void with(int panel, F f)
    {
        if constexpr (t + 1 == END)
            f(panel_number<t>());
        else if (panel == t)
            f(panel_number<t>());
        else
            with<t + 1, END>(panel, f);
    }

    // A thread's right-hand sides wait in shared memory while a panel is factored.
    template <int t> MF_DEVICE void take_sides(tile_sides &b) const
    {
        const T *own = waiting(row()) + side_of(0);
        MF_UNROLL
        for (int e = t * sides; e < panels * sides; e++) {
            const int p = e / some_sides, s = e % some_sides;
            b[p][s] = side_of(s) < R ? own[p * block * R + ways * s] : T();
        }
    }
    template <int t> MF_DEVICE void leave_sides(const tile_sides &b) const
    {
        T *own = waiting(row()) + side_of(0);
        MF_UNROLL
        for (int e = t * sides; e < panels * sides; e++) {
            const int p = e / some_sides, s = e % some_sides;
            if (side_of(s) < R)
                own[p * block * R + ways * s] = b[p][s];
        }
    }
    static MF_DEVICE int side_of(int s) { return thread() / block + ways * s; }

    // Panel t, row after row, where its rows lie from now on.
    template <int t> MF_DEVICE void spread_panel(const tile &a) const
    {
        T *own = line(t * block) + row() * short_ld + column();
        MF_UNROLL
        for (int p = t; p < panels; p++)
            base::template write<run>(own + (p - t) * block * short_ld, a[p] + t * run);
        sync();
    }

    // A thread's columns behind panel t, and its right-hand sides.
    template <int t>
    static MF_DEVICE void leave(T *to, T *to_sides, const T (&a)[panels * run], const T (&b)[some_sides])
    {
        MF_UNROLL
        for (int c = t + 1; c < panels; c++)
            base::template write<run>(to + c * block, a + c * run);
        MF_UNROLL
        for (int s = 0; s < sides; s++)
            if (side_of(s) < R)
                to_sides[ways * s] = b[s];
    }

    // The rest -= multipliers * lines of panel t.
    template <int t, bool LOWER> MF_DEVICE void update(tile &a, tile_sides &b) const
    {
        constexpr int chunk = LOWER || WARPS == 1 || vector < 2 ? vector : 2; // columns of multipliers at a time
        const T *own = multipliers(t) + row() * short_ld, *u = line(t * block) + column(),
                *y = side(t * block) + side_of(0);
        MF_ROLL
        for (int w = 0; w < block / chunk; w++, own += chunk) {
            T f[panels][chunk];
            MF_UNROLL
            for (int p = t + 1; p < panels; p++)
                base::template read<chunk>(f[p], own + (p - t - 1) * block * short_ld);
            MF_UNROLL
            for (int e = 0; e < chunk; e++, u += ld, y += ld) {
                MF_UNROLL
                for (int c = t + 1; c < panels; c++) {
                    T v[run];
                    base::template read<run>(v, u + c * block);
                    MF_UNROLL
                    for (int i = (LOWER ? c : t + 1) * run; i < panels * run; i++) {
                        T &x = a[i / run][c * run + i % run];
                        x = x - f[i / run][e] * v[i % run];
                    }
                }
                MF_UNROLL
                for (int s = 0; s < sides; s++) {
                    T x = side_of(s) < R ? y[ways * s] : T();
                    MF_UNROLL
                    for (int p = t + 1; p < panels; p++)
                        b[p][s] = b[p][s] - f[p][e] * x;
                }
            }
        }
        leave_sides<t + 1>(b);
        sync();
    }

    // Chosen rows become lines of U; the panel's other rows take the places of those that left from below.
    template <int t> MF_DEVICE void exchange_rows(tile &a, tile_sides &b, own_rows own) const
    {
        typedef moving<t> gone;
        u32 name[panels];
        const u32 *own_name = chosen() + row();
        T *u = line(t * block) + column(), *y = side(t * block) + side_of(0);
        MF_UNROLL
        for (int p = t; p < panels; p++) {
            name[p] = own_name[(p - t) * block];
            if (name[p] < names)
                leave<t>(u + name[p] * ld, y + name[p] * ld, a[p], b[p]);
        }
        if constexpr (t + 1 < panels)
            if (name[t] >= names) {
                T q[gone::size];
                MF_UNROLL
                for (int e = 0; e < gone::size; e++)
                    q[e] = e < gone::columns ? a[t][(t + 1) * run + (e < gone::columns ? e : 0)]
                                             : b[t][e - gone::columns < sides ? e - gone::columns : 0];
                base::template write<gone::size>(moved<t>(below(own.stay, (u32)row())), q);
            }
        sync();
        MF_UNROLL
        for (int p = t + 1; p < panels; p++)
            if (name[p] < names) {
                T q[gone::size];
                base::template read<gone::size>(q, moved<t>(below(own.outside, name[p])));
                MF_UNROLL
                for (int e = 0; e < gone::columns; e++)
                    a[p][(t + 1) * run + e] = q[e];
                MF_UNROLL
                for (int s = 0; s < sides; s++)
                    b[p][s] = q[gone::columns + s];
            }
    }

    // Panels for which a thread has up to S rows of what is left, then the rest. After the first, which is apart, its columns need no
    // registers. Only what names registers is unrolled over panels: what
    // does not fit the caches of instructions is slow.
    template <int S, int BEGIN> MF_DEVICE void lu_panels(tile &a)
    {
        constexpr int fewer = S > 2 ? (S + 1) / 2 : S - 1, last = panels - fewer * crew / block,
                      end = BEGIN == 0 ? 1 : last;
        MF_ROLL
        for (int t = BEGIN; t < end; t++) {
            base::renew();
            with<BEGIN, end>(t, [&](auto at) { spread_panel<decltype(at)::value>(a); });
            const own_rows own = base::template lu_panel<S>(t);
            tile_sides b;
            with<BEGIN, end>(t, [&](auto at) {
                take_sides<decltype(at)::value>(b);
                exchange_rows<decltype(at)::value>(a, b, own);
            });
            base::lu_lines(t);
            with<BEGIN, end>(t, [&](auto at) {
                if constexpr (decltype(at)::value + 1 < panels)
                    update<decltype(at)::value, false>(a, b);
            });
        }
        if constexpr (end < last)
            lu_panels<S, end>(a);
        else if constexpr (S > 1)
            lu_panels<fewer, end>(a);
    }

    template <int S, int BEGIN> MF_DEVICE void cholesky_panels(tile &a, int &info)
    {
        constexpr int end = panels - (S - 1) * threads / block - (S > 1 ? 1 : 0);
        MF_ROLL
        for (int t = BEGIN; t < end; t++) {
            base::renew();
            with<BEGIN, end>(t, [&](auto at) { spread_panel<decltype(at)::value>(a); });
            base::template cholesky_panel<S>(t, info);
            with<BEGIN, end>(t, [&](auto at) {
                constexpr int now = decltype(at)::value;
                if constexpr (now + 1 < panels) {
                    tile_sides b;
                    take_sides<now + 1>(b);
                    update<now, true>(a, b);
                }
            });
        }
        if constexpr (S > 1)
            cholesky_panels<S - 1, end>(a, info);
    }
};

} // namespace solve
} // namespace mf
#endif
