/* MATMUL on CUDA through cuBLASLt: what it takes, in cuBLASLt's terms. cublaslt_match.c matches the chain,
 * cublaslt_run.c calls the library. */
#include "cublaslt.h"

#include <stdio.h>

#define WORKSPACE_HOPPER ((size_t)64 << 20)
#define WORKSPACE ((size_t)32 << 20)

enum { MAX_BATCH = 65535, MAX_CALLS = 4096, MATRICES = 5 };

static int64_t element(const mfi_view *v)
{
    return (int64_t)mf_dtype_size(v->dtype);
}

/* ---- types ---- */

/* The product alone, exactly; what else the library says it does with integers is not documented. */
static bool integers(const mfi_lt_spec *s, mf_dtype d, mfi_bid *bid)
{
    const mfi_lt_epilogue *e = &s->epilogue;
    MF_REFUSE_UNLESS(d == MF_I32, DTYPE, "a result of %s from i8", mf_dtype_name(d));
    MF_REFUSE_UNLESS(e->alpha[0] == 1 && e->residual < 0 && e->bias < 0 && !e->activation && e->scale[0] < 0,
                     NO_EPILOGUE, "cuBLASLt's products of integers have no epilogues");
    return true;
}

static bool types(mfi_lt_spec *s, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_matmul *mm = &p->u.matmul;
    mf_dtype a = mm->a.dtype, b = mm->b.dtype, d = s->d.view->dtype;
    s->fp8 = mfi_lt_is_fp8(a) && mfi_lt_is_fp8(b);
    s->int8 = a == MF_I8 && b == MF_I8;
    bool single = a == MF_F32 || a == MF_F64 || a == MF_C64 || a == MF_C128, half = a == MF_F16 || a == MF_BF16;
    MF_REFUSE_UNLESS(single || half || s->fp8 || s->int8, DTYPE, "%s operands", mf_dtype_name(a));
    MF_REFUSE_UNLESS(a == b || s->fp8, DTYPE, "operands of %s and %s", mf_dtype_name(a), mf_dtype_name(b));
    MF_REFUSE_UNLESS(!s->fp8 || a == MF_E4M3 || b == MF_E4M3, DTYPE, "two e5m2 operands");
    MF_REFUSE_UNLESS(!s->fp8 || c->sm >= 89, DTYPE, "fp8 needs sm_89 or newer; the target is %s", c->arch);
    MF_REFUSE_UNLESS(mm->acc == mfi_compute_type(a), COMPUTE, "%s operands summed in %s", mf_dtype_name(a),
                     mfi_ctype_name(mm->acc));
    if (s->int8)
        return integers(s, d, bid);
    bool result = d == a || (half && d == MF_F32) || (s->fp8 && (d == MF_F32 || d == MF_F16 || d == MF_BF16));
    if (mfi_lt_is_fp8(d))
        result = a == MF_E4M3 && b == MF_E4M3 && d == MF_E4M3;
    MF_REFUSE_UNLESS(result, DTYPE, "a result of %s from %s", mf_dtype_name(d), mf_dtype_name(a));
    s->tf32 = mm->compute == MF_COMPUTE_TF32 && (a == MF_F32 || a == MF_C64);
    MF_REFUSE_UNLESS(!s->tf32 || c->sm >= 80, COMPUTE, "TF32 needs sm_80 or newer; the target is %s", c->arch);
    bool active = s->epilogue.activation != MFI_LT_NONE, biased = s->epilogue.bias >= 0;
    bool complex_type = a == MF_C64 || a == MF_C128;
    MF_REFUSE_UNLESS(!(complex_type && (active || biased)) && !(a == MF_F64 && active), NO_EPILOGUE,
                     "cuBLASLt has no %s epilogue for %s", mfi_lt_epilogue_name(&s->epilogue), mf_dtype_name(a));
    return true;
}

/* ---- layouts ---- */

