/* Passes: MAP problems built and run on behalf of a library provider. */
#include "cuda_pass.h"
#include "schedule.h"

struct mfi_pass {
    mfi_problem problem;
    const mfi_provider *provider;
    void *state;
    mfi_bid bid;
};

/* Fewer dims make better kernels; positions along them must not be asked for then. */
static void simplify(mfi_problem *p)
{
    for (int i = 0; i < p->chain.count; i++)
        if (p->chain.instr[i].kind == MFI_INDEX)
            return;
    mfi_collapse(p);
}

mf_status mfi_pass_new(mfi_pass **out, const mfi_problem *map, const mfi_caps *c, mf_context *context)
{
    mfi_pass *pass = mfi_calloc(1, sizeof *pass);
    *out = NULL;
    if (!pass)
        return MFI_NO_MEMORY(sizeof *pass);
    pass->problem = *map;
    simplify(&pass->problem);
    mf_status status = MF_E_UNSUPPORTED;
    for (int i = 0; i < mfi_provider_count && !pass->provider; i++) {
        pass->bid = (mfi_bid){0};
        if (!mfi_providers[i]->query(&pass->problem, c, &pass->bid))
            continue;
        status = mfi_providers[i]->prepare(&pass->state, &pass->problem, c, context, &pass->bid);
        if (status == MF_OK)
            pass->provider = mfi_providers[i];
    }
    if (!pass->provider) {
        mf_free(pass);
        return status == MF_OK || status == MF_E_UNSUPPORTED
                   ? mfi_fail(MF_E_UNSUPPORTED, "no provider runs the copies that the library needs around it")
                   : status;
    }
    *out = pass;
    return MF_OK;
}

size_t mfi_pass_workspace(const mfi_pass *pass)
{
    return pass ? pass->bid.workspace : 0;
}

mf_status mfi_pass_run(mfi_pass *pass, void *const *slots, void *workspace, const mfi_run *run)
{
    mfi_run own = *run;
    own.slots = slots;
    own.workspace = workspace;
    return pass->provider->run(pass->state, &own);
}

void mfi_pass_free(mfi_pass *pass)
{
    if (pass)
        pass->provider->destroy(pass->state);
    mf_free(pass);
}

mf_status mfi_pass_kernel(mfi_pass *const *passes, int count, int index, mf_kernel_info *out)
{
    for (int i = 0; i < count; i++) {
        if (!passes[i] || !passes[i]->provider->kernel)
            continue;
        if (index-- == 0)
            return passes[i]->provider->kernel(passes[i]->state, 0, out);
    }
    return mfi_fail(MF_E_INVALID, "the step has no such kernel");
}

double mfi_pass_cost(const mfi_caps *c, int64_t bytes)
{
    return c->launch_us + (double)bytes / c->bytes_per_us;
}

/* ---- building ---- */

static const mfi_instr EMPTY = {.op = -1, .operand = -1, .a = -1, .b = -1, .c = -1};

static int append(mfi_problem *p, mfi_instr in)
{
    p->chain.instr[p->chain.count] = in;
    return p->chain.count++;
}

void mfi_pass_begin(mfi_problem *p, int ndim, const int64_t *shape)
{
    memset(p, 0, sizeof *p);
    p->anchor = MFI_MAP;
    p->ndim = ndim;
    memcpy(p->shape, shape, (size_t)ndim * sizeof *shape);
    if (ndim == 0) {
        p->ndim = 1;
        p->shape[0] = 1;
    }
}

static int16_t operand(mfi_problem *p, int slot, const mfi_view *view, const int64_t *extent)
{
    mfi_operand *o = &p->chain.operand[p->chain.operands];
    o->view = *view;
    o->view.slot = (int16_t)slot;
    for (int d = 0; d < MF_MAX_DIMS; d++) {
        bool cut = extent && d < p->ndim && extent[d] >= 0 && extent[d] < p->shape[d];
        o->extent[d] = cut ? extent[d] : -1;
        if (d >= p->ndim || p->shape[d] == 1)
            o->view.strides[d] = 0;
    }
    return (int16_t)p->chain.operands++;
}

