// One-sided Jacobi: columns of a small matrix are rotated in pairs until all are orthogonal. A matrix for PAIRS neighbouring
// lanes of one warp, two columns in the registers of each.
//
//   mf::solve::jacobi<float, 32, 16> J;                  // 32 rows, up to 32 columns
//   ...                                                  // J.x, J.y: any two columns; zeros where there are fewer
//   bool done = J.run(32, true);                         // now orthogonal; in no order
//
// T: float, double, c64 or c128. The whole warp calls together. Numbers are to be neither so large nor so small that sums of fourth
// powers overflow or vanish: scale by a power of two before. Columns of zeros stay where they are, and zeros.
//
// A sweep pairs any two columns once: all of x with all of y, y passing from lane to lane, then the same within x and within y, by
// halves. Rotations are of the scaled kind: of a column d * x the number d takes the cosine, so that an element costs one multiplication
// with addition. After J. Demmel, K. Veselic, Jacobi's method is more accurate than QR (SIAM J. Matrix Anal. Appl. 13, 1992), and
// G. H. Golub, C. F. Van Loan, Matrix Computations, 4th ed., sections 5.1.13 (fast rotations) and 8.6.3.
#ifndef MATHFUSE_JACOBI_CUH
#define MATHFUSE_JACOBI_CUH

#include "mathfuse/device/qr.cuh"
#include "mathfuse/device/reduce.cuh"

#if defined(__CUDACC__)
#define MF_ROLLED _Pragma("unroll 1")
#else
#define MF_ROLLED
#endif