/* Place element (i, j) of a rows x columns matrix at i * si + j * sj. Either stride may be the unit one; an extent of 1
 * makes its stride free. */
static bool place(mfi_lt_matrix *out, const mfi_view *v, int64_t rows, int64_t columns, int64_t si, int64_t sj,
                  bool may_transpose, const char *name, mfi_bid *bid)
{
    *out = (mfi_lt_matrix){.view = v, .rows = rows, .columns = columns};
    for (int t = 0; t <= (may_transpose ? 1 : 0); t++) {
        int64_t r = t ? columns : rows, c = t ? rows : columns, inner = t ? sj : si, ld = t ? si : sj;
        if (r != 1 && inner != 1)
            continue;
        if (c == 1)
            ld = r;
        if (ld < r)
            continue;
        MF_REFUSE_UNLESS(r <= INT32_MAX && c <= INT32_MAX, SIZE, "%s has %lld x %lld elements", name, (long long)r,
                         (long long)c);
        out->rows = r;
        out->columns = c;
        out->ld = ld;
        out->transposed = t;
        return true;
    }
    return mfi_refuse(bid, MFI_R_LAYOUT,
                      "%s has strides %lld and %lld; one must be 1 and the other at least the extent along it", name,
                      (long long)si, (long long)sj);
}

/* Contiguous, row by row; 8-bit types want k contiguous. Batch dims along which the operand repeats are not copied. */
static void pack(mfi_lt_spec *s, const mfi_problem *p, int which, const mfi_view *v, int k_dim)
{
    mfi_lt_copy *copy = &s->copy[which];
    const mfi_matmul *mm = &p->u.matmul;
    int last = p->ndim - 1;
    copy->source = v;
    for (int d = 0; d < last - 1; d++)
        copy->shape[d] = v->strides[d] ? p->shape[d] : 1;
    copy->shape[last - 1] = v == &mm->a ? mm->m : mm->k;
    copy->shape[last] = v == &mm->a ? mm->k : mm->n;
    copy->packed = mfi_pass_contiguous(v->dtype, p->ndim, copy->shape);
    if ((s->fp8 || s->int8) && k_dim != last) {
        copy->packed.strides[last] = copy->shape[last - 1];
        copy->packed.strides[last - 1] = 1;
    }
    copy->bytes = (size_t)element(v);
    for (int d = 0; d < p->ndim; d++) {
        copy->bytes *= (size_t)copy->shape[d];
        if (d < last - 1 && copy->shape[d] == 1)
            copy->packed.strides[d] = 0;
    }
    copy->bytes = mfi_align_up(copy->bytes, 256);
}

/* Place a (left, i along rows and j along k) or its mirror; strides that cannot be expressed are packed first. */
static bool place_operand(mfi_lt_spec *s, const mfi_problem *p, int which, const mfi_view *v, int outer, int k_dim,
                          mfi_bid *bid)
{
    mfi_lt_matrix *x = which ? &s->right : &s->left;
    const char *name = v == &p->u.matmul.a ? "a" : "b";
    int64_t outer_extent = which ? s->columns : s->rows, k = s->inner;
    mfi_bid why = {0};
    for (int attempt = 0; attempt < 2; attempt++) {
        const mfi_view *from = attempt ? &s->copy[which].packed : v;
        int64_t so = from->strides[outer], sk = from->strides[k_dim];
        bool k_first = !(s->fp8 || s->int8) || sk == 1 || k == 1;
        bool placed = which ? place(x, from, k, outer_extent, sk, so, true, name, &why)
                            : place(x, from, outer_extent, k, so, sk, true, name, &why);
        if (placed && k_first) {
            x->packed = attempt;
            x->workspace = which && attempt ? s->copy[0].bytes : 0;
            return true;
        }
        if (!placed && why.reason != MFI_R_LAYOUT)
            break;
        pack(s, p, which, v, k_dim);
    }
    *bid = why;
    return false;
}

