// How gemm_bench launches the generated matmul and cuBLASLt's over the same operands.
#ifndef MATHFUSE_BENCH_GEMM_LAUNCH_CUH
#define MATHFUSE_BENCH_GEMM_LAUNCH_CUH

#include "gemm_cases.cuh"

// ---- launching ----

static mf::tensor_map map_of(CUtensorMapDataType type, int size, void *base, i64 inner, i64 outer, i64 ld,
                             int box_outer)
{
    static int driver = 0;
    if (!driver)
        CHECK(cudaDriverGetVersion(&driver));
    CUtensorMap map;
    cuuint64_t dims[2] = {(cuuint64_t)inner, (cuuint64_t)outer}, strides[1] = {(cuuint64_t)ld * size};
    cuuint32_t box[2] = {(cuuint32_t)(128 / size), (cuuint32_t)box_outer}, steps[2] = {1, 1};
    CHECK(cuTensorMapEncodeTiled(&map, type, 2, base, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    mf::tensor_map out;
    static_assert(sizeof out == sizeof map, "");
    memcpy(&out, &map, sizeof map);
    // Up to 13.1 the driver sets a bit in the maps of small tensors that it should not.
    if (driver <= 13010 && outer * ld * size < 131072)
        out.opaque[1] &= ~(1ull << 21);
    return out;
}

struct launcher {
    const variant &v;
    mf::gemm90_args<bare> args; // the epilogues here share one `args`
    mf::gemm80_args<bare> args80;
    std::vector<mf::tensor_map> maps; // four per set
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};

    launcher(const variant &variant_, const operands &o) : v(variant_)
    {
        if (v.sm80)
            set_up80(o);
        else
            set_up90(o);
    }
    launcher(const launcher &) = delete;

    void set_up80(const operands &o)
    {
        const shape &s = o.s;
        args80 = {o.a[0],
                  o.b[0],
                  o.t[0],
                  o.d[0],
                  o.a_mn ? 1 : o.lda,
                  o.a_mn ? o.lda : 1,
                  o.b_mn ? 1 : o.ldb,
                  o.b_mn ? o.ldb : 1,
                  o.ldd,
                  1,
                  o.ldt,
                  1,
                  (i32)s.m,
                  (i32)s.n,
                  (i32)s.k,
                  (i32)((s.m + v.bm - 1) / v.bm),
                  (i32)((s.n + v.bn - 1) / v.bn),
                  8,
                  o.v};
        CHECK(cudaFuncSetAttribute(v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, v.bytes));
        config.gridDim = dim3(args80.tiles_m * args80.tiles_n);
        config.blockDim = dim3(mf::GEMM80_THREADS);
        config.dynamicSmemBytes = v.bytes;
    }

    void set_up90(const operands &o)
    {
        const shape &s = o.s;
        CUtensorMapDataType type = o.f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
        for (size_t i = 0; i < o.a.size(); i++) {
            maps.push_back(map_of(type, 2, o.a[i], o.a_mn ? s.m : s.k, o.a_mn ? s.k : s.m, o.lda, v.box_a));
            maps.push_back(map_of(type, 2, o.b[i], o.b_mn ? s.n : s.k, o.b_mn ? s.k : s.n, o.ldb, v.box_b));
            maps.push_back(map_of(v.out_size == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : type, v.out_size, o.d[i], s.n,
                                  s.m, o.ldd, 64));
            maps.push_back(map_of(type, 2, o.t[i], s.n, s.m, o.ldt, 64));
        }
        args.m = (i32)s.m, args.n = (i32)s.n, args.k = (i32)s.k;
        args.tiles_m = (i32)((s.m + v.bm * v.cluster - 1) / (v.bm * v.cluster));
        args.tiles_n = (i32)((s.n + v.bn - 1) / v.bn);
        args.epilogue = o.v;
        size_grid();
    }

    void size_grid()
    {
        CHECK(cudaFuncSetAttribute(v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, v.bytes));
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = v.cluster, attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
        config.blockDim = dim3(mf::GEMM90_THREADS);
        config.dynamicSmemBytes = v.bytes;
        config.attrs = &attribute, config.numAttrs = 1;
        int processors, clusters;
        CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
        config.gridDim = dim3(processors / v.cluster * v.cluster);
        CHECK(cudaOccupancyMaxActiveClusters(&clusters, v.kernel, &config));
        config.gridDim = dim3(std::min(clusters, args.tiles_m * args.tiles_n) * v.cluster);
        i64 best = 0;
        for (int group : {4, 8, 16}) { // the smallest footprint of the tiles that run together
            i64 footprint = (i64)group * v.bm * v.cluster + (i64)(clusters + group - 1) / group * v.bn;
            if (!best || footprint < best)
                best = footprint, args.group = group;
        }
    }

    void run(int set)
    {
        void *params[5] = {&args80};
        for (int i = 0; i < 4 && !v.sm80; i++)
            params[i] = &maps[4 * set + i], params[4] = &args;
        CHECK(cudaLaunchKernelExC(&config, v.kernel, params));
    }
};

// ---- cuBLASLt ----

// Row-major D = A B is the column-major D^T = B^T A^T: its first operand is our B.
struct library {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t x, y, z;
    void *workspace;
    static constexpr size_t WORKSPACE = 64u << 20;

    static cublasLtHandle_t handle()
    {
        static cublasLtHandle_t h = nullptr;
        if (!h)
            CHECK(cublasLtCreate(&h));
        return h;
    }

    library(const operands &o, bool gelu_bias, bool f32_out)
    {
        cudaDataType type = o.f16 ? CUDA_R_16F : CUDA_R_16BF;
        cublasOperation_t opx = o.b_mn ? CUBLAS_OP_N : CUBLAS_OP_T, opy = o.a_mn ? CUBLAS_OP_T : CUBLAS_OP_N;
        CHECK(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        CHECK(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &opx, sizeof opx));
        CHECK(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSB, &opy, sizeof opy));
        if (gelu_bias) {
            cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_GELU_BIAS;
            CHECK(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
            CHECK(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o.v.bias, sizeof o.v.bias));
        }
        CHECK(cublasLtMatrixLayoutCreate(&x, type, o.b_mn ? o.s.n : o.s.k, o.b_mn ? o.s.k : o.s.n, o.ldb));
        CHECK(cublasLtMatrixLayoutCreate(&y, type, o.a_mn ? o.s.m : o.s.k, o.a_mn ? o.s.k : o.s.m, o.lda));
        CHECK(cublasLtMatrixLayoutCreate(&z, f32_out ? CUDA_R_32F : type, o.s.n, o.s.m, f32_out ? o.s.n : o.ldd));
        workspace = device_bytes(WORKSPACE);
    }
    library(const library &) = delete;
    ~library()
    {
        cublasLtMatmulDescDestroy(op), cublasLtMatrixLayoutDestroy(x), cublasLtMatrixLayoutDestroy(y);
        cublasLtMatrixLayoutDestroy(z), cudaFree(workspace);
    }

    int run(const operands &o, int set, void *d, const cublasLtMatmulAlgo_t *algo)
    {
        float one = 1, zero = 0;
        return cublasLtMatmul(handle(), op, &one, o.b[set], x, o.a[set], y, &zero, d, z, d, z, algo, workspace,
                              WORKSPACE, 0);
    }

    std::vector<cublasLtMatmulAlgo_t> candidates()
    {
        cublasLtMatmulPreference_t preference;
        size_t most = WORKSPACE;
        std::vector<cublasLtMatmulHeuristicResult_t> found(32);
        std::vector<cublasLtMatmulAlgo_t> out;
        int count = 0;
        CHECK(cublasLtMatmulPreferenceCreate(&preference));
        CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                                   sizeof most));
        CHECK(cublasLtMatmulAlgoGetHeuristic(handle(), op, x, y, z, z, preference, 32, found.data(), &count));
        cublasLtMatmulPreferenceDestroy(preference);
        for (int i = 0; i < count; i++)
            if (found[i].state == CUBLAS_STATUS_SUCCESS)
                out.push_back(found[i].algo);
        return out;
    }
};

#endif
