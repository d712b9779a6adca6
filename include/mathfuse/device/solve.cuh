// Dense solvers for small matrices, one matrix for a group of threads, one row for each: Cholesky, LU with partial
// pivoting, triangular substitution. Rows live in registers, what all threads need of a step in shared memory.
//
//   typedef mf::solve::group<float, 32, 1> G;            // up to 32 unknowns, one right-hand side
//   extern __shared__ float memory[];                    // G::elements for each group of the block
//   G g(memory + threadIdx.x / G::threads * G::elements);
//   float row[G::columns], b[1];
//   ...                                                  // row[j] = A[g.row()][j] and b for g.row() < n, else 0
//   int info = g.lu(row, b, n);                          // or g.cholesky(row, b, n)
//   g.backward(b, n);                                    // b[0] is now x[g.row()]
//
// T: float, double, c64 or c128. All threads of the block call together with the same n (groups of more than 32 threads meet at
// block barriers). info: 0, or 1 + the index of the first pivot that is not positive (Cholesky; NaN is not) or zero (LU), as in
// LAPACK; the results are then of no use.
//
// Cholesky: right-looking, from the lower triangle (the upper is not used). LU: pivots are the largest by |re| + |im|, NaN first;
// rows stay where they are. Both after G. H. Golub, C. F. Van Loan, Matrix Computations, 4th ed., sections 4.2 and 3.4.
#ifndef MATHFUSE_SOLVE_CUH
#define MATHFUSE_SOLVE_CUH

#include "mathfuse/device/elementwise.cuh"