static bool place_all(mfi_lt_spec *s, const mfi_problem *p, bool row_major, mfi_bid *bid)
{
    const mfi_matmul *mm = &p->u.matmul;
    const mfi_view *l = row_major ? &mm->b : &mm->a, *r = row_major ? &mm->a : &mm->b, *d = s->d.view;
    const mfi_view *c = s->epilogue.residual >= 0 ? &p->chain.operand[s->epilogue.residual].view : NULL;
    int m = p->ndim - 2, n = p->ndim - 1;
    int inner = row_major ? m : n, outer = row_major ? n : m; /* dims of left's k and rows, mirrored for right */
    s->rows = row_major ? mm->n : mm->m;
    s->columns = row_major ? mm->m : mm->n;
    s->inner = mm->k;
    if (!place(&s->d, d, s->rows, s->columns, d->strides[outer], d->strides[inner], false, "the result", bid))
        return false;
    if (c &&
        !place(&s->c, c, s->rows, s->columns, c->strides[outer], c->strides[inner], false, "the added matrix", bid))
        return false;
    const mfi_view *aux = s->epilogue.aux >= 0 ? &p->chain.operand[s->epilogue.aux].view : NULL;
    if (aux && !place(&s->aux, aux, s->rows, s->columns, aux->strides[outer], aux->strides[inner], false,
                      "the value before gelu", bid))
        return false;
    if (!place_operand(s, p, 0, l, outer, inner, bid) || !place_operand(s, p, 1, r, inner, outer, bid))
        return false;
    s->packed_bytes = s->copy[0].bytes + s->copy[1].bytes;
    return true;
}

/* ---- batches ---- */

static mfi_lt_matrix *matrices(mfi_lt_spec *s, int i)
{
    mfi_lt_matrix *all[MATRICES] = {&s->left, &s->right, &s->d, s->c.view ? &s->c : NULL, s->aux.view ? &s->aux : NULL};
    return all[i];
}

/* Can batch dims `at` and those inside it, `count` matrices so far, be one strided batch? */
static bool joins(mfi_lt_spec *s, const int64_t *shape, int at, int inside)
{
    for (int i = 0; i < MATRICES; i++) {
        const mfi_lt_matrix *x = matrices(s, i);
        if (!x)
            continue;
        const int64_t *strides = x->view->strides;
        if (strides[at] < 0 || (inside >= 0 && strides[at] != strides[inside] * shape[inside]))
            return false;
    }
    return true;
}

/* The inner batch dims become one strided batch as far as strides and the limit allow; the outer ones are looped over.
 */
static bool batches(mfi_lt_spec *s, const mfi_problem *p, mfi_bid *bid)
{
    int inside = -1, d = p->ndim - 3;
    s->batch = s->calls = 1;
    for (; d >= 0; d--) {
        if (p->shape[d] == 1)
            continue;
        /* merged strides count in units of the innermost dim of the run */
        if (s->batch * p->shape[d] > MAX_BATCH || !joins(s, p->shape, d, inside))
            break;
        if (s->batch == 1)
            for (int i = 0; i < MATRICES; i++)
                if (matrices(s, i))
                    matrices(s, i)->batch_stride = matrices(s, i)->view->strides[d];
        s->batch *= p->shape[d];
        inside = d;
    }
    for (; d >= 0; d--) {
        if (p->shape[d] == 1)
            continue;
        s->loop_shape[s->loops] = p->shape[d];
        for (int i = 0; i < MATRICES; i++)
            if (matrices(s, i))
                matrices(s, i)->loop_stride[s->loops] = matrices(s, i)->view->strides[d];
        s->loops++;
        s->calls *= p->shape[d];
        MF_REFUSE_UNLESS(s->calls <= MAX_CALLS, LAYOUT,
                         "the batch's strides cannot be one strided batch and would need %lld calls",
                         (long long)s->calls);
    }
    return true;
}

/* ---- alignment ---- */

