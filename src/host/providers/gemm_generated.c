/* Provider `generated_gemm`: a matrix product on sm_90a's tensor cores with its whole elementwise chain as one kernel. */
#include "cuda_api.h"
#include "emit.h"

#include <stdio.h>

typedef struct state {
    mfi_problem *problem; /* flattened */
    mfi_gemm90 gemm;
    mfi_words words;
    mf_context *context;
    const mfi_module *module; /* the context's */
} state;

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    mfi_gemm90 g;
    MF_REFUSE_UNLESS(c->cuda, WRONG_TARGET, "generated kernels run on GPUs");
    MF_REFUSE_UNLESS(p->anchor == MFI_MATMUL || p->anchor == MFI_MATMUL_PAIR, NOT_ANCHOR, "matrix products only");
#ifndef MFI_WITH_CUDA
    return mfi_refuse(bid, MFI_R_NOT_BUILT, "built without CUDA's headers");
#endif
    MF_REFUSE_UNLESS(c->library[MFI_LIB_NVRTC], NOT_FOUND, "NVRTC compiles the kernels");
    mfi_problem *flat;
    if (mfi_gemm90_flatten(&flat, p) != MF_OK)
        return mfi_refuse(bid, MFI_R_SIZE, "out of memory");
    bool suits = mfi_gemm90_choose(&g, flat, c, 0, bid);
    mfi_problem_free(flat);
    if (!suits)
        return false;
    bid->bytes = mfi_problem_bytes(p);
    bid->launches = g.largest < 0 ? 1 : 2;
    double memory = (double)bid->bytes / (0.9 * c->bytes_per_us);
    bid->cost_us = (g.us > memory ? g.us : memory) + bid->launches * c->launch_us;
    snprintf(bid->kernel, sizeof bid->kernel, "mf_gemm %dx%d%s", g.bm, g.bn,
             g.wide > 1      ? " in rows"
             : g.cluster > 1 ? " in pairs"
                             : "");
    return true;
}

static int variants(const mfi_problem *p, const mfi_caps *c)
{
    (void)p, (void)c;
    return MFI_GEMM90_VARIANTS;
}

/* The configuration of that rank. MF_E_INVALID: there is none. */
static mf_status compile(state *s, const mfi_caps *c, int rank)
{
    mfi_bid own = {0};
    mfi_source source;
    mfi_module *module = NULL;
    if (!mfi_gemm90_choose(&s->gemm, s->problem, c, rank, &own))
        return mfi_fail(rank && own.reason == MFI_R_SIZE ? MF_E_INVALID : MF_E_UNSUPPORTED, "%s", own.detail);
    MF_TRY(mfi_emit_gemm90(&source, s->problem, &s->gemm));
    mf_status status = mfi_jit_compile(&module, s->context, source.name, source.text, false);
    mf_free(source.text);
    s->module = module;
    return status;
}

/* Variant 0 is the best by estimate that keeps everything in registers. */
static mf_status make(state *s, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_gemm90 *g = &s->gemm;
    MF_TRY(compile(s, c, bid->variant));
    for (int rank = 1; bid->variant == 0 && s->module->spills > 0 && rank < MFI_GEMM90_VARIANTS; rank++)
        if (compile(s, c, rank) != MF_OK) {
            MF_TRY(compile(s, c, 0));
            break;
        }
    MF_TRY(mfi_gemm90_words(&s->words, s->problem, g));
    snprintf(bid->kernel, sizeof bid->kernel, "%s", s->module->name);
    snprintf(bid->identity, sizeof bid->identity, "%d x %d %s stages %d cluster %d buffers %d", g->bm, g->bn,
             g->pingpong ? "ping-pong" : "cooperative", g->stages, g->cluster, g->buffers);
    return c->present ? mfi_cuda_function_shared(s->module->function, g->shared) : MF_OK;
}

/* As many clusters as run at once: with one more, all would wait for it. */
static mf_status fit_clusters(state *s)
{
    mfi_gemm90 *g = &s->gemm;
    int most;
    if (!s->module->function || g->wide < 2)
        return MF_OK;
    MF_TRY(mfi_cuda_most_clusters(&most, s->module->function, g->wide, g->layout.threads, g->shared));
    g->clusters = mfi_min64(g->clusters, mfi_max64(most, 1));
    return MF_OK;
}

static void destroy(void *opaque)
{
    state *s = opaque;
    mfi_problem_free(s->problem);
    mf_free(s);
}

static mf_status prepare(void **out, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    state *s = mfi_calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->context = context;
    mf_status status = mfi_gemm90_flatten(&s->problem, p);
    if (status == MF_OK)
        status = make(s, c, bid);
    if (status == MF_OK)
        status = fit_clusters(s);
    if (status != MF_OK) {
        destroy(s);
        return status;
    }
    *out = s;
    return MF_OK;
}

