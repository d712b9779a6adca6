/* Calling cuFFT. Plans are made while preparing, with work areas of ours; a run binds stream and work area under the
 * plan's lock, since both are state of the plan. */
#include "cufft.h"
#include "loader.h"

#ifdef MFI_WITH_CUDA
#include "cuda_api.h"
#include "fusion.h"

#include <cufft.h>
#include <cufftXt.h>
#include <pthread.h>

#define FFT_FUNCTIONS(X)                                                                                               \
    X(cufftCreate)                                                                                                     \
    X(cufftDestroy)                                                                                                    \
    X(cufftSetAutoAllocation)                                                                                          \
    X(cufftMakePlanMany64)                                                                                             \
    X(cufftSetWorkArea)                                                                                                \
    X(cufftSetStream)                                                                                                  \
    X(cufftXtExec)

typedef struct library {
#define FIELD(name) __typeof__(name) *name;
    FFT_FUNCTIONS(FIELD)
#undef FIELD
} library;

/* Arguments of src/device/hermitian.cuh. */
typedef struct hermitian_args {
    void *data;
    long long batch, n0, n1, bins, planes, step;
} hermitian_args;

typedef struct state {
    mfi_cufft_spec spec;
    library fft;
    mf_context *context;
    mfi_pass *passes[3]; /* copy in, copy out, scale; NULL: none */
    mfi_module *hermitian;
    hermitian_args planes;
    cufftHandle plan[MFI_CUFFT_STAGES];
    int plans;
    pthread_mutex_t lock;
} state;

enum { COPY_IN, COPY_OUT, SCALE };

static mf_status check(cufftResult result, const char *call)
{
    static const struct {
        cufftResult result;
        const char *name;
    } names[] = {{CUFFT_INVALID_PLAN, "CUFFT_INVALID_PLAN"},
                 {CUFFT_ALLOC_FAILED, "CUFFT_ALLOC_FAILED: out of device memory"},
                 {CUFFT_INVALID_TYPE, "CUFFT_INVALID_TYPE"},
                 {CUFFT_INVALID_VALUE, "CUFFT_INVALID_VALUE"},
                 {CUFFT_INTERNAL_ERROR, "CUFFT_INTERNAL_ERROR"},
                 {CUFFT_EXEC_FAILED, "CUFFT_EXEC_FAILED"},
                 {CUFFT_SETUP_FAILED, "CUFFT_SETUP_FAILED"},
                 {CUFFT_INVALID_SIZE, "CUFFT_INVALID_SIZE"},
                 {CUFFT_NOT_SUPPORTED, "CUFFT_NOT_SUPPORTED"}};
    const char *name = "";
    if (result == CUFFT_SUCCESS)
        return MF_OK;
    for (size_t i = 0; i < MFI_COUNT(names); i++)
        if (names[i].result == result)
            name = names[i].name;
    return mfi_fail(result == CUFFT_ALLOC_FAILED ? MF_E_MEMORY : MF_E_LIBRARY, "cuFFT: error %d (%s) in %s",
                    (int)result, name, call);
}

