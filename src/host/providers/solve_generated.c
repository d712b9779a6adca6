/* Provider `generated_solve`: batches of small dense systems, QR decompositions, Hermitian eigenproblems and singular values, each by
 * a group of threads, in one kernel. */
#include "cuda_api.h"
#include "emit.h"

#include <stdio.h>

typedef struct state {
    const mfi_problem *problem;
    mfi_solve_shape solve; /* one of these three */
    mfi_qr_shape qr;
    mfi_jacobi_shape jacobi;
    size_t shared;
    int threads;
    int64_t blocks;
    mfi_words words;
    mf_context *context;
    const mfi_module *module; /* the context's */
} state;

/* A step of a factorisation waits for the one before it: about 120 ns, for as many matrices as run together. */
static void estimate(mfi_bid *bid, const mfi_problem *p, const mfi_caps *c, int64_t blocks, double steps)
{
    double rounds = (double)mfi_ceil_div(blocks, (int64_t)c->multiprocessors * 8);
    bid->bytes = mfi_problem_bytes(p);
    bid->launches = 1;
    bid->cost_us = (double)bid->bytes / (c->bytes_per_us * 0.4) + rounds * 0.12 * steps + c->launch_us;
}

static bool by_jacobi(const mfi_problem *p)
{
    return p->anchor == MFI_FACTOR && (p->u.factor.kind == MFI_EIGH || p->u.factor.kind == MFI_SVD);
}

static bool query_factor(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_factor *f = &p->u.factor;
    mfi_qr_shape qr;
    mfi_jacobi_shape jacobi;
    if (by_jacobi(p)) {
        if (!mfi_jacobi_shape_choose(&jacobi, p, c, bid))
            return false;
        estimate(bid, p, c, 0, 0);
        bid->cost_us += jacobi.us;
        snprintf(bid->kernel, sizeof bid->kernel, "mf_%s %lldx%lld", mfi_factor_name(f->kind), (long long)f->m,
                 (long long)f->n);
        return true;
    }
    if (!mfi_qr_shape_choose(&qr, p, c, bid))
        return false;
    estimate(bid, p, c, qr.blocks, 4.0 * (double)f->n); /* a step has three barriers, and there are two passes */
    snprintf(bid->kernel, sizeof bid->kernel, "mf_qr %lldx%lld", (long long)f->m, (long long)f->n);
    return true;
}

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    mfi_solve_shape s;
    MF_REFUSE_UNLESS(c->cuda, WRONG_TARGET, "generated kernels run on GPUs");
    MF_REFUSE_UNLESS(p->anchor == MFI_SOLVE || p->anchor == MFI_FACTOR, NOT_ANCHOR, "it solves");
#ifndef MFI_WITH_CUDA
    return mfi_refuse(bid, MFI_R_NOT_BUILT, "built without CUDA's headers");
#endif
    MF_REFUSE_UNLESS(c->library[MFI_LIB_NVRTC], NOT_FOUND, "NVRTC compiles the kernels");
    MF_REFUSE_UNLESS(c->sm >= 80, WRONG_TARGET, "sm_80 or newer is needed, this is %s", c->arch);
    if (p->anchor == MFI_FACTOR)
        return query_factor(p, c, bid);
    if (!mfi_solve_shape_choose(&s, p, c, bid))
        return false;
    estimate(bid, p, c, s.blocks, s.n);
    snprintf(bid->kernel, sizeof bid->kernel, "mf_solve n=%d", s.n);
    return true;
}

static void place(state *s, size_t shared, int threads, int64_t blocks)
{
    s->shared = shared;
    s->threads = threads;
    s->blocks = blocks;
}

static mf_status source_of(mfi_source *source, state *s, const mfi_caps *c)
{
    mfi_bid unused = {0};
    if (by_jacobi(s->problem)) {
        if (!mfi_jacobi_shape_choose(&s->jacobi, s->problem, c, &unused))
            return mfi_fail(MF_E_UNSUPPORTED, "%s", unused.detail);
        place(s, s->jacobi.shared, s->jacobi.threads, s->jacobi.blocks);
        mfi_jacobi_words(&s->words, s->problem, &s->jacobi);
        return mfi_emit_jacobi(source, s->problem, &s->jacobi);
    }
    if (s->problem->anchor == MFI_FACTOR) {
        if (!mfi_qr_shape_choose(&s->qr, s->problem, c, &unused))
            return mfi_fail(MF_E_UNSUPPORTED, "%s", unused.detail);
        place(s, s->qr.shared, s->qr.threads, s->qr.blocks);
        mfi_qr_words(&s->words, s->problem, &s->qr);
        return mfi_emit_qr(source, s->problem, &s->qr);
    }
    if (!mfi_solve_shape_choose(&s->solve, s->problem, c, &unused))
        return mfi_fail(MF_E_UNSUPPORTED, "%s", unused.detail);
    place(s, s->solve.shared, s->solve.threads, s->solve.blocks);
    mfi_solve_words(&s->words, s->problem, &s->solve);
    return mfi_emit_solve(source, s->problem, &s->solve);
}

