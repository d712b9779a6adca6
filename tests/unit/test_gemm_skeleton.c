/* The matmul skeletons compile with NVRTC, as an emitter would instantiate them, for every architecture they serve, and
 * keep everything in registers. Needs NVRTC, no GPU; without NVRTC nothing runs. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core.h"
#include "fusion.h"
#include "jit_elf.h"
#include "loader.h"

/* An epilogue with every kind of port, the way an emitter writes one. */
static const char epilogue[] =
    "struct chain : mf::epilogue_none {\n"
    "    struct args { const mf::bf16 *bias; const float *scale; float *result; const float *factor; };\n"
    "    typedef mf::%s tile_type;\n"
    "    static constexpr int n_vectors = 1, m_vectors = 1, scalars = 1, tiles = %d;\n"
    "    static MF_DEVICE float scalar(const args &a, int) { return *a.factor; }\n"
    "    static MF_DEVICE mf::u32 *largest(const args &a) { return (mf::u32 *)a.result; }\n"
    "    static MF_DEVICE float n_vector(const args &a, int, mf::i32 col) { return mf::widen(a.bias[col]); }\n"
    "    static MF_DEVICE float m_vector(const args &a, int, mf::i32 row) { return a.scale[row]; }\n"
    "    static MF_DEVICE mf::u32 *out(const args &a, mf::i32 row) { return (mf::u32 *)a.result + row * 1024ll; }\n"
    "    static MF_DEVICE float value(const mf::epilogue_ports<chain> &in, float v, int i)\n"
    "    {\n"
    "        v = v * in.down[0] * in.scalar[0] + in.across[0][i];\n"
    "        v = __fdividef(v, 1.0f + __expf(-v));\n"
    "        if constexpr (tiles > 0)\n"
    "            v += in.tile[0][i];\n"
    "        return v;\n"
    "    }\n"
    "    static MF_DEVICE void apply2(const args &, const mf::epilogue_ports<chain> &in, float &v0, float &v1)\n"
    "    {\n"
    "        v0 = value(in, v0, 0);\n"
    "        v1 = value(in, v1, 1);\n"
    "    }\n"
    "};\n";

/* What is stored: one result of type OUT; an fp8 one; one of type OUT and a mask; one divided by its row's norm. */
static const char several[] =
    "template <class OUT> using plain = mf::one_result<OUT>;\n"
    "template <class OUT> struct scaled : plain<OUT> {\n"
    "    static constexpr bool LARGEST = true;\n"
    "    static constexpr int WIDEST = chain::tiles > 0 ? 2 : (int)sizeof(OUT);\n"
    "    template <class E> static MF_DEVICE void finish(const typename E::args &a, const mf::epilogue_ports<E> &in,\n"
    "                                                    float v0, float v1, mf::u32 (&bits)[1][2],\n"
    "                                                    mf::u32 &largest)\n"
    "    {\n"
    "        E::apply2(a, in, v0, v1);\n"
    "        mf::pack2<OUT, true>(bits[0], v0 * in.scalar[0], v1 * in.scalar[0]);\n"
    "        mf::largest2(largest, in, v0, v1);\n"
    "    }\n"
    "};\n"
    "template <class OUT> struct masked {\n"
    "    static constexpr bool LARGEST = false;\n"
    "    static constexpr int COUNT = 2, WIDEST = (int)sizeof(OUT);\n"
    "    static MF_HOST_DEVICE constexpr int size(int i) { return i == 0 ? WIDEST : 1; }\n"
    "    template <class E> static MF_DEVICE void finish(const typename E::args &a, const mf::epilogue_ports<E> &in,\n"
    "                                                    float v0, float v1, mf::u32 (&bits)[2][2], mf::u32 &)\n"
    "    {\n"
    "        mf::pack2<mf::b8>(bits[1], (mf::i32)(v0 > 0), (mf::i32)(v1 > 0));\n"
    "        E::apply2(a, in, v0, v1);\n"
    "        mf::pack2<OUT>(bits[0], v0, v1);\n"
    "    }\n"
    "};\n"
    "template <class OUT> struct normed : plain<OUT> {\n"
    "    struct row { float sum, scale; };\n"
    "    static constexpr int PHASES = 1, VALUES = 1;\n"
    "    static MF_HOST_DEVICE constexpr int values(int) { return 1; }\n"
    "    template <int> static MF_DEVICE void start(row &r) { r.sum = 0; }\n"
    "    template <int, class E> static MF_DEVICE void add(const typename E::args &a, const mf::epilogue_ports<E> "
    "&in,\n"
    "                                                      float v0, float v1, row &r)\n"
    "    {\n"
    "        E::apply2(a, in, v0, v1);\n"
    "        r.sum += v0 * v0 + v1 * v1;\n"
    "    }\n"
    "    template <int, class F> static MF_DEVICE void across(row &r, F &f)\n"
    "    {\n"
    "        r.sum = f.template over<mf::op_sum, 0>(r.sum);\n"
    "    }\n"
    "    template <int, class E> static MF_DEVICE void derive(const typename E::args &, const mf::epilogue_ports<E> "
    "&,\n"
    "                                                         row &r)\n"
    "    {\n"
    "        r.scale = rsqrtf(r.sum);\n"
    "    }\n"
    "    template <class E> static MF_DEVICE void finish_row(const typename E::args &a, const mf::epilogue_ports<E> "
    "&in,\n"
    "                                                        const row &r)\n"
    "    {\n"
    "        a.result[in.row] = r.scale;\n"
    "    }\n"
    "    template <class E> static MF_DEVICE void finish(const typename E::args &a, const mf::epilogue_ports<E> &in,\n"
    "                                                    float v0, float v1, mf::u32 (&bits)[1][2], const row &r)\n"
    "    {\n"
    "        E::apply2(a, in, v0, v1);\n"
    "        mf::pack2<OUT>(bits[0], v0 * r.scale, v1 * r.scale);\n"
    "    }\n"
    "};\n";

