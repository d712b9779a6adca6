/* Provider `generated_fft`: a transform with its chain, or two with what lies between them, as one generated kernel. */
#include "cuda_api.h"
#include "emit.h"

#include <stdio.h>

typedef struct state {
    const mfi_problem *problem;
    mfi_fft_shape shape;
    mfi_fft_words words;
    mf_context *context;
    const mfi_module *module; /* the context's */
    void *table;              /* device memory, NULL for a target that is not here */
} state;

/* ---- query ---- */

/* Passes over memory that the arithmetic of one kernel is worth, from runs on one H200 of two transforms with a filter. */
static double passes(const mfi_problem *p, const mfi_fft_shape *s)
{
    double pair = s->n <= 1024 ? 1.1 : s->n <= 4096 ? 1.25 : s->n <= 8192 ? 1.65 : s->pair ? 2.4 : 1.9;
    bool chirp = s->table > 4 * (int64_t)s->n * 2; /* Bluestein: two transforms of twice the length */
    bool power = (s->n & (s->n - 1)) == 0;
    bool real = p->u.fft.kind == MF_RFFT || p->u.fft.kind == MF_IRFFT;
    if (s->beside) /* few signals of long transforms fit a block: short pieces of memory, few blocks */
        pair = s->n <= 256 ? 1.3 : s->n <= 512 ? 1.9 : s->n <= 1024 ? 2.4 : 5.3;
    double one = (1 + (pair - 1) / 2) * (real ? 1.12 : 1);
    return (mfi_fft_parts_of(p).first ? pair : one) * (chirp ? 2.5 : power ? 1 : 1.2);
}

/* A strided access of 8 bytes moves a sector of 32. */
enum { SECTOR_COST = 4 };

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    mfi_fft_shape s;
    MF_REFUSE_UNLESS(c->cuda, WRONG_TARGET, "generated kernels run on GPUs");
    MF_REFUSE_UNLESS(p->anchor == MFI_FFT || p->anchor == MFI_FFT_PAIR, NOT_ANCHOR, "it transforms");
#ifndef MFI_WITH_CUDA
    return mfi_refuse(bid, MFI_R_NOT_BUILT, "built without CUDA's headers");
#endif
    MF_REFUSE_UNLESS(c->library[MFI_LIB_NVRTC], NOT_FOUND, "NVRTC compiles the kernels");
    MF_REFUSE_UNLESS(c->sm >= 80, WRONG_TARGET, "sm_80 or newer is needed, this is %s", c->arch);
    if (!mfi_fft_shape_choose(&s, p, c, bid))
        return false;
    bid->bytes = mfi_problem_bytes(p);
    bid->launches = 1;
    int64_t moved = bid->bytes + (SECTOR_COST - 1) * mfi_fft_strided_bytes(p, s.beside);
    bid->cost_us = (double)moved / (c->bytes_per_us * 0.95) * passes(p, &s) + c->launch_us;
    snprintf(bid->kernel, sizeof bid->kernel, "mf_fft n=%d", s.n);
    return true;
}

/* ---- prepare ---- */

static size_t table_bytes(const state *s)
{
    return (size_t)s->shape.table * (s->problem->u.fft.f64 ? 16 : 8);
}

static mf_status fill_table(state *s)
{
    char name[80];
    void *module, *function;
    const int grid[3] = {(int)mfi_ceil_div(s->shape.table, 256), 1, 1}, block[3] = {256, 1, 1};
    snprintf(name, sizeof name, "%s_table", s->module->name);
    MF_TRY(mfi_context_make_current(s->context));
    MF_TRY(mfi_cuda_alloc(&s->table, table_bytes(s)));
    MF_TRY(mfi_cuda_module_load(&module, &function, s->module->cubin, name));
    void *parameters[] = {&s->table};
    mf_status status = mfi_cuda_launch(function, grid, block, 0, NULL, parameters, false);
    if (status == MF_OK)
        status = mfi_cuda_synchronize();
    mfi_cuda_module_unload(module);
    return status;
}

static void destroy(void *opaque)
{
    state *s = opaque;
    if (s && s->table)
        mfi_cuda_release(s->table);
    mf_free(s);
}

