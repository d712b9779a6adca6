/* Which chains are cuBLASLt epilogues: D = act(alpha * AB + beta * C + bias), found by carrying every value of the
 * chain as an affine form of the accumulator and at most one operand of each kind. */
#include "cublaslt.h"

#include <complex.h>
#include <float.h>
#include <math.h>

/* Kinds of operands, by the domain dims they vary along. */
enum { IS_TILE = 1, IS_ALONG_N = 2, IS_ALONG_M = 4, IS_SINGLE = 8 };

/* alpha * scales * acc + beta * residual + gamma * bias + constant, then the activation (DGELU: of aux) and the scale in
 * memory. Without the accumulator: scales * constant; or the derivative of gelu at aux. */
typedef struct form {
    double complex alpha, beta, gamma, constant;
    int residual, bias, aux, result_scale;
    int crossing; /* a vector along the other dim than a bias's */
    int outer[2]; /* vectors that scale the product: along a bias's dim, along the other */
    int scales, scale[2];
    mfi_lt_activation activation;
    bool derivative, absolute;
} form;

static const form NOTHING = {
    .residual = -1, .bias = -1, .aux = -1, .result_scale = -1, .crossing = -1, .outer = {-1, -1}, .scale = {-1, -1}};

typedef struct match {
    const mfi_problem *p;
    bool row_major;
    mfi_bid *bid;
    int beside, beside_store; /* the instruction that reduces, the operand that takes its value; -1 */
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
    *out = NOTHING;
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
    if (!(kinds & IS_TILE) && (kinds & (IS_ALONG_M | IS_ALONG_N))) {
        out->crossing = in->operand;
        return true;
    }
    MF_REFUSE_UNLESS(kinds & IS_TILE, NO_EPILOGUE,
                     "operand x%d varies along neither m nor n; cuBLASLt adds a vector along %s or a full matrix",
                     m->p->chain.operand[in->operand].view.slot, m->row_major ? "n" : "m");
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

/* Not a derivative, nor anything after the scale of the result. */
static bool is_sum(const form *f)
{
    return !f->derivative && !f->absolute && f->result_scale < 0 && f->crossing < 0;
}

static bool is_scaled(const form *f)
{
    return f->scales || f->outer[0] >= 0 || f->outer[1] >= 0;
}

static bool add(match *m, const form *x, const form *y, double sign, form *out)
{
    mfi_bid *bid = m->bid;
    form a = *x, b = *y;
    MF_REFUSE_UNLESS(!a.activation && !b.activation, NO_EPILOGUE, "something is added after the activation");
    MF_REFUSE_UNLESS(a.crossing < 0 && b.crossing < 0, NO_EPILOGUE,
                     "a vector along %s is added; cuBLASLt adds one along %s or a full matrix",
                     m->row_major ? "m" : "n", m->row_major ? "n" : "m");
    MF_REFUSE_UNLESS(is_sum(&a) && is_sum(&b), NO_EPILOGUE, "something is added to a scaled result or a derivative");
    bool single = (a.scales && a.alpha == 0) || (b.scales && b.alpha == 0), twice = a.alpha != 0 && b.alpha != 0;
    MF_REFUSE_UNLESS(!single, NO_EPILOGUE, "a single value in memory is added");
    MF_REFUSE_UNLESS(!twice || (!is_scaled(&a) && !is_scaled(&b)), NO_EPILOGUE,
                     "two products with different scales are added");
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
                  .aux = -1,
                  .result_scale = -1,
                  .crossing = -1,
                  .scales = a.scales + b.scales};
    memcpy(out->scale, a.scales ? a.scale : b.scale, sizeof out->scale);
    memcpy(out->outer, is_scaled(&a) ? a.outer : b.outer, sizeof out->outer);
    return true;
}

static bool is_constant(const form *f)
{
    return f->alpha == 0 && f->residual < 0 && f->bias < 0 && !f->activation && is_sum(f);
}

