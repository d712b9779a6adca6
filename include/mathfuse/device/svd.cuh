// Singular values and vectors of small matrices with at least as many rows as columns, a matrix for a group of lanes of one warp.
//
//   typedef mf::solve::svd<float, 32, 16, true> S;       // up to 32 x 16; false: values alone
//   extern __shared__ float memory[];                    // S::elements for each group of the block, aligned to 16 bytes
//   S s(memory + threadIdx.x / S::threads * S::elements);
//   ...                                                  // s.put(i, j, A[i][j]) for i < m and j < n, by whichever lane
//   int info = s.run(m, n);                              // n <= m
//   ...                                                  // s.value(k), descending; s.left(i, k) = U[i][k]; s.right(j, k) = V[j][k]
//
// T: float, double, c64 or c128. The whole warp calls run together with the same m and n. info: 0; -1 for a matrix that is not finite,
// whose results are NaN; 1 where 60 sweeps were not enough.
//
// One-sided Jacobi turns A V into U S. Singular values below the square of epsilon times the largest are zeros; vectors of U that belong
// to zeros are made from unit vectors, by Gram-Schmidt.
#ifndef MATHFUSE_SVD_CUH
#define MATHFUSE_SVD_CUH

#include "mathfuse/device/jacobi.cuh"

namespace mf
{
namespace solve
{

template <class T, int M, int N, bool VECTORS> struct svd {
    static_assert(N >= 1 && N <= M && N <= 64, "1 to 64 columns, at least as many rows");
    typedef real_t<T> real;
    typedef scaling<real, sizeof(real) == 4 ? 22 : 100> scale_type;
    static constexpr int vector = sizeof(T) >= 16 ? 1 : 16 / (int)sizeof(T);
    static constexpr int pairs = pairs_of(N), threads = pairs, carried = VECTORS ? N : 0, all = M + carried;
    static constexpr int ld = N + 1;
    // Of T in shared memory.
    static constexpr int elements = ((M + carried) * ld + 4 * pairs + vector - 1) / vector * vector;
    typedef jacobi<T, M, pairs, carried> core_type;

    T *u, *v, *scratch;
    real *values;

    explicit MF_DEVICE svd(T *shared)
        : u(shared), v(shared + M * ld), scratch(v + carried * ld), values((real *)(void *)(scratch + 2 * pairs))
    {
    }

    static MF_DEVICE int lane() { return (int)threadIdx.x % threads; }

    MF_DEVICE void put(int i, int j, T value) const { u[i * ld + j] = value; }
    MF_DEVICE real value(int k) const { return values[k]; }
    MF_DEVICE T left(int i, int k) const { return u[i * ld + k]; }
    MF_DEVICE T right(int j, int k) const { return v[j * ld + k]; }

    MF_DEVICE int run(int m, int n) const
    {
        core_type core;
        __syncwarp();
        take(core.x, lane(), m, n);
        take(core.y, lane() + pairs, m, n);
        real most = larger(largest_part(core.x), largest_part(core.y));
        most = warp_reduce<op_max, threads>(most); // passes NaN on
        bool bad = !(most < inf_of<real>());
        scale_type scale(bad ? real(0) : most);
        prepare(core.x, lane(), n, scale, bad);
        prepare(core.y, lane() + pairs, n, scale, bad);
        core.floor = sizeof(real) == 4 ? real(0x1p-48) : real(0x1p-8);
        bool done = core.run(n, !bad);
        finish(core, m, n, scale, bad);
        return bad ? -1 : done ? 0 : 1;
    }

  private:
    MF_DEVICE void take(T (&c)[all], int column, int m, int n) const
    {
        const T *from = u + column;
        MF_UNROLL
        for (int i = 0; i < M; i++)
            c[i] = i < m && column < n ? from[i * ld] : T();
        MF_UNROLL
        for (int i = M; i < all; i++)
            c[i] = T();
    }

    // Scaled; below it a column of the identity.
    static MF_DEVICE void prepare(T (&c)[all], int column, int n, const scale_type &scale, bool bad)
    {
        MF_UNROLL
        for (int i = 0; i < M; i++)
            c[i] = bad ? T() : scale.apply(c[i]);
        MF_UNROLL
        for (int i = M; i < all; i++)
            c[i] = from_real(real(i - M == column && column < n ? 1 : 0), T());
    }

    // What columns are sorted by: the square of the value, or less than any for none.
    static MF_DEVICE real key_of(real square, const T (&c)[all])
    {
        bool there = !VECTORS || square > 0;
        MF_UNROLL
        for (int i = M; i < all; i++)
            there = there || largest_of(c[i]) > 0;
        return there ? square : real(-1);
    }

    // How many of the group's columns come before this one.
    MF_DEVICE int place(real mine, int slot) const
    {
        int before = 0;
        MF_UNROLL_BY_4
        for (int k = 0; k < 2 * pairs; k++)
            before += values[k] > mine || (values[k] == mine && k < slot);
        return before;
    }

    MF_DEVICE void finish(const core_type &core, int m, int n, const scale_type &scale, bool bad) const
    {
        real first = key_of(core.xx, core.x), second = key_of(core.yy, core.y);
        values[lane()] = first;
        values[lane() + pairs] = second;
        __syncwarp();
        int at = place(first, lane()), other = place(second, lane() + pairs);
        __syncwarp();
        put_result(core.x, core.xx, at, m, n, scale, bad);
        put_result(core.y, core.yy, other, m, n, scale, bad);
        __syncwarp();
        if constexpr (VECTORS) {
            int rank = (core.xx > 0) + (core.yy > 0);
            rank = warp_reduce<op_sum, threads>(rank);
            complete(bad ? n : rank, m, n);
        }
    }

    MF_DEVICE void put_result(const T (&c)[all], real square, int at, int m, int n, const scale_type &scale,
                              bool bad) const
    {
        if (at >= n)
            return;
        values[at] = bad ? nan_of<real>() : scale.undo(m_sqrt(square));
        if constexpr (VECTORS) {
            real inverse = square > 0 ? inverse_root(square) : real(0);
            T *left = u + at, *right = v + at;
            MF_UNROLL
            for (int i = 0; i < M; i++)
                if (i < m)
                    left[i * ld] = bad ? nan_number<T>() : times_real(c[i], inverse);
            MF_UNROLL
            for (int i = 0; i < carried; i++)
                if (i < n)
                    right[i * ld] = bad ? nan_number<T>() : c[M + i];
        }
    }

    // ---- vectors that belong to zeros: columns of U from `rank` on ----

    MF_DEVICE void complete(int rank, int m, int n) const
    {
        MF_ROLLED
        for (int k = rank; __any_sync(0xffffffffu, k < n); k++) {
            bool needed = k < n;
            int row = freest_row(k, m, needed);
            for (int i = lane(); i < m && needed; i += threads)
                u[i * ld + k] = from_real(real(i == row ? 1 : 0), T());
            __syncwarp();
            for (int twice = 0; twice < 2; twice++)
                project(k, m, needed);
            real square = 0;
            for (int i = lane(); i < m && needed; i += threads)
                square += squared_size(u[i * ld + k]);
            square = warp_reduce<op_sum, threads>(square);
            real inverse = inverse_root(square > 0 ? square : real(1));
            for (int i = lane(); i < m && needed; i += threads)
                u[i * ld + k] = times_real(u[i * ld + k], inverse);
            __syncwarp();
        }
    }

    // The unit vector of which the first k columns hold least.
    MF_DEVICE int freest_row(int k, int m, bool needed) const
    {
        real least = 2;
        int row = m;
        for (int i = lane(); i < m && needed; i += threads) {
            real held = 0;
            for (int c = 0; c < k; c++)
                held += squared_size(u[i * ld + c]);
            row = held < least ? i : row;
            least = held < least ? held : least;
        }
        for (int mask = 1; mask < threads; mask *= 2) {
            real other = shuffle_xor(least, mask);
            int its = shuffle_xor(row, mask);
            bool better = other < least || (other == least && its < row);
            row = better ? its : row;
            least = better ? other : least;
        }
        return row;
    }

    // Takes from column k what lies along those before it.
    MF_DEVICE void project(int k, int m, bool needed) const
    {
        for (int c = lane(); c < k && needed; c += threads) {
            T dot = T();
            for (int i = 0; i < m; i++)
                dot = with_product(dot, conjugate_of(u[i * ld + c]), u[i * ld + k]);
            scratch[c] = dot;
        }
        __syncwarp();
        for (int i = lane(); i < m && needed; i += threads) {
            T rest = u[i * ld + k];
            for (int c = 0; c < k; c++)
                rest = with_product(rest, -scratch[c], u[i * ld + c]);
            u[i * ld + k] = rest;
        }
        __syncwarp();
    }
};

} // namespace solve
} // namespace mf
#endif