/* Bytes of a thread's local memory that are worth one more block on a multiprocessor. */
enum { FEW_SPILLS = 32 };

static mf_status compile(state *s)
{
    mfi_source source;
    mfi_module *module = NULL;
    MF_TRY(mfi_emit_fft(&source, s->problem, &s->shape));
    /* The transforms' products and sums may become one operation, and those of the chains with them. */
    mf_status status = mfi_jit_compile(&module, s->context, source.name, source.text, true);
    mf_free(source.text);
    s->module = module;
    return status;
}

static mf_status make(state *s, const mfi_caps *c, mfi_bid *bid)
{
    mfi_bid own = {.variant = bid->variant};
    if (!mfi_fft_shape_choose(&s->shape, s->problem, c, &own))
        return mfi_fail(MF_E_UNSUPPORTED, "%s", own.detail);
    MF_TRY(mfi_fft_words_fill(&s->words, s->problem, &s->shape));
    MF_TRY(compile(s));
    while (s->module->spills > FEW_SPILLS && s->shape.resident > 1) {
        s->shape.resident--;
        MF_TRY(compile(s));
    }
    snprintf(bid->kernel, sizeof bid->kernel, "%s", s->module->name);
    snprintf(bid->identity, sizeof bid->identity, "%d elements a thread %d signals a block %d blocks resident",
             s->shape.elements, s->shape.ffts, s->shape.resident);
    if (!c->present)
        return MF_OK;
    MF_TRY(mfi_cuda_function_shared(s->module->function, s->shape.shared));
    return fill_table(s);
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
        destroy(s);
        return status;
    }
    *out = s;
    return MF_OK;
}

/* ---- run ---- */

static void set_operands(uint64_t *words, const mfi_problem *p, const mfi_run *r, bool through)
{
    for (int o = 0; o < p->chain.operands; o++)
        words[o] = mfi_chain_reaches_memory(&p->chain, o, through) ? mfi_run_address(r, &p->chain.operand[o].view) : 0;
}

static mf_status run(void *opaque, const mfi_run *r)
{
    const state *s = opaque;
    const mfi_problem *p = s->problem;
    mfi_fft_parts parts = mfi_fft_parts_of(p);
    const mfi_words *w = &s->words.words;
    uint64_t words[MFI_MAX_WORDS];
    memcpy(words, w->word, (size_t)w->count * sizeof *words);
    words[s->words.table] = (uint64_t)(uintptr_t)s->table;
    if (parts.before)
        set_operands(words + s->words.before, parts.before, r, true);
    else
        words[s->words.in] = mfi_run_address(r, parts.first ? &parts.first->u.fft.in : &p->u.fft.in);
    if (parts.first)
        set_operands(words + s->words.middle, parts.first, r, true);
    set_operands(words + s->words.last, p, r, false);
    return mfi_jit_launch_early(s->module, r->context, (int)s->shape.blocks, s->shape.threads, s->shape.shared, words,
                                (size_t)w->count * sizeof *words, r->stream);
}

static mf_status kernel(void *opaque, int index, mf_kernel_info *out)
{
    return mfi_only_kernel(((const state *)opaque)->module, index, out);
}

static int variants(const mfi_problem *p, const mfi_caps *c)
{
    (void)p, (void)c;
    return MFI_FFT_VARIANTS;
}

static mf_status device_code(void *opaque, int index, int threads, const mfi_device_memory *memory,
                             mfi_device_code *out)
{
    const state *s = opaque;
    MF_REQUIRE(!threads || threads == s->shape.threads, MF_E_UNSUPPORTED, "its blocks have %d threads, not %d",
               s->shape.threads, threads);
    MF_REQUIRE(!s->shape.pair, MF_E_UNSUPPORTED, "n=%d takes the two blocks of a cluster", s->shape.n);
    return mfi_emit_fft_device(out, s->problem, &s->shape, &s->words, index, memory->slots, memory->kept);
}

static void device_needs(void *opaque, int *launches, size_t *kept)
{
    *launches = 2;
    *kept = table_bytes(opaque);
}

static const mfi_device_functions device = {device_code, device_needs};

const mfi_provider mfi_provider_fft_generated = {"generated_fft", query,  prepare, run,
                                                 destroy,         kernel, &device, variants};
