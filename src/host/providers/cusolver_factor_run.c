/* Running decompositions: the passes, and between them the library's calls, spread over streams where there is one for each
 * matrix. */
#include "cusolver_factor.h"

#ifdef MFI_WITH_CUDA
#include "cuda_api.h"
#include "cusolver_factor_calls.h"
#include "fusion.h"

/* ---- preparing ---- */

static mf_status prepare_sizes(mfi_cufactor *s)
{
    mfi_solver_handles *h;
    MF_TRY(mfi_solver_handles_get(&h, s->lib, NULL));
    mf_status status = mfi_cufactor_ask_sizes(s, h);
    pthread_mutex_unlock(&h->busy);
    MF_TRY(status);
    if (s->host_bytes && !(s->host = mfi_alloc(s->host_bytes * (size_t)s->spec.lanes)))
        return MFI_NO_MEMORY(s->host_bytes);
    s->lane_bytes = mfi_align_up(MFI_CUFACTOR_SPARE + s->device_bytes, 256);
    size_t most = s->lane_bytes * (size_t)s->spec.lanes;
    if (mfi_cufactor_uses_blas(s))
        most = most > MFI_CUFACTOR_SPARE + MFI_CUFACTOR_BLAS ? most : MFI_CUFACTOR_SPARE + MFI_CUFACTOR_BLAS;
    for (int i = 0; i < MFI_FACTOR_PASSES; i++)
        most = mfi_pass_workspace(s->passes[i]) > most ? mfi_pass_workspace(s->passes[i]) : most;
    mfi_cufactor_place(&s->spec, most);
    return MF_OK;
}

static mf_status prepare_all(mfi_cufactor *s, const mfi_caps *c, mfi_bid *bid)
{
    static const char source[] = "#include \"device/pointers.cuh\"\n"
                                 "extern \"C\" __global__ void __launch_bounds__(256) mf_pointer_array("
                                 "mf_pointers_args args)\n{\n    mf_pointers(args);\n}\n";
    mfi_problem map;
    for (int i = 0; i < MFI_FACTOR_PASSES; i++) {
        if (!mfi_cufactor_pass_needed(&s->spec, i))
            continue;
        mfi_cufactor_pass(&map, &s->spec, i);
        MF_TRY(mfi_pass_new(&s->passes[i], &map, c, s->context));
    }
    if (s->spec.bytes[MFI_FR_POINTERS_A])
        MF_TRY(mfi_jit_compile(&s->pointers, s->context, "mf_pointer_array", source, false));
    if (!c->present)
        return MF_OK;
    MF_TRY(mfi_context_make_current(s->context));
    MF_TRY(mfi_solver_library_get(&s->lib, s->context));
    MF_TRY(prepare_sizes(s));
    bid->workspace = mfi_cufactor_workspace(&s->spec);
    return MF_OK;
}

mf_status mfi_cufactor_prepare(void **out, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    static const cudaDataType_t types[4] = {CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F};
    mfi_cufactor *s = mfi_calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->anchor = MFI_FACTOR;
    s->context = context;
    mf_status status = MF_OK;
    if (!mfi_cufactor_describe(&s->spec, p, c, bid))
        status = mfi_fail(MF_E_UNSUPPORTED, "cuSOLVER: %s", bid->detail);
    if (status == MF_OK) {
        s->type = (int)s->spec.ctype - (int)MFI_F32;
        s->cuda_type = types[s->type];
        s->cuda_real = types[s->spec.real == MF_F64];
        status = prepare_all(s, c, bid);
    }
    if (status != MF_OK) {
        mfi_cufactor_destroy(s);
        return status;
    }
    *out = s;
    return MF_OK;
}

/* ---- running ---- */

static mf_status fill_pointers(const mfi_cufactor *s, const mfi_run *run, mfi_fregion into, mfi_fregion of)
{
    struct {
        void *out, *base;
        long long step, count;
    } args = {mfi_cufactor_region(s, run, into), mfi_cufactor_region(s, run, of),
              (long long)(s->spec.bytes[of] / (size_t)s->spec.batch), s->spec.batch};
    if (!s->spec.bytes[into])
        return MF_OK;
    return mfi_jit_launch(s->pointers, s->context, (int)mfi_ceil_div(s->spec.batch, 256), 256, 0, &args, sizeof args,
                          run->stream);
}

static mfi_cufactor_call call_of(mfi_cufactor *s, const mfi_run *run, mfi_solver_handles *h, int lane)
{
    return (mfi_cufactor_call){.s = s,
                               .run = run,
                               .h = h,
                               .buffer = mfi_cufactor_region(s, run, MFI_FR_LIBRARY) + (size_t)lane * s->lane_bytes,
                               .host = s->host ? s->host + (size_t)lane * s->host_bytes : NULL};
}

/* All on the caller's stream. */
static mf_status in_order(mfi_cufactor *s, const mfi_run *run)
{
    mfi_solver_handles *h;
    mf_status status = MF_OK;
    MF_TRY(mfi_solver_handles_get(&h, s->lib, run->stream));
    mfi_cufactor_call call = call_of(s, run, h, 0);
    if (mfi_cufactor_uses_blas(s))
        status =
            mfi_check_blas(s->lib->cublasSetWorkspace(h->blas, call.buffer + MFI_CUFACTOR_SPARE, MFI_CUFACTOR_BLAS),
                           "cublasSetWorkspace");
    if (status == MF_OK && s->spec.batched)
        status = mfi_cufactor_call_batch(&call);
    for (int64_t i = 0; status == MF_OK && !s->spec.batched && i < s->spec.batch; i++)
        status = mfi_cufactor_call_one(&call, i);
    pthread_mutex_unlock(&h->busy);
    return status;
}

