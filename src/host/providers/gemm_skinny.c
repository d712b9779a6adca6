/* Provider `generated_skinny`: a matrix product of at most 64 rows, or columns, with its whole elementwise chain as one kernel
 * that takes one pass over the large factor. */
#include "cuda_api.h"
#include "emit.h"

#include <stdio.h>

typedef struct state {
    mfi_problem problem; /* few rows */
    mfi_gemm_skinny gemm;
    mfi_words words;
    mf_context *context;
    const mfi_module *module; /* the context's */
} state;

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    MF_REFUSE_UNLESS(c->cuda, WRONG_TARGET, "generated kernels run on GPUs");
    MF_REFUSE_UNLESS(p->anchor == MFI_MATMUL, NOT_ANCHOR, "matrix products only");
#ifndef MFI_WITH_CUDA
    return mfi_refuse(bid, MFI_R_NOT_BUILT, "built without CUDA's headers");
#endif
    MF_REFUSE_UNLESS(c->library[MFI_LIB_NVRTC], NOT_FOUND, "NVRTC compiles the kernels");
    mfi_problem own = *p;
    mfi_gemm_skinny g;
    if (!mfi_gemm_skinny_choose(&g, &own, c, 0, bid))
        return false;
    bid->bytes = mfi_problem_bytes(p);
    bid->launches = 1;
    bid->cost_us = g.us + c->launch_us;
    snprintf(bid->kernel, sizeof bid->kernel, "mf_skinny %dx%d, k by %d", g.m, g.n, g.split);
    return true;
}

static int variants(const mfi_problem *p, const mfi_caps *c)
{
    (void)p, (void)c;
    return MFI_GEMM_SKINNY_VARIANTS;
}

/* The configuration of that rank. MF_E_INVALID: there is none. */
static mf_status compile(state *s, const mfi_caps *c, int rank)
{
    mfi_bid own = {0};
    mfi_source source;
    mfi_module *module = NULL;
    if (!mfi_gemm_skinny_choose(&s->gemm, &s->problem, c, rank, &own))
        return mfi_fail(rank && own.reason == MFI_R_SIZE ? MF_E_INVALID : MF_E_UNSUPPORTED, "%s", own.detail);
    MF_TRY(mfi_emit_gemm_skinny(&source, &s->problem, &s->gemm));
    mf_status status = mfi_jit_compile(&module, s->context, source.name, source.text, false);
    mf_free(source.text);
    s->module = module;
    return status;
}

/* Variant 0 is the best by estimate that keeps everything in registers. */
static mf_status make(state *s, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_gemm_skinny *g = &s->gemm;
    MF_TRY(compile(s, c, bid->variant));
    for (int rank = 1; bid->variant == 0 && s->module->spills > 0 && rank < MFI_GEMM_SKINNY_VARIANTS; rank++)
        if (compile(s, c, rank) != MF_OK) {
            MF_TRY(compile(s, c, 0));
            break;
        }
    mfi_words_fill(&s->words, &g->layout, &s->problem);
    snprintf(bid->kernel, sizeof bid->kernel, "%s", s->module->name);
    snprintf(bid->identity, sizeof bid->identity, "%d x %d x %d stages %d across %d split %d", g->m, g->n, g->k,
             g->stages, g->across, g->split);
    return c->present ? mfi_cuda_function_shared(s->module->function, g->shared) : MF_OK;
}

static mf_status prepare(void **out, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    state *s = mfi_calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->problem = *p;
    s->context = context;
    mf_status status = make(s, c, bid);
    if (status != MF_OK) {
        mf_free(s);
        return status;
    }
    *out = s;
    return MF_OK;
}

static mf_status run(void *opaque, const mfi_run *r)
{
    const state *s = opaque;
    const mfi_problem *p = &s->problem;
    uint64_t words[MFI_MAX_WORDS];
    memcpy(words, s->words.word, (size_t)s->words.count * sizeof *words);
    words[s->words.a] = mfi_run_address(r, &p->u.matmul.a);
    words[s->words.b] = mfi_run_address(r, &p->u.matmul.b);
    for (int o = 0; o < p->chain.operands; o++)
        words[s->words.data + o] = mfi_run_address(r, &p->chain.operand[o].view);
    return mfi_jit_launch(s->module, r->context, (int)s->gemm.blocks, s->gemm.layout.threads, s->gemm.shared, words,
                          (size_t)s->words.count * sizeof *words, r->stream);
}

static mf_status kernel(void *opaque, int index, mf_kernel_info *out)
{
    return mfi_only_kernel(((const state *)opaque)->module, index, out);
}

const mfi_provider mfi_provider_gemm_skinny = {
    "generated_skinny", query, prepare, run, mf_free, kernel, NULL, variants};
