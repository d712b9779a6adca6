// What gemm_bench checks and times: epilogues, configurations, shapes, operands, and the references they are compared
// with.
#ifndef MATHFUSE_BENCH_GEMM_CASES_CUH
#define MATHFUSE_BENCH_GEMM_CASES_CUH

#include "device/gemm_sm80.cuh"
#include "device/gemm_sm90.cuh"

#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include <unistd.h>

using mf::i32;
using mf::i64;
using mf::u16;
using mf::u32;
using mf::u64;

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        int status_ = (int)(call);                                                                                     \
        if (status_ != 0) {                                                                                            \
            printf("FAILED %s = %d (%s) at line %d\n", #call, status_, cudaGetErrorString(cudaGetLastError()),         \
                   __LINE__);                                                                                          \
            fflush(stdout);                                                                                            \
            _exit(3);                                                                                                  \
        }                                                                                                              \
    } while (0)

// ---- epilogues ----

enum { BARE, BIAS_GELU, BIAS_SILU_RESIDUAL, ROW_SCALE, EPILOGUES };
static const char *const epilogue_names[] = {"bare", "bias+gelu", "bias+silu+residual", "row scale"};

struct vectors {
    const float *row_scale;
    const mf::bf16 *bias;
};

struct bare : mf::epilogue_none {
    typedef vectors args;
};

__device__ __forceinline__ float times_sigmoid(float x, float u)
{
    return __fdividef(x, 1.0f + __expf(-u));
}

struct bias_gelu : mf::epilogue_none {
    typedef vectors args;
    static constexpr int n_vectors = 1;
    static MF_DEVICE float n_vector(const args &a, int, i32 col) { return mf::widen(a.bias[col]); }
    static MF_DEVICE float gelu(float x) { return times_sigmoid(x, x * (1.5957691216f + 0.0713548162726f * x * x)); }
    static MF_DEVICE void apply2(const args &, const mf::epilogue_ports<bias_gelu> &in, float &v0, float &v1)
    {
        v0 = gelu(v0 + in.across[0][0]);
        v1 = gelu(v1 + in.across[0][1]);
    }
};

template <class T> struct bias_silu_residual : mf::epilogue_none {
    typedef vectors args;
    typedef T tile_type;
    static constexpr int n_vectors = 1, tiles = 1;
    static MF_DEVICE float n_vector(const args &a, int, i32 col) { return mf::widen(a.bias[col]); }
    static MF_DEVICE float silu(float x) { return times_sigmoid(x, x); }
    static MF_DEVICE void apply2(const args &, const mf::epilogue_ports<bias_silu_residual> &in, float &v0, float &v1)
    {
        v0 = silu(v0 + in.across[0][0]) + in.tile[0][0];
        v1 = silu(v1 + in.across[0][1]) + in.tile[0][1];
    }
};

struct row_scale : mf::epilogue_none {
    typedef vectors args;
    static constexpr int m_vectors = 1;
    static MF_DEVICE float m_vector(const args &a, int, i32 row) { return a.row_scale[row]; }
    static MF_DEVICE void apply2(const args &, const mf::epilogue_ports<row_scale> &in, float &v0, float &v1)
    {
        v0 *= in.down[0];
        v1 *= in.down[0];
    }
};

// ---- configurations ----

struct variant {
    const void *kernel = nullptr;
    int bytes, bm, bn, cluster, box_a, box_b, out_size;
    bool f16, a_mn, b_mn;
    int alignment = 8; // in elements, of every base and stride
    bool sm80 = false; // the mma.sync kernel
};

template <class C, class E> static variant variant_of()
{
    variant v;
    v.kernel = (const void *)mf::gemm90_kernel<C, E>;
    v.bytes = mf::gemm90_layout<C, E>::BYTES;
    v.bm = C::BM, v.bn = C::BN, v.cluster = C::CLUSTER;
    v.box_a = mf::gemm90_box<C>(mf::GEMM90_A), v.box_b = mf::gemm90_box<C>(mf::GEMM90_B);
    v.out_size = C::R::size(0);
    v.f16 = mf::same<typename C::T, mf::f16>, v.a_mn = C::A_MN, v.b_mn = C::B_MN;
    return v;
}

