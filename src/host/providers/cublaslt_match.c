/* Which chains are cuBLASLt epilogues: D = act(alpha * AB + beta * C + bias), found by carrying every value of the
 * chain as an affine form of the accumulator and at most one operand of each kind. */
#include "cublaslt.h"

#include <complex.h>
#include <float.h>
#include <math.h>

/* Kinds of operands, by the domain dims they vary along. */
enum { IS_TILE = 1, IS_ALONG_N = 2, IS_ALONG_M = 4, IS_SINGLE = 8 };

/* alpha * scales * acc + beta * residual + gamma * bias + constant, then the activation. Without the accumulator:
 * scales * constant. */
typedef struct form {
    double complex alpha, beta, gamma, constant;
    int residual, bias;
    int scales, scale[2];
    mfi_lt_activation activation;
} form;

typedef struct match {
    const mfi_problem *p;
    bool row_major;
    mfi_bid *bid;
    form value[MFI_MAX_INSTR];
} match;

static double complex complex_of(double re, double im)
{
    const double parts[2] = {re, im};
    double complex z;
    memcpy(&z, parts, sizeof z);
    return z;
}

static int operand_kinds(const mfi_problem *p, const mfi_operand *o)
{
    bool outer = true; /* repeated over the batch */
    int m = p->ndim - 2, n = p->ndim - 1;
    for (int d = 0; d < p->ndim; d++)
        if (o->extent[d] >= 0 && o->extent[d] < p->shape[d])
            return 0;
    for (int d = 0; d < m; d++)
        outer = outer && (p->shape[d] == 1 || o->view.strides[d] == 0);
    bool along_m = p->shape[m] > 1 && o->view.strides[m] != 0, along_n = p->shape[n] > 1 && o->view.strides[n] != 0;
    int kinds = 0;
    if ((along_m || p->shape[m] == 1) && (along_n || p->shape[n] == 1))
        kinds |= IS_TILE;
    if (outer && !along_m && (along_n || p->shape[n] == 1))
        kinds |= IS_ALONG_N;
    if (outer && !along_n && (along_m || p->shape[m] == 1))
        kinds |= IS_ALONG_M;
    if (outer && !along_m && !along_n)
        kinds |= IS_SINGLE;
    return kinds;
}

static bool load(match *m, const mfi_instr *in, form *out)
{
    mfi_bid *bid = m->bid;
    int kinds = operand_kinds(m->p, &m->p->chain.operand[in->operand]);
    *out = (form){.residual = -1, .bias = -1};
    if (kinds & (m->row_major ? IS_ALONG_N : IS_ALONG_M)) {
        out->bias = in->operand;
        out->gamma = 1;
        return true;
    }
    if (!(kinds & IS_TILE) && (kinds & IS_SINGLE)) {
        out->scales = 1;
        out->scale[0] = in->operand;
        out->constant = 1;
        return true;
    }
    MF_REFUSE_UNLESS(kinds & IS_TILE, NO_EPILOGUE,
                     "operand x%d varies along %s; cuBLASLt adds a vector along %s or a full matrix",
                     m->p->chain.operand[in->operand].view.slot,
                     kinds & IS_ALONG_M   ? "m"
                     : kinds & IS_ALONG_N ? "n"
                                          : "neither m nor n",
                     m->row_major ? "n" : "m");
    out->residual = in->operand;
    out->beta = 1;
    return true;
}

/* When two operands could both be the bias (one row only), the second becomes the residual. */
static bool as_residual(match *m, form *f)
{
    if (f->bias < 0 || f->residual >= 0 || !(operand_kinds(m->p, &m->p->chain.operand[f->bias]) & IS_TILE))
        return false;
    f->residual = f->bias;
    f->beta = f->gamma;
    f->bias = -1;
    f->gamma = 0;
    return true;
}

