/* Questions about steps: sizes, traffic, flops, text. Steps are built in src/fusion/partition.c. */
#include "provider.h"

#include <stdio.h>

static const struct {
    const char *name, *real, *integer, *complex;
    int arity;
} ops[] = {
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) {#name, #real, #integer, #complex, arity},
#include "mathfuse/def/op.def"
#undef MF_OP
};
_Static_assert(MFI_COUNT(ops) == MF_OP_COUNT, "one row per operation");

int mfi_op_arity(int op)
{
    return ops[op].arity;
}

bool mfi_op_defined(mf_op op, mfi_ctype ctype)
{
    const char *text = ctype <= MFI_I64 ? ops[op].integer : ctype <= MFI_F64 ? ops[op].real : ops[op].complex;
    return strcmp(text, "MF_NA") != 0;
}

int64_t mfi_problem_points(const mfi_problem *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->ndim; d++)
        n *= p->shape[d];
    return n;
}

int64_t mfi_problem_rows(const mfi_problem *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->ndim - p->nreduce; d++)
        n *= p->shape[d];
    return n;
}

int64_t mfi_view_bytes(const mfi_view *view, int ndim, const int64_t *shape)
{
    int64_t n = (int64_t)mf_dtype_size(view->dtype);
    for (int d = 0; d < ndim; d++)
        n *= view->strides[d] || shape[d] == 0 ? shape[d] : 1;
    return n;
}

bool mfi_chain_is_store(const mfi_chain *chain, const mfi_operand **store)
{
    if (chain->count != 2 || chain->instr[0].kind != MFI_ACC || chain->instr[1].kind != MFI_STORE)
        return false;
    *store = &chain->operand[chain->instr[1].operand];
    return true;
}

/* Bytes of a view over dims other than the domain's, batch dims first. */
static int64_t matrix_bytes(const mfi_view *v, const mfi_problem *p, int batch, int64_t rows, int64_t columns)
{
    if (v->slot < 0)
        return 0;
    int64_t shape[MF_MAX_DIMS];
    memcpy(shape, p->shape, (size_t)batch * sizeof *shape);
    shape[batch] = rows;
    shape[batch + 1] = columns;
    return mfi_view_bytes(v, batch + 2, shape);
}

int64_t mfi_fft_terms(const mfi_fft *f)
{
    return f->kind == MF_RFFT ? f->n[0] / 2 + 1 : f->n[0];
}

bool mfi_fft_is_narrow(const mfi_problem *p)
{
    return (p->anchor == MFI_FFT || p->anchor == MFI_FFT_PAIR) && p->u.fft.naxes == 1 &&
           p->shape[p->ndim - 1] < mfi_fft_terms(&p->u.fft);
}

void mfi_problem_free(mfi_problem *p)
{
    if (p)
        mfi_problem_free(p->head);
    for (int i = 0; p && p->anchor == MFI_TOGETHER && i < p->u.together.parts; i++)
        mfi_problem_free(p->u.together.part[i]);
    mf_free(p);
}

mfi_problem *mfi_problem_copy(const mfi_problem *p)
{
    mfi_problem *own = mfi_alloc(sizeof *own);
    if (!own)
        return NULL;
    *own = *p;
    for (int i = 0; p->anchor == MFI_TOGETHER && i < p->u.together.parts; i++)
        if (!(own->u.together.part[i] = mfi_problem_copy(p->u.together.part[i]))) {
            own->u.together.parts = i;
            mfi_problem_free(own);
            return NULL;
        }
    if (p->head && !(own->head = mfi_problem_copy(p->head))) {
        mf_free(own);
        return NULL;
    }
    return own;
}

static int64_t chain_bytes(const mfi_problem *p, bool stores)
{
    int64_t bytes = 0;
    for (int i = 0; i < p->chain.count; i++) {
        const mfi_instr *in = &p->chain.instr[i];
        if (in->kind == MFI_LOAD || (stores && in->kind == MFI_STORE))
            bytes += mfi_view_bytes(&p->chain.operand[in->operand].view, p->ndim, p->shape);
    }
    return bytes;
}