struct configuration {
    const char *name;
    bool timed;
    variant by[2][EPILOGUES]; // B stored (n, k), (k, n)
};

template <int BM, int BN, int STAGES, int CLUSTER, bool PINGPONG, int BUFFERS>
static configuration timed(const char *name)
{
    typedef mf::bf16 T;
    typedef mf::gemm90_config<T, mf::one_result<T>, BM, BN, STAGES, CLUSTER, PINGPONG, false, false, BUFFERS> K;
    typedef mf::gemm90_config<T, mf::one_result<T>, BM, BN, STAGES, CLUSTER, PINGPONG, false, true, BUFFERS> MN;
    configuration c{name, true, {}};
    c.by[0][BARE] = variant_of<K, bare>();
    c.by[1][BARE] = variant_of<MN, bare>();
    c.by[1][BIAS_GELU] = variant_of<MN, bias_gelu>();
    c.by[1][BIAS_SILU_RESIDUAL] = variant_of<MN, bias_silu_residual<T>>();
    return c;
}

// Only checked: the other types and layouts.
template <class T, class OUT, bool A_MN, bool PINGPONG> static configuration checked(const char *name)
{
    typedef mf::gemm90_config<T, mf::one_result<OUT>, 128, 128, 4, 1, PINGPONG, A_MN, false, 2> K;
    typedef mf::gemm90_config<T, mf::one_result<OUT>, 128, 128, 4, 1, PINGPONG, A_MN, true, 2> MN;
    configuration c{name, false, {}};
    c.by[0][ROW_SCALE] = variant_of<K, row_scale>();
    c.by[1][BIAS_GELU] = variant_of<MN, bias_gelu>();
    if constexpr (sizeof(OUT) == 2)
        c.by[0][BIAS_SILU_RESIDUAL] = variant_of<K, bias_silu_residual<T>>();
    return c;
}

template <class C, class E> static variant variant80_of(int alignment)
{
    variant v;
    v.kernel = (const void *)mf::gemm80_kernel<C, E>;
    v.bytes = C::BYTES;
    v.bm = C::BM, v.bn = C::BN, v.cluster = 1;
    v.box_a = v.box_b = 0;
    v.out_size = sizeof(typename C::OUT);
    v.f16 = mf::same<typename C::T, mf::f16>, v.a_mn = C::A_MN, v.b_mn = C::B_MN;
    v.alignment = alignment;
    v.sm80 = true;
    return v;
}

template <class T, class OUT, int STAGES, bool A_MN, int ALIGNMENT> static configuration checked80(const char *name)
{
    constexpr int E = ALIGNMENT == 8 ? 8 : 1;
    typedef mf::gemm80_config<T, OUT, STAGES, A_MN, false, ALIGNMENT, ALIGNMENT, E> K;
    typedef mf::gemm80_config<T, OUT, STAGES, A_MN, true, ALIGNMENT, ALIGNMENT, E> MN;
    configuration c{name, false, {}};
    c.by[0][BARE] = variant80_of<K, bare>(ALIGNMENT);
    c.by[0][ROW_SCALE] = variant80_of<K, row_scale>(ALIGNMENT);
    c.by[1][BIAS_GELU] = variant80_of<MN, bias_gelu>(ALIGNMENT);
    c.by[1][BIAS_SILU_RESIDUAL] = variant80_of<MN, bias_silu_residual<T>>(ALIGNMENT);
    return c;
}

