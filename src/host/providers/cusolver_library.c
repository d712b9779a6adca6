/* Loading cuSOLVER and cuBLAS, and their handles. These hold a stream and workspace, so each stream of a context has
 * its own, made when the stream is first seen. */
#include "loader.h"

#ifdef MFI_WITH_CUDA
#include "cuda_api.h"
#include "cusolver_library.h"

#include <stdio.h>

/* The headers map some names to versions by macros; both expansions of the table follow them. */
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)

mf_status mfi_check_blas(cublasStatus_t result, const char *call)
{
    return result == CUBLAS_STATUS_SUCCESS ? MF_OK
                                           : mfi_fail(result == CUBLAS_STATUS_ALLOC_FAILED ? MF_E_MEMORY : MF_E_LIBRARY,
                                                      "cuBLAS: status %d in %s", (int)result, call);
}

mf_status mfi_check_solver(cusolverStatus_t result, const char *call)
{
    return result == CUSOLVER_STATUS_SUCCESS
               ? MF_OK
               : mfi_fail(result == CUSOLVER_STATUS_ALLOC_FAILED ? MF_E_MEMORY : MF_E_LIBRARY,
                          "cuSOLVER: status %d in %s", (int)result, call);
}

static void typed(void **out, mfi_library from, const char *format)
{
    static const char letters[] = "SDCZ";
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, format, letters[i]);
        out[i] = mfi_library_symbol(from, name);
    }
}

static mf_status load(mfi_solver_library *lib)
{
    const char *missing = NULL;
    void *found[4];
    lib->solver = mfi_library_load(MFI_LIB_CUSOLVER)->found;
#define LOAD(name, from)                                                                                               \
    do {                                                                                                               \
        void *symbol_ = mfi_library_symbol(from, TEXT(name));                                                          \
        memcpy(&lib->name, &symbol_, sizeof symbol_);                                                                  \
        missing = symbol_ || (!lib->solver && from == MFI_LIB_CUSOLVER) ? missing : TEXT(name);                        \
    } while (0);
#define LOAD_BLAS(name) LOAD(name, MFI_LIB_CUBLAS)
#define LOAD_SOLVER(name) LOAD(name, MFI_LIB_CUSOLVER)
    MFI_BLAS_FUNCTIONS(LOAD_BLAS)
    MFI_SOLVER_FUNCTIONS(LOAD_SOLVER)
#undef LOAD
#undef LOAD_BLAS
#undef LOAD_SOLVER
#define LOAD_TYPED(member, from, format)                                                                               \
    typed(found, from, format);                                                                                        \
    memcpy(lib->member, found, sizeof found);
    LOAD_TYPED(trsm, MFI_LIB_CUBLAS, "cublas%ctrsm_v2")
    LOAD_TYPED(trsm_batched, MFI_LIB_CUBLAS, "cublas%ctrsmBatched")
    LOAD_TYPED(getrf_batched, MFI_LIB_CUBLAS, "cublas%cgetrfBatched")
    LOAD_TYPED(getrs_batched, MFI_LIB_CUBLAS, "cublas%cgetrsBatched")
    LOAD_TYPED(potrf_batched, MFI_LIB_CUSOLVER, "cusolverDn%cpotrfBatched")
    LOAD_TYPED(getri_batched, MFI_LIB_CUBLAS, "cublas%cgetriBatched")
    LOAD_TYPED(gesvdj, MFI_LIB_CUSOLVER, "cusolverDn%cgesvdjBatched")
    LOAD_TYPED(gesvdj_size, MFI_LIB_CUSOLVER, "cusolverDn%cgesvdjBatched_bufferSize")
    /* the complex ones have another name */
    LOAD_TYPED(orgqr, MFI_LIB_CUSOLVER, "cusolverDn%corgqr")
    typed(found, MFI_LIB_CUSOLVER, "cusolverDn%cungqr");
    memcpy(&lib->orgqr[2], &found[2], 2 * sizeof *found);
    LOAD_TYPED(orgqr_size, MFI_LIB_CUSOLVER, "cusolverDn%corgqr_bufferSize")
    typed(found, MFI_LIB_CUSOLVER, "cusolverDn%cungqr_bufferSize");
    memcpy(&lib->orgqr_size[2], &found[2], 2 * sizeof *found);
#undef LOAD_TYPED
#define LOAD_LATER(member, name)                                                                                       \
    found[0] = mfi_library_symbol(MFI_LIB_CUSOLVER, name);                                                             \
    memcpy(&lib->member, found, sizeof *found);
    LOAD_LATER(syev_batched, "cusolverDnXsyevBatched")
    LOAD_LATER(syev_batched_size, "cusolverDnXsyevBatched_bufferSize")
    LOAD_LATER(geev, "cusolverDnXgeev")
    LOAD_LATER(geev_size, "cusolverDnXgeev_bufferSize")
#undef LOAD_LATER
    MF_REQUIRE(!missing && lib->trsm[0] && lib->trsm_batched[0] && lib->getrf_batched[0] && lib->getrs_batched[0] &&
                   lib->getri_batched[0] &&
                   (!lib->solver || (lib->potrf_batched[0] && lib->orgqr[2] && lib->orgqr_size[2] && lib->gesvdj[0] &&
                                     lib->gesvdj_size[0])),
               MF_E_MISSING, "cuBLAS or cuSOLVER has no %s", missing ? missing : "batched routine");
    return MF_OK;
}