static int64_t anchor_bytes(const mfi_problem *p)
{
    if (p->anchor == MFI_FFT_PAIR)
        return anchor_bytes(p->head) + chain_bytes(p->head, false);
    if (p->anchor == MFI_MATMUL || p->anchor == MFI_MATMUL_PAIR) {
        const mfi_matmul *mm = &p->u.matmul;
        int rights = p->anchor == MFI_MATMUL_PAIR ? 2 : 1;
        return matrix_bytes(&mm->a, p, p->ndim - 2, mm->m, mm->k) +
               rights * matrix_bytes(&mm->b, p, p->ndim - 2, mm->k, mm->n);
    }
    if (p->anchor == MFI_FFT) {
        const mfi_fft *f = &p->u.fft;
        int64_t shape[MF_MAX_DIMS];
        memcpy(shape, p->shape, sizeof shape);
        memcpy(shape + p->ndim - f->naxes, f->in_extent, (size_t)f->naxes * sizeof *shape);
        return mfi_view_bytes(&f->in, p->ndim, shape);
    }
    if (p->anchor == MFI_SOLVE) {
        const mfi_solve *s = &p->u.solve;
        int64_t xcols = s->solver == MFI_CHOLESKY ? s->n : s->nrhs;
        return matrix_bytes(&s->a, p, p->ndim, s->n, s->n) + matrix_bytes(&s->b, p, p->ndim, s->n, s->nrhs) +
               matrix_bytes(&s->x, p, p->ndim, s->n, xcols);
    }
    if (p->anchor == MFI_FACTOR) {
        int64_t bytes = 0;
        for (int i = 0; i < MFI_FACTOR_INPUTS + MFI_FACTOR_RESULTS; i++) {
            const mfi_factor *f = &p->u.factor;
            const mfi_factor_operand *o = i < MFI_FACTOR_INPUTS ? &f->in[i] : &f->out[i - MFI_FACTOR_INPUTS];
            bytes += o->rank == 2 ? matrix_bytes(&o->view, p, p->ndim, o->rows, o->cols) : 0;
        }
        return bytes;
    }
    return 0;
}

int mfi_together_own(const mfi_together *t, int slot)
{
    int i = 0;
    while (i < t->owns && t->own[i].slot != slot)
        i++;
    return i < t->owns ? i : -1;
}

int64_t mfi_problem_bytes(const mfi_problem *p)
{
    if (p->anchor == MFI_TOGETHER)
        return p->u.together.bytes;
    return anchor_bytes(p) + chain_bytes(p, true);
}

static double log2_of(double n)
{
    double bits = 0;
    while (n > 1) {
        n /= 2;
        bits++;
    }
    return bits;
}

double mfi_problem_flops(const mfi_problem *p)
{
    double points = (double)mfi_problem_points(p), flops = points * p->chain.count;
    if (p->anchor == MFI_MATMUL_PAIR)
        flops += 4.0 * points * (double)p->u.matmul.k;
    if (p->anchor == MFI_MATMUL)
        flops += 2.0 * points * (double)p->u.matmul.k * (p->u.matmul.acc >= MFI_C64 ? 4 : 1);
    if (p->anchor == MFI_FFT_PAIR)
        flops += mfi_problem_flops(p->head);
    if (p->anchor == MFI_FFT || p->anchor == MFI_FFT_PAIR) {
        double n = 1;
        for (int a = 0; a < p->u.fft.naxes; a++)
            n *= (double)p->u.fft.n[a];
        flops += 5.0 * points * log2_of(n); /* the customary 5 n log2 n of a complex transform */
    }
    if (p->anchor == MFI_SOLVE) {
        double n = (double)p->u.solve.n, nrhs = (double)p->u.solve.nrhs;
        double factor = p->u.solve.solver == MFI_LU_SOLVE ? 2 * n * n * n / 3 : n * n * n / 3;
        bool factors = p->u.solve.solver != MFI_CHO_SOLVE && p->u.solve.solver != MFI_TRSM;
        flops = points * ((factors ? factor : 0) + 2 * n * n * nrhs);
    }
    if (p->anchor == MFI_FACTOR)
        flops = points * mfi_factor_flops(&p->u.factor);
    for (int i = 0; p->anchor == MFI_TOGETHER && i < p->u.together.parts; i++)
        flops += mfi_problem_flops(p->u.together.part[i]);
    return flops;
}

void mfi_bid_roofline(mfi_bid *bid, const mfi_problem *p, const mfi_caps *c, double efficiency, int launches)
{
    bool tensor = p->anchor == MFI_MATMUL && mf_dtype_size(p->u.matmul.a.dtype) <= 2;
    double rate = tensor && c->cuda ? c->tensor_flops_per_us : c->flops_per_us;
    bid->bytes = mfi_problem_bytes(p);
    double memory = (double)bid->bytes / c->bytes_per_us, math = mfi_problem_flops(p) / rate;
    bid->launches = launches;
    bid->cost_us = (memory > math ? memory : math) / efficiency + launches * c->launch_us;
}

/* ---- text ---- */

