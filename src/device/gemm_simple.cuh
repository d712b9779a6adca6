// A matrix product on plain cores: any strides, any dtype, any accumulator. The path that is always there.
#ifndef MF_DEVICE_GEMM_SIMPLE_CUH
#define MF_DEVICE_GEMM_SIMPLE_CUH

#include "device/gemm_args.cuh"

namespace mf
{

template <class ACC> MF_DEVICE ACC multiply_add(ACC x, ACC y, ACC z)
{
    if constexpr (is_real<ACC>)
        return m_fma(x, y, z);
    else if constexpr (is_integer<ACC>)
        return m_iadd(m_imul(x, y), z);
    else
        return ACC{m_fma(-x.im, y.im, m_fma(x.re, y.re, z.re)), m_fma(x.im, y.re, m_fma(x.re, y.im, z.im))};
}

template <class ACC> struct gemm_simple_shared {
    static constexpr int TILE = 64, STEP = 16, PAD = 1;
    ACC a[STEP][TILE + PAD], b[STEP][TILE + PAD];
};

// 256 threads compute 64 x 64 results, 4 x 4 each, in steps of 16 along k. A_K, B_K: consecutive threads load along k
// (where that is the contiguous dim), else along the rows of a, the columns of b. `shared`: a gemm_simple_shared<ACC>,
// free again after the return.
template <template <int> class Chain, class TA, class TB, class ACC, int ND, bool A_K, bool B_K, int AA, int AB,
          class A>
MF_DEVICE void gemm_simple(const A &a, u32 number, void *shared)
{
    typedef gemm_simple_shared<ACC> tiles;
    constexpr int TILE = tiles::TILE, STEP = tiles::STEP;
    typedef Chain<1> chain;
    typedef typename chain::index I;
    auto &as = ((tiles *)shared)->a, &bs = ((tiles *)shared)->b;
    int t = (int)threadIdx.x, tx = t % 16, ty = t / 16;
    i64 m = a.chain.shape[ND - 2], n = a.chain.shape[ND - 1], block = number;
    i64 tiles_n = (n + TILE - 1) / TILE, tiles_m = (m + TILE - 1) / TILE;
    i64 n0 = block % tiles_n * TILE, m0 = block / tiles_n % tiles_m * TILE, batch = block / tiles_n / tiles_m;
    const TA *pa = (const TA *)a.a;
    const TB *pb = (const TB *)a.b;
    point<I, ND> p;
    gemm_batch<ND>(a, batch, p, pa, pb);
    ACC sum[4][4] = {};
    for (i64 k0 = 0; k0 < a.k; k0 += STEP) {
        MF_UNROLL
        for (int i = 0; i < TILE * STEP / 256; i++) {
            int e = t + 256 * i;
            int ka = A_K ? e % STEP : e / TILE, ma = A_K ? e / STEP : e % TILE;
            int kb = B_K ? e % STEP : e / TILE, nb = B_K ? e / STEP : e % TILE;
            pack<TA, 1> xa = {};
            pack<TB, 1> xb = {};
            if (m0 + ma < m && k0 + ka < a.k)
                load_pack<AA>(xa, pa + (m0 + ma) * a.a_stride[ND - 2] + (k0 + ka) * a.a_stride[ND - 1]);
            if (n0 + nb < n && k0 + kb < a.k)
                load_pack<AB>(xb, pb + (k0 + kb) * a.b_stride[ND - 2] + (n0 + nb) * a.b_stride[ND - 1]);
            as[ka][ma] = convert<ACC>(widen(xa.v[0]));
            bs[kb][nb] = convert<ACC>(widen(xb.v[0]));
        }
        __syncthreads();
        MF_UNROLL
        for (int k = 0; k < STEP; k++) {
            ACC x[4], y[4];
            MF_UNROLL
            for (int i = 0; i < 4; i++) {
                x[i] = as[k][ty + 16 * i];
                y[i] = bs[k][tx + 16 * i];
            }
            MF_UNROLL
            for (int i = 0; i < 4; i++)
                MF_UNROLL
            for (int j = 0; j < 4; j++)
                sum[i][j] = multiply_add(x[i], y[j], sum[i][j]);
        }
        __syncthreads();
    }
    MF_UNROLL
    for (int i = 0; i < 4; i++)
        MF_UNROLL
    for (int j = 0; j < 4; j++) {
        i64 row = m0 + ty + 16 * i, column = n0 + tx + 16 * j;
        if (row >= m || column >= n)
            continue;
        typename chain::inputs in;
        p.c[ND - 2] = (I)row;
        p.c[ND - 1] = (I)column;
        in.acc[0] = sum[i][j];
        chain::template load<0, true>(a.chain, p, in);
        chain::finish(a.chain, p, in, typename chain::row{});
    }
}

} // namespace mf

#endif