static bool alignment(mfi_lt_matrix *x, const char *name, mfi_bid *bid)
{
    uint64_t bits = (uint64_t)x->view->alignment | 256;
    bits |= (uint64_t)(x->batch_stride * element(x->view));
    for (int i = 0; i < MF_MAX_DIMS; i++)
        bits |= (uint64_t)(x->loop_stride[i] * element(x->view));
    x->alignment = (uint32_t)(bits & (~bits + 1));
    MF_REFUSE_UNLESS(x->alignment >= (uint32_t)element(x->view), ALIGNMENT,
                     "%s is aligned to %u bytes, less than its elements", name, x->alignment);
    return true;
}

static bool fp8_rules(const mfi_lt_spec *s, mfi_bid *bid)
{
    MF_REFUSE_UNLESS(s->left.transposed && !s->right.transposed, LAYOUT, "fp8 needs k contiguous in both operands");
    MF_REFUSE_UNLESS(s->rows % 16 == 0 && s->columns % 16 == 0 && s->inner % 16 == 0, SIZE,
                     "fp8 needs m, n and k to be multiples of 16");
    MF_REFUSE_UNLESS(s->left.ld % 16 == 0 && s->right.ld % 16 == 0 && s->left.alignment >= 16 &&
                         s->right.alignment >= 16,
                     ALIGNMENT, "fp8 needs addresses and rows aligned to 16 bytes");
    MF_REFUSE_UNLESS(s->epilogue.bias < 0 || s->d.view->dtype != MF_F32, DTYPE, "fp8 takes 16-bit biases only");
    return true;
}

/* Batches and more than 65536 columns are refused by cuBLAS 13.1. */
static bool int8_rules(const mfi_lt_spec *s, mfi_bid *bid)
{
    MF_REFUSE_UNLESS(s->left.transposed && !s->right.transposed, LAYOUT, "i8 needs k contiguous in both operands");
    MF_REFUSE_UNLESS(s->rows % 16 == 0 && s->columns % 16 == 0 && s->inner % 16 == 0 && s->rows <= 65536 &&
                         s->columns <= 65536,
                     SIZE, "i8 needs m, n and k to be multiples of 16, m and n at most 65536");
    MF_REFUSE_UNLESS(s->left.ld % 16 == 0 && s->right.ld % 16 == 0 && s->left.alignment >= 16 &&
                         s->right.alignment >= 16 && s->d.ld % 4 == 0 && s->d.alignment >= 16,
                     ALIGNMENT, "i8 needs addresses and rows aligned to 16 bytes");
    MF_REFUSE_UNLESS(s->batch == 1, LAYOUT, "a batch of products of i8");
    return true;
}

static bool vectors(const mfi_lt_spec *s, const mfi_problem *p, mfi_bid *bid)
{
    bool narrow = mfi_lt_is_fp8(s->d.view->dtype); /* C and the bias are bf16 then */
    mf_dtype wide = narrow ? MF_BF16 : s->d.view->dtype;
    MF_REFUSE_UNLESS(!narrow || !s->c.view, NO_EPILOGUE, "a matrix is added to an fp8 result");
    MF_REFUSE_UNLESS(!narrow || s->d.ld % 16 == 0, ALIGNMENT, "an fp8 result needs rows of a multiple of 16 elements");
    if (s->c.view)
        MF_REFUSE_UNLESS(s->c.view->dtype == s->d.view->dtype, DTYPE, "a %s matrix is added to a result of %s",
                         mf_dtype_name(s->c.view->dtype), mf_dtype_name(s->d.view->dtype));
    if (s->epilogue.bias < 0)
        return true;
    const mfi_view *b = &p->chain.operand[s->epilogue.bias].view;
    int axis = s->epilogue.bias_along_m ? p->ndim - 2 : p->ndim - 1;
    MF_REFUSE_UNLESS(b->dtype == wide, DTYPE, "a bias of %s for a result of %s", mf_dtype_name(b->dtype),
                     mf_dtype_name(s->d.view->dtype));
    MF_REFUSE_UNLESS(p->shape[axis] == 1 || b->strides[axis] == 1, LAYOUT, "the bias has stride %lld",
                     (long long)b->strides[axis]);
    MF_REFUSE_UNLESS(b->alignment >= 16, ALIGNMENT, "the bias is aligned to %d bytes; cuBLASLt needs 16", b->alignment);
    return true;
}