static std::vector<configuration> configurations()
{
    return {
        timed<128, 128, 4, 1, false, 2>("plain 128x128 s4"),
        timed<128, 256, 4, 1, false, 2>("coop 128x256 s4"),
        timed<128, 256, 4, 2, false, 2>("coop 128x256 s4 c2"),
        timed<128, 256, 3, 2, false, 4>("coop 128x256 s3 c2 b4"),
        timed<256, 128, 4, 2, false, 2>("coop 256x128 s4 c2"),
        timed<256, 128, 3, 2, false, 4>("coop 256x128 s3 c2 b4"),
        timed<128, 128, 5, 1, true, 4>("ping 128x128 s5"),
        timed<128, 128, 5, 2, true, 4>("ping 128x128 s5 c2"),
        timed<128, 192, 4, 1, true, 4>("ping 128x192 s4"),
        checked<mf::f16, mf::f16, false, false>("f16"),
        checked<mf::bf16, mf::bf16, true, true>("bf16 (k,m) ping"),
        checked<mf::bf16, float, false, true>("bf16 to f32 ping"),
        checked<mf::f16, float, true, false>("f16 (k,m) to f32"),
        checked80<mf::bf16, mf::bf16, 4, false, 8>("mma bf16"),
        checked80<mf::f16, mf::f16, 3, true, 4>("mma f16 (k,m) by 4"),
        checked80<mf::bf16, float, 4, false, 2>("mma bf16 to f32 by 2"),
        checked80<mf::f16, mf::f16, 4, true, 1>("mma f16 (k,m) by 1"),
    };
}

// ---- data ----

struct shape {
    i64 m, n, k;
};
static const shape timed_shapes[] = {{8192, 8192, 8192},  {4096, 14336, 4096}, {4096, 4096, 14336},
                                     {16384, 1024, 1024}, {8192, 512, 512},    {512, 4096, 4096}};
static const shape checked_shapes[] = {{128, 128, 64},    {256, 256, 256}, {1024, 1024, 512},
                                       {257, 200, 72},    {129, 136, 8},   {300, 264, 999},
                                       {1000, 1031, 517}, {1, 9, 3},       {4100, 3000, 200}};
constexpr int TIMED = sizeof timed_shapes / sizeof *timed_shapes;

__device__ __forceinline__ float noise(u64 i, u32 seed)
{
    u64 z = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xd1b54a32d192ed03ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (float)(u32)(z >> 40) * (2.0f / 16777216.0f) - 1.0f;
}

// Columns from `cols` on are padding: NaN, so that a kernel that reads them shows.
__global__ void fill(u16 *p, bool f16, i64 rows, i64 cols, i64 ld, u32 seed)
{
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < rows * ld; i += (i64)gridDim.x * blockDim.x) {
        float x = i % ld < cols ? noise(i, seed) : __int_as_float(0x7fc00000);
        p[i] = f16 ? mf::rounding<mf::f16, false>::of(x).bits : mf::rounding<mf::bf16, false>::of(x).bits;
    }
}

__global__ void fill_floats(float *p, i64 n, u32 seed)
{
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x)
        p[i] = noise(i, seed);
}

__device__ __forceinline__ float load16(const u16 *p, bool f16)
{
    return f16 ? mf::widen(mf::f16{*p}) : mf::widen(mf::bf16{*p});
}

// The products in f32, one thread per element: slow, plain, and independent of any library's conventions.
__global__ void reference_products(float *out, const u16 *a, const u16 *b, bool f16, shape s, i64 a_row, i64 a_k,
                                   i64 b_col, i64 b_k)
{
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < s.m * s.n; i += (i64)gridDim.x * blockDim.x) {
        i64 row = i / s.n, col = i % s.n;
        float sum = 0;
        for (i64 k = 0; k < s.k; k++)
            sum = fmaf(load16(a + row * a_row + k * a_k, f16), load16(b + col * b_col + k * b_k, f16), sum);
        out[i] = sum;
    }
}

struct verdict {
    double error2, norm2;
    unsigned long long first; // linear index of the first wrong element
    unsigned long long wrong;
    unsigned long long spilled; // padding that was written
};

__device__ double reference_epilogue(double x, int epilogue, vectors v, i64 row, i64 col, double residual)
{
    if (epilogue == BIAS_GELU) {
        x += mf::widen(v.bias[col]);
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    }
    if (epilogue == BIAS_SILU_RESIDUAL) {
        x += mf::widen(v.bias[col]);
        return x / (1 + exp(-x)) + residual;
    }
    return epilogue == ROW_SCALE ? x * v.row_scale[row] : x;
}