/* Matrix i on stream i mod `lanes`; the caller's stream waits for them all. */
static mf_status spread(mfi_cufactor *s, const mfi_run *run)
{
    mfi_cufactor_call call[MFI_SOLVER_LANES];
    mfi_solver_library *lib = s->lib;
    int open = 0, lanes = s->spec.lanes;
    mf_status status = mfi_solver_lanes_open(lib);
    if (status == MF_OK)
        status = mfi_cuda_event_record(lib->fork, run->stream);
    for (; status == MF_OK && open < lanes; open += status == MF_OK) {
        mfi_solver_handles *h;
        status = mfi_cuda_stream_wait(lib->lane[open].stream, lib->fork);
        if (status == MF_OK)
            status = mfi_solver_handles_get(&h, lib, lib->lane[open].stream);
        if (status == MF_OK)
            call[open] = call_of(s, run, h, open);
    }
    for (int64_t i = 0; status == MF_OK && i < s->spec.batch; i++)
        status = mfi_cufactor_call_one(&call[i % lanes], i);
    for (int i = 0; i < open; i++) {
        pthread_mutex_unlock(&call[i].h->busy);
        mf_status joined = mfi_cuda_event_record(lib->lane[i].done, lib->lane[i].stream);
        if (joined == MF_OK)
            joined = mfi_cuda_stream_wait(run->stream, lib->lane[i].done);
        status = status == MF_OK ? joined : status;
    }
    return status;
}

static mf_status run_pass(const mfi_cufactor *s, int which, const mfi_run *run)
{
    void *slots[MFI_FACTOR_PASS_SLOTS];
    if (!s->passes[which])
        return MF_OK;
    mfi_cufactor_pass_slots(slots, &s->spec, which, run);
    return mfi_pass_run(s->passes[which], slots, mfi_cufactor_region(s, run, MFI_FR_LIBRARY), run);
}

static mf_status call_library(mfi_cufactor *s, const mfi_run *run)
{
    MF_TRY(fill_pointers(s, run, MFI_FR_POINTERS_A, MFI_FR_A));
    MF_TRY(fill_pointers(s, run, MFI_FR_POINTERS_B, MFI_FR_B));
    if (s->spec.lanes == 1) {
        MF_TRY(in_order(s, run));
    } else {
        pthread_mutex_lock(&s->lib->lanes_lock);
        mf_status status = spread(s, run);
        pthread_mutex_unlock(&s->lib->lanes_lock);
        MF_TRY(status);
    }
    if (s->spec.f->kind != MFI_LEAST_SQUARES)
        return MF_OK;
    MF_TRY(mfi_cufactor_project(s, run));
    MF_TRY(run_pass(s, MFI_FP_SCALE, run));
    return mfi_cufactor_combine(s, run);
}

mf_status mfi_cufactor_run(void *state, const mfi_run *run)
{
    mfi_cufactor *s = state;
    MF_REQUIRE(!mfi_cuda_capturing(run->stream), MF_E_STATE,
               "cuSOLVER and its handles cannot be used while the stream is being captured; run this plan outside the "
               "graph");
    for (int i = MFI_FP_CHECK; i <= MFI_FP_DIAGONAL; i++)
        MF_TRY(run_pass(s, i, run));
    if (!s->spec.empty)
        MF_TRY(call_library(s, run));
    for (int i = MFI_FP_FINAL; i < MFI_FACTOR_PASSES; i++)
        MF_TRY(run_pass(s, i, run));
    return MF_OK;
}

void mfi_cufactor_destroy(void *state)
{
    mfi_cufactor *s = state;
    if (!s)
        return;
    for (int i = 0; i < MFI_FACTOR_PASSES; i++)
        mfi_pass_free(s->passes[i]);
    if (s->jacobi)
        s->lib->cusolverDnDestroyGesvdjInfo(s->jacobi);
    mf_free(s->host);
    mf_free(s);
}

mf_status mfi_cufactor_kernel(void *state, int index, mf_kernel_info *out)
{
    const mfi_cufactor *s = state;
    if (!s->pointers || index > 0)
        return mfi_pass_kernel(s->passes, MFI_FACTOR_PASSES, index - (s->pointers ? 1 : 0), out);
    const mfi_module *m = s->pointers;
    *out = mfi_module_info(m);
    return MF_OK;
}
#else

mf_status mfi_cufactor_prepare(void **out, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    (void)p, (void)c, (void)context, (void)bid;
    *out = NULL;
    return mfi_fail(MF_E_UNSUPPORTED, "this build has no cuSOLVER");
}

mf_status mfi_cufactor_run(void *state, const mfi_run *run)
{
    (void)state, (void)run;
    return mfi_fail(MF_E_UNSUPPORTED, "this build has no cuSOLVER");
}

void mfi_cufactor_destroy(void *state)
{
    (void)state;
}

mf_status mfi_cufactor_kernel(void *state, int index, mf_kernel_info *out)
{
    (void)state, (void)index, (void)out;
    return mfi_fail(MF_E_UNSUPPORTED, "this build has no cuSOLVER");
}
#endif