/* The value before gelu: the library takes it in D's type, with a leading dimension and batch stride in eights. Where
 * batch dims are looped over, each call would need a descriptor of its own. */
static bool aux_rules(const mfi_lt_spec *s, mfi_bid *bid)
{
    mf_dtype type = s->d.view->dtype;
    bool reads = s->epilogue.activation == MFI_LT_DGELU;
    MF_REFUSE_UNLESS(!reads || s->inner > 1, KNOWN_BUG, "DGELU with k = 1 reads out of bounds");
    MF_REFUSE_UNLESS(s->aux.view->dtype == type && (type == MF_F16 || type == MF_BF16) && !s->fp8, DTYPE,
                     "the value before gelu is %s and the result %s; both are to be f16 or bf16, from such operands",
                     mf_dtype_name(s->aux.view->dtype), mf_dtype_name(type));
    MF_REFUSE_UNLESS(s->aux.ld % 8 == 0 && s->aux.batch_stride % 8 == 0 && s->aux.alignment >= 16, ALIGNMENT,
                     "the value before gelu has rows or batches that are no multiple of 8 elements");
    MF_REFUSE_UNLESS(s->calls == 1, LAYOUT, "the batch would need %lld calls", (long long)s->calls);
    return true;
}

/* What is given beside the result: a vector of D's type, or an f32. */
static bool beside_rules(const mfi_lt_spec *s, const mfi_problem *p, mfi_bid *bid)
{
    const mfi_view *v = &p->chain.operand[s->epilogue.beside].view;
    mf_dtype d = s->d.view->dtype;
    bool largest = s->epilogue.kind == MFI_LT_LARGEST, half = d == MF_F16 || d == MF_BF16;
    int64_t step = mfi_max64(v->strides[p->ndim - 2], v->strides[p->ndim - 1]);
    MF_REFUSE_UNLESS(v->dtype == (largest ? MF_F32 : d) && (largest || (half && !s->fp8)), DTYPE,
                     "a %s beside a result of %s", mf_dtype_name(v->dtype), mf_dtype_name(d));
    MF_REFUSE_UNLESS(step <= 1, LAYOUT, "the sum has stride %lld", (long long)step);
    MF_REFUSE_UNLESS(v->alignment >= 16, ALIGNMENT, "what is reduced is aligned to %d bytes; cuBLASLt needs 16",
                     v->alignment);
    MF_REFUSE_UNLESS(s->batch == 1 && s->calls == 1, LAYOUT, "a reduction beside a batch of products");
    return true;
}

/* Vectors of scales: on Hopper from cuBLAS 12.9 on, with 16-bit results. */
static bool outer_rules(const mfi_lt_spec *s, const mfi_problem *p, const mfi_caps *c, int operand, mfi_bid *bid)
{
    const mfi_view *v = &p->chain.operand[operand].view;
    int64_t step = mfi_max64(v->strides[p->ndim - 2], v->strides[p->ndim - 1]);
    mf_dtype d = s->d.view->dtype;
    MF_REFUSE_UNLESS(c->sm == 90 && c->version[MFI_LIB_CUBLASLT] >= 120900, NO_EPILOGUE,
                     "vectors of scales need cuBLAS 12.9 and sm_90; this is %lld on %s",
                     (long long)c->version[MFI_LIB_CUBLASLT], c->arch);
    MF_REFUSE_UNLESS(d == MF_BF16, DTYPE, "vectors of scales for a result of %s", mf_dtype_name(d));
    MF_REFUSE_UNLESS(!s->epilogue.activation && s->epilogue.residual < 0, NO_EPILOGUE,
                     "more than a bias after vectors of scales");
    MF_REFUSE_UNLESS(step == 1 && s->batch == 1, LAYOUT, "a vector of scales with stride %lld, %lld products",
                     (long long)step, (long long)s->batch);
    return true;
}