static bool stores_fp8(const match *m)
{
    const mfi_chain *c = &m->p->chain;
    for (int i = 0; i < c->count; i++)
        if (c->instr[i].kind == MFI_STORE && mfi_lt_is_fp8(c->operand[c->instr[i].operand].view.dtype))
            return true;
    return false;
}

/* A value in memory can scale the product, before anything is added, or another such value; or an fp8 result. */
static bool scale(match *m, const form *x, const form *y, form *out)
{
    mfi_bid *bid = m->bid;
    bool late = y->activation || y->residual >= 0 || y->bias >= 0 || x->scales + y->scales > 2;
    if (late && x->scales == 1 && x->constant == 1 && y->alpha != 0 && stores_fp8(m)) {
        *out = *y;
        out->result_scale = x->scale[0];
        return true;
    }
    MF_REFUSE_UNLESS(!y->activation, NO_EPILOGUE, "the activation's result is scaled");
    MF_REFUSE_UNLESS(y->residual < 0 && y->bias < 0 && (y->alpha == 0 || y->constant == 0), NO_EPILOGUE,
                     "a sum is multiplied by a value in memory; cuBLASLt scales the product alone");
    MF_REFUSE_UNLESS(y->outer[0] < 0 && y->outer[1] < 0, NO_EPILOGUE, "a single scale beside vectors of them");
    MF_REFUSE_UNLESS(x->scales + y->scales <= 2, NO_EPILOGUE, "three scales in memory; cuBLASLt has two");
    *out = *y;
    out->alpha *= x->constant;
    out->constant *= x->constant;
    for (int i = 0; i < x->scales; i++)
        out->scale[out->scales++] = x->scale[i];
    return true;
}

static bool is_vector(const form *f)
{
    bool bare = f->alpha == 0 && f->residual < 0 && f->constant == 0 && !f->scales;
    return bare && ((f->bias >= 0 && f->gamma == 1 && is_sum(f)) || f->crossing >= 0);
}

/* One scale for each row of the product, or for each column. */
static bool scale_by_vector(match *m, const form *product, const form *vector, form *out)
{
    mfi_bid *bid = m->bid;
    bool other = vector->crossing >= 0;
    MF_REFUSE_UNLESS(product->alpha != 0 && product->residual < 0 && product->bias < 0 && product->constant == 0 &&
                         !product->scales && !product->activation && is_sum(product) && product->outer[other] < 0,
                     NO_EPILOGUE, "a vector multiplies something other than the product");
    *out = *product;
    out->outer[other] = other ? vector->crossing : vector->bias;
    return true;
}

/* The sum times gelu's derivative. */
static bool differentiate(match *m, const form *sum, const form *derivative, form *out)
{
    mfi_bid *bid = m->bid;
    MF_REFUSE_UNLESS(sum->alpha != 0 && sum->bias < 0 && sum->constant == 0 && !sum->activation && is_sum(sum),
                     NO_EPILOGUE, "gelu's derivative multiplies something other than the product");
    *out = *sum;
    out->activation = MFI_LT_DGELU;
    out->aux = derivative->aux;
    return true;
}

static bool multiply(match *m, const form *x, const form *y, form *out)
{
    mfi_bid *bid = m->bid;
    if (x->derivative != y->derivative && !is_constant(x->derivative ? y : x))
        return differentiate(m, x->derivative ? y : x, x->derivative ? x : y, out);
    if (is_vector(x) != is_vector(y) && !is_constant(is_vector(x) ? y : x))
        return scale_by_vector(m, is_vector(x) ? y : x, is_vector(x) ? x : y, out);
    MF_REFUSE_UNLESS(is_sum(x) && is_sum(y), NO_EPILOGUE, "a scaled result or a derivative is multiplied");
    const form *scalar = is_constant(y) ? y : x, *other = scalar == y ? x : y;
    MF_REFUSE_UNLESS(is_constant(scalar), NO_EPILOGUE,
                     "two values are multiplied; cuBLASLt multiplies by constants only");
    if (scalar->scales)
        return scale(m, scalar, other, out);
    MF_REFUSE_UNLESS(!other->activation || other->activation == MFI_LT_DGELU, NO_EPILOGUE,
                     "the activation's result is scaled");
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
    MF_REFUSE_UNLESS(!x->activation && x->alpha != 0 && is_sum(x), NO_EPILOGUE,
                     "an activation of something other than the sum");
    *out = *x;
    out->activation = activation;
    return true;
}

