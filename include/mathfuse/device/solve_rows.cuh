// Dense solvers for matrices of up to 64 rows, a matrix for 4 to 32 neighbouring threads of a warp: row i is that of lane
// i % LANES, in registers, so a lane has one row or a few. Sizes are compile-time constants and everything is unrolled.
//
//   typedef mf::solve::rows<float, 32, 1, 16> G;         // 32 unknowns, one right-hand side, two rows for each of 16 lanes
//   extern __shared__ float memory[];                    // G::elements for each group of the block
//   G g(memory + threadIdx.x / G::lanes * G::elements);
//   float a[G::slots][G::columns], b[G::slots][G::sides], inverse[G::slots];
//   ...                                                  // a[p][j] = A[g.row(p)][j] and b for g.row(p) < N
//   int info = g.lu(a, b);                               // or g.cholesky(a, b, inverse)
//   g.finish_lu(a, b);                                   // or g.finish_cholesky(a, b, inverse)
//   ...                                                  // b[p][0] is now x[g.row(p)]
//
// T: float, double, c64 or c128. All threads of the warp call together. info: 0, or 1 + the index of the first pivot that is not
// positive (Cholesky; NaN is not) or zero (LU), as in LAPACK; the results are then of no use.
//
// Cholesky: right-looking, from the lower triangle (the upper is not used), by reciprocal square roots. LU: pivots are the largest
// by |re| + |im| to one part in 2^13, NaN first; rows stay where they are. Both after G. H. Golub, C. F. Van Loan, Matrix
// Computations, 4th ed., sections 4.2 and 3.4.
#ifndef MATHFUSE_SOLVE_ROWS_CUH
#define MATHFUSE_SOLVE_ROWS_CUH

#include "mathfuse/device/solve.cuh"

namespace mf
{
namespace solve
{

// ---- reciprocals, to an ulp or so ----

MF_DEVICE float reciprocal(float d)
{
#if defined(__CUDA_ARCH__)
    float r;
    asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(d));
    return r;
#else
    return 1.0f / d;
#endif
}
MF_DEVICE double reciprocal(double d)
{
    return 1.0 / d;
}
template <class T> MF_DEVICE cplx<T> reciprocal(cplx<T> d)
{
    T s = reciprocal(m_fabs(d.re) + m_fabs(d.im)), re = d.re * s, im = d.im * s, t = s * reciprocal(re * re + im * im);
    return cplx<T>{re * t, -im * t};
}

template <class T> MF_DEVICE T by_real(T x, real_t<T> s)
{
    if constexpr (is_complex<T>)
        return T{x.re * s, x.im * s};
    else
        return x * s;
}

// x - f * y, as fused operations: half as many for the compiler to fuse.
MF_DEVICE float less(float x, float f, float y)
{
    return m_fma(-f, y, x);
}
MF_DEVICE double less(double x, double f, double y)
{
    return m_fma(-f, y, x);
}
template <class T> MF_DEVICE cplx<T> less(cplx<T> x, cplx<T> f, cplx<T> y)
{
    return {m_fma(-f.re, y.re, m_fma(f.im, y.im, x.re)), m_fma(-f.re, y.im, m_fma(-f.im, y.re, x.im))};
}

MF_DEVICE float one_norm(float x)
{
    return m_fabs(x);
}
MF_DEVICE double one_norm(double x)
{
    return m_fabs(x);
}
template <class T> MF_DEVICE T one_norm(cplx<T> x)
{
    return m_fabs(x.re) + m_fabs(x.im);
}

// Division by d in two factors, of which the first is a power of two that keeps 1/d from overflowing.
template <class T> struct divisor {
    real_t<T> lift;
    T inverse;
    explicit MF_DEVICE divisor(T d)
    {
        typedef real_t<T> real;
        const real tiny = sizeof(real) == 4 ? real(0x1p-60) : real(0x1p-500), up = real(1) / tiny;
        real size = one_norm(d);
        lift = size < tiny ? up : real(1);
        if constexpr (is_complex<T>)
            lift = size > up ? tiny : lift;
        inverse = reciprocal(by_real(d, lift));
    }
    MF_DEVICE T of(T x) const { return by_real(x, lift) * inverse; }
};

// Division of numbers that are not larger than d, or little, by d.
template <class T> struct quotient : divisor<T> {
    explicit MF_DEVICE quotient(T d) : divisor<T>(d) {}
};
// By a power of two that leaves a number near 1, then by that.
template <> struct quotient<float> {
    float lift, inverse;
    explicit MF_DEVICE quotient(float d)
    {
        const i32 smallest = 0x800000, power = 0x7f000000 - (i32)(bits_of(d) & 0x7f800000u);
        lift = float_of((u32)(power > smallest ? power : smallest));
#if defined(__CUDA_ARCH__)
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(d * lift));
#else
        inverse = 1.0f / (d * lift);
#endif
    }
    MF_DEVICE float of(float x) const
    {
        return x * lift * inverse;
    }
};