__global__ void compare(verdict *v, const void *d, int out_size, bool f16, i64 ld, const float *products, vectors x,
                        const u16 *residual, i64 ld_residual, int epilogue, shape s)
{
    double error2 = 0, norm2 = 0;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < s.m * ld; i += (i64)gridDim.x * blockDim.x) {
        i64 row = i / ld, col = i % ld;
        if (col >= s.n) {
            bool kept = out_size == 4 ? ((const u32 *)d)[i] == 0xffffffffu : ((const u16 *)d)[i] == 0xffff;
            if (!kept)
                atomicAdd(&v->spilled, 1ull);
            continue;
        }
        double r = reference_epilogue(products[row * s.n + col], epilogue, x, row, col,
                                      load16(residual + row * ld_residual + col, f16));
        double got = out_size == 4 ? ((const float *)d)[i] : load16((const u16 *)d + i, f16);
        double error = fabs(got - r);
        double allowed = fabs(r) / (out_size == 4 ? 1e5 : f16 ? 1500 : 200) + 2e-4 * sqrt((double)s.k);
        if (!(error <= allowed)) {
            atomicMin(&v->first, (unsigned long long)i);
            atomicAdd(&v->wrong, 1ull);
        }
        error2 += error * error;
        norm2 += r * r;
    }
    atomicAdd(&v->error2, error2);
    atomicAdd(&v->norm2, norm2);
}

static void *device_bytes(size_t bytes)
{
    void *p;
    CHECK(cudaMalloc(&p, bytes + 4096));
    return p;
}

static i64 padded(i64 n)
{
    return (n + 7) / 8 * 8;
}

// The operands of one shape; `sets` of them are rotated so that none is found in L2.
struct operands {
    bool f16, a_mn, b_mn;
    shape s;
    i64 lda, ldb, ldd, ldt;
    std::vector<u16 *> a, b, t;
    std::vector<void *> d;
    vectors v;
    float *products;

    // `alignment`: what every base and leading dimension is a multiple of, and of no more, when padded.
    operands(shape shape_, bool f16_, bool a_mn_, bool b_mn_, int out_size, int sets, bool pad, int alignment = 8)
        : f16(f16_), a_mn(a_mn_), b_mn(b_mn_), s(shape_)
    {
        i64 shift = alignment % 8;
        lda = padded(a_mn ? s.m : s.k) + (pad ? 8 + shift : 0), ldb = padded(b_mn ? s.n : s.k) + (pad ? 16 + shift : 0);
        ldd = padded(s.n) + (pad ? 8 + shift : 0), ldt = padded(s.n) + (pad ? 24 + shift : 0);
        i64 a_rows = a_mn ? s.k : s.m, b_rows = b_mn ? s.k : s.n;
        for (int i = 0; i < sets; i++) {
            a.push_back((u16 *)own(a_rows * lda * 2) + shift);
            b.push_back((u16 *)own(b_rows * ldb * 2) + shift);
            t.push_back((u16 *)own(s.m * ldt * 2) + shift);
            d.push_back((char *)own(s.m * ldd * out_size) + shift * out_size);
            fill<<<1024, 256>>>(a[i], f16, a_rows, a_mn ? s.m : s.k, lda, 1 + 10 * i);
            fill<<<1024, 256>>>(b[i], f16, b_rows, b_mn ? s.n : s.k, ldb, 2 + 10 * i);
            fill<<<1024, 256>>>(t[i], f16, s.m, s.n, ldt, 3 + 10 * i);
        }
        u16 *bias = (u16 *)own(s.n * 2);
        float *scale = (float *)own(s.m * 4);
        fill<<<64, 256>>>(bias, false, 1, s.n, s.n, 4);
        fill_floats<<<64, 256>>>(scale, s.m, 5);
        v = vectors{scale, (const mf::bf16 *)bias};
        products = (float *)own(s.m * s.n * 4);
        CHECK(cudaDeviceSynchronize());
    }
    operands(const operands &) = delete;
    ~operands()
    {
        for (void *p : owned)
            cudaFree(p);
    }

  private:
    std::vector<void *> owned;
    void *own(size_t bytes)
    {
        owned.push_back(device_bytes(bytes));
        return owned.back();
    }
};

#endif