static bool add(match *m, const form *x, const form *y, double sign, form *out)
{
    mfi_bid *bid = m->bid;
    form a = *x, b = *y;
    MF_REFUSE_UNLESS(!a.activation && !b.activation, NO_EPILOGUE, "something is added after the activation");
    bool single = (a.scales && a.alpha == 0) || (b.scales && b.alpha == 0), twice = a.alpha != 0 && b.alpha != 0;
    MF_REFUSE_UNLESS(!single, NO_EPILOGUE, "a single value in memory is added");
    MF_REFUSE_UNLESS(!twice || (!a.scales && !b.scales), NO_EPILOGUE, "two products with different scales are added");
    if (a.bias >= 0 && b.bias >= 0 && a.bias != b.bias && !as_residual(m, &b))
        (void)as_residual(m, &a);
    MF_REFUSE_UNLESS(a.bias < 0 || b.bias < 0 || a.bias == b.bias, NO_EPILOGUE,
                     "two vectors are added; cuBLASLt adds one");
    MF_REFUSE_UNLESS(a.residual < 0 || b.residual < 0 || a.residual == b.residual, NO_EPILOGUE,
                     "two matrices are added; cuBLASLt adds one");
    *out = (form){.alpha = a.alpha + sign * b.alpha,
                  .beta = a.beta + sign * b.beta,
                  .gamma = a.gamma + sign * b.gamma,
                  .constant = a.constant + sign * b.constant,
                  .residual = a.residual >= 0 ? a.residual : b.residual,
                  .bias = a.bias >= 0 ? a.bias : b.bias,
                  .scales = a.scales + b.scales};
    memcpy(out->scale, a.scales ? a.scale : b.scale, sizeof out->scale);
    return true;
}

static bool is_constant(const form *f)
{
    return f->alpha == 0 && f->residual < 0 && f->bias < 0 && !f->activation;
}

/* A value in memory can scale the product, before anything is added, or another such value. */
static bool scale(match *m, const form *x, const form *y, form *out)
{
    mfi_bid *bid = m->bid;
    MF_REFUSE_UNLESS(y->residual < 0 && y->bias < 0 && (y->alpha == 0 || y->constant == 0), NO_EPILOGUE,
                     "a sum is multiplied by a value in memory; cuBLASLt scales the product alone");
    MF_REFUSE_UNLESS(x->scales + y->scales <= 2, NO_EPILOGUE, "three scales in memory; cuBLASLt has two");
    *out = *y;
    out->alpha *= x->constant;
    out->constant *= x->constant;
    for (int i = 0; i < x->scales; i++)
        out->scale[out->scales++] = x->scale[i];
    return true;
}

static bool multiply(match *m, const form *x, const form *y, form *out)
{
    mfi_bid *bid = m->bid;
    const form *scalar = is_constant(y) ? y : x, *other = scalar == y ? x : y;
    MF_REFUSE_UNLESS(is_constant(scalar), NO_EPILOGUE,
                     "two values are multiplied; cuBLASLt multiplies by constants only");
    MF_REFUSE_UNLESS(!other->activation, NO_EPILOGUE, "the activation's result is scaled");
    if (scalar->scales)
        return scale(m, scalar, other, out);
    *out = *other;
    out->alpha *= scalar->constant;
    out->beta *= scalar->constant;
    out->gamma *= scalar->constant;
    out->constant *= scalar->constant;
    return true;
}

/* x / c is x * (1 / c) without another rounding only for powers of two. */
static bool divide(match *m, const form *x, const form *y, form *out)
{
    mfi_bid *bid = m->bid;
    int exponent;
    double c = creal(y->constant);
    MF_REFUSE_UNLESS(is_constant(y) && !y->scales && cimag(y->constant) == 0 && fabs(frexp(c, &exponent)) == 0.5,
                     NO_EPILOGUE, "a division, by something other than a power of two");
    form reciprocal = *y;
    reciprocal.constant = 1 / c;
    return multiply(m, x, &reciprocal, out);
}

static bool activate(match *m, const form *x, mfi_lt_activation activation, form *out)
{
    mfi_bid *bid = m->bid;
    MF_REFUSE_UNLESS(!x->activation && x->alpha != 0, NO_EPILOGUE, "an activation of something other than the sum");
    *out = *x;
    out->activation = activation;
    return true;
}

