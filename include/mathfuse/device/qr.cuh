// QR of small matrices by Householder reflections, a matrix for a group of threads, one column for each: columns live in
// registers, reflections in shared memory.
//
//   typedef mf::solve::householder<float, 16, 16> H;     // up to 16 rows; up to 16 columns, of the matrix and of Q
//   extern __shared__ float memory[];                    // H::elements for each group of the block
//   H h(memory + threadIdx.x / H::threads * H::elements);
//   float x[H::rows];                                    // x[i] = A[i][h.column()] for i < m and column() < n, else 0
//   h.factor(x, m, n);                                   // x[i] is now R[i][column()] for i <= column()
//   h.form(x, m, n);                                     // x[i] is now Q[i][column()]
//
// T: float, double, c64 or c128. All threads of the block call together with the same m and n (groups of more than 32 threads
// meet at block barriers). Signs are LAPACK's: the diagonal of R is real, and opposite in sign to what it is made of. Each
// reflection is scaled by the largest element, so that squares neither overflow nor vanish.
//
// After G. H. Golub, C. F. Van Loan, Matrix Computations, 4th ed., section 5.1 and 5.2; factors as of LAPACK's larfg.
#ifndef MATHFUSE_QR_CUH
#define MATHFUSE_QR_CUH

#include "mathfuse/device/solve.cuh"

namespace mf
{
namespace solve
{

// The larger of the parts' absolute values.
MF_DEVICE float part_size(float x)
{
    return m_fabs(x);
}
MF_DEVICE double part_size(double x)
{
    return m_fabs(x);
}
template <class T> MF_DEVICE T part_size(cplx<T> x)
{
    T re = m_fabs(x.re), im = m_fabs(x.im);
    return re > im ? re : im;
}

MF_DEVICE float squared_size(float x)
{
    return x * x;
}
MF_DEVICE double squared_size(double x)
{
    return x * x;
}
template <class T> MF_DEVICE T squared_size(cplx<T> x)
{
    return x.re * x.re + x.im * x.im;
}

// M: most rows, in registers. C: most columns, 1 to 64.
template <class T, int M, int C> struct householder {
    static_assert(C >= 1 && C <= 64, "1 to 64 columns");
    typedef real_t<T> real;
    static constexpr int vector = sizeof(T) >= 16 ? 1 : 16 / (int)sizeof(T);
    static constexpr int rows = (M + vector - 1) / vector * vector, steps = M < C ? M : C;
    static constexpr int threads = C <= 4 ? 4 : C <= 8 ? 8 : C <= 16 ? 16 : C <= 32 ? 32 : 64;
    static constexpr int ld = rows + vector;
    // Of T in shared memory, which is aligned to 16 bytes.
    static constexpr int elements = (steps * ld + steps + 3) / 4 * 4;

    T *v, *tau;

    explicit MF_DEVICE householder(T *shared) : v(shared), tau(shared + steps * ld) {}

    static MF_DEVICE int column() { return (int)threadIdx.x % threads; }
    static MF_DEVICE void sync()
    {
        if constexpr (threads <= 32)
            __syncwarp();
        else
            __syncthreads();
    }
    MF_DEVICE T *line(int k) const { return v + k * ld; } // reflection k: zeros, one, and what follows

    // x = R's column; reflections stay in shared memory.
    MF_DEVICE void factor(T (&x)[rows], int m, int n)
    {
        int count = m < n ? m : n;
        for (int k = 0; k < count; k++) {
            publish(x, k);
            sync();
            T t = reflection(k);
            reflect(x, k, conjugate_of(t), column() >= k);
        }
    }

    // x = Q's column.
    MF_DEVICE void form(T (&x)[rows], int m, int n)
    {
        int count = m < n ? m : n;
        MF_UNROLL
        for (int i = 0; i < rows; i++)
            x[i] = from_real(real(i == column() && i < m ? 1 : 0), T());
        for (int k = count - 1; k >= 0; k--)
            reflect(x, k, tau[k], true);
        sync();
    }

  private:
    // Column k below row k - 1, for all.
    MF_DEVICE void publish(const T (&x)[rows], int k)
    {
        if (column() != k)
            return;
        MF_UNROLL
        for (int c = 0; c < rows / vector; c++) {
            pack<T, vector> p;
            MF_UNROLL
            for (int i = 0; i < vector; i++)
                p.v[i] = c * vector + i < k ? T() : x[c * vector + i];
            store_pack<16>(line(k) + c * vector, p);
        }
    }

    template <class F> MF_DEVICE void each(int k, F &&f) const
    {
        MF_UNROLL
        for (int c = 0; c < rows / vector; c++) {
            pack<T, vector> p;
            load_pack<16>(p, line(k) + c * vector);
            MF_UNROLL
            for (int i = 0; i < vector; i++)
                f(c * vector + i, p.v[i]);
        }
    }

    // H = I - tau u u^H with H^H x = (.., beta, 0, ..): u in place of the column; tau.
    MF_DEVICE T reflection(int k)
    {
        real most = 0, sum = 0;
        each(k, [&](int, T y) { most = part_size(y) > most ? part_size(y) : most; });
        const real tiny = sizeof(real) == 4 ? real(1e-30) : real(1e-290),
                   lift = sizeof(real) == 4 ? real(1e30) : real(1e290);
        const bool lifted = most < tiny;
        real up = lifted ? lift : real(1), scale = most > real(0) ? real(1) / (most * up) : real(0);
        T alpha = scaled(line(k)[k], up, scale, lifted);
        each(k, [&](int i, T y) { sum += i > k ? squared_size(scaled(y, up, scale, lifted)) : real(0); });
        bool none = sum == real(0) && alpha == from_real(real_of_number(alpha), T());
        real norm = m_sqrt(sum + squared_size(alpha)), beta = real_of_number(alpha) >= real(0) ? -norm : norm;
        T t = none ? T() : divided(from_real(beta, T()) - alpha, beta);
        T factor = none ? T() : divided(from_real(real(1), T()), alpha - from_real(beta, T()));
        sync(); // all have read
        for (int i = column(); i < rows; i += threads) {
            T y = line(k)[i];
            line(k)[i] = i > k ? scaled(y, up, scale, lifted) * factor : from_real(real(i == k ? 1 : 0), T());
        }
        if (column() == 0)
            tau[k] = t;
        sync();
        return t;
    }

    static MF_DEVICE T scaled(T y, real up, real scale, bool lifted)
    {
        T z = lifted ? y * from_real(up, T()) : y;
        return z * from_real(scale, T());
    }

    MF_DEVICE void reflect(T (&x)[rows], int k, T t, bool mine)
    {
        T dot = T();
        each(k, [&](int i, T u) { dot = dot + conjugate_of(u) * x[i]; });
        dot = mine ? dot * t : T();
        each(k, [&](int i, T u) { x[i] = x[i] - u * dot; });
    }
};

} // namespace solve
} // namespace mf
#endif