static void *address(const mfi_run *r, const mfi_view *view)
{
    return (void *)(uintptr_t)mfi_run_address(r, view);
}

/* The third dim of a batch's map: one item where all products share it. */
static void set_items(mfi_tensor_map *m, const mfi_view *v, const mfi_gemm90 *g)
{
    if (!g->batched)
        return;
    m->items = v->strides[0] ? g->batches : 1;
    m->item_ld = v->strides[0] ? v->strides[0] : m->ld * m->outer;
}

/* mn: stored along the result's dim `points`, else along k. */
static mfi_tensor_map factor_map(const mfi_run *r, const mfi_view *v, const mfi_gemm90 *g, int k_dim, int64_t k,
                                 int64_t points, int box)
{
    const bool mn = k_dim ? g->a_mn : g->b_mn;
    const int64_t *strides = v->strides + g->batched, stride = strides[mn ? k_dim : 1 - k_dim];
    mfi_tensor_map m = {.base = address(r, v),
                        .dtype = v->dtype,
                        .inner = mn ? points : k,
                        .outer = mn ? k : points,
                        .ld = mfi_gemm90_ld(stride, mn ? points : k, mn ? k : points, v->dtype),
                        .box_outer = mn ? 64 : box,
                        .box_bytes = 128};
    set_items(&m, v, g);
    return m;
}

static mfi_tensor_map tile_map(const mfi_run *r, const mfi_view *v, const mfi_gemm90 *g, const mfi_matmul *mm,
                               int columns)
{
    mfi_tensor_map m = {.base = address(r, v),
                        .dtype = v->dtype,
                        .inner = mm->n,
                        .outer = mm->m,
                        .ld = mfi_gemm90_ld(v->strides[g->batched], mm->n, mm->m, v->dtype),
                        .box_outer = 64,
                        .box_bytes = columns * (int)mf_dtype_size(v->dtype)};
    set_items(&m, v, g);
    return m;
}

/* In the order of kernel_args. */
static mf_status make_maps(uint64_t *words, const mfi_problem *p, const mfi_gemm90 *g, const mfi_run *r)
{
    const mfi_matmul *mm = &p->u.matmul;
    const int box = g->bn / (g->twin ? 2 : g->cluster), columns = mfi_gemm90_chunk(g, p);
    mfi_tensor_map map[3 + MFI_GEMM90_RESULTS + 1];
    map[0] = factor_map(r, &mm->a, g, 1, mm->k, mm->m, g->bm);
    map[1] = factor_map(r, &mm->b, g, 0, mm->k, mm->n, box);
    map[2] = tile_map(r, &p->chain.operand[g->tile < 0 ? g->result[0] : g->tile].view, g, mm, columns);
    for (int i = 0; i < g->results; i++)
        map[3 + i] = tile_map(r, &p->chain.operand[g->result[i]].view, g, mm, columns);
    if (g->twin)
        map[3 + g->results] = factor_map(r, &p->head->u.matmul.b, g, 0, mm->k, mm->n, box);
    for (int i = 0; i < mfi_gemm90_maps(g); i++)
        MF_TRY(mfi_cuda_tensor_map(words + (ptrdiff_t)i * MFI_GEMM90_MAP_WORDS, &map[i]));
    return MF_OK;
}

static mf_status run(void *opaque, const mfi_run *r)
{
    const state *s = opaque;
    const mfi_problem *p = s->problem;
    const mfi_gemm90 *g = &s->gemm;
    uint64_t words[MFI_MAX_WORDS];
    memcpy(words, s->words.word, (size_t)s->words.count * sizeof *words);
    MF_TRY(make_maps(words, p, g, r));
    for (int o = 0; o < p->chain.operands; o++)
        words[s->words.data + o] = mfi_run_address(r, &p->chain.operand[o].view);
    if (g->largest >= 0)
        MF_TRY(mfi_cuda_zero_async(address(r, &p->chain.operand[g->largest].view), sizeof(float), r->stream));
    return mfi_jit_launch(s->module, r->context, (int)(g->clusters * (g->wide ? g->wide : g->cluster)),
                          g->layout.threads, g->shared, words, (size_t)s->words.count * sizeof *words, r->stream);
}

static mf_status kernel(void *opaque, int index, mf_kernel_info *out)
{
    return mfi_only_kernel(((const state *)opaque)->module, index, out);
}

const mfi_provider mfi_provider_gemm_generated = {"generated_gemm", query,  prepare, run,
                                                  destroy,          kernel, NULL,    variants};