/* Values in memory that scale the product are fp8's operand scales. cuBLAS 13.1 and older wants their addresses aligned
 * to 16 bytes. */
static bool scale_rules(const mfi_lt_spec *s, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const int scales[] = {s->epilogue.scale[0], s->epilogue.scale[1], s->epilogue.result_scale};
    for (size_t i = 0; i < MFI_COUNT(scales); i++) {
        if (scales[i] < 0)
            continue;
        const mfi_view *v = &p->chain.operand[scales[i]].view;
        MF_REFUSE_UNLESS(s->fp8, NO_EPILOGUE,
                         "the product is multiplied by a value in memory, which cuBLASLt does for fp8 operands only");
        if (i < 2 && s->epilogue.outer && !outer_rules(s, p, c, scales[i], bid))
            return false;
        MF_REFUSE_UNLESS(v->dtype == MF_F32, DTYPE, "a scale of %s; fp8 takes f32", mf_dtype_name(v->dtype));
        MF_REFUSE_UNLESS(v->alignment >= 16, ALIGNMENT, "a scale is aligned to %d bytes; cuBLASLt needs 16",
                         v->alignment);
    }
    return true;
}

/* ---- known bugs, by the version that runs; a fix is entered once it is known ---- */

/* RELU gives 0 for NaN in some of the library's kernels. Where that was measured, cublaslt_run.c picks among the
 * others, which in 16 bits take rows and addresses aligned to 16 bytes only. */
static bool relu_keeps_nan(mfi_lt_spec *s, const mfi_caps *c)
{
    bool aligned = true;
    for (int i = 0; i < MATRICES; i++)
        if (matrices(s, i))
            aligned = aligned && matrices(s, i)->ld * element(matrices(s, i)->view) % 16 == 0 &&
                      matrices(s, i)->alignment >= 16;
    return c->sm == 90 && c->version[MFI_LIB_CUBLASLT] == 130100 && (aligned || element(s->left.view) > 2);
}

static bool known_bugs(mfi_lt_spec *s, const mfi_caps *c, mfi_bid *bid)
{
    int64_t version = c->version[MFI_LIB_CUBLASLT];
    MF_REFUSE_UNLESS(s->epilogue.activation != MFI_LT_RELU || relu_keeps_nan(s, c), NAN_EPILOGUE,
                     "its RELU may turn NaN into 0 (cuBLAS %lld, %s)", (long long)version, c->arch);
    MF_REFUSE_UNLESS(s->epilogue.bias < 0 || (s->rows != 1 && s->columns != 1) || version >= 120804, KNOWN_BUG,
                     "a bias with m or n = 1 is wrong before cuBLAS 12.8.4; this is %lld", (long long)version);
    return true;
}

static bool describe(mfi_lt_spec *s, const mfi_problem *p, const mfi_caps *c, bool row_major, mfi_bid *bid)
{
    *s = (mfi_lt_spec){0};
    if (!mfi_lt_match(&s->epilogue, p, row_major, bid))
        return false;
    s->d.view = &p->chain.operand[s->epilogue.store].view;
    if (!types(s, p, c, bid) || !place_all(s, p, row_major, bid) || !vectors(s, p, bid) || !batches(s, p, bid))
        return false;
    static const char *const names[] = {"the first operand", "the second operand", "the result", "the added matrix",
                                        "the value before gelu"};
    for (int i = 0; i < MATRICES; i++)
        if (matrices(s, i) && !alignment(matrices(s, i), names[i], bid))
            return false;
    return (!s->fp8 || fp8_rules(s, bid)) && (!s->int8 || int8_rules(s, bid)) && (!s->aux.view || aux_rules(s, bid)) &&
           scale_rules(s, p, c, bid) && (s->epilogue.beside < 0 || beside_rules(s, p, bid)) && known_bugs(s, c, bid);
}

