/* Provider `generated`: elementwise and reduction steps as kernels compiled from their chain, and a plain matrix
 * product for what the libraries refuse. */
#include "emit.h"

#include <stdio.h>

#define MAX_LAUNCHES 9

typedef struct state {
    mfi_problem problem; /* dims as the kernel has them */
    mfi_shape layout;
    mfi_words words;
    mf_context *context;
    int launches;
    mfi_module *module[MAX_LAUNCHES]; /* the context's */
    int64_t grid[MAX_LAUNCHES];
} state;

/* ---- query ---- */

static bool chain_defined(const mfi_chain *c)
{
    for (int i = 0; i < c->count; i++)
        if (c->instr[i].kind == MFI_APPLY && c->instr[i].op != MF_OP_WHERE &&
            !mfi_op_defined((mf_op)c->instr[i].op, (mfi_ctype)c->instr[i].from))
            return false;
    return true;
}

static int64_t launch_bytes(const mfi_problem *p, const mfi_shape *l)
{
    int64_t bytes = mfi_problem_bytes(p);
    return l->skeleton == MFI_SK_REDUCE && !l->cached ? bytes * mfi_max64(p->chain.phases, 1) : bytes;
}

/* Share of the bandwidth that was reached on one H200 by access pattern, rounded down. */
static double efficiency(const mfi_shape *l)
{
    return l->skeleton == MFI_SK_TILES ? 0.35 : l->vector == 1 ? 0.6 : 0.95;
}

static bool bid_map(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    mfi_problem copy = *p;
    mfi_shape l;
    mfi_shape_choose(&l, &copy, c);
    MF_REFUSE_UNLESS(l.launches <= MAX_LAUNCHES, SIZE, "%d reductions of reductions", copy.chain.phases);
    int64_t largest = 0;
    for (int k = 0; k < l.launches; k++)
        largest = mfi_max64(largest, mfi_shape_grid(&l, &copy, k));
    MF_REFUSE_UNLESS(largest <= 0x7fffffff, SIZE, "%lld blocks would be launched", (long long)largest);
    bid->bytes = launch_bytes(&copy, &l);
    bid->workspace = mfi_shape_workspace(&l, &copy);
    bid->launches = l.launches;
    bid->cost_us = (double)bid->bytes / (c->bytes_per_us * efficiency(&l)) + l.launches * c->launch_us;
    snprintf(bid->kernel, sizeof bid->kernel, "%s x%d", p->nreduce ? "mf_reduce" : "mf_map", l.vector);
    return true;
}

static double matmul_flops_per_us(const mfi_problem *p, const mfi_shape *l, const mfi_caps *c)
{
    bool half = p->u.matmul.a.dtype == MF_F16 || p->u.matmul.a.dtype == MF_BF16;
    return l->share * (half && l->skeleton == MFI_SK_GEMM_TILES ? c->tensor_flops_per_us : c->flops_per_us);
}

/* Each tile is done whole. */
static bool bid_matmul(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_matmul *mm = &p->u.matmul;
    MF_REFUSE_UNLESS(p->nreduce == 0 && p->chain.phases == 0, NO_EPILOGUE, "reductions in the epilogue");
    mfi_problem copy = *p;
    mfi_shape l;
    mfi_shape_choose(&l, &copy, c);
    double batch = (double)mfi_problem_points(p) / (double)mfi_max64(mm->m * mm->n, 1);
    double tiles = batch * (double)mfi_ceil_div(mm->m, l.tile_m) * (double)mfi_ceil_div(mm->n, l.tile_n);
    double waves = tiles / c->multiprocessors < 1 ? 1 : tiles / c->multiprocessors;
    double flops = 2.0 * l.tile_m * l.tile_n * (double)mm->k * (mm->acc >= MFI_C64 ? 4 : 1) *
                   (mm->acc == MFI_F64 || mm->acc == MFI_C128 ? 2 : 1);
    MF_REFUSE_UNLESS(tiles <= 0x7fffffff, SIZE, "%.0f blocks would be launched", tiles);
    bid->bytes = mfi_problem_bytes(p);
    bid->launches = 1;
    if (l.skeleton == MFI_SK_GEMM_LANES) {
        bid->cost_us = mfi_lanes_us(&l, &copy, c) + c->launch_us;
        snprintf(bid->kernel, sizeof bid->kernel, "mf_matmul %s %d products side by side", mfi_ctype_name(mm->acc),
                 l.lanes);
        return true;
    }
    bid->cost_us = waves * flops / (matmul_flops_per_us(p, &l, c) / c->multiprocessors) +
                   (double)bid->bytes / c->bytes_per_us + c->launch_us;
    snprintf(bid->kernel, sizeof bid->kernel, "mf_matmul %s %dx%dx%d", mfi_ctype_name(mm->acc), l.tile_m, l.tile_n,
             l.tile_k);
    return true;
}

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    MF_REFUSE_UNLESS(c->cuda, WRONG_TARGET, "generated kernels run on GPUs");
    MF_REFUSE_UNLESS(p->anchor == MFI_MAP || p->anchor == MFI_MATMUL, NOT_ANCHOR,
                     "maps, reductions and matrix products only");
#ifndef MFI_WITH_CUDA
    return mfi_refuse(bid, MFI_R_NOT_BUILT, "built without CUDA's headers");
