// Eigenvalues and eigenvectors of small symmetric and Hermitian matrices, a matrix for a group of lanes of one warp.
//
//   typedef mf::solve::eigen<float, 32> E;               // up to 32 x 32
//   extern __shared__ float memory[];                    // E::elements for each group of the block, aligned to 16 bytes
//   E e(memory + threadIdx.x / E::threads * E::elements);
//   ...                                                  // e.put(i, j, A[i][j]) for 0 <= j <= i < n, by whichever lane
//   int info = e.run(n);
//   ...                                                  // e.value(k), ascending; e.element(i, k): number i of vector k
//
// T: float, double, c64 or c128. The whole warp calls run together with the same n. info: 0; -1 for a matrix that is not finite, whose
// results are NaN; 1 where 60 sweeps were not enough.
//
// The matrix is made positive definite by a shift, then one-sided Jacobi turns its columns into eigenvectors times eigenvalues.
// Eigenvalues are Rayleigh quotients with the matrix itself, so that the shift costs them no digits.
#ifndef MATHFUSE_EIGEN_CUH
#define MATHFUSE_EIGEN_CUH

#include "mathfuse/device/jacobi.cuh"

namespace mf
{
namespace solve
{

// N: most rows.
template <class T, int N> struct eigen {
    static_assert(N >= 1 && N <= 64, "1 to 64 rows");
    typedef real_t<T> real;
    typedef scaling<real, 2> scale_type;
    static constexpr int vector = sizeof(T) >= 16 ? 1 : 16 / (int)sizeof(T);
    static constexpr int rows = (N + vector - 1) / vector * vector, pairs = pairs_of(N), threads = pairs;
    static constexpr int ld = rows + vector;
    // Of T in shared memory.
    static constexpr int elements = rows * ld + (2 * pairs + vector - 1) / vector * vector;

    T *matrix;
    real *values;

    explicit MF_DEVICE eigen(T *shared) : matrix(shared), values((real *)(void *)(shared + rows * ld)) {}

    static MF_DEVICE int lane() { return (int)threadIdx.x % threads; }

    MF_DEVICE void put(int i, int j, T value) const
    {
        matrix[i * ld + j] = i == j ? from_real(real_of_number(value), T()) : value;
        if (i != j)
            matrix[j * ld + i] = conjugate_of(value);
    }
    MF_DEVICE real value(int k) const { return values[k]; }
    MF_DEVICE T element(int i, int k) const { return matrix[i * ld + k]; }

    MF_DEVICE int run(int n) const
    {
        jacobi<T, rows, pairs> core;
        pad(n);
        __syncwarp();
        take(core.x, lane(), n);
        take(core.y, lane() + pairs, n);
        real most = larger(largest_part(core.x), largest_part(core.y));
        most = warp_reduce<op_max, threads>(most); // passes NaN on
        bool bad = !(most < inf_of<real>());
        scale_type scale(bad ? real(0) : most);
        prepare(core.x, lane(), n, scale, bad);
        prepare(core.y, lane() + pairs, n, scale, bad);
        shift(core, n);
        bool done = core.run(n, !bad);
        __syncwarp();
        real first, second;
        quotients(first, second, core);
        finish(core, first, second, n, scale, bad);
        return bad ? -1 : done ? 0 : 1;
    }

  private:
    // Zeros beyond the matrix.
    MF_DEVICE void pad(int n) const
    {
        for (int i = 0; i < rows; i++)
            for (int j = (i < n ? n : 0) + lane(); j < rows; j += threads)
                matrix[i * ld + j] = T();
    }

    MF_DEVICE void take(T (&v)[rows], int column, int n) const
    {
        const T *from = matrix + column;
        MF_UNROLL
        for (int i = 0; i < rows; i++)
            v[i] = column < n ? from[i * ld] : T();
    }

    // Scaled, here and in shared memory.
    MF_DEVICE void prepare(T (&v)[rows], int column, int n, const scale_type &scale, bool bad) const
    {
        T *to = matrix + column;
        MF_UNROLL
        for (int i = 0; i < rows; i++) {
            v[i] = bad ? T() : scale.apply(v[i]);
            if (column < n)
                to[i * ld] = v[i];
        }
    }

    static MF_DEVICE real size_of(real x) { return m_fabs(x); }
    static MF_DEVICE real size_of(cplx<real> x) { return m_fabs(x.re) + m_fabs(x.im); }

    // Of a column: its diagonal element, and the sum of the others' sizes.
    static MF_DEVICE void bound(real &middle, real &radius, const T (&v)[rows], int column)
    {
        middle = radius = 0;
        MF_UNROLL
        for (int i = 0; i < rows; i++) {
            middle = i == column ? real_of_number(v[i]) : middle;
            radius += i == column ? real(0) : size_of(v[i]);
        }
    }

    // Adds to the diagonal what makes the smallest eigenvalue a sixteenth of the norm, by Gershgorin's circles.
    static MF_DEVICE void shift(jacobi<T, rows, pairs> &core, int n)
    {
        real middle[2], radius[2];
        bound(middle[0], radius[0], core.x, lane());
        bound(middle[1], radius[1], core.y, lane() + pairs);
        real below = larger(radius[0] - middle[0], radius[1] - middle[1]),
             norm = larger(radius[0] + m_fabs(middle[0]), radius[1] + m_fabs(middle[1]));
        below = warp_reduce<op_max, threads>(below);
        norm = warp_reduce<op_max, threads>(norm);
        real s = norm > real(0) ? (below > real(0) ? below : real(0)) + norm * real(0.0625) : real(1);
        MF_UNROLL
        for (int i = 0; i < rows; i++) {
            core.x[i] = core.x[i] + from_real(i == lane() && i < n ? s : real(0), T());
            core.y[i] = core.y[i] + from_real(i == lane() + pairs && i < n ? s : real(0), T());
        }
    }

    // Element `block * strip + i`, by selection: registers have no addresses.
    static constexpr int strip = rows % 4 == 0 ? 4 : vector;
    static MF_DEVICE T pick(const T (&v)[rows], int block, int i)
    {
        T value = v[i];
        MF_UNROLL
        for (int b = 1; b < rows / strip; b++)
            value = block == b ? v[b * strip + i] : value;
        return value;
    }

    // v^H A v of both columns, which become unit vectors first; infinite for columns that are none.
    MF_DEVICE void quotients(real &first, real &second, jacobi<T, rows, pairs> &core) const
    {
        real ux = core.xx > 0 ? inverse_root(core.xx) : real(0), uy = core.yy > 0 ? inverse_root(core.yy) : real(0);
        MF_UNROLL
        for (int i = 0; i < rows; i++) {
            core.x[i] = times_real(core.x[i], ux);
            core.y[i] = times_real(core.y[i], uy);
        }
        first = core.xx > 0 ? real(0) : inf_of<real>();
        second = core.yy > 0 ? real(0) : inf_of<real>();
        MF_ROLLED
        for (int block = 0; block < rows / strip; block++) {
            const T *lines = matrix + block * strip * ld;
            MF_UNROLL
            for (int i = 0; i < strip; i++) {
                T sx = T(), sy = T();
                MF_UNROLL
                for (int j = 0; j < rows; j += vector) {
                    pack<T, vector> p;
                    load_pack<16>(p, lines + i * ld + j);
                    MF_UNROLL
                    for (int k = 0; k < vector; k++) {
                        sx = with_product(sx, p.v[k], core.x[j + k]);
                        sy = with_product(sy, p.v[k], core.y[j + k]);
                    }
                }
                first += real_of_number(conjugate_of(pick(core.x, block, i)) * sx);
                second += real_of_number(conjugate_of(pick(core.y, block, i)) * sy);
            }
        }
    }

    // How many of the group's values come before this one.
    MF_DEVICE int place(real mine, int slot) const
    {
        int before = 0;
        MF_UNROLL_BY_4
        for (int k = 0; k < 2 * pairs; k++)
            before += values[k] < mine || (values[k] == mine && k < slot);
        return before;
    }

    MF_DEVICE void finish(const jacobi<T, rows, pairs> &core, real first, real second, int n, const scale_type &scale,
                          bool bad) const
    {
        values[lane()] = first;
        values[lane() + pairs] = second;
        __syncwarp();
        int at = place(first, lane()), other = place(second, lane() + pairs);
        __syncwarp();
        put_result(core.x, first, at, n, scale, bad);
        put_result(core.y, second, other, n, scale, bad);
        __syncwarp();
    }

    MF_DEVICE void put_result(const T (&v)[rows], real value, int at, int n, const scale_type &scale, bool bad) const
    {
        if (at >= n)
            return;
        values[at] = bad ? nan_of<real>() : scale.undo(value);
        T *to = matrix + at;
        MF_UNROLL
        for (int i = 0; i < rows; i++)
            if (i < n)
                to[i * ld] = bad ? nan_number<T>() : v[i];
    }
};

} // namespace solve
} // namespace mf
#endif
