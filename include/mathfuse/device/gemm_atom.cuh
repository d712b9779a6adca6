// The products of one warp that gemm.cuh is made of: an atom multiplies m x k by k x n with one instruction, or a few.
#ifndef MATHFUSE_DEVICE_GEMM_ATOM_CUH
#define MATHFUSE_DEVICE_GEMM_ATOM_CUH

#include "mathfuse/device/elementwise.cuh"
#include "mathfuse/device/mma.cuh"

namespace mf
{
namespace gemm
{

struct tensor {
};
struct tf32 {
};
struct tf32x3 {
};
struct plain {
};

// An atom has m, n, k; sum; sums (of a lane), with row and column of each; fragments, loaded from a source of gemm.cuh;
// and multiply, which adds to sums [at, at + sums).
template <class T, class MATH> struct atom;

// ---- sums as mma's m16n8 has them: rows l / 4 and eight below, columns l % 4 * 2 and the next ----

struct sums_16x8 {
    static constexpr int m = 16, n = 8, sums = 4;
    static MF_DEVICE int row(int lane, int i) { return lane / 4 + i / 2 * 8; }
    static MF_DEVICE int column(int lane, int i) { return lane % 4 * 2 + i % 2; }
};

// ---- f16, bf16 ----

#if defined(__CUDACC__)
// 8 x 8 matrices of 16-bit elements, a line at each lane's address; TRANS: transposed on the way.
template <bool TRANS> MF_DEVICE void load_matrices(u32 (&r)[4], const void *line)
{
    u32 address = (u32)__cvta_generic_to_shared(line);
    if constexpr (TRANS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address)
                     : "memory");
}
template <bool TRANS> MF_DEVICE void load_matrices(u32 (&r)[2], const void *line)
{
    u32 address = (u32)__cvta_generic_to_shared(line);
    if constexpr (TRANS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(address)
                     : "memory");
}
#endif

template <class T> struct atom_16bit : sums_16x8 {
    static constexpr int k = 16;
    typedef float sum;
    struct a_fragment {
        u32 r[4];
    };
    struct b_fragment {
        u32 r[2];
    };
    template <class S> static MF_DEVICE u32 pair(const S &from, int outer, int kk)
    {
        return (u32)from.get(outer, kk).bits | (u32)from.get(outer, kk + 1).bits << 16;
    }
    template <class S> static MF_DEVICE void load_a(a_fragment &x, const S &from, int row0, int k0, int lane)
    {
#if defined(__CUDACC__)
        if constexpr (S::full && S::ld % 8 == 0) {
            // Registers hold (rows 0 ... 7, k 0 ... 7), (8 ..., 0 ...), (0 ..., 8 ...), (8 ..., 8 ...).
            int across = lane / 8 % 2 * 8, along = lane / 16 * 8, line = lane % 8;
            load_matrices<!S::along_k>(x.r, S::along_k ? from.at(row0 + across + line, k0 + along)
                                                       : from.at(row0 + across, k0 + along + line));
        } else
#endif
        {
            MF_UNROLL
            for (int i = 0; i < 4; i++)
                x.r[i] = pair(from, row0 + lane / 4 + i % 2 * 8, k0 + lane % 4 * 2 + i / 2 * 8);
        }
    }
    template <class S> static MF_DEVICE void load_b(b_fragment &y, const S &from, int column0, int k0, int lane)
    {
#if defined(__CUDACC__)
        if constexpr (S::full && S::ld % 8 == 0) {
            int along = lane / 8 % 2 * 8, line = lane % 8;
            load_matrices<!S::along_k>(y.r, S::along_k ? from.at(column0 + line, k0 + along)
                                                       : from.at(column0, k0 + along + line));
        } else
#endif
        {
            MF_UNROLL
            for (int i = 0; i < 2; i++)
                y.r[i] = pair(from, column0 + lane / 4, k0 + lane % 4 * 2 + i * 8);
        }
    }
    template <int N> static MF_DEVICE void multiply(float (&c)[N], int at, const a_fragment &x, const b_fragment &y)
    {
        float d[4] = {c[at], c[at + 1], c[at + 2], c[at + 3]};
        mma<T>(d, x.r, y.r);
        MF_UNROLL
        for (int i = 0; i < 4; i++)
            c[at + i] = d[i];
    }
};
template <> struct atom<f16, tensor> : atom_16bit<f16> {
};
template <> struct atom<bf16, tensor> : atom_16bit<bf16> {
};

// ---- one number an element: fragments of real atoms, from which complex ones are made ----

// f32 rounded to 11 bits, ties away from zero.
MF_DEVICE u32 as_tf32(float x)
{
    return (bits_of(x) + 0x1000u) & 0xffffe000u;
}

struct real_tf32 : sums_16x8 {
    static constexpr int k = 8;
    typedef float real;
    struct a_fragment {
        u32 r[4];
    };
    struct b_fragment {
        u32 r[2];
    };
    static MF_DEVICE int a_row(int lane, int i) { return lane / 4 + i % 2 * 8; }
    static MF_DEVICE int a_k(int lane, int i) { return lane % 4 + i / 2 * 4; }
    static MF_DEVICE int b_k(int lane, int i) { return lane % 4 + i * 4; }
    static MF_DEVICE int b_column(int lane, int) { return lane / 4; }
    static constexpr int a_count = 4, b_count = 2;
    static MF_DEVICE void set(a_fragment &x, int i, float v) { x.r[i] = as_tf32(v); }
    static MF_DEVICE void set(b_fragment &y, int i, float v) { y.r[i] = as_tf32(v); }
    static MF_DEVICE void multiply(float (&d)[4], const a_fragment &x, const b_fragment &y) { mma_tf32(d, x.r, y.r); }
};

// x = high + low, each of 11 bits; the product of the low parts is left out. Infinities become NaN.
struct real_tf32x3 : real_tf32 {
    struct a_fragment {
        u32 high[4], low[4];
    };
    struct b_fragment {
        u32 high[2], low[2];
    };
    template <class F> static MF_DEVICE void set(F &x, int i, float v)
    {
        x.high[i] = as_tf32(v);
        x.low[i] = as_tf32(v - float_of(x.high[i]));
    }
    static MF_DEVICE void multiply(float (&d)[4], const a_fragment &x, const b_fragment &y)
    {
        mma_tf32(d, x.low, y.high);
        mma_tf32(d, x.high, y.low);
        mma_tf32(d, x.high, y.high);
    }
};

struct real_f64 {
    static constexpr int m = 8, n = 8, k = 4, sums = 2, a_count = 1, b_count = 1;
    typedef double real;
    static MF_DEVICE int row(int lane, int) { return lane / 4; }
    static MF_DEVICE int column(int lane, int i) { return lane % 4 * 2 + i; }
    struct a_fragment {
        double v;
    };
    struct b_fragment {
        double v;
    };
    static MF_DEVICE int a_row(int lane, int) { return lane / 4; }
    static MF_DEVICE int a_k(int lane, int) { return lane % 4; }
    static MF_DEVICE int b_k(int lane, int) { return lane % 4; }
    static MF_DEVICE int b_column(int lane, int) { return lane / 4; }
    static MF_DEVICE void set(a_fragment &x, int, double v) { x.v = v; }
    static MF_DEVICE void set(b_fragment &y, int, double v) { y.v = v; }
    static MF_DEVICE void multiply(double (&d)[2], const a_fragment &x, const b_fragment &y) { mma_f64(d, x.v, y.v); }
};

template <class R> struct atom_real : R {
    typedef typename R::real sum;
    typedef typename R::a_fragment a_fragment;
    typedef typename R::b_fragment b_fragment;
    template <class S> static MF_DEVICE void load_a(a_fragment &x, const S &from, int row0, int k0, int lane)
    {
        MF_UNROLL
        for (int i = 0; i < R::a_count; i++)
            R::set(x, i, from.get(row0 + R::a_row(lane, i), k0 + R::a_k(lane, i)));
    }
    template <class S> static MF_DEVICE void load_b(b_fragment &y, const S &from, int column0, int k0, int lane)
    {
        MF_UNROLL
        for (int i = 0; i < R::b_count; i++)
            R::set(y, i, from.get(column0 + R::b_column(lane, i), k0 + R::b_k(lane, i)));
    }
    template <int N> static MF_DEVICE void multiply(sum (&c)[N], int at, const a_fragment &x, const b_fragment &y)
    {
        sum d[R::sums];
        MF_UNROLL
        for (int i = 0; i < R::sums; i++)
            d[i] = c[at + i];
        R::multiply(d, x, y);
        MF_UNROLL
        for (int i = 0; i < R::sums; i++)
            c[at + i] = d[i];
    }
};
template <> struct atom<float, tf32> : atom_real<real_tf32> {
};
template <> struct atom<float, tf32x3> : atom_real<real_tf32x3> {
};
template <> struct atom<double, tensor> : atom_real<real_f64> {
};

// Four real products.
template <class R> struct atom_complex : R {
    typedef typename R::real real;
    typedef cplx<real> sum;
    struct a_fragment {
        typename R::a_fragment re, im, minus_im;
    };
    struct b_fragment {
        typename R::b_fragment re, im;
    };
    template <class S> static MF_DEVICE void load_a(a_fragment &x, const S &from, int row0, int k0, int lane)
    {
        MF_UNROLL
        for (int i = 0; i < R::a_count; i++) {
            sum v = from.get(row0 + R::a_row(lane, i), k0 + R::a_k(lane, i));
            R::set(x.re, i, v.re);
            R::set(x.im, i, v.im);
            R::set(x.minus_im, i, -v.im);
        }
    }
    template <class S> static MF_DEVICE void load_b(b_fragment &y, const S &from, int column0, int k0, int lane)
    {
        MF_UNROLL
        for (int i = 0; i < R::b_count; i++) {
            sum v = from.get(column0 + R::b_column(lane, i), k0 + R::b_k(lane, i));
            R::set(y.re, i, v.re);
            R::set(y.im, i, v.im);
        }
    }
    template <int N> static MF_DEVICE void multiply(sum (&c)[N], int at, const a_fragment &x, const b_fragment &y)
    {
        real re[R::sums], im[R::sums];
        MF_UNROLL
        for (int i = 0; i < R::sums; i++) {
            re[i] = c[at + i].re;
            im[i] = c[at + i].im;
        }
        R::multiply(re, x.re, y.re);
        R::multiply(re, x.minus_im, y.im);
        R::multiply(im, x.re, y.im);
        R::multiply(im, x.im, y.re);
        MF_UNROLL
        for (int i = 0; i < R::sums; i++)
            c[at + i] = sum{re[i], im[i]};
    }
};
template <> struct atom<c64, tf32> : atom_complex<real_tf32> {
};
template <> struct atom<c64, tf32x3> : atom_complex<real_tf32x3> {
};
template <> struct atom<c128, tensor> : atom_complex<real_f64> {
};

// ---- any type: two rows and two columns of multiply-adds ----

template <class T> struct atom<T, plain> : sums_16x8 {
    static constexpr int k = 1;
    typedef compute_t<T> sum;
    struct a_fragment {
        sum v[2];
    };
    struct b_fragment {
        sum v[2];
    };
    template <class S> static MF_DEVICE void load_a(a_fragment &x, const S &from, int row0, int k0, int lane)
    {
        MF_UNROLL
        for (int i = 0; i < 2; i++)
            x.v[i] = widen(from.get(row0 + lane / 4 + i * 8, k0));
    }
    template <class S> static MF_DEVICE void load_b(b_fragment &y, const S &from, int column0, int k0, int lane)
    {
        MF_UNROLL
        for (int i = 0; i < 2; i++)
            y.v[i] = widen(from.get(column0 + lane % 4 * 2 + i, k0));
    }
    static MF_DEVICE sum multiply_add(sum x, sum y, sum z)
    {
        if constexpr (is_real<sum>)
            return m_fma(x, y, z);
        else if constexpr (is_integer<sum>)
            return m_iadd(m_imul(x, y), z);
        else
            return sum{m_fma(-x.im, y.im, m_fma(x.re, y.re, z.re)), m_fma(x.im, y.re, m_fma(x.re, y.im, z.im))};
    }
    template <int N> static MF_DEVICE void multiply(sum (&c)[N], int at, const a_fragment &x, const b_fragment &y)
    {
        MF_UNROLL
        for (int i = 0; i < 4; i++)
            c[at + i] = multiply_add(x.v[i / 2], y.v[i % 2], c[at + i]);
    }
};

} // namespace gemm
} // namespace mf

#endif
