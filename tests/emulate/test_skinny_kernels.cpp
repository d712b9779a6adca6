// gemm_skinny.cuh through the emulator against products in double precision: layouts, splits of k, rows and columns that
// fill no tile, batches whose factors repeat.
#include "mathfuse/device/emulate.h"
#include "device/gemm_skinny.cuh"
#include "expect.h"

using namespace mf;

enum { ND = 3, OPERANDS = 2 };
typedef chain_args<ND, OPERANDS, false> args;

// What an emitter would write for max(a @ b + bias, -0.25): operand 0 the bias, 1 the result.
template <int V> struct chain {
    typedef i32 index;
    typedef mf::point<index, ND> point;
    struct inputs {
        float acc[V];
        pack<float, V> x0;
    };
    struct row {
    };
    template <int P, bool CACHED> static MF_DEVICE void load(const args &a, const point &p, inputs &in)
    {
        load_pack<4>(in.x0, (const float *)a.data[0] + p.c[2]);
    }
    static MF_DEVICE void finish(const args &a, const point &p, const inputs &in, const row &)
    {
        pack<float, V> y;
        for (int i = 0; i < V; i++)
            y.v[i] = in.acc[i] + in.x0.v[i] > -0.25f ? in.acc[i] + in.x0.v[i] : -0.25f;
        store_pack<4>((float *)a.data[1] + p.c[0] * a.stride[1][0] + p.c[1] * a.stride[1][1] + p.c[2], y);
    }
};

typedef gemm_args<ND, args> kernel_args;

template <class C, int V> static void multiply(const kernel_args a)
{
    MF_DYNAMIC_SHARED(unsigned char, shared);
    gemm_skinny<chain, C, ND, V>(a, blockIdx.x, shared);
}

// Extents of a problem; batches of a and of b: 1 repeats the only one.
struct extents {
    int batch, m, n, k, a_batch, b_batch;
};

template <class T> static std::vector<T> random_numbers(size_t count)
{
    std::vector<T> all(count);
    for (T &x : all)
        x = narrow<T>((float)random_number());
    return all;
}

// Rows of a and of the result lie further apart than they are long.
template <class C, int V> static void expect_product(const char *what, extents e)
{
    typedef typename C::T T;
    const int lda = e.k + 8, ldb = (C::B_ROWS ? e.n : e.k) + 8, ldd = e.n + 3;
    const size_t b_lines = (size_t)(C::B_ROWS ? e.k : e.n);
    std::vector<T> a = random_numbers<T>((size_t)(e.a_batch * e.m * lda)),
                   b = random_numbers<T>((size_t)e.b_batch * b_lines * (size_t)ldb);
    std::vector<float> bias = random_numbers<float>((size_t)e.n), d((size_t)(e.batch * e.m * ldd), 7.0f);
    kernel_args k = {};
    k.k = e.k;
    k.a = a.data();
    k.b = b.data();
    const i64 a_stride[ND] = {e.a_batch > 1 ? e.m * lda : 0, lda, 1};
    const i64 b_stride[ND] = {e.b_batch > 1 ? (i64)b_lines * ldb : 0, C::B_ROWS ? ldb : 1, C::B_ROWS ? 1 : ldb};
    const i64 shape[ND] = {e.batch, e.m, e.n}, d_stride[ND] = {e.m * ldd, ldd, 1};
    for (int i = 0; i < ND; i++) {
        k.a_stride[i] = a_stride[i];
        k.b_stride[i] = b_stride[i];
        k.chain.shape[i] = shape[i];
        k.chain.stride[0][i] = i == 2;
        k.chain.stride[1][i] = d_stride[i];
    }
    k.chain.data[0] = bias.data();
    k.chain.data[1] = d.data();
    const unsigned blocks = (unsigned)(e.batch * ((e.n + C::N - 1) / C::N) * C::SPLIT);
    const char *error = emulate::launch(multiply<C, V>, blocks, C::THREADS, (size_t)(C::SPLIT * C::BYTES), k);
    EXPECT(!error, "%s: %s", what, error);
    double worst = 0;
    int beyond = 0;
    for (int at = 0; at < e.batch * e.m * ldd; at++) {
        const int column = at % ldd, row = at / ldd % e.m, batch = at / ldd / e.m;
        if (column >= e.n) {
            beyond += d[(size_t)at] != 7.0f;
            continue;
        }
        double sum = (double)bias[(size_t)column];
        for (int l = 0; l < e.k; l++)
            sum += (double)widen(a[(size_t)(batch * a_stride[0] + row * lda + l)]) *
                   (double)widen(b[(size_t)(batch * b_stride[0] + l * b_stride[1] + column * b_stride[2])]);
        worst = fmax(worst, fabs((double)d[(size_t)at] - fmax(sum, -0.25)));
        if (d[(size_t)at] != d[(size_t)at])
            worst = INFINITY;
    }
    EXPECT(worst <= 2e-5, "%s %dx%dx%d: error %g", what, e.m, e.n, e.k, worst);
    EXPECT(!beyond, "%s: %d elements beyond the rows were written", what, beyond);
}

// Tiles small enough for a cluster's shared memory: M, N, K, STAGES, ACROSS, ALONG, SPLIT, B_ROWS.
template <class T, bool B_ROWS> static void expect_layout(const char *what)
{
    typedef gemm_skinny_config<T, 16, 64, 32, 3, 4, 1, 1, B_ROWS> wide;
    typedef gemm_skinny_config<T, 32, 32, 64, 2, 1, 4, 1, B_ROWS> deep;
    typedef gemm_skinny_config<T, 16, 32, 32, 3, 2, 2, 2, B_ROWS> pair;
    typedef gemm_skinny_config<T, 48, 32, 32, 2, 2, 2, 4, B_ROWS> four;
    expect_product<wide, 8>(what, {1, 16, 128, 128, 1, 1});
    expect_product<wide, 4>(what, {1, 1, 72, 104, 1, 1}); // k ends within a step, columns within a tile
    expect_product<deep, 2>(what, {2, 20, 32, 200, 2, 1});
    expect_product<deep, 8>(what, {1, 32, 40, 8, 1, 1}); // less than a step
    expect_product<pair, 8>(what, {1, 9, 64, 256, 1, 1});
    expect_product<pair, 1>(what, {3, 16, 48, 96, 1, 3});
    expect_product<four, 4>(what, {1, 33, 64, 160, 1, 1}); // the last block has a step less
    expect_product<four, 8>(what, {1, 48, 32, 136, 1, 1}); // and here none at all
}

int main()
{
    expect_layout<bf16, true>("bf16 along the columns");
    expect_layout<f16, false>("f16 along k");
    // Any number of columns where they are not contiguous.
    expect_product<gemm_skinny_config<bf16, 16, 32, 64, 3, 1, 2, 2, false>, 1>("odd", {1, 5, 37, 128, 1, 1});
    return finish("skinny kernels");
}