int mfi_pass_load(mfi_problem *p, int slot, const mfi_view *view, const int64_t *extent)
{
    mfi_instr in = EMPTY;
    in.kind = MFI_LOAD;
    in.ctype = (uint8_t)mfi_compute_type(view->dtype);
    in.operand = operand(p, slot, view, extent);
    return append(p, in);
}

int mfi_pass_constant(mfi_problem *p, mfi_ctype ctype, double re, double im)
{
    mfi_instr in = EMPTY;
    in.kind = MFI_CONST;
    in.ctype = (uint8_t)ctype;
    in.re = re;
    in.im = im;
    return append(p, in);
}

int mfi_pass_index(mfi_problem *p, int axis)
{
    mfi_instr in = EMPTY;
    in.kind = MFI_INDEX;
    in.ctype = MFI_I64;
    in.axis = (uint8_t)axis;
    return append(p, in);
}

static bool is_comparison(mf_op op)
{
    return op >= MF_OP_EQUAL && op <= MF_OP_LOGICAL_XOR;
}

int mfi_pass_apply(mfi_problem *p, mf_op op, mfi_ctype ctype, int a, int b, int c)
{
    mfi_instr in = EMPTY;
    in.kind = MFI_APPLY;
    in.op = (int16_t)op;
    in.from = (uint8_t)ctype;
    in.ctype = (uint8_t)(is_comparison(op) || op == MF_OP_ISNAN || op == MF_OP_ISFINITE ? MFI_I32 : ctype);
    if (op == MF_OP_REAL || op == MF_OP_IMAG || op == MF_OP_ABSOLUTE)
        in.ctype = (uint8_t)(ctype == MFI_C64 ? MFI_F32 : ctype == MFI_C128 ? MFI_F64 : ctype);
    in.a = (int16_t)a;
    in.b = (int16_t)b;
    in.c = (int16_t)c;
    return append(p, in);
}

int mfi_pass_cast(mfi_problem *p, mfi_ctype ctype, int a)
{
    mfi_instr in = EMPTY;
    if (p->chain.instr[a].ctype == ctype)
        return a;
    in.kind = MFI_CAST;
    in.a = (int16_t)a;
    in.from = p->chain.instr[a].ctype;
    in.ctype = (uint8_t)ctype;
    in.dtype = (uint8_t)mfi_ctype_dtype(ctype);
    return append(p, in);
}

void mfi_pass_store(mfi_problem *p, int slot, const mfi_view *view, int a)
{
    mfi_instr in = EMPTY;
    in.kind = MFI_STORE;
    in.ctype = p->chain.instr[a].ctype;
    in.operand = operand(p, slot, view, NULL);
    in.a = (int16_t)a;
    append(p, in);
}

void mfi_pass_copy(mfi_problem *p, int ndim, const int64_t *shape, const mfi_view *src, const int64_t *extent,
                   const mfi_view *dst, double re, double im)
{
    mfi_ctype ctype = mfi_compute_type(dst->dtype);
    mfi_pass_begin(p, ndim, shape);
    int value = mfi_pass_cast(p, ctype, mfi_pass_load(p, 0, src, extent));
    if (re != 1 || im != 0) {
        int scale = mfi_pass_constant(p, ctype, re, im);
        value = mfi_pass_apply(p, MF_OP_MULTIPLY, ctype, value, scale, -1);
    }
    mfi_pass_store(p, 1, dst, value);
}

mfi_view mfi_pass_contiguous(mf_dtype dtype, int ndim, const int64_t *shape)
{
    mfi_view view = {.dtype = dtype, .alignment = 256};
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        view.strides[d] = step;
        step *= mfi_max64(1, shape[d]);
    }
    return view;
}
