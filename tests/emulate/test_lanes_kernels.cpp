// gemm_lanes.cuh through the emulator against products in double precision: types, tiles and parts, extents that fill none of
// them, strides, factors that repeat.
#include "mathfuse/device/emulate.h"
#include "device/gemm_lanes.cuh"
#include "numbers.h"

using namespace mf;

enum { ND = 4, OPERANDS = 1, D = 1 };
typedef chain_args<ND, OPERANDS, false> args;

// What an emitter would write for a @ b + a @ b, stored as it was summed up.
template <class ACC> struct doubled {
    template <int V> struct chain {
        typedef i32 index;
        struct inputs {
            ACC acc[V];
        };
        struct row {
        };
        template <int P, bool CACHED> static MF_DEVICE void load(const args &, const mf::point<index, ND> &, inputs &)
        {
        }
        static MF_DEVICE void finish(const args &a, const mf::point<index, ND> &p, const inputs &in, const row &)
        {
            i64 at = 0;
            for (int d = 0; d < ND; d++)
                at += p.c[d] * a.stride[0][d];
            ((ACC *)a.data[0])[at] = op_sum::combine(in.acc[0], in.acc[0]);
        }
    };
};

template <class C, class TA, class TB> static void multiply(const gemm_args<ND, args> a)
{
    MF_DYNAMIC_SHARED(unsigned char, shared);
    gemm_lanes<doubled<typename C::ACC>::template chain, C, TA, TB, ND, D, (int)sizeof(TA), (int)sizeof(TB)>(
        a, blockIdx.x, shared);
}

struct extents { // batch, products side by side, rows, columns, k
    int batch, products, m, n, k;
};

template <class T> static std::vector<T> random_numbers(size_t count)
{
    std::vector<T> all(count);
    for (T &x : all)
        x = from<T>(is_integer<compute_t<T>> ? complex(floor(9 * random_number()), 0)
                                             : complex(random_number(), random_number()));
    return all;
}

// Products are contiguous, in lines with a gap; `shared_b`: every batch has the same right factor.
template <class C, class TA = typename C::ACC, class TB = TA>
static void expect_products(const char *what, extents e, double tolerance, bool shared_b = false)
{
    typedef typename C::ACC ACC;
    const i64 line = e.products + 3, lines_a = (i64)e.m * e.k, lines_b = (i64)e.n * e.k, lines_d = (i64)e.m * e.n;
    std::vector<TA> x = random_numbers<TA>((size_t)(e.batch * lines_a * line));
    std::vector<TB> y = random_numbers<TB>((size_t)((shared_b ? 1 : e.batch) * lines_b * line));
    const ACC untouched = from<ACC>(77);
    std::vector<ACC> d((size_t)(e.batch * lines_d * line), untouched);
    const i64 shape[ND] = {e.batch, e.products, e.m, e.n}, d_stride[ND] = {lines_d * line, 1, e.n * line, line};
    const i64 a_stride[ND] = {lines_a * line, 1, e.k * line, line};                // rows, then k
    const i64 b_stride[ND] = {shared_b ? 0 : lines_b * line, 1, e.n * line, line}; // k, then columns
    gemm_args<ND, args> k = {};
    k.k = e.k;
    k.a = x.data();
    k.b = y.data();
    k.chain.data[0] = d.data();
    for (int i = 0; i < ND; i++) {
        k.chain.shape[i] = shape[i];
        k.chain.stride[0][i] = d_stride[i];
        k.a_stride[i] = a_stride[i];
        k.b_stride[i] = b_stride[i];
    }
    const int blocks =
        e.batch * ((e.products + C::LANES - 1) / C::LANES) * ((e.m + C::M - 1) / C::M) * ((e.n + C::N - 1) / C::N);
    const char *error = emulate::launch(multiply<C, TA, TB>, (unsigned)blocks, C::THREADS, (size_t)C::BYTES, k);
    EXPECT(!error, "%s: %s", what, error);
    double worst = 0;
    int beyond = 0;
    for (i64 at = 0; at < (i64)d.size(); at++) {
        const i64 l = at % line, column = at / line % e.n, row = at / line / e.n % e.m, b = at / line / lines_d;
        if (l >= e.products) {
            beyond += std::abs(to(d[(size_t)at]) - to(untouched)) != 0;
            continue;
        }
        complex sum = 0;
        for (i64 i = 0; i < e.k; i++)
            sum += to(x[(size_t)(b * a_stride[0] + l + row * a_stride[2] + i * a_stride[3])]) *
                   to(y[(size_t)(b * b_stride[0] + l + i * b_stride[2] + column * b_stride[3])]);
        const double error_here = std::abs(to(d[(size_t)at]) - 2.0 * sum);
        worst = error_here == error_here ? fmax(worst, error_here) : INFINITY;
    }
    EXPECT(worst <= tolerance, "%s, %d products %dx%dx%d: error %g", what, e.products, e.m, e.n, e.k, worst);
    EXPECT(!beyond, "%s: %d elements between the lines were written", what, beyond);
}