static bool apply(match *m, const mfi_instr *in, form *out)
{
    mfi_bid *bid = m->bid;
    const form *v = m->value;
    form product, minus_one = {.constant = -1, .residual = -1, .bias = -1};
    MF_REFUSE_UNLESS(in->from == in->ctype, NO_EPILOGUE, "the chain changes its compute type");
    switch (in->op) {
    case MF_OP_ADD:
        return add(m, &v[in->a], &v[in->b], 1, out);
    case MF_OP_SUBTRACT:
        return add(m, &v[in->a], &v[in->b], -1, out);
    case MF_OP_MULTIPLY:
        return multiply(m, &v[in->a], &v[in->b], out);
    case MF_OP_FMA:
        return multiply(m, &v[in->a], &v[in->b], &product) && add(m, &product, &v[in->c], 1, out);
    case MF_OP_NEGATIVE:
        return multiply(m, &v[in->a], &minus_one, out);
    case MF_OP_DIVIDE:
        return divide(m, &v[in->a], &v[in->b], out);
    case MF_OP_RELU:
        return activate(m, &v[in->a], MFI_LT_RELU, out);
    case MF_OP_GELU:
        return activate(m, &v[in->a], MFI_LT_GELU, out);
    default:
        return mfi_refuse(bid, MFI_R_NO_EPILOGUE, "an operation that cuBLASLt does not have");
    }
}

/* A cast is nothing when it only widens, or rounds to what the next and last instruction stores. */
static bool cast(match *m, int i, form *out)
{
    mfi_bid *bid = m->bid;
    const mfi_chain *chain = &m->p->chain;
    const mfi_instr *in = &chain->instr[i], *next = i + 1 < chain->count ? in + 1 : NULL;
    bool wide = in->from == in->ctype && mf_dtype_size((mf_dtype)in->dtype) == mfi_ctype_size((mfi_ctype)in->ctype);
    bool stored = next && next->kind == MFI_STORE && next->a == i && in->from == in->ctype &&
                  chain->operand[next->operand].view.dtype == (mf_dtype)in->dtype;
    bool narrow = mf_dtype_size((mf_dtype)in->dtype) == 1; /* whether it saturates is checked at the store */
    MF_REFUSE_UNLESS(wide || (stored && (narrow || !in->saturate)), NO_EPILOGUE, "a cast to %s inside the chain",
                     mf_dtype_name((mf_dtype)in->dtype));
    *out = m->value[in->a];
    return true;
}

/* The library saturates fp8 results, and no others. */
static bool rounds_alike(match *m, const mfi_instr *in)
{
    mfi_bid *bid = m->bid;
    bool narrow = mfi_lt_is_fp8(m->p->chain.operand[in->operand].view.dtype);
    MF_REFUSE_UNLESS(narrow || !in->saturate, NO_EPILOGUE, "a saturating store");
    MF_REFUSE_UNLESS(!narrow || in->saturate, NO_EPILOGUE, "an fp8 result that does not saturate; cuBLASLt's does");
    return true;
}

/* `stores`: the instructions, in order. */
static bool evaluate(match *m, int i, int *stores, int *count)
{
    mfi_bid *bid = m->bid;
    const mfi_instr *in = &m->p->chain.instr[i];
    form *out = &m->value[i];
    switch (in->kind) {
    case MFI_ACC:
        *out = (form){.alpha = 1, .residual = -1, .bias = -1};
        return true;
    case MFI_CONST:
        *out = (form){.constant = complex_of(in->re, in->im), .residual = -1, .bias = -1};
        if (in->ctype == MFI_F32 || in->ctype == MFI_C64) /* as every other provider reads it */
            out->constant = complex_of((float)in->re, (float)in->im);
        return true;
    case MFI_LOAD:
        return load(m, in, out);
    case MFI_CAST:
        return cast(m, i, out);
    case MFI_APPLY:
        return apply(m, in, out);
    case MFI_STORE:
        MF_REFUSE_UNLESS(*count < 2, NO_EPILOGUE, "the chain stores more than two results");
        stores[(*count)++] = i;
        return rounds_alike(m, in);
    default:
        return mfi_refuse(bid, MFI_R_NO_EPILOGUE, "an index or a reduction in the chain");
    }
}

