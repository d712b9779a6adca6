/* The chain of a step as a CUDA struct of small functions; src/device/chain.cuh says which. */
#include "emit.h"

#include <math.h>
#include <stdio.h>

/* Where a piece of the chain is evaluated: at point i of a vector, or once a row. */
typedef enum where { AT_POINT, AT_ROW } where;

typedef struct emitter {
    mfi_text *out;
    const mfi_problem *p;
    const mfi_shape *layout;
    unsigned phases[MFI_MAX_INSTR]; /* bit P: phase P evaluates the instruction at points */
    bool exact[MFI_MAX_INSTR];      /* the value is not only rounded to 16 bits or fewer */
} emitter;

static const char *const op_names[] = {
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) #name,
#include "mathfuse/def/op.def"
#undef MF_OP
};
static const char *const reduce_names[] = {"op_sum", "op_prod", "op_max", "op_min", NULL, "op_any", "op_all"};

const char *mfi_emit_storage(mf_dtype dtype)
{
    static const char *const names[] = {
#define MF_DTYPE(ENUM, name, bytes, kind, compute, dlpack, numpy) "mf::" #name,
#include "mathfuse/def/dtype.def"
#undef MF_DTYPE
    };
    return dtype == MF_BOOL ? "mf::b8" : names[dtype];
}

const char *mfi_emit_ctype(mfi_ctype ctype)
{
    static const char *const names[] = {"mf::i32", "mf::i64", "float", "double", "mf::c64", "mf::c128"};
    return names[ctype];
}

/* ---- which instruction is evaluated where ---- */

static bool is_row_value(const mfi_instr *in)
{
    return in->kind == MFI_REDUCE || (in->level > 0 && in->kind != MFI_CONST && in->kind != MFI_STORE);
}

static void need(emitter *e, int v, unsigned phase)
{
    if (v < 0 || is_row_value(&e->p->chain.instr[v]) || (e->phases[v] & 1u << phase))
        return;
    const mfi_instr *in = &e->p->chain.instr[v];
    e->phases[v] |= 1u << phase;
    need(e, in->a, phase);
    need(e, in->b, phase);
    need(e, in->c, phase);
}

static void assign_phases(emitter *e)
{
    for (int i = 0; i < e->p->chain.count; i++) {
        const mfi_instr *in = &e->p->chain.instr[i];
        if (in->kind == MFI_REDUCE)
            need(e, in->a, in->level - 1u);
        else if (in->kind == MFI_STORE && !mfi_is_row_store(e->p, in))
            need(e, in->a, (unsigned)e->p->chain.phases);
    }
}

/* ---- which values may be quick ---- */

static bool is_narrow_float(mf_dtype dtype)
{
    return mf_dtype_size(dtype) <= 2 && mfi_compute_type(dtype) == MFI_F32;
}

/* Small differences of their operands may become large ones: steps, periods, and what magnifies without bound. */
static bool is_steep(mf_op op)
{
    switch (op) {
    case MF_OP_FLOOR:
    case MF_OP_CEIL:
    case MF_OP_TRUNC:
    case MF_OP_RINT:
    case MF_OP_FLOOR_DIVIDE:
    case MF_OP_REMAINDER:
    case MF_OP_SIGN:
    case MF_OP_SIN:
    case MF_OP_COS:
    case MF_OP_TAN:
    case MF_OP_POWER:
        return true;
    default:
        return false;
    }
}

/* A value is exact if something that is not a rounding to 16 bits or fewer needs it so. */
static void assign_exact(emitter *e)
{
    const mfi_chain *c = &e->p->chain;
    for (int i = c->count - 1; i >= 0; i--) {
        const mfi_instr *in = &c->instr[i];
        bool exact = e->exact[i] || in->kind == MFI_REDUCE ||
                     (in->kind == MFI_APPLY && (in->ctype != MFI_F32 || is_steep((mf_op)in->op)));
        if (in->kind == MFI_STORE)
            exact = !is_narrow_float(c->operand[in->operand].view.dtype);
        if (in->kind == MFI_CAST)
            exact = !is_narrow_float((mf_dtype)in->dtype);
        for (int k = 0; k < 3 && exact; k++) {
            const int16_t v = k == 0 ? in->a : k == 1 ? in->b : in->c;
            if (v >= 0)
                e->exact[v] = true;
        }
    }
}

