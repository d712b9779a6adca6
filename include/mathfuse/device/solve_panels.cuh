// What the threads of solve_tiles.cuh do in shared memory: lines of a matrix, panels of it that are factored with a row for each
// thread, and substitution.
#ifndef MATHFUSE_SOLVE_PANELS_CUH
#define MATHFUSE_SOLVE_PANELS_CUH

#include "mathfuse/device/solve_rows.cuh"

namespace mf
{
namespace solve
{

// N unknowns, 33 to 128; R right-hand sides, 0 for none (Cholesky).
template <class T, int N, int R, int WARPS> struct tile_lines {
    static_assert(N >= 33 && N <= 128, "33 to 128 unknowns");
    static_assert(WARPS == 1 || WARPS == 2 || WARPS == 4 || WARPS == 8, "warps of a matrix");
    typedef real_t<T> real;
    static constexpr int threads = 32 * WARPS;
    static constexpr int vector = sizeof(T) >= 16 ? 1 : 16 / (int)sizeof(T); // elements that are read at once
    static constexpr int block = WARPS >= 4 ? 16 : 8;                        // rows and columns of a panel
    static constexpr int ways = threads / block, run = block / ways;         // a thread has `run` neighbouring columns
    static constexpr int panels = (N + block - 1) / block, padded = panels * block;
    static constexpr int sides = (R + ways - 1) / ways, some_sides = sides > 0 ? sides : 1; // of a thread
    // Between lines in shared memory: an odd number of 16-byte words, so that lanes read a line each without conflicts.
    static constexpr int ld = ((padded + R + vector - 1) / vector | 1) * vector;
    static constexpr int short_ld = block + vector; // of a panel's rows
    static constexpr int candidates = WARPS == 1 ? 0 : 2 * WARPS * block, numbers = padded + block + 2 * WARPS;
    // Of T in shared memory, which is aligned to 16 bytes.
    static constexpr int elements = padded * (ld + R) + candidates +
                                    (numbers * 4 + (int)sizeof(T) * vector - 1) / ((int)sizeof(T) * vector) * vector;
    // Keys of rows: their size above `low`, then names + the number of rows that follow, or, once chosen, only the step.
    static constexpr u32 names = padded > 64 ? 128 : 64, low = 2 * names - 1;

    static constexpr int crew = WARPS == 2 ? 32 : threads; // threads that factor a panel for LU

    T *lines;
    explicit MF_DEVICE tile_lines(T *shared) : lines(shared) { renew(); }

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

    // What is left to do: U x = y, for lines of U with y beside them.
    MF_DEVICE void finish()
    {
        for (int t = panels - 1; t >= 0; t--) {
            T own[R > 0 ? R : 1];
            solve_block(t, own);
            sync();
            MF_UNROLL
            for (int r = 0; r < R; r++)
                if (thread() < block)
                    side(t * block + thread())[r] = own[r];
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
            u32 votes = __ballot_sync(0xffffffffu, i < N && one_norm(line(i)[i]) == real(0));
            failed = votes ? (u32)__ffs((int)votes) + 32u * (u32)s : failed;
        }
        return (int)failed;
    }

  protected:
    // Addresses are not worth registers from one panel to the next, though the compiler thinks so.
    MF_DEVICE void renew()
    {
#if defined(__CUDA_ARCH__)
        u32 at = (u32)__cvta_generic_to_shared(lines);
        asm volatile("" : "+r"(at));
        lines = (T *)__cvta_shared_to_generic(at);
#endif
    }

    // Known to be the same for all of a warp.
    static MF_DEVICE bool first_warp()
    {
        return WARPS == 1 || __shfl_sync(0xffffffffu, thread() / 32, 0) == 0;
    }
    MF_DEVICE T *candidate(int k) const
    {
        return lines + padded * ld + k % 2 * (WARPS * block);
    }
    // Right-hand sides of rows; keys of a panel's rows, which then are names; rows that left from below.
    MF_DEVICE T *waiting(int i) const
    {
        return lines + padded * ld + candidates + i * R;
    }
    MF_DEVICE u32 *chosen() const
    {
        return (u32 *)waiting(padded);
    }
    MF_DEVICE u32 *gap() const
    {
        return chosen() + padded;
    }
    MF_DEVICE u32 *best_of(int k) const
    {
        return gap() + block + k % 2 * WARPS;
    }

    // Multipliers of panel t for the rows below it, and the rows of it that move.
    MF_DEVICE T *multipliers(int t) const
    {
        return line((t + 1) * block);
    }
    template <int COUNT> static MF_DEVICE void read(T *to, const T *from)
    {
        pack<T, COUNT> q;
        load_pack<16>(q, from);
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
        store_pack<16>(to, q);
    }
    // ---- LU ----

    // Of a panel's own rows, those that it did not choose; its steps for which it chose others.
    struct own_rows {
        u32 stay, outside;
    };

    template <int S> struct panel_rows {
        T a[S][block];
        u32 waits[S], name[S];
    };

    // The largest of column k and its name, and its row, from all warps.
    template <int k, int S> MF_DEVICE void choose(T *corner, panel_rows<S> &m, u32 best, T (&u)[block]) const
    {
        if constexpr (crew > 32) {
            const int warp = thread() / 32;
            MF_UNROLL
            for (int s = 0; s < S; s++)
                if (m.name[s] == (best & low) && (best & names))
                    write<block>(candidate(k) + warp * block, m.a[s]);
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
            read<block>(u, candidate(k) + from * block);
        }
        MF_UNROLL
        for (int s = 0; s < S; s++)
            if (m.name[s] == (best & low)) {
                m.waits[s] = 0;
                m.name[s] = k;
                write<block>(corner + k * ld, m.a[s]);
            }
        if constexpr (crew == 32) {
            __syncwarp();
            read<block>(u, corner + k * ld);
        }
    }

    template <int k, int S> static MF_DEVICE u32 largest(const panel_rows<S> &m)
    {
        u32 best = 0;
        MF_UNROLL
        for (int s = 0; s < S; s++) {
            u32 key = ((order_of(size_of(m.a[s][k])) + low) & m.waits[s]) | m.name[s];
            best = key > best ? key : best;
        }
        return group_max<32>(best);
    }

    template <int k, int S> MF_DEVICE void lu_steps(T *corner, panel_rows<S> &m, u32 best) const
    {
        T u[block];
        choose<k, S>(corner, m, best, u);
        quotient<T> by(u[k]);
        MF_UNROLL
        for (int s = 0; s < S; s++) {
            m.a[s][k] = by.of(m.a[s][k]);
            if constexpr (k + 1 < block)
                m.a[s][k + 1] = m.a[s][k + 1] - m.a[s][k] * u[k + 1];
        }
        if constexpr (k + 1 < block) {
            best = largest<k + 1, S>(m);
            MF_UNROLL
            for (int s = 0; s < S; s++) {
                MF_UNROLL
                for (int j = k + 2; j < block; j++)
                    m.a[s][j] = m.a[s][j] - m.a[s][k] * u[j];
            }
            lu_steps<k + 1, S>(corner, m, best);
        }
    }

    static MF_DEVICE u32 below(u32 mask, u32 k)
    {
        return (u32)__popc(mask & ((1u << k) - 1u));
    }

    // Factors panel t. Afterwards `chosen` and `gap` hold for its rows, multipliers are where their rows will be; the result is
    // the steps whose pivots came from below.
    template <int S> MF_DEVICE own_rows lu_panel(int t) const
    {
        if constexpr (crew == threads)
            return lu_panel_of_crew<S>(t);
        if (first_warp())
            lu_panel_of_crew<S>(t);
        sync();
        return look_at_own();
    }

    static MF_DEVICE void crew_sync()
    {
        if constexpr (crew == 32)
            __syncwarp();
        else
            sync();
    }

    template <int S> MF_DEVICE own_rows lu_panel_of_crew(int t) const
    {
        const int count = padded - t * block;
        panel_rows<S> m;
        MF_UNROLL
        for (int s = 0; s < S; s++) {
            const int i = thread() + crew * s;
            const bool here = i < count;
            read<block>(m.a[s], line(t * block) + (here ? i : 0) * short_ld);
            m.waits[s] = here ? ~low : 0u;
            m.name[s] = here ? low - (u32)i : 0u;
        }
        if constexpr (crew == 32)
            __syncwarp();
        lu_steps<0, S>(line(t * block) + t * block, m, largest<0, S>(m));
        MF_UNROLL
        for (int s = 0; s < S; s++) {
            const int i = thread() + crew * s;
            if (i < count)
                chosen()[i] = m.name[s];
        }
        crew_sync();
        const own_rows own = look_at_own();
        MF_UNROLL
        for (int s = 0; s < S; s++) {
            const int i = thread() + crew * s;
            if (i >= block && i < count && m.name[s] < names)
                gap()[below(own.outside, m.name[s])] = (u32)i;
        }
        crew_sync();
        MF_UNROLL
        for (int s = 0; s < S; s++) {
            const int i = thread() + crew * s;
            if (i < count && m.name[s] >= names) {
                u32 place = i < block ? gap()[below(own.stay, (u32)i)] : (u32)i;
                write<block>(multipliers(t) + ((int)place - block) * short_ld, m.a[s]);
            }
        }
        return own;
    }

    MF_DEVICE own_rows look_at_own() const
    {
        const int lane = (int)threadIdx.x % 32;
        const u32 name = chosen()[lane % block];
        own_rows own = {__ballot_sync(0xffffffffu, lane < block && name >= names), 0};
        own.outside = ~any_of_warp(name < names ? 1u << name : 0u) & ((1u << block) - 1u);
        return own;
    }

    // Columns behind panel t in its lines, solved with its unit lower triangle, a column for each thread.
    MF_DEVICE void lu_lines(int t) const
    {
        T *corner = line(t * block) + t * block;
        MF_ROLL
        for (int c = block + thread(); c < padded - t * block + R; c += threads) {
            T x[block];
            MF_UNROLL
            for (int k = 0; k < block; k++) {
                x[k] = corner[k * ld + c];
                MF_UNROLL
                for (int w = 0; w < (k + vector - 1) / vector; w++) {
                    T l[vector];
                    read<vector>(l, corner + k * ld + w * vector);
                    MF_UNROLL
                    for (int e = 0; e < vector; e++)
                        if (w * vector + e < k)
                            x[k] = x[k] - l[e] * x[w * vector + e];
                }
                corner[k * ld + c] = x[k];
            }
        }
        sync();
    }

    // ---- Cholesky ----

    // Reciprocals of a panel's diagonal.
    MF_DEVICE real *inverse() const
    {
        return (real *)chosen();
    }

    // From column k on: a row of a panel's diagonal block for each thread of a warp, with its right-hand sides.
    template <int k>
    MF_DEVICE void cholesky_steps(T *corner, T (&d)[block], T (&y)[R > 0 ? R : 1], int first, int &info) const
    {
        const int i = thread() % block;
        real pivot = real_of_number(from_lane(d[k], k, 32)), s = m_rsqrt(pivot);
        if (!(s > real(0) && s < inf_of<real>()))
            info = info ? info : first + k + 1;
        T l = i > k ? by_real(d[k], s) : T();
        if (thread() < block)
            corner[k * ld + i] = i == k ? from_real(pivot * s, T()) : conjugate_of(l);
        if (thread() == 0)
            inverse()[k] = s;
        MF_UNROLL
        for (int j = k + 1; j < block; j++)
            d[j] = d[j] - l * conjugate_of(from_lane(l, j, 32));
        MF_UNROLL
        for (int r = 0; r < R; r++) {
            T done = by_real(from_lane(y[r], k, 32), s);
            y[r] = i == k ? done : y[r] - l * done;
        }
        if constexpr (k + 1 < block)
            cholesky_steps<k + 1>(corner, d, y, first, info);
    }

    // The first warp factors the diagonal block; then all have rows below it.
    template <int S> MF_DEVICE void cholesky_panel(int t, int &info) const
    {
        const int count = padded - (t + 1) * block, own = thread() % block;
        T *corner = line(t * block) + t * block, d[block], m[S][block], y[R > 0 ? R : 1];
        const T *rows = line(t * block);
        MF_UNROLL
        for (int s = 0; s < S; s++) {
            const int i = thread() + threads * s;
            read<block>(m[s], rows + (block + (i < count ? i : 0)) * short_ld);
        }
        read<block>(d, rows + own * short_ld);
        sync();
        if (first_warp()) {
            MF_UNROLL
            for (int r = 0; r < R; r++)
                y[r] = waiting(t * block + own)[r];
            cholesky_steps<0>(corner, d, y, t * block, info);
            MF_UNROLL
            for (int r = 0; r < R; r++)
                if (thread() < block)
                    side(t * block + own)[r] = y[r];
        }
        sync();
        MF_UNROLL
        for (int k = 0; k < block; k++) {
            const real s = inverse()[k];
            MF_UNROLL
            for (int x = 0; x < S; x++)
                m[x][k] = by_real(m[x][k], s);
            MF_UNROLL
            for (int w = (k + 1) / vector; w < block / vector; w++) {
                T u[vector];
                read<vector>(u, corner + k * ld + w * vector);
                MF_UNROLL
                for (int e = 0; e < vector; e++) {
                    const int j = w * vector + e;
                    MF_UNROLL
                    for (int x = 0; x < S; x++)
                        if (j > k)
                            m[x][j] = m[x][j] - m[x][k] * u[e];
                }
            }
        }
        MF_UNROLL
        for (int s = 0; s < S; s++) {
            const int i = thread() + threads * s;
            if (i < count) {
                MF_UNROLL
                for (int k = 0; k < block; k++)
                    corner[k * ld + block + i] = conjugate_of(m[s][k]);
                write<block>(multipliers(t) + i * short_ld, m[s]);
            }
        }
        sync();
    }

    // ---- substitution ----

    // Unknowns of block t, by every warp, and what the rows above lose to them.
    MF_DEVICE void solve_block(int t, T (&own)[R > 0 ? R : 1]) const
    {
        const int i = thread() % block;
        T v[block];
        read<block>(v, line(t * block + i) + t * block);
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
                read<block>(u, line(above) + t * block);
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
