/* Provider `generated_together`: several steps over the items of one batch, a solver among them, in one kernel. */
#include "cuda_api.h"
#include "emit.h"

#include <stdio.h>

typedef struct state {
    mfi_together_shape shape;
    mf_context *context;
    const mfi_module *module; /* the context's */
} state;

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    mfi_together_shape s;
    MF_REFUSE_UNLESS(c->cuda, WRONG_TARGET, "generated kernels run on GPUs");
    MF_REFUSE_UNLESS(p->anchor == MFI_TOGETHER, NOT_ANCHOR, "several steps over one batch only");
#ifndef MFI_WITH_CUDA
    return mfi_refuse(bid, MFI_R_NOT_BUILT, "built without CUDA's headers");
#endif
    MF_REFUSE_UNLESS(c->library[MFI_LIB_NVRTC], NOT_FOUND, "NVRTC compiles the kernels");
    MF_REFUSE_UNLESS(c->sm >= 80, WRONG_TARGET, "sm_80 or newer is needed, this is %s", c->arch);
    if (!mfi_together_choose(&s, p, c, bid))
        return false;
    bid->bytes = mfi_problem_bytes(p);
    bid->launches = 1;
    bid->cost_us = (double)bid->bytes / (c->bytes_per_us * 0.6) + s.us + c->launch_us;
    snprintf(bid->kernel, sizeof bid->kernel, "mf_together %d steps", p->u.together.parts);
    return true;
}

static mf_status make(state *s, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    mfi_source source;
    mfi_module *module = NULL;
    MF_REQUIRE(mfi_together_choose(&s->shape, p, c, bid), MF_E_UNSUPPORTED, "%s", bid->detail);
    MF_TRY(mfi_emit_together(&source, p, &s->shape, c));
    mf_status status = mfi_jit_compile(&module, s->context, source.name, source.text, false);
    mf_free(source.text);
    MF_TRY(status);
    s->module = module;
    snprintf(bid->kernel, sizeof bid->kernel, "%s", module->name);
    return c->present ? mfi_cuda_function_shared(module->function, s->shape.shared) : MF_OK;
}

static mf_status prepare(void **out, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    state *s = mfi_calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->context = context;
    mf_status status = make(s, p, c, bid);
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
    uint64_t words[MFI_TOGETHER_PLACES + 1];
    for (int i = 0; i < s->shape.places; i++)
        words[i] = (uint64_t)(uintptr_t)r->slots[s->shape.place[i].slot];
    words[s->shape.places] = (uint64_t)s->shape.batch;
    return mfi_jit_launch(s->module, r->context, (int)s->shape.blocks, s->shape.threads, s->shape.shared, words,
                          (size_t)(s->shape.places + 1) * sizeof *words, r->stream);
}

static mf_status kernel(void *opaque, int index, mf_kernel_info *out)
{
    return mfi_only_kernel(((const state *)opaque)->module, index, out);
}

const mfi_provider mfi_provider_together = {"generated_together", query, prepare, run, mf_free, kernel, NULL, NULL};
