/* cuSOLVER and cuBLAS as loaded, and their handles. Shared by the cusolver_*.c files that call them. */
#ifndef MFI_CUSOLVER_LIBRARY_H
#define MFI_CUSOLVER_LIBRARY_H

#include "provider.h"

#include <cublas_v2.h>
#include <cusolverDn.h>
#include <pthread.h>

#define MFI_BLAS_FUNCTIONS(X)                                                                                          \
    X(cublasCreate)                                                                                                    \
    X(cublasDestroy)                                                                                                   \
    X(cublasSetStream)                                                                                                 \
    X(cublasSetWorkspace)                                                                                              \
    X(cublasGemmStridedBatchedEx)

#define MFI_SOLVER_FUNCTIONS(X)                                                                                        \
    X(cusolverDnCreate)                                                                                                \
    X(cusolverDnDestroy)                                                                                               \
    X(cusolverDnCreateParams)                                                                                          \
    X(cusolverDnDestroyParams)                                                                                         \
    X(cusolverDnSetStream)                                                                                             \
    X(cusolverDnXpotrf_bufferSize)                                                                                     \
    X(cusolverDnXpotrs)                                                                                                \
    X(cusolverDnXpotrf)                                                                                                \
    X(cusolverDnXgetrf_bufferSize)                                                                                     \
    X(cusolverDnXgetrf)                                                                                                \
    X(cusolverDnXgetrs)                                                                                                \
    X(cusolverDnXgeqrf_bufferSize)                                                                                     \
    X(cusolverDnXgeqrf)                                                                                                \
    X(cusolverDnXsyevd_bufferSize)                                                                                     \
    X(cusolverDnXsyevd)                                                                                                \
    X(cusolverDnXgesvd_bufferSize)                                                                                     \
    X(cusolverDnXgesvd)                                                                                                \
    X(cusolverDnCreateGesvdjInfo)                                                                                      \
    X(cusolverDnDestroyGesvdjInfo)

/* The four precisions of a routine differ in pointer types only. */
typedef cublasStatus_t mfi_trsm(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t,
                                int, int, const void *, const void *, int, void *, int);
typedef cublasStatus_t mfi_trsm_batched(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t,
                                        cublasDiagType_t, int, int, const void *, void *, int, void *, int, int);
typedef cublasStatus_t mfi_getrf_batched(cublasHandle_t, int, void *, int, int *, int *, int);
typedef cublasStatus_t mfi_getrs_batched(cublasHandle_t, cublasOperation_t, int, int, void *, int, const int *, void *,
                                         int, int *, int);
typedef cusolverStatus_t mfi_potrf_batched(cusolverDnHandle_t, cublasFillMode_t, int, void *, int, int *, int);

typedef cublasStatus_t mfi_getri_batched(cublasHandle_t, int, void *, int, const int *, void *, int, int *, int);
typedef cusolverStatus_t mfi_orgqr(cusolverDnHandle_t, int, int, int, void *, int, const void *, void *, int, int *);
typedef cusolverStatus_t mfi_orgqr_size(cusolverDnHandle_t, int, int, int, const void *, int, const void *, int *);
typedef cusolverStatus_t mfi_gesvdj(cusolverDnHandle_t, cusolverEigMode_t, int, int, void *, int, void *, void *, int,
                                    void *, int, void *, int, int *, gesvdjInfo_t, int);
typedef cusolverStatus_t mfi_gesvdj_size(cusolverDnHandle_t, cusolverEigMode_t, int, int, const void *, int,
                                         const void *, const void *, int, const void *, int, int *, gesvdjInfo_t, int);

/* Of cuSOLVER 11.7.1 and later; NULL in older ones, whose headers do not declare them. */
typedef cusolverStatus_t mfi_syev_batched(cusolverDnHandle_t, cusolverDnParams_t, cusolverEigMode_t, cublasFillMode_t,
                                          int64_t, cudaDataType, void *, int64_t, cudaDataType, void *, cudaDataType,
                                          void *, size_t, void *, size_t, int *, int64_t);
typedef cusolverStatus_t mfi_syev_batched_size(cusolverDnHandle_t, cusolverDnParams_t, cusolverEigMode_t,
                                               cublasFillMode_t, int64_t, cudaDataType, const void *, int64_t,
                                               cudaDataType, const void *, cudaDataType, size_t *, size_t *, int64_t);
typedef cusolverStatus_t mfi_geev(cusolverDnHandle_t, cusolverDnParams_t, cusolverEigMode_t, cusolverEigMode_t, int64_t,
                                  cudaDataType, void *, int64_t, cudaDataType, void *, cudaDataType, void *, int64_t,
                                  cudaDataType, void *, int64_t, cudaDataType, void *, size_t, void *, size_t, int *);
typedef cusolverStatus_t mfi_geev_size(cusolverDnHandle_t, cusolverDnParams_t, cusolverEigMode_t, cusolverEigMode_t,
                                       int64_t, cudaDataType, const void *, int64_t, cudaDataType, const void *,
                                       cudaDataType, const void *, int64_t, cudaDataType, const void *, int64_t,
                                       cudaDataType, size_t *, size_t *);

/* A stream beside the caller's, for matrices that have no batched routine. */
enum { MFI_SOLVER_LANES = 4 };
typedef struct mfi_solver_lane {
    void *stream, *done;
} mfi_solver_lane;

typedef struct mfi_solver_library {
#define FIELD(name) __typeof__(name) *name;
    MFI_BLAS_FUNCTIONS(FIELD)
    MFI_SOLVER_FUNCTIONS(FIELD)
#undef FIELD
    mfi_trsm *trsm[4];
    mfi_trsm_batched *trsm_batched[4];
    mfi_getrf_batched *getrf_batched[4];
    mfi_getrs_batched *getrs_batched[4];
    mfi_potrf_batched *potrf_batched[4];
    mfi_getri_batched *getri_batched[4];
    mfi_orgqr *orgqr[4];
    mfi_orgqr_size *orgqr_size[4];
    mfi_gesvdj *gesvdj[4];
    mfi_gesvdj_size *gesvdj_size[4];
    mfi_syev_batched *syev_batched;
    mfi_syev_batched_size *syev_batched_size;
    mfi_geev *geev;
    mfi_geev_size *geev_size;
    bool solver; /* cuSOLVER is there */
    pthread_mutex_t lock;
    struct mfi_solver_handles *handles;
    mfi_solver_lane lane[MFI_SOLVER_LANES];
    void *fork;                 /* event: what the lanes wait for */
    pthread_mutex_t lanes_lock; /* held from the fork to the join */
} mfi_solver_library;

typedef struct mfi_solver_handles {
    void *stream;
    cublasHandle_t blas;
    cusolverDnHandle_t dn;
    cusolverDnParams_t params;
    pthread_mutex_t busy;
    struct mfi_solver_handles *next;
} mfi_solver_handles;

mf_status mfi_check_blas(cublasStatus_t result, const char *call);
mf_status mfi_check_solver(cusolverStatus_t result, const char *call);

/* The context's one library object. */
mf_status mfi_solver_library_get(mfi_solver_library **out, mf_context *context);
/* The handles of a stream, made on first use, with `busy` locked: the caller unlocks it after its calls. */
mf_status mfi_solver_handles_get(mfi_solver_handles **out, mfi_solver_library *library, void *stream);

/* The lanes' streams and events, made on first use. The caller holds lanes_lock. */
mf_status mfi_solver_lanes_open(mfi_solver_library *library);

#endif