static const char kernel90[] =
    "#include \"device/gemm_sm90.cuh\"\n%s%s"
    "typedef mf::gemm90_config<mf::%s, %s> config;\n"
    "extern \"C\" __global__ void __launch_bounds__(mf::GEMM90_THREADS, 1)\n"
    "    matmul(const __grid_constant__ mf::tensor_map a, const __grid_constant__ mf::tensor_map b,\n"
    "           const __grid_constant__ mf::gemm90_maps<config::R::COUNT> d, const __grid_constant__ mf::tensor_map "
    "t,\n"
    "           const __grid_constant__ mf::gemm90_args<chain> p)\n"
    "{\n"
    "    extern __shared__ __align__(1024) unsigned char memory[];\n"
    "    mf::gemm90<config, chain>(memory, a, b, b, d.map, t, p);\n"
    "}\n";

static const char kernel80[] = "#include \"device/gemm_sm80.cuh\"\n%s%.0s"
                               "extern \"C\" __global__ void __launch_bounds__(mf::GEMM80_THREADS, 1)\n"
                               "    matmul(const mf::gemm80_args<chain> p)\n"
                               "{\n"
                               "    extern __shared__ __align__(16) unsigned char memory[];\n"
                               "    mf::gemm80<mf::gemm80_config<mf::%s, %s>, chain>(memory, p);\n"
                               "}\n";

static bool have_nvrtc(void)
{
#ifndef MFI_WITH_CUDA
    cr_skip_test("built without CUDA");
#endif
    const mfi_library_info *info = mfi_library_load(MFI_LIB_NVRTC);
    if (!info->found)
        fprintf(stderr, "no NVRTC here, nothing is compiled: %s\n", info->missing);
    return info->found;
}

/* Compiles one instantiation; any compiler remark on spills, setmaxnreg or serialised wgmma fails the test. */
static void expect_clean(const char *kernel, const char *arch, const char *type, int tiles, const char *parameters)
{
    char chain[2048], source[12288];
    const char *tile = !strcmp(type, "f16") ? "f16" : "bf16";
    const char *const options[] = {"--ptxas-options=-v", NULL};
    void *cubin = NULL;
    size_t bytes = 0;
    char *log = NULL;
    int registers = -1, shared = -1, local = -1;
    snprintf(chain, sizeof chain, epilogue, tile, tiles);
    snprintf(source, sizeof source, kernel, chain, several, type, parameters);
    mf_status status = mfi_jit_build(&cubin, &bytes, MF_CUBIN, &log, arch, "matmul", source, options);
    cr_expect_eq(status, MF_OK, "%s <%s, %s>: %s", arch, type, parameters, mf_error_message(status));
    if (status == MF_OK) {
        mfi_cubin_resources(cubin, bytes, "matmul", &registers, &shared, &local);
        cr_expect_eq(local, 0, "%s <%s, %s>: %d bytes of local memory", arch, type, parameters, local);
        const char *remark = log ? strstr(log, "warning") : NULL;
        cr_expect(!remark, "%s <%s, %s>: %s", arch, type, parameters, remark ? remark : "");
        cr_expect(log && strstr(log, " 0 bytes spill stores, 0 bytes spill loads"),
                  "%s <%s, %s>: spills, or no report: %s", arch, type, parameters, log ? log : "");
    }
    mf_free(cubin);
    mf_free(log);
}

