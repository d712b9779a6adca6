/* What a cuBLASLt step and its library are, between cublaslt_run.c and cublaslt_choose.c. */
#ifndef MFI_CUBLASLT_STATE_H
#define MFI_CUBLASLT_STATE_H

#include "cublaslt.h"

#ifdef MFI_WITH_CUDA
#include <cublasLt.h>
#include <pthread.h>
#include <stdio.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define LT_FUNCTIONS(X)                                                                                                \
    X(cublasLtCreate)                                                                                                  \
    X(cublasLtDestroy)                                                                                                 \
    X(cublasLtGetStatusName)                                                                                           \
    X(cublasLtMatmul)                                                                                                  \
    X(cublasLtMatmulDescInit_internal)                                                                                 \
    X(cublasLtMatmulDescSetAttribute)                                                                                  \
    X(cublasLtMatrixLayoutInit_internal)                                                                               \
    X(cublasLtMatrixLayoutSetAttribute)                                                                                \
    X(cublasLtMatmulPreferenceInit_internal)                                                                           \
    X(cublasLtMatmulPreferenceSetAttribute)                                                                            \
    X(cublasLtMatmulAlgoGetHeuristic)                                                                                  \
    X(cublasLtMatmulAlgoConfigGetAttribute)

enum { MFI_LT_CANDIDATES = 32, MFI_LT_REMEMBERED = 256 };

/* What the heuristic gave for a description: layouts, operation, preferences. The library is one version on one GPU. */
typedef struct mfi_lt_found {
    XXH128_hash_t key;
    int count; /* 0: none */
    cublasLtMatmulHeuristicResult_t result[MFI_LT_CANDIDATES];
} mfi_lt_found;

/* One per context. */
typedef struct mfi_lt_library {
#define FIELD(name) __typeof__(name) *name;
    LT_FUNCTIONS(FIELD)
#undef FIELD
    cublasLtHandle_t handle;
    int64_t version;
    pthread_mutex_t lock; /* of what follows */
    mfi_lt_found *memory[MFI_LT_REMEMBERED];
} mfi_lt_library;

typedef struct mfi_lt_state {
    mfi_lt_spec spec;
    mfi_lt_library *lt;
    mfi_pass *copies[2];    /* NULL: none */
    const mfi_view *vector; /* the bias, or where a sum beside the product goes; NULL: none */
    const mfi_view *scale[2], *result_scale, *largest; /* NULL: none */
    bool wide_c;                                       /* an fp8 result's C is bf16, also where there is none */
    cublasComputeType_t compute;
    cudaDataType_t scale_type;
    union {
        float f[2];
        double d[2];
        int32_t i;
    } alpha, beta;
    cublasLtMatmulDescOpaque_t desc; /* complete but for the addresses in it */
    cublasLtMatrixLayoutOpaque_t left, right, c, d;
    cublasLtMatmulHeuristicResult_t algorithm[MFI_LT_CANDIDATES]; /* usable ones, best first; [0] runs */
    int algorithms;
} mfi_lt_state;

/* MF_OK, or what the library said in this call. */
mf_status mfi_lt_check(const mfi_lt_library *lt, cublasStatus_t result, const char *call);
/* cublaslt_choose.c: usable algorithms for what `s` describes, the one of bid->variant first. */
mf_status mfi_lt_choose(mfi_lt_state *s, const mfi_caps *c, mfi_bid *bid);
#endif

#endif