/* There is such a function in quick.cuh. */
static bool is_quick(const emitter *e, int v)
{
    const mfi_instr *in = &e->p->chain.instr[v];
    if (e->exact[v] || in->ctype != MFI_F32 || in->from != MFI_F32)
        return false;
    switch ((mf_op)in->op) {
    case MF_OP_EXP:
    case MF_OP_EXP2:
    case MF_OP_SIGMOID:
    case MF_OP_SILU:
    case MF_OP_GELU:
    case MF_OP_TANH:
    case MF_OP_DIVIDE:
    case MF_OP_RECIPROCAL:
    case MF_OP_SQRT:
        return true;
    default:
        return false;
    }
}

/* ---- values ---- */

/* As %a would print it, whatever the locale's decimal point. */
static void hex_float(mfi_text *out, double v, bool single)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    int exponent = (int)(bits >> 52 & 0x7ff);
    mfi_text_add(out, "%s0x%d.%013llxp%d%s", bits >> 63 ? "-" : "", exponent ? 1 : 0,
                 (unsigned long long)(bits & 0xfffffffffffff), !exponent ? (bits << 1 ? -1022 : 0) : exponent - 1023,
                 single ? "f" : "");
}

static void real_constant(mfi_text *out, double v, bool single)
{
    const char *type = single ? "float" : "double";
    double value = single ? (double)(float)v : v;
    if (isnan(value))
        mfi_text_add(out, "mf::nan_of<%s>()", type);
    else if (isinf(value))
        mfi_text_add(out, "%smf::inf_of<%s>()", value < 0 ? "-" : "", type);
    else
        hex_float(out, value, single);
}

static void integer_constant(mfi_text *out, double v)
{
    if (v >= 0x1p63)
        mfi_text_add(out, "0x7fffffffffffffffll");
    else if (v <= -0x1p63)
        mfi_text_add(out, "(-0x7fffffffffffffffll - 1)");
    else
        mfi_text_add(out, "%lldll", v == v ? (long long)v : 0);
}

static void constant(mfi_text *out, const mfi_instr *in)
{
    mfi_text_add(out, "%s", mfi_emit_ctype((mfi_ctype)in->ctype));
    mfi_text_add(out, in->ctype >= MFI_C64 ? "{" : "(");
    if (in->ctype <= MFI_I64) {
        integer_constant(out, in->re);
    } else {
        real_constant(out, in->re, in->ctype == MFI_F32 || in->ctype == MFI_C64);
        if (in->ctype >= MFI_C64) {
            mfi_text_add(out, ", ");
            real_constant(out, in->im, in->ctype == MFI_C64);
        }
    }
    mfi_text_add(out, in->ctype >= MFI_C64 ? "}" : ")");
}

static void value(emitter *e, int v)
{
    mfi_text_add(e->out, is_row_value(&e->p->chain.instr[v]) ? "r.v%d" : "v%d", v);
}

static void offset(emitter *e, int operand)
{
    const mfi_view *view = &e->p->chain.operand[operand].view;
    int last = e->p->ndim - 1, terms = 0;
    mfi_text_add(e->out, "(mf::i64)(");
    for (int d = 0; d < e->p->ndim; d++) {
        if (view->strides[d] == 0)
            continue;
        mfi_text_add(e->out, terms++ ? " + " : "");
        if (d == last && view->strides[d] == 1)
            mfi_text_add(e->out, "p.c[%d]", d);
        else
            mfi_text_add(e->out, "p.c[%d] * (index)a.stride[%d][%d]", d, operand, d);
    }
    mfi_text_add(e->out, terms ? ")" : "0)");
}

static void alignment(emitter *e, int operand, bool vector)
{
    const mfi_view *view = &e->p->chain.operand[operand].view;
    int one = mfi_view_vector_alignment(view, e->p, 1);
    int all = mfi_view_vector_alignment(view, e->p, e->layout->vector);
    if (vector && one != all)
        mfi_text_add(e->out, "<(V > 1 ? %d : %d)>", all, one);
    else
        mfi_text_add(e->out, "<%d>", one);
}