static void value_text(const mfi_problem *p, int v, mfi_text *out, int depth)
{
    const mfi_instr *in = &p->chain.instr[v];
    const mfi_operand *operand = in->operand >= 0 ? &p->chain.operand[in->operand] : NULL;
    if (depth > 12) {
        mfi_text_add(out, "…");
        return;
    }
    switch (in->kind) {
    case MFI_ACC:
        mfi_text_add(out, in->axis ? "acc2" : "acc");
        break;
    case MFI_LOAD:
        mfi_text_add(out, "x%d", operand ? operand->view.slot : -1);
        break;
    case MFI_CONST:
        mfi_text_add(out, in->im != 0 ? "(%g%+gj)" : "%g", in->re, in->im);
        break;
    case MFI_INDEX:
        mfi_text_add(out, "i%d", in->axis);
        break;
    case MFI_CAST:
        mfi_text_add(out, "%s(", mf_dtype_name((mf_dtype)in->dtype));
        value_text(p, in->a, out, depth + 1);
        mfi_text_add(out, ")");
        break;
    case MFI_REDUCE: {
        static const char *const names[] = {"sum", "prod", "max", "min", "mean", "any", "all"};
        mfi_text_add(out, "%s(", names[in->reduce]);
        value_text(p, in->a, out, depth + 1);
        mfi_text_add(out, ")");
        break;
    }
    case MFI_SUM_K:
        mfi_text_add(out, "sum_k(x%d)", in->axis ? p->u.matmul.b.slot : p->u.matmul.a.slot);
        break;
    default:
        mfi_text_add(out, "%s(", ops[in->op].name);
        for (int i = 0; i < ops[in->op].arity; i++) {
            mfi_text_add(out, i ? ", " : "");
            value_text(p, i == 0 ? in->a : i == 1 ? in->b : in->c, out, depth + 1);
        }
        mfi_text_add(out, ")");
    }
}

void mfi_chain_text(const mfi_problem *p, mfi_text *out)
{
    if (p->anchor == MFI_FFT_PAIR) {
        mfi_chain_text(p->head, out);
        mfi_text_add(out, "; of that: ");
    }
    for (int i = 0, chains = 0; p->anchor == MFI_TOGETHER && i < p->u.together.parts; i++) {
        mfi_text_add(out, p->u.together.part[i]->chain.count && chains++ ? "; " : "");
        mfi_chain_text(p->u.together.part[i], out);
    }
    for (int i = 0, stores = 0; i < p->chain.count; i++) {
        const mfi_instr *in = &p->chain.instr[i];
        if (in->kind != MFI_STORE)
            continue;
        const mfi_view *view = &p->chain.operand[in->operand].view;
        mfi_text_add(out, "%sx%d:%s = ", stores++ ? "; " : "", view->slot, mf_dtype_name(view->dtype));
        value_text(p, in->a, out, 0);
    }
}

static void shape_text(const int64_t *shape, int count, mfi_text *out)
{
    for (int d = 0; d < count; d++)
        mfi_text_add(out, "%s%lld", d ? "x" : "", (long long)shape[d]);
}

void mfi_problem_text(const mfi_problem *p, mfi_text *out)
{
    static const char *const kinds[] = {"fft", "ifft", "rfft", "irfft"};
    static const char *const solvers[] = {"cholesky", "solve", "cho_solve", "solve_triangular", "cholesky and solve"};
    for (int i = 0; p->anchor == MFI_TOGETHER && i < p->u.together.parts; i++) {
        mfi_text_add(out, i ? ", then " : "together: ");
        mfi_problem_text(p->u.together.part[i], out);
    }
    if (p->anchor == MFI_TOGETHER)
        return;
    if (p->anchor == MFI_MATMUL || p->anchor == MFI_MATMUL_PAIR) {
        mfi_text_add(out, "%s %s ", p->anchor == MFI_MATMUL ? "matmul" : "two matmuls",
                     mf_dtype_name(p->u.matmul.a.dtype));
        shape_text(p->shape, p->ndim, out);
        mfi_text_add(out, "x%lld", (long long)p->u.matmul.k);
    } else if (p->anchor == MFI_FFT || p->anchor == MFI_FFT_PAIR) {
        for (const mfi_problem *h = p->head; h; h = h->head)
            mfi_text_add(out, "%s, ", h->anchor == MFI_MAP ? "map" : kinds[h->u.fft.kind]);
        mfi_text_add(out, "%s %s n=", kinds[p->u.fft.kind], p->u.fft.f64 ? "f64" : "f32");
        shape_text(p->u.fft.n, p->u.fft.naxes, out);
        mfi_text_add(out, " over ");
        shape_text(p->shape, p->ndim, out);
    } else if (p->anchor == MFI_SOLVE) {
        mfi_text_add(out, "%s %s n=%lld nrhs=%lld batch ", solvers[p->u.solve.solver], mfi_ctype_name(p->u.solve.ctype),
                     (long long)p->u.solve.n, (long long)p->u.solve.nrhs);
        shape_text(p->shape, p->ndim, out);
    } else if (p->anchor == MFI_FACTOR) {
        const mfi_factor *f = &p->u.factor;
        mfi_text_add(out, "%s %s %lldx%lld", mfi_factor_name(f->kind), mfi_ctype_name(f->ctype), (long long)f->m,
                     (long long)f->n);
        if (f->nrhs)
            mfi_text_add(out, " nrhs=%lld", (long long)f->nrhs);
        mfi_text_add(out, " batch ");
        shape_text(p->shape, p->ndim, out);
    } else {
        mfi_text_add(out, p->nreduce ? "reduce " : "map ");
        shape_text(p->shape, p->ndim, out);
        if (p->nreduce)
            mfi_text_add(out, " over the last %d", p->nreduce);
    }
}