namespace mf
{
namespace solve
{

// ---- approximations of the hardware; the emulator's are as coarse ----

MF_DEVICE double without_low_bits(double x)
{
    union {
        double value;
        u64 bits;
    } a = {x};
    a.bits &= 0xffffffff00000000ull;
    return a.value;
}

MF_DEVICE float coarse_reciprocal(float x)
{
#if defined(__CUDA_ARCH__)
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    return 1 / x;
#endif
}
MF_DEVICE double coarse_reciprocal(double x)
{
#if defined(__CUDA_ARCH__)
    double r;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
    return r;
#else
    return without_low_bits(1 / x);
#endif
}
MF_DEVICE float coarse_inverse_root(float x)
{
#if defined(__CUDA_ARCH__)
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    return 1 / m_sqrt(x);
#endif
}
MF_DEVICE double coarse_inverse_root(double x)
{
#if defined(__CUDA_ARCH__)
    double r;
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
    return r;
#else
    return without_low_bits(1 / m_sqrt(x));
#endif
}

// A step of Newton's method for 1 / sqrt(x); for 1 / x.
template <class T> MF_DEVICE T refined_root(T r, T x)
{
    return m_fma(r * T(0.5), m_fma(-x * r, r, T(1)), r);
}
template <class T> MF_DEVICE T refined_reciprocal(T r, T x)
{
    return m_fma(r, m_fma(-x, r, T(1)), r);
}
template <class T> MF_DEVICE T inverse_root(T x)
{
    T r = refined_root(coarse_inverse_root(x), x);
    return sizeof(T) == 8 ? refined_root(r, x) : r;
}

// ---- arithmetic of both kinds of numbers ----

// sum + x y
MF_DEVICE float with_product(float sum, float x, float y)
{
    return m_fma(x, y, sum);
}
MF_DEVICE double with_product(double sum, double x, double y)
{
    return m_fma(x, y, sum);
}
template <class T> MF_DEVICE cplx<T> with_product(cplx<T> sum, cplx<T> x, cplx<T> y)
{
    return cplx<T>{m_fma(-x.im, y.im, m_fma(x.re, y.re, sum.re)), m_fma(x.im, y.re, m_fma(x.re, y.im, sum.im))};
}
MF_DEVICE float times_real(float x, float s)
{
    return x * s;
}
MF_DEVICE double times_real(double x, double s)
{
    return x * s;
}
template <class T> MF_DEVICE cplx<T> times_real(cplx<T> x, T s)
{
    return cplx<T>{x.re * s, x.im * s};
}

template <class T> MF_DEVICE T epsilon_of()
{
    return sizeof(T) == 4 ? T(0x1p-23) : T(0x1p-52);
}

// The larger of two, NaN if one is.
template <class T> MF_DEVICE T larger(T a, T b)
{
    return a > b || a != a ? a : b;
}
MF_DEVICE float largest_of(float x)
{
    return m_fabs(x);
}
MF_DEVICE double largest_of(double x)
{
    return m_fabs(x);
}
template <class T> MF_DEVICE T largest_of(cplx<T> x)
{
    return larger(m_fabs(x.re), m_fabs(x.im));
}
// Of the parts of a column.
template <class T, int M> MF_DEVICE real_t<T> largest_part(const T (&v)[M])
{
    real_t<T> most = 0;
    MF_UNROLL
    for (int i = 0; i < M; i++)
        most = larger(largest_of(v[i]), most);
    return most;
}

MF_HOST_DEVICE constexpr int pairs_of(int columns)
{
    return columns <= 2 ? 1 : columns <= 4 ? 2 : columns <= 8 ? 4 : columns <= 16 ? 8 : columns <= 32 ? 16 : 32;
}

// Scaling by powers of two, in two steps where numbers are tiny.
template <class T, int EXPONENT> struct scaling {
    bool lifted;
    T up, down;

    static MF_DEVICE T lift() { return sizeof(T) == 4 ? T(0x1p90) : T(0x1p800); }
    static MF_DEVICE T drop() { return sizeof(T) == 4 ? T(0x1p-90) : T(0x1p-800); }

    // The largest of some numbers is brought between 2^EXPONENT and twice that. It is finite, and not negative.
    explicit MF_DEVICE scaling(T largest)
    {
        lifted = largest > 0 && largest < (sizeof(T) == 4 ? T(0x1p-60) : T(0x1p-600));
        T size = lifted ? largest * lift() : largest;
        if constexpr (sizeof(T) == 4) {
            u32 e = bits_of(size) >> 23;
            up = size > 0 ? float_of((254 + EXPONENT - e) << 23) : 1.0f;
            down = size > 0 ? float_of((e - EXPONENT) << 23) : 1.0f;
        } else {
            union {
                double value;
                u64 bits;
            } a = {size};
            u64 e = a.bits >> 52;
            up = size > 0 ? double_of((2046 + EXPONENT - e) << 52) : 1.0;
            down = size > 0 ? double_of((e - EXPONENT) << 52) : 1.0;
        }
    }
    template <class S> MF_DEVICE S apply(S x) const { return times_real(lifted ? times_real(x, lift()) : x, up); }
    MF_DEVICE T undo(T x) const { return lifted ? x * down * drop() : x * down; }
};

// M: rows, in registers. CARRIED: rows below them that rotations take along, as those of V.
template <class T, int M, int PAIRS, int CARRIED = 0> struct jacobi {
    static_assert(PAIRS >= 1 && PAIRS <= 32 && (PAIRS & (PAIRS - 1)) == 0, "a power of two, within a warp");
    typedef real_t<T> real;
    static constexpr int rows = M, all = M + CARRIED, threads = PAIRS, most_sweeps = 60;

    T x[all], y[all];
    real xx, yy;    // squares of their norms
    real floor = 0; // columns whose square is less are made zeros

    static MF_DEVICE int lane() { return (int)threadIdx.x % PAIRS; }

    // False: not orthogonal after most_sweeps. A group whose matrix is not `active` is left as it is, and its lanes only help others
    // to wait.
    MF_DEVICE bool run(int columns, bool active)
    {
        const real eps = epsilon_of<real>(), limit = real(M) * eps * eps;
        measure();
        for (int i = 0; i < most_sweeps && __any_sync(0xffffffffu, active); i++) {
            cosine = tangent = 0;
            sweep(active, limit);
            cosine = warp_reduce<op_max, PAIRS>(cosine);
            tangent = warp_reduce<op_max, PAIRS>(tangent);
            // What is left of cosines is of second order: as many products of two as there are columns, one with the tangent, or
            // with another cosine where lengths differ much.
            real other = tangent > cosine ? tangent : cosine;
            active = active && !(real(columns * columns) * cosine * other <= limit);
        }
        return !active;
    }

  private:
    real dx, dy, ix, iy;  // what columns are to be multiplied by, and the inverse
    real cosine, tangent; // squares of the largest of this sweep

    static MF_DEVICE real square_norm(const T (&v)[all])
    {
        real sum[2] = {0, 0};
        MF_UNROLL
        for (int i = 0; i < M; i++)
            sum[i % 2] += squared_size(v[i]);
        return sum[0] + sum[1];
    }

    // Columns multiplied by what they are to be; norms anew.
    MF_DEVICE void measure()
    {
        dx = dy = ix = iy = 1;
        xx = measured(x);
        yy = measured(y);
    }
    MF_DEVICE real measured(T (&v)[all]) const
    {
        real square = square_norm(v);
        if (square < floor) {
            square = 0;
            MF_UNROLL
            for (int i = 0; i < M; i++)
                v[i] = T();
        }
        return square;
    }

    MF_DEVICE void sweep(bool active, real limit)
    {
        rotate(active, limit);
        MF_ROLLED
        for (int block = PAIRS; block > 1;) {
            MF_ROLLED
            for (int step = 1; step < block; step++) {
                pass(step & -step);
                rotate(active, limit);
            }
            block /= 2;
            split(block);
            rotate(active, limit);
        }
        MF_UNROLL
        for (int i = 0; i < all; i++) {
            x[i] = times_real(x[i], dx);
            y[i] = times_real(y[i], dy);
        }
        measure();
    }

    MF_DEVICE T product() const // x^H y
    {
        T sum[4] = {};
        MF_UNROLL
        for (int i = 0; i < M; i++)
            sum[i % 4] = with_product(sum[i % 4], conjugate_of(x[i]), y[i]);
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }

    MF_DEVICE void rotate(bool active, real limit)
    {
        T g = times_real(product(), dx * dy);
        real size = squared_size(g), norms = xx * yy, gap = yy - xx, square = m_fma(gap, gap, 4 * size);
        bool turns = active && size > limit * norms;
        real inverse = coarse_inverse_root(square);
        if constexpr (sizeof(real) == 8)
            inverse = refined_root(inverse, square);
        real sum = m_fma(square, inverse, m_fabs(gap)), half = coarse_reciprocal(sum);
        if constexpr (sizeof(real) == 8)
            half = refined_reciprocal(half, sum);
        real k = turns ? m_copysign(2 * half, gap) : real(0);
        T w = times_real(g, k); // the tangent, with g's phase
        real t = squared_size(w), q = 1 + t, c = inverse_root(q);
        real seen = size * coarse_reciprocal(norms);
        cosine = turns && seen > cosine ? seen : cosine;
        tangent = t > tangent ? t : tangent;
        // x - conj(w) y, then y + w x = (1 + |w|^2) (y + w / (1 + |w|^2) (x - conj(w) y)): in place.
        T down = times_real(-conjugate_of(w), dy * ix), up = times_real(w, dx * iy * c * c);
        MF_UNROLL
        for (int i = 0; i < all; i++) {
            x[i] = with_product(x[i], down, y[i]);
            y[i] = with_product(y[i], up, x[i]);
        }
        xx = m_fma(-k, size, xx);
        yy = m_fma(k, size, yy);
        xx = xx > 0 ? xx : real(0);
        yy = yy > 0 ? yy : real(0);
        dx *= c, iy *= c;
        c *= q;
        dy *= c, ix *= c;
    }

    // Lanes exchange y.
    MF_DEVICE void pass(int mask)
    {
        MF_UNROLL
        for (int i = 0; i < all; i++)
            y[i] = shuffle_xor(y[i], mask);
        yy = shuffle_xor(yy, mask);
        dy = shuffle_xor(dy, mask);
        iy = shuffle_xor(iy, mask);
    }

    template <class S> static MF_DEVICE void trade(S &a, S &b, bool upper, int mask)
    {
        S other = shuffle_xor(upper ? a : b, mask);
        a = upper ? other : a;
        b = upper ? b : other;
    }
    // The lower half of each block has both halves' x from now on, the upper half both halves' y.
    MF_DEVICE void split(int half)
    {
        bool upper = (lane() & half) != 0;
        MF_UNROLL
        for (int i = 0; i < all; i++)
            trade(x[i], y[i], upper, half);
        trade(xx, yy, upper, half);
        trade(dx, dy, upper, half);
        trade(ix, iy, upper, half);
    }
};

} // namespace solve
} // namespace mf
#endif