/* Fetch an operand into `target`, a pack. */
static void fetch(emitter *e, int operand, const char *target)
{
    mfi_access access = mfi_operand_access(e->p, operand);
    const mfi_operand *o = &e->p->chain.operand[operand];
    int guards = 0;
    for (int d = 0; d < e->p->ndim; d++)
        if (o->extent[d] >= 0)
            mfi_text_add(e->out, "%sp.c[%d] < (index)a.extent[%d][%d]", guards++ ? " && " : "if (", d, operand, d);
    mfi_text_add(e->out, guards ? ") " : "");
    mfi_text_add(e->out, access == MFI_ACCESS_STRIDED ? "mf::fetch_strided" : "mf::fetch_unit");
    alignment(e, operand, access == MFI_ACCESS_UNIT);
    mfi_text_add(e->out, "(%s, a.data[%d], ", target, operand);
    offset(e, operand);
    if (access == MFI_ACCESS_STRIDED)
        mfi_text_add(e->out, ", a.stride[%d][%d]", operand, e->p->ndim - 1);
    mfi_text_add(e->out, guards ? "); else mf::fetch_zero(%s);\n" : ");\n", target);
}

static void load_value(emitter *e, const mfi_instr *in, where at)
{
    const char *storage = mfi_emit_storage(e->p->chain.operand[in->operand].view.dtype);
    if (at == AT_POINT) {
        bool repeat = mfi_operand_access(e->p, in->operand) == MFI_ACCESS_REPEAT;
        mfi_text_add(e->out, e->layout->widened ? "in.x%d.v[%s]" : "mf::widen(in.x%d.v[%s])", in->operand,
                     repeat ? "0" : "i");
    } else {
        mfi_text_add(e->out, "[&] { mf::pack<%s, 1> x; ", storage);
        fetch(e, in->operand, "x");
        mfi_text_add(e->out, "            return mf::widen(x.v[0]); }()");
    }
}

static void apply(emitter *e, int v)
{
    const mfi_instr *in = &e->p->chain.instr[v];
    const int16_t operands[3] = {in->a, in->b, in->c};
    mfi_text_add(e->out, "mf::%s%s(", is_quick(e, v) ? "quick::" : "", op_names[in->op]);
    for (int i = 0; i < 3 && i < mfi_op_arity(in->op); i++) {
        mfi_text_add(e->out, i ? ", " : "");
        value(e, operands[i]);
    }
    mfi_text_add(e->out, ")");
}

static void expression(emitter *e, int v, where at)
{
    const mfi_instr *in = &e->p->chain.instr[v];
    switch (in->kind) {
    case MFI_ACC:
        mfi_text_add(e->out, in->axis ? "in.acc1[i]" : "in.acc[i]");
        break;
    case MFI_LOAD:
        load_value(e, in, at);
        break;
    case MFI_CONST:
        constant(e->out, in);
        break;
    case MFI_INDEX:
        mfi_text_add(e->out, "(mf::i64)p.c[%d]%s", in->axis,
                     in->axis == e->p->ndim - 1 && at == AT_POINT ? " + i" : "");
        break;
    case MFI_CAST:
        mfi_text_add(e->out, "mf::cast<%s%s>(", mfi_emit_storage((mf_dtype)in->dtype), in->saturate ? ", true" : "");
        value(e, in->a);
        mfi_text_add(e->out, ")");
        break;
    default:
        apply(e, v);
    }
}

static void define(emitter *e, int v, where at, const char *indent)
{
    const mfi_instr *in = &e->p->chain.instr[v];
    if (is_row_value(in))
        mfi_text_add(e->out, "%sr.v%d = ", indent, v);
    else
        mfi_text_add(e->out, "%sconst %s v%d = ", indent, mfi_emit_ctype((mfi_ctype)in->ctype), v);
    expression(e, v, at);
    mfi_text_add(e->out, ";\n");
}

/* At a row: value v and whatever it is made of, unless `done`. Values of points are constant along the row here. */
static void define_at_row(emitter *e, int v, bool *done)
{
    if (v < 0 || done[v])
        return;
    const mfi_instr *in = &e->p->chain.instr[v];
    done[v] = true;
    if (in->kind == MFI_REDUCE)
        return;
    define_at_row(e, in->a, done);
    define_at_row(e, in->b, done);
    define_at_row(e, in->c, done);
    define(e, v, AT_ROW, "        ");
}

/* ---- members ---- */