/* What is stored, BM, BN, STAGES, CLUSTER, PINGPONG, A_MN, B_MN, BUFFERS, TWIN, BATCHED, WIDE */
Test(gemm_skeleton, sm90)
{
    static const struct {
        const char *type;
        int tiles;
        const char *parameters;
    } cases[] = {
        {"bf16", 1, "plain<mf::bf16>, 128, 128, 4, 1, false, false, false, 2, false"},
        {"bf16", 1, "plain<mf::bf16>, 128, 256, 3, 2, false, false, true, 4, false"},
        {"f16", 1, "plain<mf::f16>, 256, 128, 3, 2, false, false, true, 4, false"},
        {"bf16", 1, "plain<mf::bf16>, 128, 128, 5, 2, true, false, true, 4, false"},
        {"bf16", 1, "plain<mf::bf16>, 128, 192, 4, 1, true, true, false, 3, false"},
        {"f16", 0, "plain<float>, 128, 192, 4, 1, false, true, true, 2, false"},
        {"bf16", 0, "plain<mf::f16>, 128, 256, 3, 1, false, false, false, 2, false"},
        {"bf16", 1, "plain<mf::bf16>, 64, 256, 4, 2, true, false, true, 3, false"},
        {"f16", 0, "plain<float>, 128, 128, 5, 2, true, false, true, 0, false"},
        {"bf16", 1, "plain<mf::bf16>, 128, 256, 3, 2, false, false, true, 4, true"},
        {"bf16", 0, "plain<float>, 64, 256, 4, 1, true, false, false, 4, true"},
        {"bf16", 0, "scaled<mf::e4m3>, 128, 256, 4, 2, false, false, true, 2, false"},
        {"bf16", 1, "scaled<mf::e4m3>, 128, 128, 5, 1, true, false, true, 4, false"},
        {"bf16", 0, "scaled<mf::e5m2>, 128, 192, 4, 1, true, false, true, 3, false"},
        {"bf16", 1, "masked<mf::bf16>, 128, 192, 4, 1, true, false, true, 4, false"},
        {"f16", 0, "masked<float>, 128, 256, 3, 2, false, false, true, 4, false"},
        {"e4m3", 0, "scaled<mf::e4m3>, 128, 128, 5, 2, true, false, false, 4, false"},
        {"e4m3", 1, "plain<mf::bf16>, 256, 128, 4, 2, false, false, false, 2, false"},
        {"e4m3", 0, "plain<mf::bf16>, 128, 256, 4, 2, false, false, false, 2, false"},
        {"e5m2", 0, "plain<float>, 64, 256, 4, 1, true, false, false, 4, false"},
        {"bf16", 1, "normed<mf::bf16>, 128, 128, 4, 1, true, false, true, 4, false, false, 8"},
        {"f16", 0, "normed<mf::f16>, 128, 256, 3, 1, false, true, true, 2, false, false, 5"},
        {"e4m3", 0, "normed<mf::bf16>, 128, 128, 5, 1, true, false, false, 3, false, false, 1"},
    };
    if (!have_nvrtc())
        return;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_clean(kernel90, "sm_90a", cases[i].type, cases[i].tiles, cases[i].parameters);
}

/* OUT, STAGES, A_MN, B_MN, A_VECTOR, B_VECTOR, E_VECTOR */
Test(gemm_skeleton, sm80)
{
    static const char *const architectures[] = {"sm_80", "sm_90a", "sm_100a"};
    static const struct {
        const char *type;
        int tiles;
        const char *parameters;
    } cases[] = {
        {"bf16", 1, "mf::bf16, 4, false, true, 8, 8, 8"},
        {"f16", 0, "float, 3, true, false, 4, 2, 8"},
        {"f16", 1, "mf::f16, 4, true, false, 1, 1, 1"},
    };
    if (!have_nvrtc())
        return;
    for (size_t a = 0; a < sizeof architectures / sizeof architectures[0]; a++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            expect_clean(kernel80, architectures[a], cases[i].type, cases[i].tiles, cases[i].parameters);
}
