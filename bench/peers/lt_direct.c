/* cuBLASLt called directly, the peer of mathfuse's matmul: y = epilogue(x w + bias) on row-major bf16, through its
 * first pick or through each of its candidates. Built as a shared library and called with ctypes on the caller's memory
 * and stream. */
#include <cublasLt.h>
#include <stdlib.h>

enum { CANDIDATES = 8, WORKSPACE = 64 << 20 };

typedef struct lt_problem {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulHeuristicResult_t candidates[CANDIDATES];
    int count;
    void *workspace;
} lt_problem;

/* Row-major (m, k) by (k, n) is column-major (n, k) by (k, m): w comes first, and the bias runs along D's rows. */
static int describe(lt_problem *p, int m, int n, int k, int gelu_bias)
{
    cublasLtEpilogue_t epilogue = gelu_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    cudaDataType_t type = CUDA_R_16BF;
    int failed = cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    failed = failed ||
             cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (gelu_bias)
        failed = failed ||
                 cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    failed = failed || cublasLtMatrixLayoutCreate(&p->a, type, n, k, n);
    failed = failed || cublasLtMatrixLayoutCreate(&p->b, type, k, m, k);
    return failed || cublasLtMatrixLayoutCreate(&p->d, type, n, m, n);
}

static int candidates(lt_problem *p)
{
    size_t bytes = WORKSPACE;
    cublasLtMatmulPreference_t preference = NULL;
    int failed = cublasLtMatmulPreferenceCreate(&preference);
    failed = failed || cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                            &bytes, sizeof bytes);
    failed = failed || cublasLtMatmulAlgoGetHeuristic(p->handle, p->operation, p->a, p->b, p->d, p->d, preference,
                                                      CANDIDATES, p->candidates, &p->count);
    cublasLtMatmulPreferenceDestroy(preference);
    return failed || p->count == 0;
}

/* `workspace` is device memory of lt_workspace() bytes that outlives the problem. NULL if cuBLASLt refuses. */
lt_problem *lt_new(int m, int n, int k, int gelu_bias, void *workspace)
{
    lt_problem *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->workspace = workspace;
    if (cublasLtCreate(&p->handle) || describe(p, m, n, k, gelu_bias) || candidates(p)) {
        free(p);
        return NULL;
    }
    return p;
}

long lt_workspace(void)
{
    return WORKSPACE;
}

int lt_count(const lt_problem *p)
{
    return p->count;
}

/* Submit with candidate `index`; 0 is the heuristic's first pick. */
int lt_run(lt_problem *p, int index, const void *x, const void *w, const void *bias, void *y, void *stream)
{
    float one = 1, zero = 0;
    if (bias)
        cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(void *));
    return cublasLtMatmul(p->handle, p->operation, &one, w, p->a, x, p->b, &zero, y, p->d, y, p->d,
                          &p->candidates[index].algo, p->workspace, WORKSPACE, (cudaStream_t)stream);
}