static void members(emitter *e)
{
    const mfi_chain *c = &e->p->chain;
    bool seen[MFI_MAX_OPERANDS] = {false};
    mfi_text_add(e->out, "    struct inputs {\n");
    for (int i = 0; i < c->count; i++) {
        const mfi_instr *in = &c->instr[i];
        if (in->kind == MFI_ACC)
            mfi_text_add(e->out, "        %s acc%s[V];\n", mfi_emit_ctype((mfi_ctype)in->ctype), in->axis ? "1" : "");
        if (in->kind != MFI_LOAD || !e->phases[i] || seen[in->operand])
            continue;
        seen[in->operand] = true;
        bool repeat = mfi_operand_access(e->p, in->operand) == MFI_ACCESS_REPEAT;
        mf_dtype dtype = c->operand[in->operand].view.dtype;
        mfi_text_add(e->out, "        mf::pack<%s, %s> x%d;\n",
                     e->layout->widened ? mfi_emit_ctype(mfi_compute_type(dtype)) : mfi_emit_storage(dtype),
                     repeat ? "1" : "V", in->operand);
    }
    mfi_text_add(e->out, "    };\n    struct row {\n");
    for (int i = 0; i < c->count; i++)
        if (is_row_value(&c->instr[i]))
            mfi_text_add(e->out, "        %s v%d;\n", mfi_emit_ctype((mfi_ctype)c->instr[i].ctype), i);
    mfi_text_add(e->out, "    };\n");
}

static void load_function(emitter *e)
{
    const mfi_chain *c = &e->p->chain;
    mfi_text_add(e->out, "    template <int P, bool CACHED> static MF_DEVICE void load(const args &a, const point &p, "
                         "inputs &in)\n    {\n");
    for (int o = 0; o < c->operands; o++) {
        unsigned phases = 0;
        char target[16];
        for (int i = 0; i < c->count; i++)
            if (c->instr[i].kind == MFI_LOAD && c->instr[i].operand == o)
                phases |= e->phases[i];
        if (!phases)
            continue;
        snprintf(target, sizeof target, "in.x%d", o);
        mfi_text_add(e->out, "        if constexpr (mf::fetches<P, %#x, CACHED>()) {\n            ", phases);
        fetch(e, o, target);
        mfi_text_add(e->out, "        }\n");
    }
    mfi_text_add(e->out, "    }\n");
}

static void point_body(emitter *e, int phase, const char *indent)
{
    for (int i = 0; i < e->p->chain.count; i++)
        if (e->phases[i] >> phase & 1)
            define(e, i, AT_POINT, indent);
}

static bool in_phase(const mfi_instr *in, int phase)
{
    return in->kind == MFI_REDUCE && in->level == phase + 1;
}

/* What a REDUCE takes in: truth for any and all, else the operand in the reduction's type. */
static void reduced_value(emitter *e, const mfi_instr *in)
{
    bool logical = in->reduce == MF_ANY || in->reduce == MF_ALL, same = e->p->chain.instr[in->a].ctype == in->ctype;
    if (!same && logical)
        mfi_text_add(e->out, "mf::cast<mf::b8>(");
    else if (!same)
        mfi_text_add(e->out, "mf::convert<%s>(", mfi_emit_ctype((mfi_ctype)in->ctype));
    value(e, in->a);
    mfi_text_add(e->out, same ? "" : ")");
}

static void phase_functions(emitter *e, int phase)
{
    const mfi_chain *c = &e->p->chain;
    bool done[MFI_MAX_INSTR] = {false};
    mfi_text_add(e->out, "    static MF_DEVICE void start(mf::phase<%d>, row &r)\n    {\n", phase);
    for (int i = 0; i < c->count; i++)
        if (in_phase(&c->instr[i], phase))
            mfi_text_add(e->out, "        r.v%d = mf::%s::identity<%s>();\n", i, reduce_names[c->instr[i].reduce],
                         mfi_emit_ctype((mfi_ctype)c->instr[i].ctype));
    mfi_text_add(e->out,
                 "    }\n    static MF_DEVICE void add(mf::phase<%d>, const args &a, const point &p, const inputs &in, "
                 "int i, row &r)\n    {\n",
                 phase);
    point_body(e, phase, "        ");
    for (int i = 0; i < c->count; i++)
        if (in_phase(&c->instr[i], phase)) {
            mfi_text_add(e->out, "        r.v%d = mf::%s::combine(r.v%d, ", i, reduce_names[c->instr[i].reduce], i);
            reduced_value(e, &c->instr[i]);
            mfi_text_add(e->out, ");\n");
        }
    mfi_text_add(e->out,
                 "    }\n    template <class F> static MF_DEVICE void across(mf::phase<%d>, row &r, F &f)\n    {\n",
                 phase);
    for (int i = 0, slot = 0; i < c->count; i++) {
        if (in_phase(&c->instr[i], phase))
            mfi_text_add(e->out, "        r.v%d = f.template over<mf::%s, %d>(r.v%d);\n", i,
                         reduce_names[c->instr[i].reduce], slot, i);
        slot += c->instr[i].kind == MFI_REDUCE;
    }
    mfi_text_add(
        e->out,
        "    }\n    static MF_DEVICE void derive(mf::phase<%d>, const args &a, const point &p, row &r)\n    {\n",
        phase);
    for (int i = 0; i < c->count; i++) {
        done[i] = is_row_value(&c->instr[i]) && c->instr[i].level != phase + 1;
        if (is_row_value(&c->instr[i]) && c->instr[i].level == phase + 1)
            define_at_row(e, i, done);
    }
    mfi_text_add(e->out, "    }\n");
}