// Positive numbers in order, and NaN last; for doubles coarsely.
MF_DEVICE u32 order_of(float x)
{
    return bits_of(x) & 0x7fffffffu;
}
MF_DEVICE u32 order_of(double x)
{
    union {
        double value;
        u32 word[2];
    } a;
    a.value = x;
    return (a.word[1] & 0x7fffffffu) + (a.word[0] != 0 ? 1u : 0u);
}

// Sizes of pivots: their bits are enough where the sign is dropped anyway.
template <class T> MF_DEVICE real_t<T> size_of(T x)
{
    if constexpr (is_complex<T>)
        return one_norm(x);
    else
        return x;
}

// The union of the lanes' sets.
MF_DEVICE u32 any_of_warp(u32 x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_or_sync(0xffffffffu, x);
#else
    for (int mask = 1; mask < 32; mask *= 2)
        x |= __shfl_xor_sync(0xffffffffu, x, mask);
    return x;
#endif
}

// The largest of a group of LANES lanes, for all of it.
template <int LANES> MF_DEVICE u32 group_max(u32 x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    constexpr bool one = LANES == 32;
    if constexpr (one)
        x = __reduce_max_sync(0xffffffffu, x);
#else
    constexpr bool one = false;
#endif
    MF_UNROLL
    for (int mask = one ? LANES : 1; mask < LANES; mask *= 2) {
        u32 other = __shfl_xor_sync(0xffffffffu, x, mask);
        x = other > x ? other : x;
    }
    return x;
}

enum part { LOWER_PART, UPPER_PART, WHOLE };

// 0 to N - 1 as constants, of which a fold makes N calls beside each other: calls within calls take compilers far longer.
template <int... K> struct sequence {
};
template <int N, int... K> struct count_to {
    typedef typename count_to<N - 1, N - 1, K...>::type type;
};
template <int... K> struct count_to<0, K...> {
    typedef sequence<K...> type;
};