static void free_handles(mfi_solver_library *lib, mfi_solver_handles *h)
{
    if (h->params)
        lib->cusolverDnDestroyParams(h->params);
    if (h->dn)
        lib->cusolverDnDestroy(h->dn);
    if (h->blas)
        lib->cublasDestroy(h->blas);
    pthread_mutex_destroy(&h->busy);
    mf_free(h);
}

static void drop_library(void *object)
{
    mfi_solver_library *lib = object;
    while (lib->handles) {
        mfi_solver_handles *h = lib->handles;
        lib->handles = h->next;
        free_handles(lib, h);
    }
    for (int i = 0; i < MFI_SOLVER_LANES; i++) {
        mfi_cuda_event_free(lib->lane[i].done);
        mfi_cuda_stream_free(lib->lane[i].stream);
    }
    mfi_cuda_event_free(lib->fork);
    pthread_mutex_destroy(&lib->lanes_lock);
    pthread_mutex_destroy(&lib->lock);
    mf_free(lib);
}

static mf_status make_library(void **out, mf_context *context)
{
    mfi_solver_library *lib = mfi_calloc(1, sizeof *lib);
    if (!lib)
        return MFI_NO_MEMORY(sizeof *lib);
    pthread_mutex_init(&lib->lock, NULL);
    pthread_mutex_init(&lib->lanes_lock, NULL);
    mf_status status = load(lib);
    if (status == MF_OK)
        status = mfi_context_make_current(context);
    if (status != MF_OK) {
        drop_library(lib);
        return status;
    }
    *out = lib;
    return MF_OK;
}

static mf_status set_stream(mfi_solver_library *lib, mfi_solver_handles *h, void *stream)
{
    h->stream = stream;
    MF_TRY(mfi_check_blas(lib->cublasSetStream(h->blas, stream), "cublasSetStream"));
    return lib->solver ? mfi_check_solver(lib->cusolverDnSetStream(h->dn, stream), "cusolverDnSetStream") : MF_OK;
}

static mf_status new_handles(mfi_solver_handles **out, mfi_solver_library *lib, void *stream)
{
    mfi_solver_handles *h = mfi_calloc(1, sizeof *h);
    if (!h)
        return MFI_NO_MEMORY(sizeof *h);
    pthread_mutex_init(&h->busy, NULL);
    h->stream = stream;
    mf_status status = mfi_check_blas(lib->cublasCreate(&h->blas), "cublasCreate");
    if (status == MF_OK && lib->solver)
        status = mfi_check_solver(lib->cusolverDnCreate(&h->dn), "cusolverDnCreate");
    if (status == MF_OK && lib->solver)
        status = mfi_check_solver(lib->cusolverDnCreateParams(&h->params), "cusolverDnCreateParams");
    if (status == MF_OK)
        status = set_stream(lib, h, stream);
    if (status != MF_OK) {
        free_handles(lib, h);
        return status;
    }
    *out = h;
    return MF_OK;
}

/* More streams than that share handles: what a handle did for another stream is waited for first. */
enum { MAX_HANDLES = 32 };

static mf_status take_over(mfi_solver_library *lib, mfi_solver_handles *h, void *stream)
{
    pthread_mutex_lock(&h->busy);
    mf_status status = mfi_cuda_synchronize();
    if (status == MF_OK)
        status = set_stream(lib, h, stream);
    pthread_mutex_unlock(&h->busy);
    return status;
}

mf_status mfi_solver_handles_get(mfi_solver_handles **out, mfi_solver_library *lib, void *stream)
{
    mf_status status = MF_OK;
    int count = 0;
    pthread_mutex_lock(&lib->lock);
    mfi_solver_handles *h = lib->handles, *oldest = NULL;
    for (; h && h->stream != stream; h = h->next, count++)
        oldest = h;
    if (!h && count >= MAX_HANDLES && oldest) {
        h = oldest;
        status = take_over(lib, h, stream);
    } else if (!h) {
        status = new_handles(&h, lib, stream);
        if (status == MF_OK && h) {
            h->next = lib->handles;
            lib->handles = h;
        }
    }
    if (status == MF_OK && h)
        pthread_mutex_lock(&h->busy);
    *out = h;
    pthread_mutex_unlock(&lib->lock);
    return status;
}

mf_status mfi_solver_lanes_open(mfi_solver_library *lib)
{
    if (lib->fork)
        return MF_OK;
    for (int i = 0; i < MFI_SOLVER_LANES; i++) {
        mfi_solver_lane *lane = &lib->lane[i];
        if (!lane->stream)
            MF_TRY(mfi_cuda_stream_new(&lane->stream));
        if (!lane->done)
            MF_TRY(mfi_cuda_event_new(&lane->done));
    }
    return mfi_cuda_event_new(&lib->fork);
}

mf_status mfi_solver_library_get(mfi_solver_library **out, mf_context *context)
{
    static const char owner;
    void *object = NULL;
    mf_status status = mfi_context_object(context, &owner, make_library, drop_library, &object);
    *out = object;
    return status;
}
#endif