namespace mf
{
namespace solve
{

// ---- arithmetic of both kinds of numbers ----

MF_DEVICE float real_of_number(float x)
{
    return x;
}
MF_DEVICE double real_of_number(double x)
{
    return x;
}
template <class T> MF_DEVICE T real_of_number(cplx<T> x)
{
    return x.re;
}

MF_DEVICE float conjugate_of(float x)
{
    return x;
}
MF_DEVICE double conjugate_of(double x)
{
    return x;
}
template <class T> MF_DEVICE cplx<T> conjugate_of(cplx<T> x)
{
    return cplx<T>{x.re, -x.im};
}

MF_DEVICE float from_real(float x, float)
{
    return x;
}
MF_DEVICE double from_real(double x, double)
{
    return x;
}
template <class T> MF_DEVICE cplx<T> from_real(T x, cplx<T>)
{
    return cplx<T>{x, T(0)};
}

MF_DEVICE float divided(float x, float d)
{
    return x / d;
}
MF_DEVICE double divided(double x, double d)
{
    return x / d;
}
template <class T> MF_DEVICE cplx<T> divided(cplx<T> x, T d)
{
    return cplx<T>{x.re / d, x.im / d};
}
// In both parts.
template <class T> MF_DEVICE T nan_number()
{
    if constexpr (is_complex<T>)
        return T{nan_of<real_t<T>>(), nan_of<real_t<T>>()};
    else
        return nan_of<T>();
}

// Scaled so that no intermediate overflows.
template <class T> MF_DEVICE cplx<T> divided(cplx<T> x, cplx<T> d)
{
    T s = T(1) / (m_fabs(d.re) + m_fabs(d.im)), re = d.re * s, im = d.im * s, t = s / (re * re + im * im);
    return x * cplx<T>{re * t, -im * t};
}

// LAPACK's measure of a pivot; infinite for NaN.
template <class T> MF_DEVICE T finite_size(T s)
{
    return s == s ? s : inf_of<T>();
}
MF_DEVICE float pivot_size(float x)
{
    return finite_size(m_fabs(x));
}
MF_DEVICE double pivot_size(double x)
{
    return finite_size(m_fabs(x));
}
template <class T> MF_DEVICE T pivot_size(cplx<T> x)
{
    return finite_size(m_fabs(x.re) + m_fabs(x.im));
}

// Lane `source` of each group of `width` lanes.
template <class T> MF_DEVICE T from_lane(T x, int source, int width)
{
    union {
        T value;
        u32 word[sizeof(T) / 4];
    } a;
    a.value = x;
    MF_UNROLL
    for (int i = 0; i < (int)(sizeof(T) / 4); i++)
        a.word[i] = __shfl_sync(0xffffffffu, a.word[i], source, width);
    return a.value;
}

template <class T> struct pivot {
    T size;
    i32 row;
    MF_DEVICE bool beats(const pivot &other) const
    {
        return size > other.size || (size == other.size && row < other.row);
    }
};

// N: most unknowns, 1 to 64. R: right-hand sides in registers, 0 for none.
template <class T, int N, int R> struct group {
    static_assert(N >= 1 && N <= 64, "1 to 64 unknowns");
    typedef real_t<T> real;
    static constexpr int vector = sizeof(T) >= 16 ? 1 : 16 / (int)sizeof(T); // elements that are read at once
    static constexpr int columns = (N + vector - 1) / vector * vector;       // of a row
    static constexpr int threads = N <= 4 ? 4 : N <= 8 ? 8 : N <= 16 ? 16 : N <= 32 ? 32 : 64;
    static constexpr int ld = columns + vector;
    static constexpr int sides = R > 0 ? R : 1;
    // Of T in shared memory, which is aligned to 16 bytes: lines of the factor; right-hand sides; two values for all.
    static constexpr int elements = (columns * ld + N * sides + 8 + 3) / 4 * 4;

    T *u, *y;
    T *slot;

    explicit MF_DEVICE group(T *shared) : u(shared), y(shared + columns * ld), slot(shared + columns * ld + N * sides)
    {
    }

    static MF_DEVICE int row() { return (int)threadIdx.x % threads; }
    static MF_DEVICE void sync()
    {
        if constexpr (threads <= 32)
            __syncwarp();
        else
            __syncthreads();
    }

    // A = L L^H from its lower triangle; L^-1 b. Lines of L^H are left in shared memory.
    MF_DEVICE int cholesky(T (&a)[columns], T (&b)[sides], int n)
    {
        int info = 0;
        cholesky_steps<0>(a, b, n, info);
        return info;
    }

    // P A = L U; L^-1 P b. Lines of U are left in shared memory.
    MF_DEVICE int lu(T (&a)[columns], T (&b)[sides], int n)
    {
        int info = 0;
        bool waits = row() < n;
        lu_steps<0>(a, b, n, waits, info);
        if (row() < n) {
            MF_UNROLL
            for (int r = 0; r < R; r++)
                b[r] = y[row() * R + r];
        }
        return info;
    }

    // L^-1 b, where `line(k)[i]` is conj(L[i][k]), i >= k. The return value as of cholesky: a zero on the diagonal.
    MF_DEVICE int forward(T (&b)[sides], int n)
    {
        int info = 0;
        for (int k = 0; k < n; k++) {
            T d = conjugate_of(diagonal(k, info));
            hand_out(b, k, d);
            if (row() > k && row() < n) {
                T l = conjugate_of(line(k)[row()]);
                MF_UNROLL
                for (int r = 0; r < R; r++)
                    b[r] = b[r] - l * y[k * R + r];
            }
        }
        sync();
        return info;
    }

    // U^-1 b, where line(k)[j] is U[k][j], j >= k.
    MF_DEVICE int backward(T (&b)[sides], int n)
    {
        int info = 0;
        for (int k = n - 1; k >= 0; k--) {
            hand_out(b, k, diagonal(k, info));
            if (row() < k) {
                T f = line(row())[k];
                MF_UNROLL
                for (int r = 0; r < R; r++)
                    b[r] = b[r] - f * y[k * R + r];
            }
        }
        sync();
        return info;
    }

    MF_DEVICE T *line(int k) const { return u + k * ld; }

  private:
    // The divisor of step k; 1 and a note where it is zero.
    MF_DEVICE T diagonal(int k, int &info) const
    {
        T d = line(k)[k];
        if (pivot_size(d) == real(0)) {
            info = info ? info : k + 1;
            d = from_real(real(1), T());
        }
        return d;
    }

    // Row k's unknowns, divided, for all.
    MF_DEVICE void hand_out(T (&b)[sides], int k, T d)
    {
        if (row() == k) {
            MF_UNROLL
            for (int r = 0; r < R; r++)
                y[k * R + r] = b[r] = divided(b[r], d);
        }
        sync();
    }

    // a[j] -= f * line[j] for j > K.
    template <int K> MF_DEVICE void subtract(T (&a)[columns], const T *from, T f) const
    {
        MF_UNROLL
        for (int c = (K + 1) / vector; c < columns / vector; c++) {
            pack<T, vector> p;
            load_pack<16>(p, from + c * vector);
            MF_UNROLL
            for (int i = 0; i < vector; i++)
                if (c * vector + i > K)
                    a[c * vector + i] = a[c * vector + i] - f * p.v[i];
        }
    }

    template <int K> MF_DEVICE T for_all(T x)
    {
        if constexpr (threads <= 32)
            return from_lane(x, K, threads);
        if (row() == K)
            slot[K % 2] = x;
        sync();
        return slot[K % 2];
    }

    template <int K> MF_DEVICE void cholesky_steps(T (&a)[columns], T (&b)[sides], int n, int &info)
    {
        if constexpr (K < N) {
            if (K >= n)
                return;
            real d = real_of_number(for_all<K>(a[K]));
            if (!(d > real(0))) {
                info = info ? info : K + 1;
                d = real(1);
            }
            real root = m_sqrt(d);
            T l = row() == K ? from_real(root, T()) : row() > K ? divided(a[K], root) : T();
            if (row() < columns)
                line(K)[row()] = conjugate_of(l);
            if (row() == K) {
                MF_UNROLL
                for (int r = 0; r < R; r++)
                    y[K * R + r] = b[r] = divided(b[r], root);
            }
            sync();
            if (row() > K && row() < n) {
                MF_UNROLL
                for (int r = 0; r < R; r++)
                    b[r] = b[r] - l * y[K * R + r];
            }
            subtract<K>(a, line(K), l);
            cholesky_steps<K + 1>(a, b, n, info);
        }
    }

    // The waiting row whose element of column K is the largest.
    template <int K> MF_DEVICE int choose(T x, bool waits)
    {
        pivot<real> best = {waits ? pivot_size(x) : real(-1), row()};
        MF_UNROLL
        for (int mask = 1; mask < (threads < 32 ? threads : 32); mask *= 2) {
            pivot<real> other = {from_lane(best.size, (row() ^ mask) % 32, threads < 32 ? threads : 32),
                                 from_lane(best.row, (row() ^ mask) % 32, threads < 32 ? threads : 32)};
            best = other.beats(best) ? other : best;
        }
        if constexpr (threads > 32) { // the two warps' candidates, by their rows; in other places at the next step
            T *sizes = slot + K % 2 * 4;
            if (row() % 32 == 0) {
                sizes[row() / 32] = from_real(best.size, T());
                sizes[2 + row() / 32] = from_real((real)best.row, T());
            }
            sync();
            pivot<real> first = {real_of_number(sizes[0]), (i32)real_of_number(sizes[2])},
                        second = {real_of_number(sizes[1]), (i32)real_of_number(sizes[3])};
            best = second.beats(first) ? second : first;
        }
        return best.row;
    }

    template <int K> MF_DEVICE void lu_steps(T (&a)[columns], T (&b)[sides], int n, bool waits, int &info)
    {
        if constexpr (K < N) {
            if (K >= n)
                return;
            if (choose<K>(a[K], waits) == row()) {
                waits = false;
                MF_UNROLL
                for (int c = K / vector; c < columns / vector; c++) {
                    pack<T, vector> p;
                    MF_UNROLL
                    for (int i = 0; i < vector; i++)
                        p.v[i] = a[c * vector + i];
                    store_pack<16>(line(K) + c * vector, p);
                }
                MF_UNROLL
                for (int r = 0; r < R; r++)
                    y[K * R + r] = b[r];
            }
            sync();
            T d = diagonal(K, info);
            if (waits) {
                T f = divided(a[K], d);
                subtract<K>(a, line(K), f);
                MF_UNROLL
                for (int r = 0; r < R; r++)
                    b[r] = b[r] - f * y[K * R + r];
            }
            lu_steps<K + 1>(a, b, n, waits, info);
        }
    }
};

} // namespace solve
} // namespace mf
#endif