#endif
    MF_REFUSE_UNLESS(c->library[MFI_LIB_NVRTC], NOT_FOUND, "NVRTC compiles the kernels");
    MF_REFUSE_UNLESS(c->sm >= 80, WRONG_TARGET, "sm_80 or newer is needed, this is %s", c->arch);
    MF_REFUSE_UNLESS(chain_defined(&p->chain), DTYPE, "an operation is not defined for its dtype");
    MF_REFUSE_UNLESS(mfi_words_needed(p) <= MFI_MAX_WORDS, RANK, "%d operands of %d dims exceed a kernel's arguments",
                     p->chain.operands, p->ndim);
    return p->anchor == MFI_MAP ? bid_map(p, c, bid) : bid_matmul(p, c, bid);
}

/* ---- prepare ---- */

/* Variants of maps and reductions: threads of a block; of products: tiles. */
static const int block_threads[] = {0, 64, 128, 256, 512, 1024};

static int variants(const mfi_problem *p, const mfi_caps *c)
{
    (void)c;
    return p->anchor == MFI_MATMUL ? 5 : (int)MFI_COUNT(block_threads);
}

static mf_status use_variant(state *s, const mfi_caps *c, mfi_bid *bid)
{
    mfi_shape *l = &s->layout;
    bool matmul = s->problem.anchor == MFI_MATMUL;
    MF_REQUIRE(bid->variant < variants(&s->problem, c), MF_E_INVALID, "there is no variant %d", bid->variant);
    if (matmul && bid->variant)
        MF_REQUIRE(mfi_shape_choose_gemm(l, &s->problem, c, bid->variant), MF_E_INVALID, "there are no more tiles");
    if (!matmul && bid->variant)
        MF_TRY(mfi_shape_set_threads(l, block_threads[bid->variant]));
    if (l->skeleton == MFI_SK_GEMM_LANES)
        snprintf(bid->identity, sizeof bid->identity, "%d products %d x %d, %d x %d in %d threads", l->lanes, l->tile_m,
                 l->tile_n, l->own_m, l->own_n, l->parts);
    else if (matmul)
        snprintf(bid->identity, sizeof bid->identity, "tiles %d x %d x %d", l->tile_m, l->tile_n, l->tile_k);
    else
        snprintf(bid->identity, sizeof bid->identity, "%d threads vector %d", l->threads, l->vector);
    return MF_OK;
}

static mf_status compile_launch(state *s, int k)
{
    mfi_source source;
    MF_TRY(mfi_emit(&source, &s->problem, &s->layout, k));
    mf_status status = mfi_jit_compile(&s->module[k], s->context, source.name, source.text, false);
    mf_free(source.text);
    s->grid[k] = mfi_shape_grid(&s->layout, &s->problem, k);
    return status;
}

static mf_status prepare(void **out, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    state *s = mfi_calloc(1, sizeof *s);
    *out = s;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->problem = *p;
    s->context = context;
    mf_status status = MF_OK;
    if ((p->nreduce ? mfi_problem_rows(p) : mfi_problem_points(p)) == 0) {
        bid->launches = 0;
        return MF_OK;
    }
    mfi_shape_choose(&s->layout, &s->problem, c);
    status = use_variant(s, c, bid);
    mfi_words_fill(&s->words, &s->layout, &s->problem);
    for (int k = 0; k < s->layout.launches && status == MF_OK; k++)
        status = compile_launch(s, k);
    if (status != MF_OK) {
        mf_free(s);
        *out = NULL;
        return status;
    }
    s->launches = s->layout.launches;
    bid->launches = s->launches;
    bid->workspace = mfi_shape_workspace(&s->layout, &s->problem);
    snprintf(bid->kernel, sizeof bid->kernel, "%s", s->module[s->launches - 1]->name);
    return MF_OK;
}

/* ---- run ---- */

static mf_status run(void *opaque, const mfi_run *r)
{
    const state *s = opaque;
    uint64_t words[MFI_MAX_WORDS];
    memcpy(words, s->words.word, (size_t)s->words.count * sizeof *words);
    words[s->words.work] = (uint64_t)(uintptr_t)r->workspace;
    for (int o = 0; o < s->problem.chain.operands; o++)
        words[s->words.data + o] = mfi_run_address(r, &s->problem.chain.operand[o].view);
    if (s->problem.anchor == MFI_MATMUL && s->launches) {
        words[s->words.a] = mfi_run_address(r, &s->problem.u.matmul.a);
        words[s->words.b] = mfi_run_address(r, &s->problem.u.matmul.b);
    }
    for (int k = 0; k < s->launches; k++)
        MF_TRY(mfi_jit_launch_early(s->module[k], r->context, (int)s->grid[k], s->layout.threads, 0, words,
                                    (size_t)s->words.count * sizeof *words, r->stream));
    return MF_OK;
}

static mf_status kernel(void *opaque, int index, mf_kernel_info *out)
{
    const state *s = opaque;
    MF_REQUIRE(index >= 0 && index < s->launches, MF_E_INVALID, "kernel %d was asked for; the step has %d", index,
               s->launches);
    const mfi_module *m = s->module[index];
    *out = mfi_module_info(m);
    return MF_OK;
}

static mf_status device_code(void *opaque, int index, int threads, const mfi_device_memory *memory,
                             mfi_device_code *out)
{
    const state *s = opaque;
    mfi_shape layout = s->layout;
    if (threads)
        MF_TRY(mfi_shape_set_threads(&layout, threads));
    return mfi_emit_device(out, &s->problem, &layout, index, &s->words, memory->slots, memory->workspace);
}

static void destroy(void *opaque)
{
    mf_free(opaque); /* modules belong to the context */
}

static const mfi_device_functions device = {device_code, NULL};

const mfi_provider mfi_provider_generated = {"generated", query, prepare, run, destroy, kernel, &device, variants};
