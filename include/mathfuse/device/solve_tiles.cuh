// Dense solvers for matrices of 33 to 128 rows, a matrix for 1 to 8 warps that hold it in registers as tiles: a thread has every
// `block`-th row and some columns of every panel of `block` columns. Sizes are compile-time constants.
//
//   typedef mf::solve::tiles<float, 64, 1, 1> G;         // 64 unknowns, one right-hand side, one warp
//   extern __shared__ float memory[];                    // G::elements for each matrix of the block
//   G g(memory + threadIdx.x / G::threads * G::elements);
//   ...                                                  // g.line(i)[j] = A[i][j], g.side(i)[r] = b[i][r], all by all threads
//   int info = g.lu(false);                              // or g.cholesky(false); true: g.line(j)[i] is A[i][j]
//   g.finish();
//   ...                                                  // g.side(i)[r] is now x[i]
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

#include "mathfuse/device/solve_rows.cuh"

namespace mf
{
namespace solve
{

// N unknowns, 33 to 128; R right-hand sides, 0 for none (Cholesky).
template <class T, int N, int R, int WARPS> struct tiles {
    static_assert(N >= 33 && N <= 128, "33 to 128 unknowns");
    static_assert(WARPS == 1 || WARPS == 2 || WARPS == 4 || WARPS == 8, "warps of a matrix");
    typedef real_t<T> real;
    static constexpr int threads = 32 * WARPS;
    static constexpr int vector = sizeof(T) >= 16 ? 1 : 16 / (int)sizeof(T); // elements that are read at once
    static constexpr int block = WARPS >= 4 ? 16 : 8;                        // rows and columns of a panel
    static constexpr int ways = threads / block, run = block / ways;         // a thread has `run` neighbouring columns
    static constexpr int panels = (N + block - 1) / block, padded = panels * block;
    static constexpr int sides = (R + ways - 1) / ways, some_sides = sides > 0 ? sides : 1; // of a thread
    static constexpr int words = block / vector;
    // Between lines in shared memory: an odd number of 16-byte words, so that lanes read a line each without conflicts.
    static constexpr int ld = ((padded + R + vector - 1) / vector | 1) * vector;
    static constexpr int short_ld = block + vector; // of a panel's rows
    static constexpr int candidates = WARPS > 1 ? 2 * WARPS * block : 0;
    static constexpr int numbers = padded + block + (WARPS > 1 ? 2 * WARPS : 0); // of 4 bytes
    // Of T in shared memory, which is aligned to 16 bytes.
    static constexpr int elements =
        padded * ld + candidates + (numbers * 4 + (int)sizeof(T) * vector - 1) / ((int)sizeof(T) * vector) * vector;
    static constexpr u32 names = padded > 64 ? 128 : 64, low = 2 * names - 1;

    T *lines;

    explicit MF_DEVICE tiles(T *shared) : lines(shared) {}

    MF_DEVICE T *line(int k) const { return lines + k * ld; }
    MF_DEVICE T *side(int k) const { return lines + k * ld + padded; }
    static MF_DEVICE int thread() { return (int)threadIdx.x % threads; }
    static MF_DEVICE void sync()
    {
        if constexpr (WARPS == 1)
            __syncwarp();
        else
            __syncthreads();
    }

    // P A = L U: lines of U, with L^-1 P b beside them.
    MF_DEVICE int lu(bool across)
    {
        T a[panels][panels * run], b[panels][some_sides];
        begin<false, false>(a, b, across);
        lu_panels<0>(a, b);
        return diagonal_info();
    }

    // A = L L^H: lines of L^H, with L^-1 b beside them.
    template <bool CONJUGATE = false> MF_DEVICE int cholesky(bool across)
    {
        T a[panels][panels * run], b[panels][some_sides];
        int info = 0;
        begin<true, CONJUGATE>(a, b, across);
        cholesky_panels<0>(a, b, info);
        return info;
    }

    // What is left to do: U x = y, for lines of U with y beside them.
    MF_DEVICE void finish()
    {
        for (int t = panels - 1; t >= 0; t--) {
            T own[R > 0 ? R : 1];
            solve_block(t, own);
            sync();
            if (thread() < block) {
                MF_UNROLL
                for (int r = 0; r < R; r++)
                    side(t * block + thread())[r] = own[r];
            }
        }
        sync();
    }

    // 1 + the index of the first zero on the diagonal of the lines; 0: there is none.
    MF_DEVICE int diagonal_info() const
    {
        u32 failed = 0;
        MF_UNROLL
        for (int s = (N + 31) / 32 - 1; s >= 0; s--) {
            const int i = s * 32 + (int)threadIdx.x % 32;
            u32 votes = __ballot_sync(0xffffffffu, i < N && one_norm(line(i < N ? i : 0)[i < N ? i : 0]) == real(0));
            failed = votes ? (u32)__ffs((int)votes) + 32u * (u32)s : failed;
        }
        return (int)failed;
    }

  private:
    static MF_DEVICE int row() { return thread() % block; }
    static MF_DEVICE int column() { return thread() / block * run; }

    MF_DEVICE T *candidate(int k) const { return lines + padded * ld + k % 2 * (WARPS * block); }
    MF_DEVICE u32 *chosen() const { return (u32 *)(lines + padded * ld + candidates); } // the step, for each row of a panel
    MF_DEVICE u32 *gap() const { return chosen() + padded; }                            // rows that left from below
    MF_DEVICE u32 *best_of(int k) const { return gap() + block + k % 2 * WARPS; }

    // Multipliers of panel t for the rows below it, and the rows of it that move.
    MF_DEVICE T *multipliers(int t) const { return line((t + 1) * block); }
    template <int t> struct moving {
        static constexpr int rest = padded - (t + 1) * block;
        static constexpr int size = (rest / ways + sides + vector - 1) / vector * vector;
        static_assert(rest == 0 || block * ways * size <= rest * (ld - short_ld), "they fit the lines that are free");
    };
    template <int t> MF_DEVICE T *moved(u32 k) const
    {
        return multipliers(t) + moving<t>::rest * short_ld + ((int)k * ways + thread() / block) * moving<t>::size;
    }

    template <int COUNT> static MF_DEVICE void read(T *to, const T *from)
    {
        pack<T, COUNT> q;
        load_pack<COUNT * sizeof(T) <= 16 ? COUNT * sizeof(T) : 16>(q, from);
        MF_UNROLL
        for (int e = 0; e < COUNT; e++)
            to[e] = q.v[e];
    }
    template <int COUNT> static MF_DEVICE void write(T *to, const T *from)
    {
        pack<T, COUNT> q;
        MF_UNROLL
        for (int e = 0; e < COUNT; e++)
            q.v[e] = from[e];
        store_pack<COUNT * sizeof(T) <= 16 ? COUNT * sizeof(T) : 16>(to, q);
    }
    static MF_DEVICE void read_block(T (&to)[block], const T *from)
    {
        MF_UNROLL
        for (int c = 0; c < words; c++)
            read<vector>(to + c * vector, from + c * vector);
    }
    static MF_DEVICE void write_block(T *to, const T (&from)[block])
    {
        MF_UNROLL
        for (int c = 0; c < words; c++)
            write<vector>(to + c * vector, from + c * vector);
    }

    // From lines to tiles. What is beyond N is a unit matrix.
    template <bool LOWER, bool CONJUGATE>
    MF_DEVICE void begin(T (&a)[panels][panels * run], T (&b)[panels][some_sides], bool across)
    {
        if constexpr (padded > N) {
            for (int e = thread(); e < (padded - N) * padded; e += threads) {
                int i = N + e / padded, j = e % padded;
                line(i)[j] = line(j)[i] = from_real(real(i == j ? 1 : 0), T());
            }
            for (int e = thread(); e < (padded - N) * R; e += threads)
                side(N + e / (R > 0 ? R : 1))[e % (R > 0 ? R : 1)] = T();
            sync();
        }
        MF_UNROLL
        for (int p = 0; p < panels; p++) {
            const int i = p * block + row();
            MF_UNROLL
            for (int c = 0; c < (LOWER ? p + 1 : panels); c++) {
                const int j = c * block + column();
                if (across) {
                    MF_UNROLL
                    for (int e = 0; e < run; e++)
                        a[p][c * run + e] = line(j + e)[i];
                } else {
                    read<run>(a[p] + c * run, line(i) + j);
                }
                if constexpr (CONJUGATE) {
                    MF_UNROLL
                    for (int e = 0; e < run; e++)
                        a[p][c * run + e] = conjugate_of(a[p][c * run + e]);
                }
            }
            MF_UNROLL
            for (int s = 0; s < sides; s++)
                b[p][s] = side_of(s) < R ? side(i)[side_of(s)] : T();
        }
        sync();
    }
    static MF_DEVICE int side_of(int s) { return thread() / block + ways * s; }

    // Panel t, row after row, where its rows lie from now on.
    template <int t> MF_DEVICE void spread_panel(const T (&a)[panels][panels * run]) const
    {
        MF_UNROLL
        for (int p = t; p < panels; p++)
            write<run>(line(t * block) + ((p - t) * block + row()) * short_ld + column(), a[p] + t * run);
        sync();
    }

    // A thread's columns behind panel t, and its right-hand sides.
    template <int t> MF_DEVICE void leave(T *to, const T (&a)[panels * run], const T (&b)[some_sides]) const
    {
        MF_UNROLL
        for (int c = t + 1; c < panels; c++)
            write<run>(to + c * block + column(), a + c * run);
        MF_UNROLL
        for (int s = 0; s < sides; s++)
            if (side_of(s) < R)
                to[padded + side_of(s)] = b[s];
    }

    // The rest -= multipliers * lines of panel t.
    template <int t, bool LOWER>
    MF_DEVICE void update(T (&a)[panels][panels * run], T (&b)[panels][some_sides]) const
    {
        MF_UNROLL
        for (int w = 0; w < words; w++) {
            T f[panels][vector];
            MF_UNROLL
            for (int p = t + 1; p < panels; p++)
                read<vector>(f[p], multipliers(t) + ((p - t - 1) * block + row()) * short_ld + w * vector);
            MF_UNROLL
            for (int e = 0; e < vector; e++) {
                const T *u = line(t * block + w * vector + e);
                MF_UNROLL
                for (int c = t + 1; c < panels; c++) {
                    T v[run];
                    read<run>(v, u + c * block + column());
                    MF_UNROLL
                    for (int p = LOWER ? c : t + 1; p < panels; p++) {
                        MF_UNROLL
                        for (int x = 0; x < run; x++)
                            a[p][c * run + x] = a[p][c * run + x] - f[p][e] * v[x];
                    }
                }
                MF_UNROLL
                for (int s = 0; s < sides; s++) {
                    T y = side_of(s) < R ? u[padded + side_of(s)] : T();
                    MF_UNROLL
                    for (int p = t + 1; p < panels; p++)
                        b[p][s] = b[p][s] - f[p][e] * y;
                }
            }
        }
        sync();
    }

    // ---- LU ----

    template <int S> struct panel_rows {
        T a[S][block];
        u32 waits[S], name[S], step[S];
        u32 outside; // steps whose pivot was below the panel's own rows
    };

    // The largest of column k and its name, and its row, from all warps.
    template <int t, int k, int S> MF_DEVICE void choose(panel_rows<S> &m, u32 best, T (&u)[block]) const
    {
        if constexpr (WARPS > 1) {
            const int warp = thread() / 32;
            MF_UNROLL
            for (int s = 0; s < S; s++)
                if (best != 0 && m.name[s] == (best & low))
                    write_block(candidate(k) + warp * block, m.a[s]);
            if (thread() % 32 == 0)
                best_of(k)[warp] = best;
            sync();
            u32 first = 0, from = 0;
            MF_UNROLL
            for (int w = 0; w < WARPS; w++) {
                u32 other = best_of(k)[w];
                from = other > first ? (u32)w : from;
                first = other > first ? other : first;
            }
            best = first;
            read_block(u, candidate(k) + from * block);
        }
        MF_UNROLL
        for (int s = 0; s < S; s++)
            if (m.name[s] == (best & low)) {
                m.waits[s] = m.name[s] = 0;
                m.step[s] = k;
                write_block(line(t * block + k) + t * block, m.a[s]);
            }
        m.outside |= (best & low) <= names - block ? 1u << k : 0u;
        if constexpr (WARPS == 1) {
            __syncwarp();
            read_block(u, line(t * block + k) + t * block);
        }
    }

    template <int k, int S> static MF_DEVICE u32 largest(const panel_rows<S> &m)
    {
        u32 best = 0;
        MF_UNROLL
        for (int s = 0; s < S; s++) {
            u32 key = ((order_of(one_norm(m.a[s][k])) + low) & m.waits[s]) | m.name[s];
            best = key > best ? key : best;
        }
        return group_max<32>(best);
    }

    template <int t, int k, int S> MF_DEVICE void lu_steps(panel_rows<S> &m, u32 best) const
    {
        T u[block];
        choose<t, k, S>(m, best, u);
        if constexpr (k + 1 < block || t + 1 < panels) {
            divisor<T> by(u[k]);
            MF_UNROLL
            for (int s = 0; s < S; s++) {
                m.a[s][k] = by.of(m.a[s][k]);
                if constexpr (k + 1 < block)
                    m.a[s][k + 1] = m.a[s][k + 1] - m.a[s][k] * u[k + 1];
            }
        }
        if constexpr (k + 1 < block) {
            best = largest<k + 1, S>(m);
            MF_UNROLL
            for (int s = 0; s < S; s++) {
                MF_UNROLL
                for (int j = k + 2; j < block; j++)
                    m.a[s][j] = m.a[s][j] - m.a[s][k] * u[j];
            }
            lu_steps<t, k + 1, S>(m, best);
        }
    }

    static MF_DEVICE u32 below(u32 mask, u32 k) { return (u32)__popc(mask & ((1u << k) - 1u)); }

    // Factors panel t. Afterwards `chosen` and `gap` hold for its rows, multipliers are where their rows will be; the result is
    // the steps whose pivots came from below.
    template <int t> MF_DEVICE u32 lu_panel() const
    {
        constexpr int count = padded - t * block, S = (count + threads - 1) / threads;
        panel_rows<S> m;
        MF_UNROLL
        for (int s = 0; s < S; s++) {
            const int i = thread() + threads * s;
            const bool here = count % threads == 0 || i < count;
            read_block(m.a[s], line(t * block) + (here ? i : 0) * short_ld);
            m.waits[s] = here ? ~low : 0u;
            m.name[s] = here ? names - (u32)i : 0u;
            m.step[s] = block;
        }
        m.outside = 0;
        if constexpr (WARPS == 1)
            __syncwarp();
        lu_steps<t, 0, S>(m, largest<0, S>(m));
        MF_UNROLL
        for (int s = 0; s < S; s++) {
            const int i = thread() + threads * s;
            if (i < count)
                chosen()[i] = m.step[s];
            if (i >= block && m.step[s] < block)
                gap()[below(m.outside, m.step[s])] = (u32)i;
        }
        sync();
        if constexpr (t + 1 < panels) {
            const u32 taken = taken_rows();
            MF_UNROLL
            for (int s = 0; s < S; s++) {
                const int i = thread() + threads * s;
                if (i < count && m.step[s] == block) {
                    u32 place = i < block ? gap()[below(~taken, (u32)i)] : (u32)i;
                    write_block(multipliers(t) + ((int)place - block) * short_ld, m.a[s]);
                }
            }
        }
        return m.outside;
    }

    // Of a panel's own rows, those that it chose.
    MF_DEVICE u32 taken_rows() const
    {
        const int lane = (int)threadIdx.x % 32;
        return __ballot_sync(0xffffffffu, lane < block && chosen()[lane < block ? lane : 0] < (u32)block);
    }

    // Chosen rows become lines of U; the panel's other rows take the places of those that left from below.
    template <int t>
    MF_DEVICE void exchange_rows(T (&a)[panels][panels * run], T (&b)[panels][some_sides], u32 outside) const
    {
        u32 step[panels];
        MF_UNROLL
        for (int p = t; p < panels; p++) {
            step[p] = chosen()[(p - t) * block + row()];
            if (step[p] < (u32)block)
                leave<t>(line(t * block + (int)step[p]), a[p], b[p]);
        }
        if constexpr (t + 1 < panels) {
            const u32 taken = taken_rows();
            if (step[t] == (u32)block) {
                T *to = moved<t>(below(~taken, (u32)row()));
                MF_UNROLL
                for (int q = (t + 1) * run; q < panels * run; q++)
                    to[q - (t + 1) * run] = a[t][q];
                MF_UNROLL
                for (int s = 0; s < sides; s++)
                    to[moving<t>::rest / ways + s] = b[t][s];
            }
        }
        sync();
        MF_UNROLL
        for (int p = t + 1; p < panels; p++)
            if (step[p] < (u32)block) {
                const T *from = moved<t>(below(outside, step[p]));
                MF_UNROLL
                for (int q = (t + 1) * run; q < panels * run; q++)
                    a[p][q] = from[q - (t + 1) * run];
                MF_UNROLL
                for (int s = 0; s < sides; s++)
                    b[p][s] = from[moving<t>::rest / ways + s];
            }
    }

    // Columns behind panel t in its lines, solved with its unit lower triangle, a column for each thread.
    template <int t> MF_DEVICE void lu_lines() const
    {
        constexpr int count = padded - (t + 1) * block + R;
        MF_UNROLL
        for (int s = 0; s < (count + threads - 1) / threads; s++) {
            const int c = thread() + threads * s;
            if (c < count) {
                T x[block];
                MF_UNROLL
                for (int k = 0; k < block; k++) {
                    x[k] = line(t * block + k)[(t + 1) * block + c];
                    MF_UNROLL
                    for (int w = 0; w < (k + vector - 1) / vector; w++) {
                        T l[vector];
                        read<vector>(l, line(t * block + k) + t * block + w * vector);
                        MF_UNROLL
                        for (int e = 0; e < vector; e++)
                            if (w * vector + e < k)
                                x[k] = x[k] - l[e] * x[w * vector + e];
                    }
                    line(t * block + k)[(t + 1) * block + c] = x[k];
                }
            }
        }
        sync();
    }

    template <int t> MF_DEVICE void lu_panels(T (&a)[panels][panels * run], T (&b)[panels][some_sides]) const
    {
        if constexpr (t < panels) {
            spread_panel<t>(a);
            u32 outside = lu_panel<t>();
            exchange_rows<t>(a, b, outside);
            lu_lines<t>();
            if constexpr (t + 1 < panels)
                update<t, false>(a, b);
            lu_panels<t + 1>(a, b);
        }
    }

    // ---- Cholesky ----

    // Panel t: a row of its diagonal block for each thread in every warp, and rows below it.
    template <int t, int k, int S>
    MF_DEVICE void cholesky_steps(T (&d)[block], T (&m)[S > 0 ? S : 1][block], T (&y)[R > 0 ? R : 1], int &info) const
    {
        if constexpr (k < block) {
            const int i = thread() % block;
            real pivot = real_of_number(from_lane(d[k], k, 32)), s = m_rsqrt(pivot);
            if (t * block + k < N && !(s > real(0) && s < inf_of<real>()))
                info = info ? info : t * block + k + 1;
            T l = i > k ? by_real(d[k], s) : T();
            d[k] = i == k ? from_real(pivot * s, T()) : l;
            MF_UNROLL
            for (int x = 0; x < S; x++)
                m[x][k] = by_real(m[x][k], s);
            MF_UNROLL
            for (int j = k + 1; j < block; j++) {
                T u = conjugate_of(from_lane(l, j, 32));
                d[j] = d[j] - l * u;
                MF_UNROLL
                for (int x = 0; x < S; x++)
                    m[x][j] = m[x][j] - m[x][k] * u;
            }
            MF_UNROLL
            for (int r = 0; r < R; r++) {
                T done = by_real(from_lane(y[r], k, 32), s);
                y[r] = i == k ? done : y[r] - l * done;
            }
            cholesky_steps<t, k + 1, S>(d, m, y, info);
        }
    }

    template <int t> MF_DEVICE void cholesky_panel(int &info) const
    {
        constexpr int count = padded - (t + 1) * block, S = (count + threads - 1) / threads;
        const int own = thread() % block;
        T d[block], m[S > 0 ? S : 1][block], y[R > 0 ? R : 1];
        read_block(d, line(t * block) + own * short_ld);
        MF_UNROLL
        for (int s = 0; s < S; s++) {
            const int i = thread() + threads * s;
            read_block(m[s], line(t * block) + (block + (i < count ? i : 0)) * short_ld);
        }
        MF_UNROLL
        for (int r = 0; r < R; r++)
            y[r] = spread_sides(t)[own * R + r];
        sync();
        cholesky_steps<t, 0, S>(d, m, y, info);
        if (thread() < block) {
            MF_UNROLL
            for (int k = 0; k < block; k++)
                if (k <= own)
                    line(t * block + k)[t * block + own] = conjugate_of(d[k]);
            MF_UNROLL
            for (int r = 0; r < R; r++)
                side(t * block + own)[r] = y[r];
        }
        MF_UNROLL
        for (int s = 0; s < S; s++) {
            const int i = thread() + threads * s;
            if (i < count) {
                MF_UNROLL
                for (int k = 0; k < block; k++)
                    line(t * block + k)[(t + 1) * block + i] = conjugate_of(m[s][k]);
                write_block(multipliers(t) + i * short_ld, m[s]);
            }
        }
        sync();
    }

    // Right-hand sides of panel t's rows, behind its rows.
    MF_DEVICE T *spread_sides(int t) const { return line(t * block) + (padded - t * block) * short_ld; }

    template <int t>
    MF_DEVICE void cholesky_panels(T (&a)[panels][panels * run], T (&b)[panels][some_sides], int &info) const
    {
        if constexpr (t < panels) {
            static_assert((padded - t * block) * (ld - short_ld) >= block * R, "right-hand sides fit behind the panel");
            MF_UNROLL
            for (int s = 0; s < sides; s++)
                if (side_of(s) < R)
                    spread_sides(t)[row() * R + side_of(s)] = b[t][s];
            spread_panel<t>(a);
            cholesky_panel<t>(info);
            if constexpr (t + 1 < panels)
                update<t, true>(a, b);
            cholesky_panels<t + 1>(a, b, info);
        }
    }

    // ---- substitution ----

    // Unknowns of block t, by every warp, and what the rows above lose to them.
    MF_DEVICE void solve_block(int t, T (&own)[R > 0 ? R : 1]) const
    {
        const int i = thread() % block;
        T v[block];
        read_block(v, line(t * block + i) + t * block);
        divisor<T> by(line(t * block + i)[t * block + i]);
        MF_UNROLL
        for (int k = 0; k < block; k++)
            v[k] = i < k ? by_real(v[k], by.lift) : T();
        MF_UNROLL
        for (int r = 0; r < R; r++) {
            T y = by_real(side(t * block + i)[r], by.lift), x[block];
            MF_UNROLL
            for (int k = block - 1; k >= 0; k--) {
                x[k] = from_lane(y * by.inverse, k, 32);
                y = y - v[k] * x[k];
            }
            own[r] = y * by.inverse;
            for (int above = thread(); above < t * block; above += threads) {
                T u[block], sum = side(above)[r];
                read_block(u, line(above) + t * block);
                MF_UNROLL
                for (int k = 0; k < block; k++)
                    sum = sum - u[k] * x[k];
                side(above)[r] = sum;
            }
        }
    }
};

} // namespace solve
} // namespace mf
#endif