int main()
{
    expect_products<gemm_lanes_config<c64, 8, 16, 16, 4, 4, 2>>("c64 in parts", {1, 8, 16, 16, 64}, 1e-5);
    expect_products<gemm_lanes_config<c64, 8, 16, 16, 4, 4, 1>>("c64", {2, 19, 17, 31, 21}, 1e-5, true);
    expect_products<gemm_lanes_config<c64, 8, 4, 16, 2, 2, 2>>("c64, few rows", {1, 9, 3, 20, 7}, 1e-5);
    expect_products<gemm_lanes_config<c64, 8, 16, 16, 4, 4, 2>>("nothing to sum", {1, 9, 3, 5, 0}, 0);
    expect_products<gemm_lanes_config<float, 8, 16, 16, 4, 4, 2>>("f32 in parts", {3, 16, 20, 9, 33}, 1e-5);
#ifndef MF_EMULATE_CHECK // the same accesses, and slow there
    expect_products<gemm_lanes_config<c64, 8, 32, 32, 8, 4, 1>>("c64, large tiles", {1, 12, 40, 33, 19}, 1e-5);
    expect_products<gemm_lanes_config<c64, 8, 32, 16, 4, 4, 1>>("c64, tall tiles", {1, 8, 70, 5, 11}, 1e-5);
    expect_products<gemm_lanes_config<float, 8, 32, 32, 8, 8, 1>>("f32", {1, 11, 37, 35, 50}, 2e-5);
    expect_products<gemm_lanes_config<float, 8, 32, 32, 4, 4, 1>>("f32, many threads", {1, 8, 32, 32, 9}, 1e-5);
    expect_products<gemm_lanes_config<float, 8, 8, 32, 4, 4, 2>, f16>("f16", {1, 10, 5, 33, 40}, 1e-5);
    expect_products<gemm_lanes_config<float, 8, 16, 16, 4, 4, 2>, bf16, float>("bf16, f32", {1, 10, 5, 33, 40}, 1e-5);
    expect_products<gemm_lanes_config<c64, 8, 16, 16, 4, 4, 2>, float, c64>("f32, c64", {1, 10, 5, 33, 40}, 1e-5);
    expect_products<gemm_lanes_config<i32, 8, 16, 16, 4, 4, 2>>("i32", {1, 10, 5, 33, 40}, 0);
    expect_products<gemm_lanes_config<double, 8, 32, 16, 4, 4, 1>>("f64", {1, 10, 35, 33, 12}, 1e-14);
    expect_products<gemm_lanes_config<c128, 8, 16, 16, 4, 2, 1>>("c128", {1, 10, 18, 17, 13}, 1e-14);
    expect_products<gemm_lanes_config<c128, 8, 8, 8, 2, 2, 2>>("c128 in parts", {2, 9, 9, 7, 30}, 1e-14);
#endif
    return finish("lanes kernels");
}