int mfi_emit_stored(const mfi_chain *c, const mfi_instr *store, bool *saturate)
{
    const mfi_instr *cast = &c->instr[store->a];
    *saturate = store->saturate;
    if (cast->kind != MFI_CAST || cast->level || cast->dtype != c->operand[store->operand].view.dtype ||
        cast->saturate < store->saturate)
        return store->a;
    *saturate = cast->saturate;
    return cast->a;
}

static void narrowed(emitter *e, const mfi_instr *in)
{
    bool saturate;
    int stored = mfi_emit_stored(&e->p->chain, in, &saturate);
    mfi_text_add(e->out, "mf::narrow<%s%s>(", mfi_emit_storage(e->p->chain.operand[in->operand].view.dtype),
                 saturate ? ", true" : "");
    value(e, stored);
    mfi_text_add(e->out, ")");
}

static void finish_function(emitter *e)
{
    const mfi_chain *c = &e->p->chain;
    mfi_text_add(e->out, "    static MF_DEVICE void finish(const args &a, const point &p, const inputs &in, "
                         "const row &r)\n    {\n");
    for (int i = 0; i < c->count; i++)
        if (c->instr[i].kind == MFI_STORE && !mfi_is_row_store(e->p, &c->instr[i]))
            mfi_text_add(e->out, "        mf::pack<%s, V> y%d;\n",
                         mfi_emit_storage(c->operand[c->instr[i].operand].view.dtype), i);
    mfi_text_add(e->out, "        MF_UNROLL\n        for (int i = 0; i < V; i++) {\n");
    point_body(e, c->phases, "            ");
    for (int i = 0; i < c->count; i++)
        if (c->instr[i].kind == MFI_STORE && !mfi_is_row_store(e->p, &c->instr[i])) {
            mfi_text_add(e->out, "            y%d.v[i] = ", i);
            narrowed(e, &c->instr[i]);
            mfi_text_add(e->out, ";\n");
        }
    mfi_text_add(e->out, "        }\n");
    for (int i = 0; i < c->count; i++) {
        const mfi_instr *in = &c->instr[i];
        if (in->kind != MFI_STORE || mfi_is_row_store(e->p, in))
            continue;
        bool strided = mfi_operand_access(e->p, in->operand) == MFI_ACCESS_STRIDED;
        mfi_text_add(e->out, "        mf::%s", strided ? "put_strided" : "put_unit");
        alignment(e, in->operand, !strided);
        mfi_text_add(e->out, "(y%d, a.data[%d], ", i, in->operand);
        offset(e, in->operand);
        if (strided)
            mfi_text_add(e->out, ", a.stride[%d][%d]", in->operand, e->p->ndim - 1);
        mfi_text_add(e->out, ");\n");
    }
    mfi_text_add(e->out, "    }\n");
}

/* What the chain's only store would write, in its compute type. */
static void value_function(emitter *e)
{
    const mfi_chain *c = &e->p->chain;
    int stored = 0;
    while (c->instr[stored].kind != MFI_STORE)
        stored++;
    mfi_text_add(e->out,
                 "    static MF_DEVICE %s value(const args &a, const point &p, const inputs &in)\n    {\n"
                 "        const int i = 0;\n",
                 mfi_emit_ctype((mfi_ctype)c->instr[stored].ctype));
    point_body(e, c->phases, "        ");
    mfi_text_add(e->out, "        return ");
    value(e, c->instr[stored].a);
    mfi_text_add(e->out, ";\n    }\n");
}