static mf_status load(library *fft)
{
    const char *missing = NULL;
#define LOAD(name)                                                                                                     \
    do {                                                                                                               \
        void *symbol_ = mfi_library_symbol(MFI_LIB_CUFFT, #name);                                                      \
        memcpy(&fft->name, &symbol_, sizeof symbol_);                                                                  \
        missing = symbol_ ? missing : #name;                                                                           \
    } while (0);
    FFT_FUNCTIONS(LOAD)
#undef LOAD
    MF_REQUIRE(!missing, MF_E_MISSING, "cuFFT has no %s: %s", missing, mfi_library_load(MFI_LIB_CUFFT)->missing);
    return MF_OK;
}

/* ---- preparing ---- */

/* The input of a one-dimensional C2R: the imaginary parts of DC and Nyquist do not count, and cuFFT wants them to be 0.
 */
static void copy_half_spectrum(mfi_problem *map, const mfi_cufft_spec *f, const mfi_problem *p, double scale)
{
    int64_t n = p->u.fft.n[0], half = n / 2;
    mfi_ctype ctype = f->f64 ? MFI_C128 : MFI_C64;
    mfi_pass_begin(map, p->ndim, f->in_shape);
    int z = mfi_pass_cast(map, ctype, mfi_pass_load(map, 0, f->in, f->in_extent));
    int k = mfi_pass_index(map, p->ndim - 1);
    int edge = mfi_pass_apply(map, MF_OP_EQUAL, MFI_I64, k, mfi_pass_constant(map, MFI_I64, 0, 0), -1);
    if (n % 2 == 0) {
        int middle = mfi_pass_constant(map, MFI_I64, (double)half, 0);
        int nyquist = mfi_pass_apply(map, MF_OP_EQUAL, MFI_I64, k, middle, -1);
        edge = mfi_pass_apply(map, MF_OP_LOGICAL_OR, MFI_I32, edge, nyquist, -1);
    }
    int real = mfi_pass_cast(map, ctype, mfi_pass_apply(map, MF_OP_REAL, ctype, z, -1, -1));
    z = mfi_pass_apply(map, MF_OP_WHERE, ctype, edge, real, z);
    if (scale != 1)
        z = mfi_pass_apply(map, MF_OP_MULTIPLY, ctype, z, mfi_pass_constant(map, ctype, scale, 0), -1);
    mfi_pass_store(map, 1, &f->work_in, z);
}

static mf_status prepare_passes(state *s, const mfi_problem *p, const mfi_caps *c)
{
    const mfi_cufft_spec *f = &s->spec;
    mfi_problem map;
    bool in_scales = f->copy_in && !f->scale_out && (f->scale[1] == 0 || mfi_is_complex(f->in_dtype));
    bool out_scales = f->copy_out && !in_scales;
    if (f->copy_in) {
        if (p->u.fft.kind == MF_IRFFT && !f->hermitian)
            copy_half_spectrum(&map, f, p, f->scale[0]);
        else
            mfi_pass_copy(&map, p->ndim, f->in_shape, f->in, f->in_extent, &f->work_in, in_scales ? f->scale[0] : 1,
                          in_scales ? f->scale[1] : 0);
        MF_TRY(mfi_pass_new(&s->passes[COPY_IN], &map, c, s->context));
    }
    if (f->copy_out) {
        mfi_pass_copy(&map, p->ndim, p->shape, &f->work_out, NULL, f->out, out_scales ? f->scale[0] : 1,
                      out_scales ? f->scale[1] : 0);
        MF_TRY(mfi_pass_new(&s->passes[COPY_OUT], &map, c, s->context));
    }
    if (f->scale_out) {
        mfi_pass_copy(&map, p->ndim, p->shape, f->out, NULL, f->out, f->scale[0], f->scale[1]);
        MF_TRY(mfi_pass_new(&s->passes[SCALE], &map, c, s->context));
    }
    return MF_OK;
}

static mf_status prepare_hermitian(state *s, const mfi_problem *p)
{
    const mfi_cufft_spec *f = &s->spec;
    const char *type = f->f64 ? "double" : "float", *name = f->f64 ? "mf_hermitian_f64" : "mf_hermitian_f32";
    int last = p->ndim - 1, lo = (int)mfi_max64(f->batch_dims, p->ndim - MFI_CUFFT_RANK);
    int64_t n = p->u.fft.n[p->u.fft.naxes - 1];
    s->planes = (hermitian_args){.batch = 1, .n0 = 1, .n1 = 1, .bins = f->in_shape[last]};
    for (int i = 0; i < lo; i++)
        s->planes.batch *= f->in_shape[i];
    if (last - lo >= 1)
        s->planes.n1 = f->in_shape[last - 1];
    if (last - lo >= 2)
        s->planes.n0 = f->in_shape[last - 2];
    s->planes.planes = n % 2 == 0 ? 2 : 1;
    s->planes.step = n / 2;
    mfi_text source = {0};
    mfi_text_add(&source,
                 "#include \"device/hermitian.cuh\"\n"
                 "extern \"C\" __global__ void __launch_bounds__(256) %s(mf_hermitian_args args)\n"
                 "{\n    mf_hermitian<%s>(args);\n}\n",
                 name, type);
    char *text = mfi_text_take(&source);
    mf_status status =
        text ? mfi_jit_compile(&s->hermitian, s->context, name, text, false) : MFI_NO_MEMORY(source.length);
    mf_free(text);
    return status;
}

static mf_status make_plan(state *s, const mfi_cufft_stage *stage, size_t *work)
{
    static const cufftType types[2][3] = {{CUFFT_C2C, CUFFT_R2C, CUFFT_C2R}, {CUFFT_Z2Z, CUFFT_D2Z, CUFFT_Z2D}};
    int type = stage->kind == MF_RFFT ? 1 : stage->kind == MF_IRFFT ? 2 : 0;
    long long n[MFI_CUFFT_RANK], in[MFI_CUFFT_RANK], out[MFI_CUFFT_RANK];
    cufftHandle *plan = &s->plan[s->plans];
    size_t bytes = 0;
    for (int i = 0; i < stage->rank; i++) {
        n[i] = stage->n[i];
        in[i] = stage->in.embed[i];
        out[i] = stage->out.embed[i];
    }
    MF_TRY(check(s->fft.cufftCreate(plan), "cufftCreate"));
    s->plans++;
    MF_TRY(check(s->fft.cufftSetAutoAllocation(*plan, 0), "cufftSetAutoAllocation"));
    MF_TRY(check(s->fft.cufftMakePlanMany64(*plan, stage->rank, n, in, stage->in.stride, stage->in.dist, out,
                                            stage->out.stride, stage->out.dist, types[s->spec.f64][type], stage->batch,
                                            &bytes),
                 "cufftMakePlanMany64"));
    *work = bytes > *work ? bytes : *work;
    return MF_OK;
}

static mf_status prepare_plans(state *s, mfi_bid *bid)
{
    size_t work = 0;
    for (size_t i = 0; i < MFI_COUNT(s->passes); i++)
        work = mfi_pass_workspace(s->passes[i]) > work ? mfi_pass_workspace(s->passes[i]) : work;
    MF_TRY(load(&s->fft));
    MF_TRY(mfi_context_make_current(s->context));
    for (int i = 0; i < s->spec.stages; i++)
        MF_TRY(make_plan(s, &s->spec.stage[i], &work));
    bid->workspace = s->spec.in_bytes + s->spec.out_bytes + mfi_align_up(work, 256);
    return MF_OK;
}

mf_status mfi_cufft_prepare(void **out, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    state *s = mfi_calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->context = context;
    mf_status status = MF_OK;
    if (!mfi_cufft_describe(&s->spec, p, bid))
        status = mfi_fail(MF_E_UNSUPPORTED, "cuFFT: %s", bid->detail);
    if (status == MF_OK)
        status = prepare_passes(s, p, c);
    if (status == MF_OK && s->spec.hermitian)
        status = prepare_hermitian(s, p);
    if (status == MF_OK && c->present)
        status = prepare_plans(s, bid);
    if (status != MF_OK) {
        mfi_cufft_destroy(s);
        return status;
    }
    *out = s;
    return MF_OK;
}

/* ---- running ---- */

static void *buffer(const state *s, const mfi_run *run, mfi_cufft_buffer which)
{
    const mfi_cufft_spec *f = &s->spec;
    char *workspace = run->workspace;
    switch (which) {
    case MFI_CUFFT_IN:
        return (char *)run->slots[f->in->slot] + f->in->offset * (int64_t)mf_dtype_size(f->in->dtype);
    case MFI_CUFFT_WORK_IN:
        return workspace;
    case MFI_CUFFT_WORK_OUT:
        return workspace + f->in_bytes;
    default:
        return (char *)run->slots[f->out->slot] + f->out->offset * (int64_t)mf_dtype_size(f->out->dtype);
    }
}

/* Passes add a view's offset themselves: they get the slots' own addresses. */
static mf_status run_pass(const state *s, int pass, const mfi_run *run)
{
    const mfi_cufft_spec *f = &s->spec;
    char *workspace = run->workspace;
    void *in = run->slots[f->in->slot], *result = run->slots[f->out->slot];
    void *const slots[3][2] = {{in, workspace}, {workspace + f->in_bytes, result}, {result, result}};
    char *scratch = workspace + f->in_bytes + f->out_bytes; /* cuFFT's, idle then */
    return s->passes[pass] ? mfi_pass_run(s->passes[pass], slots[pass], scratch, run) : MF_OK;
}

static mf_status run_hermitian(const state *s, const mfi_run *run)
{
    hermitian_args args = s->planes;
    args.data = run->workspace;
    int64_t threads = args.batch * args.planes * args.n0 * args.n1;
    int grid = (int)mfi_min64(mfi_ceil_div(threads, 256), 1 << 20);
    return mfi_jit_launch(s->hermitian, s->context, grid, 256, 0, &args, sizeof args, run->stream);
}

static int64_t shift(const mfi_cufft_stage *stage, const mfi_cufft_side *side, int64_t call)
{
    int64_t at = 0;
    for (int i = 0; i < stage->loops; i++) {
        at += call % stage->loop_shape[i] * side->loop_stride[i];
        call /= stage->loop_shape[i];
    }
    return at;
}

static mf_status run_stage(state *s, int index, const mfi_run *run)
{
    const mfi_cufft_spec *f = &s->spec;
    const mfi_cufft_stage *stage = &f->stage[index];
    bool real_in = stage->kind == MF_RFFT, real_out = stage->kind == MF_IRFFT;
    int64_t complex_bytes = f->f64 ? 16 : 8;
    char *in = buffer(s, run, stage->in.buffer), *out = buffer(s, run, stage->out.buffer);
    int direction = stage->kind == MF_IFFT || stage->kind == MF_IRFFT ? CUFFT_INVERSE : CUFFT_FORWARD;
    cufftHandle plan = s->plan[index];
    MF_TRY(check(s->fft.cufftSetStream(plan, run->stream), "cufftSetStream"));
    if (run->workspace)
        MF_TRY(check(s->fft.cufftSetWorkArea(plan, (char *)run->workspace + f->in_bytes + f->out_bytes),
                     "cufftSetWorkArea"));
    for (int64_t call = 0; call < stage->calls; call++) {
        int64_t from = shift(stage, &stage->in, call) * (real_in ? complex_bytes / 2 : complex_bytes);
        int64_t to = shift(stage, &stage->out, call) * (real_out ? complex_bytes / 2 : complex_bytes);
        MF_TRY(check(s->fft.cufftXtExec(plan, in + from, out + to, direction), "cufftXtExec"));
    }
    return MF_OK;
}

mf_status mfi_cufft_run(void *state_, const mfi_run *run)
{
    state *s = state_;
    const mfi_cufft_spec *f = &s->spec;
    mf_status status = run_pass(s, COPY_IN, run);
    for (int i = 0; i < f->stages && status == MF_OK; i++) {
        if (f->hermitian && f->stage[i].kind == MF_IRFFT)
            status = run_hermitian(s, run);
        if (status != MF_OK)
            break;
        pthread_mutex_lock(&s->lock);
        status = run_stage(s, i, run);
        pthread_mutex_unlock(&s->lock);
    }
    if (status == MF_OK)
        status = run_pass(s, COPY_OUT, run);
    return status == MF_OK ? run_pass(s, SCALE, run) : status;
}

void mfi_cufft_destroy(void *state_)
{
    state *s = state_;
    if (!s)
        return;
    for (int i = 0; i < s->plans; i++)
        s->fft.cufftDestroy(s->plan[i]);
    for (size_t i = 0; i < MFI_COUNT(s->passes); i++)
        mfi_pass_free(s->passes[i]);
    pthread_mutex_destroy(&s->lock);
    mf_free(s);
}

mf_status mfi_cufft_kernel(void *state_, int index, mf_kernel_info *out)
{
    const state *s = state_;
    if (!s->hermitian || index > 0)
        return mfi_pass_kernel(s->passes, (int)MFI_COUNT(s->passes), index - (s->hermitian ? 1 : 0), out);
    const mfi_module *m = s->hermitian;
    *out = mfi_module_info(m);
    return MF_OK;
}
#else

mf_status mfi_cufft_prepare(void **out, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    (void)p, (void)c, (void)context, (void)bid;
    *out = NULL;
    return mfi_fail(MF_E_UNSUPPORTED, "this build has no cuFFT");
}

mf_status mfi_cufft_run(void *state, const mfi_run *run)
{
    (void)state, (void)run;
    return mfi_fail(MF_E_UNSUPPORTED, "this build has no cuFFT");
}

void mfi_cufft_destroy(void *state)
{
    (void)state;
}

mf_status mfi_cufft_kernel(void *state, int index, mf_kernel_info *out)
{
    (void)state, (void)index, (void)out;
    return mfi_fail(MF_E_UNSUPPORTED, "this build has no cuFFT");
}
#endif