/* gelu's derivative at the elements of a matrix, as they are stored. */
static bool derivative(match *m, const form *x, form *out)
{
    mfi_bid *bid = m->bid;
    MF_REFUSE_UNLESS(x->alpha == 0 && x->bias < 0 && x->residual >= 0 && x->beta == 1 && x->constant == 0 &&
                         !x->scales && is_sum(x),
                     NO_EPILOGUE, "gelu's derivative of something other than a matrix");
    *out = NOTHING;
    out->derivative = true;
    out->aux = x->residual;
    return true;
}

/* The value that is reduced with MAX; it has no other use. */
static bool absolute(match *m, const form *x, form *out)
{
    mfi_bid *bid = m->bid;
    MF_REFUSE_UNLESS(m->p->chain.phases && x->alpha != 0 && is_sum(x), NO_EPILOGUE, "an absolute value");
    *out = *x;
    out->absolute = true;
    return true;
}

static bool apply(match *m, const mfi_instr *in, form *out)
{
    mfi_bid *bid = m->bid;
    const form *v = m->value;
    form product, minus_one = NOTHING;
    minus_one.constant = -1;
    MF_REFUSE_UNLESS(in->from == in->ctype, NO_EPILOGUE, "the chain changes its compute type");
    MF_REFUSE_UNLESS(!in->level, NO_EPILOGUE, "something is computed from what is reduced beside the product");
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
    case MF_OP_GELU_GRAD:
        return derivative(m, &v[in->a], out);
    case MF_OP_ABSOLUTE:
        return absolute(m, &v[in->a], out);
    case MF_OP_RELU:
        return activate(m, &v[in->a], MFI_LT_RELU, out);
    case MF_OP_GELU:
        return activate(m, &v[in->a], MFI_LT_GELU, out);
    default:
        return mfi_refuse(bid, MFI_R_NO_EPILOGUE, "an operation that cuBLASLt does not have");
    }
}

static bool only_stored_as(const mfi_chain *chain, int value, mf_dtype dtype)
{
    for (int i = value + 1; i < chain->count; i++) {
        const mfi_instr *in = &chain->instr[i];
        bool stores = in->kind == MFI_STORE && chain->operand[in->operand].view.dtype == dtype;
        stores |= in->kind == MFI_REDUCE; /* of more digits then */
        if ((in->a == value && !stores) || in->b == value || in->c == value)
            return false;
    }
    return true;
}