/* Zero would skip what it multiplies, so that NaN got lost; beyond f32 the coefficient could not be passed. */
static bool coefficient(double complex z, bool single, bool complex_type)
{
    double largest = fmax(fabs(creal(z)), fabs(cimag(z)));
    if (!isfinite(largest) || largest == 0 || (!complex_type && cimag(z) != 0))
        return false;
    return !single || (largest <= FLT_MAX && largest >= FLT_MIN);
}

/* Of two stores one has to be the GELU of the other; it comes first afterwards. */
static bool order_stores(match *m, int *stores)
{
    mfi_bid *bid = m->bid;
    const mfi_instr *instr = m->p->chain.instr;
    if (!m->value[instr[stores[0]].a].activation) {
        int last = stores[0];
        stores[0] = stores[1];
        stores[1] = last;
    }
    form f = m->value[instr[stores[0]].a];
    const form *before = &m->value[instr[stores[1]].a];
    MF_REFUSE_UNLESS(f.activation == MFI_LT_GELU, NO_EPILOGUE,
                     "the chain stores two results; cuBLASLt keeps a second one for gelu only, the value before it");
    bool same = f.alpha == before->alpha && f.beta == before->beta && f.gamma == before->gamma &&
                f.constant == before->constant && f.residual == before->residual && f.bias == before->bias &&
                f.scales == before->scales && !before->activation;
    MF_REFUSE_UNLESS(same, NO_EPILOGUE, "the second result is not the value before gelu");
    return true;
}

static bool accept(match *m, int store, int aux, mfi_lt_epilogue *out)
{
    mfi_bid *bid = m->bid;
    const mfi_instr *in = &m->p->chain.instr[store];
    const form *f = &m->value[in->a];
    mfi_ctype acc = m->p->u.matmul.acc;
    bool single = acc == MFI_F32 || acc == MFI_C64, complex_type = acc >= MFI_C64;
    MF_REFUSE_UNLESS(coefficient(f->alpha, single, complex_type), NO_EPILOGUE, "the product is scaled by %g%+gi",
                     creal(f->alpha), cimag(f->alpha));
    MF_REFUSE_UNLESS(f->residual < 0 || coefficient(f->beta, single, complex_type), NO_EPILOGUE,
                     "the added matrix is scaled by %g%+gi", creal(f->beta), cimag(f->beta));
    MF_REFUSE_UNLESS(f->bias < 0 || f->gamma == 1, NO_EPILOGUE, "the bias is scaled by %g; cuBLASLt adds it as it is",
                     creal(f->gamma));
    MF_REFUSE_UNLESS(f->constant == 0, NO_EPILOGUE, "the constant %g is added", creal(f->constant));
    *out = (mfi_lt_epilogue){.alpha = {creal(f->alpha), cimag(f->alpha)},
                             .beta = {creal(f->beta), cimag(f->beta)},
                             .residual = f->residual,
                             .bias = f->bias,
                             .store = in->operand,
                             .aux = aux < 0 ? -1 : m->p->chain.instr[aux].operand,
                             .scale = {f->scales > 0 ? f->scale[0] : -1, f->scales > 1 ? f->scale[1] : -1},
                             .bias_along_m = !m->row_major,
                             .activation = f->activation};
    return true;
}

bool mfi_lt_match(mfi_lt_epilogue *out, const mfi_problem *p, bool row_major, mfi_bid *bid)
{
    match m = {.p = p, .row_major = row_major, .bid = bid};
    int stores[2] = {-1, -1}, count = 0;
    for (int i = 0; i < p->chain.count; i++)
        if (!evaluate(&m, i, stores, &count))
            return false;
    MF_REFUSE_UNLESS(count > 0, NO_EPILOGUE, "the chain stores nothing");
    return (count < 2 || order_stores(&m, stores)) && accept(&m, stores[0], stores[1], out);
}

const char *mfi_lt_epilogue_name(const mfi_lt_epilogue *e)
{
    static const char *const names[3][2] = {{"DEFAULT", "BIAS"}, {"RELU", "RELU_BIAS"}, {"GELU", "GELU_BIAS"}};
    if (e->aux >= 0)
        return e->bias >= 0 ? "GELU_AUX_BIAS" : "GELU_AUX";
    return names[e->activation][e->bias >= 0];
}