/* What the chain's stores of points are to write, before their rounding. */
static void results_function(emitter *e)
{
    const mfi_chain *c = &e->p->chain;
    int stored[MFI_MAX_INSTR], count = 0;
    bool saturate;
    for (int i = 0; i < c->count; i++)
        if (c->instr[i].kind == MFI_STORE && !mfi_is_row_store(e->p, &c->instr[i]))
            stored[count++] = mfi_emit_stored(c, &c->instr[i], &saturate);
    mfi_text_add(e->out, "    struct results {\n");
    for (int i = 0; i < count; i++)
        mfi_text_add(e->out, "        %s r%d;\n", mfi_emit_ctype((mfi_ctype)c->instr[stored[i]].ctype), i);
    mfi_text_add(e->out,
                 "    };\n    static MF_DEVICE results values(const args &a, const point &p, const inputs &in%s)\n"
                 "    {\n        const int i = 0;\n",
                 e->p->nreduce ? ", const row &r" : "");
    point_body(e, c->phases, "        ");
    mfi_text_add(e->out, "        return {");
    for (int i = 0; i < count; i++) {
        mfi_text_add(e->out, i ? ", " : "");
        value(e, stored[i]);
    }
    mfi_text_add(e->out, "};\n    }\n");
}

static void finish_row_function(emitter *e)
{
    const mfi_chain *c = &e->p->chain;
    bool done[MFI_MAX_INSTR] = {false};
    mfi_text_add(e->out, "    static MF_DEVICE void finish_row(const args &a, const point &p, const row &r)\n    {\n");
    for (int i = 0; i < c->count; i++)
        done[i] = is_row_value(&c->instr[i]);
    for (int i = 0; i < c->count; i++) {
        const mfi_instr *in = &c->instr[i];
        if (in->kind != MFI_STORE || !mfi_is_row_store(e->p, in))
            continue;
        define_at_row(e, in->a, done);
        mfi_text_add(e->out, "        mf::store_pack");
        alignment(e, in->operand, false);
        mfi_text_add(e->out, "((%s *)a.data[%d] + ", mfi_emit_storage(c->operand[in->operand].view.dtype), in->operand);
        offset(e, in->operand);
        mfi_text_add(e->out, ", mf::pack<%s, 1>{{", mfi_emit_storage(c->operand[in->operand].view.dtype));
        narrowed(e, in);
        mfi_text_add(e->out, "}});\n");
    }
    mfi_text_add(e->out, "    }\n");
}

bool mfi_chain_reaches_memory(const mfi_chain *c, int operand, bool through)
{
    for (int i = 0; i < c->count; i++)
        if (c->instr[i].operand == operand && (c->instr[i].kind == MFI_LOAD || !through))
            return true;
    return false;
}

void mfi_emit_chain(mfi_text *out, const mfi_problem *p, const mfi_shape *layout)
{
    emitter e = {.out = out, .p = p, .layout = layout};
    bool stores_points = false;
    for (int i = 0; i < p->chain.count; i++)
        stores_points |= p->chain.instr[i].kind == MFI_STORE && !mfi_is_row_store(p, &p->chain.instr[i]);
    assign_phases(&e);
    assign_exact(&e);
    mfi_text_add(out, "typedef mf::chain_args<%d, %d, %s> args;\n\n", p->ndim,
                 p->chain.operands ? p->chain.operands : 1, mfi_chain_has_extents(&p->chain) ? "true" : "false");
    mfi_text_add(out,
                 "template <int V> struct chain {\n    typedef %s index;\n    typedef mf::point<index, %d> point;\n"
                 "    static constexpr int points = V, phases = %d;\n    static constexpr bool stores_points = %s;\n",
                 layout->wide ? "mf::i64" : "mf::i32", p->ndim, p->chain.phases, stores_points ? "true" : "false");
    members(&e);
    if (!layout->widened)
        load_function(&e);
    for (int phase = 0; phase < p->chain.phases; phase++)
        phase_functions(&e, phase);
    if (layout->results)
        results_function(&e);
    else if (layout->through)
        value_function(&e);
    else
        finish_function(&e);
    if (p->nreduce)
        finish_row_function(&e);
    mfi_text_add(out, "};\n");
}