bool mfi_lt_describe(mfi_lt_spec *out, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    mfi_bid other = {0};
    if (describe(out, p, c, true, bid))
        return true;
    return describe(out, p, c, false, &other); /* the row-major attempt's reason is the one that users expect */
}

size_t mfi_lt_workspace_limit(const mfi_caps *c)
{
    return c->sm == 90 ? WORKSPACE_HOPPER : WORKSPACE;
}

/* Of the roofline; with few rows, M = 1, 16, 64 at N = K = 8192, too: 1.05 to 1.15 passes over the large factor on one H200. */
static const double EFFICIENCY = 0.92;

/* gelu is computed after the products, not beside them: as many instructions for an element, 8.2 us for 16384x1024 elements on
 * one H200, where 7 to 9 were measured. */
static double activation_us(const mfi_lt_spec *s, const mfi_problem *p, const mfi_caps *c)
{
    const double lanes_a_us = 128 * 1700, instructions = 14;
    const bool gelu = s->epilogue.activation == MFI_LT_GELU || s->epilogue.activation == MFI_LT_DGELU;
    double lanes = lanes_a_us * (double)mfi_max64(c->multiprocessors, 1);
    return gelu ? instructions * (double)mfi_problem_points(p) / lanes : 0;
}

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    mfi_lt_spec s;
    MF_REFUSE_UNLESS(p->anchor == MFI_MATMUL, NOT_ANCHOR, "it multiplies matrices");
    MF_REFUSE_UNLESS(c->cuda, WRONG_TARGET, "the target is %s", c->arch);
#ifndef MFI_WITH_CUDA
    return mfi_refuse(bid, MFI_R_NOT_BUILT, "built without CUDA's headers");
#endif
    MF_REFUSE_UNLESS(c->library[MFI_LIB_CUBLASLT], NOT_FOUND, "cuBLASLt");
    MF_REFUSE_UNLESS(mfi_problem_points(p) > 0 && p->u.matmul.k > 0, EMPTY, "m=%lld n=%lld k=%lld",
                     (long long)p->u.matmul.m, (long long)p->u.matmul.n, (long long)p->u.matmul.k);
    if (!mfi_lt_describe(&s, p, c, bid))
        return false;
    int copies = (s.copy[0].source != NULL) + (s.copy[1].source != NULL);
    MF_REFUSE_UNLESS(!copies || c->library[MFI_LIB_NVRTC], NOT_FOUND, "NVRTC, for the copy that this layout needs");
    mfi_bid_roofline(bid, p, c, EFFICIENCY, (int)s.calls + copies);
    bid->bytes += 2 * (int64_t)s.packed_bytes;
    bid->cost_us += 2 * (double)s.packed_bytes / c->bytes_per_us + activation_us(&s, p, c);
    bid->workspace = s.packed_bytes + mfi_lt_workspace_limit(c);
    bool scaled = s.epilogue.scale[0] >= 0 || s.epilogue.result_scale >= 0;
    snprintf(bid->kernel, sizeof bid->kernel, "cublasLtMatmul %s%s%s%s%s", mfi_lt_epilogue_name(&s.epilogue),
             s.c.view ? " + C" : "",
             s.epilogue.outer ? ", scaled by vectors"
             : scaled         ? ", scaled"
                              : "",
             s.epilogue.kind == MFI_LT_LARGEST ? ", largest value" : "",
             copies == 2 ? ", copies"
             : copies    ? ", copy"
                         : "");
    return true;
}

const mfi_provider mfi_provider_cublaslt = {"cublaslt",     query,         mfi_lt_prepare, mfi_lt_run,
                                            mfi_lt_destroy, mfi_lt_kernel, NULL,           mfi_lt_variants};