static mf_status make(state *s, const mfi_caps *c, mfi_bid *bid)
{
    mfi_source source;
    mfi_module *module = NULL;
    MF_TRY(source_of(&source, s, c));
    mf_status status = mfi_jit_compile(&module, s->context, source.name, source.text, true);
    mf_free(source.text);
    MF_TRY(status);
    s->module = module;
    snprintf(bid->kernel, sizeof bid->kernel, "%s", module->name);
    return c->present ? mfi_cuda_function_shared(module->function, s->shared) : MF_OK;
}

static mf_status prepare(void **out, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    state *s = mfi_calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->problem = p;
    s->context = context;
    mf_status status = make(s, c, bid);
    if (status != MF_OK) {
        mf_free(s);
        return status;
    }
    *out = s;
    return MF_OK;
}

enum { ARRAYS = 5 };

/* How many. */
static int arrays_of(const mfi_view *views[ARRAYS], const mfi_problem *p)
{
    const mfi_solve *f = &p->u.solve;
    const mfi_factor *qr = &p->u.factor;
    if (by_jacobi(p))
        return mfi_jacobi_views(views, qr);
    bool factors = p->anchor == MFI_FACTOR;
    views[0] = factors ? &qr->in[0].view : &f->a;
    views[1] = factors ? &qr->out[0].view : &f->b;
    views[2] = factors ? &qr->out[2].view : &f->x;
    views[3] = factors ? &qr->out[MFI_INFO].view : &f->info;
    return 4;
}

static mf_status run(void *opaque, const mfi_run *r)
{
    const state *s = opaque;
    const mfi_view *views[ARRAYS];
    uint64_t words[MFI_MAX_WORDS];
    const int arrays = arrays_of(views, s->problem);
    memcpy(words, s->words.word, (size_t)s->words.count * sizeof *words);
    for (int i = 0; i < arrays; i++)
        words[s->words.data + i] = mfi_run_address(r, views[i]);
    return mfi_jit_launch(s->module, r->context, (int)s->blocks, s->threads, s->shared, words,
                          (size_t)s->words.count * sizeof *words, r->stream);
}

static mf_status kernel(void *opaque, int index, mf_kernel_info *out)
{
    return mfi_only_kernel(((const state *)opaque)->module, index, out);
}

static mf_status device_code(void *opaque, int index, int threads, const mfi_device_memory *memory,
                             mfi_device_code *out)
{
    const state *s = opaque;
    const mfi_view *views[ARRAYS];
    bool factors = s->problem->anchor == MFI_FACTOR, jacobi = by_jacobi(s->problem);
    mfi_device_unit u = {.skeleton = jacobi    ? mfi_jacobi_skeleton(&s->jacobi)
                                     : factors ? "qr_batch"
                                               : mfi_solve_skeleton(&s->solve),
                         .threads = s->threads,
                         .tiles = s->blocks,
                         .words = &s->words};
    (void)index;
    MF_REQUIRE(!threads || threads == s->threads, MF_E_UNSUPPORTED, "its blocks have %d threads, not %d", s->threads,
               threads);
    const int arrays = arrays_of(views, s->problem);
    for (int i = 0; i < arrays; i++)
        mfi_device_place(&u, s->words.data + i, views[i], NULL);
    if (jacobi)
        mfi_emit_jacobi_types(&u.types, s->problem, &s->jacobi);
    else if (factors)
        mfi_emit_qr_types(&u.types, s->problem, &s->qr);
    else
        mfi_emit_solve_types(&u.types, s->problem, &s->solve);
    mfi_text_add(&u.types, "typedef batch::args kernel_args;\n");
    mfi_text_add(&u.shared_bytes, "code::batch::BYTES");
    /* What one tile leaves in shared memory is read until its end. */
    mfi_text_add(&u.call, "batch::run(a, tile, shared);\n    __syncthreads()");
    return mfi_emit_device_unit(out, &u, memory->slots);
}

static const mfi_device_functions device = {device_code, NULL};

const mfi_provider mfi_provider_solve_generated = {"generated_solve", query,  prepare, run,
                                                   mf_free,           kernel, &device, NULL};