// N unknowns, 1 to 64; R right-hand sides, 0 for none.
template <class T, int N, int R, int LANES> struct rows {
    static_assert(N >= 1 && N <= 64, "1 to 64 unknowns");
    static_assert(LANES == 4 || LANES == 8 || LANES == 16 || LANES == 32, "a part of a warp");
    typedef real_t<T> real;
    static constexpr int lanes = LANES;
    static constexpr int vector = sizeof(T) >= 16 ? 1 : 16 / (int)sizeof(T); // elements that are read at once
    static constexpr int slots = (N + LANES - 1) / LANES;                    // rows of a lane
    static constexpr int columns = (N + vector - 1) / vector * vector;
    static constexpr int sides = R > 0 ? R : 1;
    // Between lines in shared memory: an odd number of 16-byte words, so that lanes read a line each without conflicts.
    static constexpr int ld = ((N + R + vector - 1) / vector | 1) * vector;
    static constexpr int elements = N * ld; // of T in shared memory, which is aligned to 16 bytes

    T *lines;

    explicit MF_DEVICE rows(T *shared) : lines(shared) {}

    static MF_DEVICE int lane() { return (int)threadIdx.x % LANES; }
    static MF_DEVICE int row(int slot) { return lane() + LANES * slot; }
    MF_DEVICE T *line(int k) const { return lines + k * ld; }

    // Is column j of any of a slot's rows in the part?
    template <part WHICH> static MF_DEVICE constexpr bool has(int slot, int j)
    {
        return WHICH == UPPER_PART ? j >= slot * LANES : WHICH == LOWER_PART ? j < (slot + 1) * LANES : true;
    }

    // Rows of a matrix in the lines; of the part that is asked for, and where `across` the columns instead.
    template <part WHICH> MF_DEVICE void take(T (&a)[slots][columns], bool across) const
    {
        MF_UNROLL
        for (int p = 0; p < slots; p++) {
            const int i = row(p) < N ? row(p) : N - 1;
            if (across) {
                MF_UNROLL
                for (int j = 0; j < N; j++)
                    if (has<WHICH>(p, j))
                        a[p][j] = line(j)[i];
            } else {
                MF_UNROLL
                for (int c = 0; c < columns / vector; c++) {
                    if (!has<WHICH>(p, c * vector) && !has<WHICH>(p, c * vector + vector - 1))
                        continue;
                    pack<T, vector> q;
                    load_pack<16>(q, line(i) + c * vector);
                    MF_UNROLL
                    for (int e = 0; e < vector; e++)
                        a[p][c * vector + e] = q.v[e];
                }
            }
        }
    }

    // A = L L^H: the rows of L, 1 / L[i][i]; b / that is L^-1 b. Lines of L^H, without the diagonal, are left in shared memory.
    MF_DEVICE int cholesky(T (&a)[slots][columns], T (&b)[slots][sides], real (&inverse)[slots])
    {
        T l[2][slots];
        MF_UNROLL
        for (int p = 0; p < slots; p++)
            inverse[p] = real(1);
        scale_column<0>(a, b, inverse, l[0]);
        cholesky_steps(a, b, inverse, l, typename count_to<N - 1>::type());
        __syncwarp();
        u32 failed = 0;
        MF_UNROLL
        for (int p = slots - 1; p >= 0; p--) {
            bool bad = row(p) < N && !(inverse[p] > real(0) && inverse[p] < inf_of<real>());
            u32 found = first(bad);
            failed = found ? found + (u32)(LANES * p) : failed;
        }
        return (int)failed;
    }

    MF_DEVICE void finish_cholesky(T (&a)[slots][columns], T (&b)[slots][sides], const real (&inverse)[slots])
    {
        T d[slots];
        MF_UNROLL
        for (int p = 0; p < slots; p++) {
            d[p] = from_real(inverse[p], T());
            MF_UNROLL
            for (int r = 0; r < R; r++)
                b[p][r] = by_real(b[p][r], inverse[p]);
        }
        __syncwarp();
        take<UPPER_PART>(a, false);
        substitute<false, false>(a, b, d);
    }

    // P A = L U: lines of U, and of L^-1 P b behind them, are left in shared memory.
    MF_DEVICE int lu(T (&a)[slots][columns], T (&b)[slots][sides])
    {
        u32 waits[slots], name[slots];
        MF_UNROLL
        for (int p = 0; p < slots; p++) {
            waits[p] = row(p) < N ? ~127u : 0u;
            name[p] = row(p) < N ? 64u - (u32)row(p) : 0u;
        }
        u32 best = largest<0>(a, waits, name);
        lu_steps(a, b, waits, name, best, typename count_to<N>::type());
        return diagonal_info();
    }

    MF_DEVICE void finish_lu(T (&a)[slots][columns], T (&b)[slots][sides])
    {
        MF_UNROLL
        for (int p = 0; p < slots; p++) {
            const int i = row(p) < N ? row(p) : N - 1;
            MF_UNROLL
            for (int r = 0; r < R; r++)
                b[p][r] = line(i)[N + r];
        }
        take<UPPER_PART>(a, false);
        T d[slots];
        divide_rows<false>(a, b, d);
        substitute<false, true>(a, b, d);
    }

    // 1 + the index of the first zero on the diagonal of the lines; 0: there is none.
    MF_DEVICE int diagonal_info() const
    {
        u32 failed = 0;
        MF_UNROLL
        for (int p = slots - 1; p >= 0; p--) {
            const int i = row(p) < N ? row(p) : N - 1;
            u32 found = first(row(p) < N && one_norm(line(i)[i]) == real(0));
            failed = found ? found + (u32)(LANES * p) : failed;
        }
        return (int)failed;
    }

    // The reciprocals of a triangle's diagonal, from the lines. Rows whose diagonal is so small that there is none are scaled.
    template <bool UNIT> MF_DEVICE void divide_rows(T (&a)[slots][columns], T (&b)[slots][sides], T (&d)[slots]) const
    {
        MF_UNROLL
        for (int p = 0; p < slots; p++) {
            const int i = row(p) < N ? row(p) : N - 1;
            if constexpr (UNIT) {
                d[p] = from_real(real(1), T());
            } else {
                divisor<T> by(line(i)[i]);
                d[p] = by.inverse;
                if (by.lift != real(1)) {
                    MF_UNROLL
                    for (int j = 0; j < columns; j++)
                        a[p][j] = by_real(a[p][j], by.lift);
                    MF_UNROLL
                    for (int r = 0; r < R; r++)
                        b[p][r] = by_real(b[p][r], by.lift);
                }
            }
        }
    }

    // b = the solution for a triangle with rows c, lower (FORWARD) or upper, and reciprocals d of its diagonal. MASK: the rest of
    // the rows is not zero.
    template <bool FORWARD, bool MASK>
    static MF_DEVICE void substitute(const T (&c)[slots][columns], T (&b)[slots][sides], const T (&d)[slots])
    {
        MF_UNROLL
        for (int step = 0; step < N; step++) {
            const int k = FORWARD ? step : N - 1 - step, q = k / LANES;
            const bool later = FORWARD ? lane() > k % LANES : lane() < k % LANES;
            const T own = MASK && !later ? T() : c[q][k];
            MF_UNROLL
            for (int r = 0; r < R; r++) {
                T x = from_lane(b[q][r] * d[q], k % LANES, LANES);
                b[q][r] = less(b[q][r], own, x);
                MF_UNROLL
                for (int p = FORWARD ? q + 1 : 0; p < (FORWARD ? slots : q); p++)
                    b[p][r] = less(b[p][r], c[p][k], x);
            }
        }
        MF_UNROLL
        for (int p = 0; p < slots; p++) {
            MF_UNROLL
            for (int r = 0; r < R; r++)
                b[p][r] = b[p][r] * d[p];
        }
    }

  private:
    // 1 + the first lane of the group for which it holds.
    static MF_DEVICE u32 first(bool holds)
    {
        u32 votes = __ballot_sync(0xffffffffu, holds);
        if constexpr (LANES < 32)
            votes = votes >> (threadIdx.x % 32 / LANES * LANES) & ((1u << LANES) - 1);
        return (u32)__ffs((int)votes);
    }

    // Column K of L, also as a line, and what it takes from the right-hand sides.
    template <int K>
    MF_DEVICE void scale_column(T (&a)[slots][columns], T (&b)[slots][sides], real (&inverse)[slots], T (&l)[slots])
    {
        constexpr int q = K / LANES, at = K % LANES;
        real d = real_of_number(from_lane(a[q][K], at, LANES)), s = m_rsqrt(d);
        inverse[q] = lane() == at ? s : inverse[q];
        MF_UNROLL
        for (int p = q; p < slots; p++) {
            l[p] = p > q || lane() > at ? by_real(a[p][K], s) : T();
            a[p][K] = p == q && lane() == at ? from_real(d * s, T()) : l[p];
            if (N % LANES == 0 || row(p) < N)
                line(K)[row(p)] = conjugate_of(l[p]);
        }
        MF_UNROLL
        for (int r = 0; r < R; r++) {
            T y = by_real(from_lane(b[q][r], at, LANES), s);
            MF_UNROLL
            for (int p = q; p < slots; p++)
                b[p][r] = less(b[p][r], l[p], y);
        }
    }

    // Line K from column `from` on, and what else it has.
    template <int FROM, int TO> MF_DEVICE void read_line(pack<T, vector> (&u)[ld / vector], const T *from) const
    {
        MF_UNROLL
        for (int c = FROM / vector; c < (TO + vector - 1) / vector; c++)
            load_pack<16>(u[c], from + c * vector);
    }

    // The next column first: its pivot is on its way while the others follow.
    template <int K>
    MF_DEVICE void cholesky_step(T (&a)[slots][columns], T (&b)[slots][sides], real (&inverse)[slots], T (&l)[2][slots])
    {
        pack<T, vector> u[ld / vector];
        __syncwarp();
        read_line<K + 1, N>(u, line(K));
        MF_UNROLL
        for (int p = K / LANES; p < slots; p++)
            if (has<LOWER_PART>(p, K + 1))
                a[p][K + 1] = less(a[p][K + 1], l[K % 2][p], u[(K + 1) / vector].v[(K + 1) % vector]);
        scale_column<K + 1>(a, b, inverse, l[(K + 1) % 2]);
        MF_UNROLL
        for (int j = K + 2; j < N; j++) {
            MF_UNROLL
            for (int p = K / LANES; p < slots; p++)
                if (has<LOWER_PART>(p, j))
                    a[p][j] = less(a[p][j], l[K % 2][p], u[j / vector].v[j % vector]);
        }
    }
    template <int... K>
    MF_DEVICE void cholesky_steps(T (&a)[slots][columns], T (&b)[slots][sides], real (&inverse)[slots],
                                  T (&l)[2][slots], sequence<K...>)
    {
        (cholesky_step<K>(a, b, inverse, l), ...);
    }

    // The name of the waiting row with the largest element of column J, below its size.
    template <int J>
    static MF_DEVICE u32 largest(const T (&a)[slots][columns], const u32 (&waits)[slots], const u32 (&name)[slots])
    {
        u32 best = 0;
        MF_UNROLL
        for (int p = 0; p < slots; p++) {
            u32 key = ((order_of(size_of(a[p][J])) + 127u) & waits[p]) | name[p];
            best = key > best ? key : best;
        }
        return group_max<LANES>(best);
    }

    // A row from column K on, and its right-hand sides, as line K.
    template <int K> MF_DEVICE void leave(const T (&a)[columns], const T (&b)[sides])
    {
        MF_UNROLL
        for (int c = K / vector; c < (N + R + vector - 1) / vector; c++) {
            pack<T, vector> q;
            MF_UNROLL
            for (int e = 0; e < vector; e++) {
                const int j = c * vector + e;
                q.v[e] = j < N ? a[j < N ? j : 0] : j < N + R ? b[j < N || j >= N + R ? 0 : j - N] : T();
            }
            store_pack<16>(line(K) + c * vector, q);
        }
    }

    template <int K>
    MF_DEVICE void lu_step(T (&a)[slots][columns], T (&b)[slots][sides], u32 (&waits)[slots], u32 (&name)[slots],
                           u32 &best)
    {
        MF_UNROLL
        for (int p = 0; p < slots; p++)
            if (name[p] == (best & 127u)) {
                waits[p] = name[p] = 0;
                leave<K>(a[p], b[p]);
            }
        __syncwarp();
        if constexpr (K + 1 < N) {
            pack<T, vector> u[ld / vector];
            read_line<K, N + R>(u, line(K));
            quotient<T> by(u[K / vector].v[K % vector]);
            T f[slots];
            MF_UNROLL
            for (int p = 0; p < slots; p++) {
                f[p] = by.of(a[p][K]);
                a[p][K + 1] = less(a[p][K + 1], f[p], u[(K + 1) / vector].v[(K + 1) % vector]);
            }
            best = largest<K + 1>(a, waits, name);
            MF_UNROLL
            for (int p = 0; p < slots; p++) {
                MF_UNROLL
                for (int j = K + 2; j < N; j++)
                    a[p][j] = less(a[p][j], f[p], u[j / vector].v[j % vector]);
                MF_UNROLL
                for (int r = 0; r < R; r++)
                    b[p][r] = less(b[p][r], f[p], u[(N + r) / vector].v[(N + r) % vector]);
            }
        }
    }
    template <int... K>
    MF_DEVICE void lu_steps(T (&a)[slots][columns], T (&b)[slots][sides], u32 (&waits)[slots], u32 (&name)[slots],
                            u32 &best, sequence<K...>)
    {
        (lu_step<K>(a, b, waits, name, best), ...);
    }
};

} // namespace solve
} // namespace mf
#endif