/* A cast is nothing when it only widens, or rounds to what stores hold. */
static bool cast(match *m, int i, form *out)
{
    mfi_bid *bid = m->bid;
    const mfi_chain *chain = &m->p->chain;
    MF_REFUSE_UNLESS(chain->instr[i].a != m->beside, NO_EPILOGUE, "a cast of what is reduced beside the product");
    const mfi_instr *in = &chain->instr[i];
    bool wide = in->from == in->ctype && mf_dtype_size((mf_dtype)in->dtype) == mfi_ctype_size((mfi_ctype)in->ctype);
    bool stored = in->from == in->ctype && only_stored_as(chain, i, (mf_dtype)in->dtype);
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

/* One reduction, which is stored as it is. */
static bool reduce(match *m, int i)
{
    mfi_bid *bid = m->bid;
    MF_REFUSE_UNLESS(m->beside < 0, NO_EPILOGUE, "two reductions beside the product");
    m->beside = i;
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
        *out = NOTHING;
        out->alpha = 1;
        return true;
    case MFI_CONST:
        *out = NOTHING;
        out->constant = complex_of(in->re, in->im);
        if (in->ctype == MFI_F32 || in->ctype == MFI_C64) /* as every other provider reads it */
            out->constant = complex_of((float)in->re, (float)in->im);
        return true;
    case MFI_LOAD:
        return load(m, in, out);
    case MFI_CAST:
        return cast(m, i, out);
    case MFI_APPLY:
        return apply(m, in, out);
    case MFI_REDUCE:
    case MFI_SUM_K:
        return reduce(m, i);
    case MFI_STORE:
        if (in->a == m->beside) {
            m->beside_store = in->operand;
            return rounds_alike(m, in);
        }
        MF_REFUSE_UNLESS(*count < 2, NO_EPILOGUE, "the chain stores more than two results");
        stores[(*count)++] = i;
        return rounds_alike(m, in);
    default:
        return mfi_refuse(bid, MFI_R_NO_EPILOGUE, "an index in the chain");
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

static bool same(const form *a, const form *b)
{
    return a->alpha == b->alpha && a->beta == b->beta && a->gamma == b->gamma && a->constant == b->constant &&
           a->residual == b->residual && a->bias == b->bias && a->aux == b->aux && a->result_scale == b->result_scale &&
           a->scales == b->scales && a->scale[0] == b->scale[0] && a->scale[1] == b->scale[1] &&
           a->outer[0] == b->outer[0] && a->outer[1] == b->outer[1] && a->activation == b->activation &&
           a->derivative == b->derivative && a->absolute == b->absolute;
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
    f.activation = MFI_LT_NONE;
    MF_REFUSE_UNLESS(same(&f, before), NO_EPILOGUE, "the second result is not the value before gelu");
    return true;
}

/* What the chain reduces is what the library can: *f, the stored value, its derivative's sum or its largest. */
static bool accept_beside(match *m, form *f, mfi_lt_beside *kind)
{
    mfi_bid *bid = m->bid;
    const mfi_instr *in = &m->p->chain.instr[m->beside];
    int varies = operand_kinds(m->p, &m->p->chain.operand[m->beside_store]);
    if (in->kind == MFI_SUM_K) {
        MF_REFUSE_UNLESS(!f->activation && f->bias < 0, NO_EPILOGUE,
                         "cuBLASLt sums an operand over k beside a product without a bias and an activation only");
        *kind = (in->axis == 1) == m->row_major ? MFI_LT_SUM_LEFT : MFI_LT_SUM_RIGHT;
        return true;
    }
    form reduced = m->value[in->a];
    if (in->reduce == MF_SUM) {
        MF_REFUSE_UNLESS(f->activation == MFI_LT_DGELU && same(f, &reduced), NO_EPILOGUE,
                         "cuBLASLt sums a result after gelu's derivative only");
        MF_REFUSE_UNLESS(varies & (m->row_major ? IS_ALONG_N : IS_ALONG_M), NO_EPILOGUE,
                         "the result is summed along %s; cuBLASLt sums along %s", m->row_major ? "n" : "m",
                         m->row_major ? "m" : "n");
        *kind = MFI_LT_SUM_RESULT;
        return true;
    }
    MF_REFUSE_UNLESS(in->reduce == MF_MAX && reduced.absolute && (varies & IS_SINGLE) && stores_fp8(m), NO_EPILOGUE,
                     "a reduction that cuBLASLt does not have; of an fp8 result it has the largest absolute value");
    reduced.absolute = false;
    if (f->result_scale < 0 && f->scales == reduced.scales + 1) {
        f->result_scale = f->scale[--f->scales];
        f->scale[f->scales] = -1;
    }
    reduced.result_scale = f->result_scale;
    MF_REFUSE_UNLESS(same(f, &reduced), NO_EPILOGUE, "the largest absolute value is not that of the result");
    *kind = MFI_LT_LARGEST;
    return true;
}

static bool accept(match *m, int store, int aux, mfi_lt_epilogue *out)
{
    mfi_bid *bid = m->bid;
    const mfi_instr *in = &m->p->chain.instr[store];
    form own = m->value[in->a];
    const form *f = &own;
    mfi_lt_beside kind = MFI_LT_NOTHING;
    MF_REFUSE_UNLESS(!own.derivative && !own.absolute && own.crossing < 0, NO_EPILOGUE,
                     "something other than the product is stored");
    if (m->beside >= 0 && !accept_beside(m, &own, &kind))
        return false;
    mfi_ctype acc = m->p->u.matmul.acc;
    bool single = acc == MFI_F32 || acc == MFI_C64, complex_type = acc >= MFI_C64;
    MF_REFUSE_UNLESS(coefficient(f->alpha, single, complex_type), NO_EPILOGUE, "the product is scaled by %g%+gi",
                     creal(f->alpha), cimag(f->alpha));
    MF_REFUSE_UNLESS(f->residual < 0 || coefficient(f->beta, single, complex_type), NO_EPILOGUE,
                     "the added matrix is scaled by %g%+gi", creal(f->beta), cimag(f->beta));
    MF_REFUSE_UNLESS(f->bias < 0 || f->gamma == 1, NO_EPILOGUE, "the bias is scaled by %g; cuBLASLt adds it as it is",
                     creal(f->gamma));
    bool outer = f->outer[0] >= 0;
    MF_REFUSE_UNLESS(outer == (f->outer[1] >= 0), NO_EPILOGUE,
                     "a vector of scales for one side of the product; cuBLASLt takes one for each or none");
    MF_REFUSE_UNLESS(f->constant == 0, NO_EPILOGUE, "the constant %g is added", creal(f->constant));
    *out = (mfi_lt_epilogue){.alpha = {creal(f->alpha), cimag(f->alpha)},
                             .beta = {creal(f->beta), cimag(f->beta)},
                             .residual = f->residual,
                             .bias = f->bias,
                             .store = in->operand,
                             .aux = aux < 0 ? f->aux : m->p->chain.instr[aux].operand,
                             .beside = m->beside_store,
                             .kind = kind,
                             .scale = {outer ? f->outer[0] : f->scale[0], outer ? f->outer[1] : f->scale[1]},
                             .outer = outer,
                             .result_scale = f->result_scale,
                             .bias_along_m = !m->row_major,
                             .activation = f->activation};
    return true;
}

bool mfi_lt_match(mfi_lt_epilogue *out, const mfi_problem *p, bool row_major, mfi_bid *bid)
{
    match m = {.p = p, .row_major = row_major, .bid = bid, .beside = -1, .beside_store = -1};
    int stores[2] = {-1, -1}, count = 0;
    MF_REFUSE_UNLESS(!p->nreduce, NO_EPILOGUE, "what is reduced along rows is used in them");
    for (int i = 0; i < p->chain.count; i++)
        if (!evaluate(&m, i, stores, &count))
            return false;
    MF_REFUSE_UNLESS(count > 0, NO_EPILOGUE, "the chain stores nothing");
    return (count < 2 || order_stores(&m, stores)) && accept(&m, stores[0], stores[1], out);
}

const char *mfi_lt_epilogue_name(const mfi_lt_epilogue *e)
{
    static const char *const names[4][2] = {
        {"DEFAULT", "BIAS"}, {"RELU", "RELU_BIAS"}, {"GELU", "GELU_BIAS"}, {"DGELU", "DGELU"}};
    if (e->kind == MFI_LT_SUM_LEFT || e->kind == MFI_LT_SUM_RIGHT)
        return e->kind == MFI_LT_SUM_LEFT ? "BGRADA" : "BGRADB";
    if (e->kind == MFI_LT_SUM_RESULT)
        return "DGELU_BGRAD";
    if (e->aux >= 0 && e->activation == MFI_LT_GELU)
        return e->bias >= 0 ? "GELU_AUX_BIAS" : "GELU_AUX";
    return names[e->activation][e->bias >= 0];
}
