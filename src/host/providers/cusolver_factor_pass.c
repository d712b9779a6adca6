/* Around the decompositions: checks of the input, copies in, and results with NaN where a matrix failed. */
#include "cusolver_factor.h"

#include <float.h>
#include <math.h>

static mfi_view per_matrix(const mfi_cufactor_spec *s)
{
    return mfi_pass_contiguous(MF_I32, s->ndim, s->shape);
}

/* A region of the workspace that holds rows x cols matrices, `ld` elements between columns, `each` a matrix. */
static mfi_view region(const mfi_cufactor_spec *s, mf_dtype dtype, int64_t each, int64_t ld)
{
    mfi_view v = mfi_pass_contiguous(dtype, s->ndim, s->shape);
    for (int d = 0; d < s->ndim; d++)
        v.strides[d] *= each;
    v.strides[s->ndim] = 1;
    v.strides[s->ndim + 1] = ld;
    return v;
}

static void swap_axes(const mfi_cufactor_spec *s, mfi_view *v)
{
    int64_t t = v->strides[s->ndim];
    v->strides[s->ndim] = v->strides[s->ndim + 1];
    v->strides[s->ndim + 1] = t;
}

static void begin(mfi_problem *map, const mfi_cufactor_spec *s, int64_t rows, int64_t cols)
{
    int64_t shape[MF_MAX_DIMS];
    memcpy(shape, s->shape, sizeof shape);
    shape[s->ndim] = rows;
    shape[s->ndim + 1] = cols;
    mfi_pass_begin(map, s->ndim + 2, shape);
}

static int constant(mfi_problem *map, mfi_ctype ctype, double value)
{
    return mfi_pass_constant(map, ctype, value, 0);
}

static int compare(mfi_problem *map, mf_op op, mfi_ctype ctype, int a, int b)
{
    return mfi_pass_apply(map, op, ctype, a, b, -1);
}

static int choose(mfi_problem *map, mfi_ctype ctype, int condition, int yes, int no)
{
    return mfi_pass_apply(map, MF_OP_WHERE, ctype, condition, yes, no);
}

static int conjugate(mfi_problem *map, mfi_ctype ctype, int value)
{
    return ctype >= MFI_C64 ? mfi_pass_apply(map, MF_OP_CONJUGATE, ctype, value, -1, -1) : value;
}

static int identity(mfi_problem *map, const mfi_cufactor_spec *s, mfi_ctype ctype)
{
    int i = mfi_pass_index(map, s->ndim), j = mfi_pass_index(map, s->ndim + 1);
    int diagonal = compare(map, MF_OP_EQUAL, MFI_I64, i, j);
    return choose(map, ctype, diagonal, constant(map, ctype, 1), constant(map, ctype, 0));
}

/* Reduce over the domain's last axes; what follows is one value a row. */
static int reduce(mfi_problem *map, mf_reduce_op op, mfi_ctype ctype, int a)
{
    map->chain.instr[map->chain.count] = (mfi_instr){.kind = MFI_REDUCE,
                                                     .ctype = (uint8_t)ctype,
                                                     .from = (uint8_t)ctype,
                                                     .reduce = (uint8_t)op,
                                                     .level = 1,
                                                     .op = -1,
                                                     .operand = -1,
                                                     .a = (int16_t)a,
                                                     .b = -1,
                                                     .c = -1};
    map->chain.phases = 1;
    return map->chain.count++;
}

static void row_values(mfi_problem *map, int from)
{
    for (int i = from; i < map->chain.count; i++)
        if (map->chain.instr[i].kind != MFI_CONST)
            map->chain.instr[i].level = 1;
}

/* ---- in ---- */

static bool one_triangle(const mfi_factor *f)
{
    return f->kind == MFI_EIGH || f->kind == MFI_SYMMETRIC_SOLVE;
}

/* Whether the routine reads element (i, j) of the input; -1: it reads all. */
static int is_read(mfi_problem *map, const mfi_cufactor_spec *s)
{
    const mfi_factor *f = s->f;
    if (!one_triangle(f) && f->kind != MFI_TRIDIAGONAL_SOLVE)
        return -1;
    int i = mfi_pass_index(map, s->ndim), j = mfi_pass_index(map, s->ndim + 1);
    if (one_triangle(f))
        return compare(map, f->flags & MF_UPPER ? MF_OP_LESS_EQUAL : MF_OP_GREATER_EQUAL, MFI_I64, i, j);
    int one = constant(map, MFI_I64, 1);
    int below = compare(map, MF_OP_LESS_EQUAL, MFI_I64, i, compare(map, MF_OP_ADD, MFI_I64, j, one));
    int above = compare(map, MF_OP_LESS_EQUAL, MFI_I64, j, compare(map, MF_OP_ADD, MFI_I64, i, one));
    return compare(map, MF_OP_LOGICAL_AND, MFI_I32, below, above);
}

/* -1 for each matrix that holds NaN or infinity. Slot 0: the matrices, 1: the flags. */
static void check(mfi_problem *map, const mfi_cufactor_spec *s, const mfi_factor_operand *o, bool masked)
{
    mfi_view flags = per_matrix(s);
    begin(map, s, o->rows, o->cols);
    map->nreduce = 2;
    int value = mfi_pass_load(map, 0, &o->view, NULL);
    mfi_ctype ctype = (mfi_ctype)map->chain.instr[value].ctype;
    int good = mfi_pass_apply(map, MF_OP_ISFINITE, ctype, value, -1, -1);
    int inside = masked ? is_read(map, s) : -1;
    if (inside >= 0)
        good = choose(map, MFI_I32, inside, good, constant(map, MFI_I32, 1));
    int all = reduce(map, MF_MIN, MFI_I32, good), row = map->chain.count;
    int bad = compare(map, MF_OP_EQUAL, MFI_I32, all, constant(map, MFI_I32, 0));
    mfi_pass_store(map, 1, &flags, choose(map, MFI_I32, bad, constant(map, MFI_I32, -1), constant(map, MFI_I32, 0)));
    row_values(map, row);
}

/* What the routine does not read comes from what it reads, or is zero. */
static int complete(mfi_problem *map, const mfi_cufactor_spec *s, int value)
{
    const mfi_factor *f = s->f;
    int inside = is_read(map, s);
    if (inside < 0)
        return value;
    if (!one_triangle(f))
        return choose(map, s->ctype, inside, value, constant(map, s->ctype, 0));
    mfi_view mirrored = f->in[0].view;
    bool adjoint = !(f->flags & MF_SYMMETRIC);
    swap_axes(s, &mirrored);
    int other = mfi_pass_cast(map, s->ctype, mfi_pass_load(map, 0, &mirrored, NULL));
    other = adjoint ? conjugate(map, s->ctype, other) : other;
    value = choose(map, s->ctype, inside, value, other);
    if (!adjoint || s->ctype < MFI_C64)
        return value;
    int i = mfi_pass_index(map, s->ndim), j = mfi_pass_index(map, s->ndim + 1);
    int real = mfi_pass_cast(map, s->ctype, mfi_pass_apply(map, MF_OP_REAL, s->ctype, value, -1, -1));
    return choose(map, s->ctype, compare(map, MF_OP_EQUAL, MFI_I64, i, j), real, value);
}

/* Slot 0: the input, 1: the region, 2: its flags. */
static void copy_a(mfi_problem *map, const mfi_cufactor_spec *s)
{
    mfi_view source = s->f->in[0].view, to = region(s, s->dtype, s->rows * s->cols, s->rows), flags = per_matrix(s);
    begin(map, s, s->rows, s->cols);
    if (s->wide)
        swap_axes(s, &source);
    int value = mfi_pass_cast(map, s->ctype, mfi_pass_load(map, 0, &source, NULL));
    value = s->wide ? conjugate(map, s->ctype, value) : complete(map, s, value);
    int bad = mfi_pass_load(map, 2, &flags, NULL);
    bad = compare(map, MF_OP_NOT_EQUAL, MFI_I32, bad, constant(map, MFI_I32, 0));
    mfi_pass_store(map, 1, &to, choose(map, s->ctype, bad, constant(map, s->ctype, 0), value));
}

/* Slot 0: the right-hand sides, 1: the region; for the inverse an identity. */
static void copy_b(mfi_problem *map, const mfi_cufactor_spec *s)
{
    const mfi_factor *f = s->f;
    int64_t sides = mfi_cufactor_sides(f);
    mfi_view to = region(s, s->dtype, f->m * sides, f->m);
    begin(map, s, f->m, sides);
    int value =
        f->kind == MFI_INVERSE
            ? identity(map, s, s->ctype)
            : mfi_pass_cast(map, s->ctype, mfi_pass_load(map, 0, &f->in[f->kind == MFI_LU_APPLY ? 2 : 1].view, NULL));
    mfi_pass_store(map, 1, &to, value);
}

static mfi_view pivots(const mfi_cufactor_spec *s)
{
    return region(s, s->batched ? MF_I32 : MF_I64, s->k, 0);
}

/* Slot 0: pivots from 0, 1: from 1. */
static void copy_pivots(mfi_problem *map, const mfi_cufactor_spec *s)
{
    mfi_view to = pivots(s);
    begin(map, s, s->k, 1);
    int value = mfi_pass_cast(map, MFI_I64, mfi_pass_load(map, 0, &s->f->in[1].view, NULL));
    value = compare(map, MF_OP_ADD, MFI_I64, value, constant(map, MFI_I64, 1));
    mfi_pass_store(map, 1, &to, s->batched ? mfi_pass_cast(map, MFI_I32, value) : value);
}

/* The first zero on the diagonal of given factors. Slot 0: the factors, 1: info. */
static void check_diagonal(mfi_problem *map, const mfi_cufactor_spec *s)
{
    mfi_view diagonal = region(s, s->dtype, s->rows * s->cols, 0), info = per_matrix(s);
    diagonal.strides[s->ndim] = s->rows + 1;
    begin(map, s, s->k, 1);
    map->nreduce = 2;
    int value = mfi_pass_load(map, 0, &diagonal, NULL);
    int good = compare(map, MF_OP_NOT_EQUAL, s->ctype, value, constant(map, s->ctype, 0));
    int none = constant(map, MFI_I64, (double)(s->k + 1));
    int position = compare(map, MF_OP_ADD, MFI_I64, mfi_pass_index(map, s->ndim), constant(map, MFI_I64, 1));
    int first = reduce(map, MF_MIN, MFI_I64, choose(map, MFI_I64, good, none, position)), row = map->chain.count;
    int fine = compare(map, MF_OP_EQUAL, MFI_I64, first, none);
    int final = choose(map, MFI_I64, fine, constant(map, MFI_I64, 0), first);
    mfi_pass_store(map, 1, &info, mfi_pass_cast(map, MFI_I32, final));
    row_values(map, row);
}

/* ---- between and after ---- */

/* Which singular values count: a condition on the value at slot `slot`. */
static int counts(mfi_problem *map, const mfi_cufactor_spec *s, int slot, int *value)
{
    mfi_ctype real = mfi_compute_type(s->real);
    mfi_view own = region(s, s->real, s->k, 0), largest = own;
    double epsilon = s->real == MF_F32 ? (double)FLT_EPSILON : DBL_EPSILON;
    largest.strides[s->ndim] = 0;
    *value = mfi_pass_load(map, slot, &own, NULL);
    int most = mfi_pass_load(map, slot, &largest, NULL);
    int limit = compare(map, MF_OP_MULTIPLY, real, most, constant(map, real, s->f->rcond < 0 ? epsilon : s->f->rcond));
    return compare(map, MF_OP_GREATER, real, *value, limit);
}

/* U^H b divided by the singular values that count. Slot 0: U^H b, 1: singular values. */
static void scale(mfi_problem *map, const mfi_cufactor_spec *s)
{
    mfi_view c = region(s, s->dtype, s->k * s->f->nrhs, s->k);
    mfi_ctype real = mfi_compute_type(s->real);
    int value, along, divisor;
    begin(map, s, s->k, s->f->nrhs);
    int large = counts(map, s, 1, &value);
    along = mfi_pass_load(map, 0, &c, NULL);
    divisor = mfi_pass_cast(map, s->ctype, choose(map, real, large, value, constant(map, real, 1)));
    along = compare(map, MF_OP_DIVIDE, s->ctype, along, divisor);
    mfi_pass_store(map, 2, &c, choose(map, s->ctype, large, along, constant(map, s->ctype, 0)));
}

/* Slot 0: the library's info, 1: flags of the input, 2: the final info, 3: the caller's, 4: flags of right-hand sides. */
static void final_info(mfi_problem *map, const mfi_cufactor_spec *s)
{
    mfi_view view = per_matrix(s);
    const mfi_view *caller = &s->f->out[MFI_INFO].view;
    mfi_pass_begin(map, s->ndim, s->shape);
    int nothing = constant(map, MFI_I32, 0), value = nothing;
    if (!s->empty) {
        value = mfi_pass_load(map, 0, &view, NULL);
        for (int slot = 1; slot <= (s->bytes[MFI_FR_FAILED_B] ? 4 : 1); slot += 3) {
            int flag = mfi_pass_load(map, slot, &view, NULL);
            value = choose(map, MFI_I32, compare(map, MF_OP_EQUAL, MFI_I32, flag, nothing), value, flag);
        }
    }
    mfi_pass_store(map, 2, &view, value);
    if (caller->slot >= 0)
        mfi_pass_store(map, 3, caller, value);
}

static int has_failed(mfi_problem *map, const mfi_cufactor_spec *s)
{
    mfi_view view = per_matrix(s);
    int info = mfi_pass_load(map, 1, &view, NULL);
    /* factors of a singular matrix are factors */
    mf_op op = s->f->kind == MFI_LU ? MF_OP_LESS : MF_OP_NOT_EQUAL;
    return compare(map, op, MFI_I32, info, constant(map, MFI_I32, 0));
}

/* Pivots from 0; of a failed matrix ones that exchange nothing. */
static void out_pivots(mfi_problem *map, const mfi_cufactor_spec *s)
{
    mfi_view from = pivots(s);
    begin(map, s, s->k, 1);
    int value = mfi_pass_cast(map, MFI_I64, mfi_pass_load(map, 0, &from, NULL));
    value = compare(map, MF_OP_SUBTRACT, MFI_I64, value, constant(map, MFI_I64, 1));
    value = choose(map, MFI_I64, has_failed(map, s), mfi_pass_index(map, s->ndim), value);
    mfi_pass_store(map, 2, &s->f->out[2].view, mfi_pass_cast(map, MFI_I32, value));
}

/* One number a matrix, reduced over k of them: the permutation's sign, or the rank. */
static void out_number(mfi_problem *map, const mfi_cufactor_spec *s, bool sign)
{
    const mfi_view *to = &s->f->out[sign ? 3 : 2].view;
    int each;
    begin(map, s, s->k, 1);
    map->nreduce = 2;
    if (sign) {
        mfi_view from = pivots(s);
        int row = mfi_pass_cast(map, MFI_I64, mfi_pass_load(map, 0, &from, NULL));
        int own = compare(map, MF_OP_ADD, MFI_I64, mfi_pass_index(map, s->ndim), constant(map, MFI_I64, 1));
        each = choose(map, MFI_I64, compare(map, MF_OP_EQUAL, MFI_I64, row, own), constant(map, MFI_I64, 1),
                      constant(map, MFI_I64, -1));
    } else {
        int value, large = counts(map, s, 0, &value);
        each = choose(map, MFI_I64, large, constant(map, MFI_I64, 1), constant(map, MFI_I64, 0));
    }
    int number = reduce(map, sign ? MF_PROD : MF_SUM, MFI_I64, each), row = map->chain.count;
    number = choose(map, MFI_I64, has_failed(map, s), constant(map, MFI_I64, 0), number);
    mfi_pass_store(map, 2, to, mfi_pass_cast(map, MFI_I32, number));
    row_values(map, row);
}

/* The workspace's matrix W = U S V^H is A or, if that is wide, A^H = V S U^H turned round: each factor lies there as itself
 * or as its adjoint. */
static mfi_view vectors(const mfi_cufactor_spec *s, int index, bool *conjugated)
{
    bool from_u = (index == 2) == !s->wide;
    mfi_view v =
        from_u ? region(s, s->dtype, s->rows * s->u_cols, s->rows) : region(s, s->dtype, s->cols * s->cols, s->cols);
    *conjugated = from_u ? s->wide : (index == 3) == s->jacobi; /* gesvd leaves V^H, Jacobi's method V */
    if (*conjugated)
        swap_axes(s, &v);
    return v;
}

/* Where result `index` lies in the workspace, with the axes that the caller's has; whether it is its conjugate. */
static mfi_view source_of(const mfi_cufactor_spec *s, int index, bool *conjugated)
{
    const mfi_factor *f = s->f;
    int64_t rows = s->rows, cols = s->cols, ld = s->k;
    *conjugated = false;
    switch (f->kind) {
    case MFI_LU:
        return region(s, s->dtype, rows * cols, rows);
    case MFI_QR:
        if (index == 0 && !(f->flags & MF_RAW))
            return region(s, s->dtype, rows * s->u_cols, rows);
        return index == 2 && f->flags & MF_RAW ? region(s, s->dtype, ld, 0) : region(s, s->dtype, rows * cols, rows);
    case MFI_EIGH:
        return index == 0 ? region(s, s->real, s->k, 0) : region(s, s->dtype, rows * cols, rows);
    case MFI_EIG:
        return index == 0 ? region(s, s->dtype, s->k, 0) : region(s, s->dtype, rows * cols, rows);
    case MFI_SVD:
        if (index == 0)
            return region(s, s->real, s->k, 0);
        return vectors(s, index, conjugated);
    case MFI_LEAST_SQUARES:
        return index == 3 ? region(s, s->real, s->k, 0) : region(s, s->dtype, f->n * f->nrhs, f->n);
    default:
        return region(s, s->dtype, f->m * mfi_cufactor_sides(f), f->m);
    }
}

/* Slot 0: the region, 1: the final info, 2: the caller's. */
static void out(mfi_problem *map, const mfi_cufactor_spec *s, int index)
{
    const mfi_factor *f = s->f;
    const mfi_factor_operand *o = &f->out[index];
    bool conjugated, r_of_qr = f->kind == MFI_QR && index == 2 && !(f->flags & MF_RAW);
    begin(map, s, o->rows, o->cols);
    mfi_ctype ctype = mfi_compute_type(o->view.dtype);
    int value;
    if (s->empty) {
        value = f->in[1].view.slot >= 0 ? constant(map, ctype, 0) : identity(map, s, ctype);
    } else {
        mfi_view from = source_of(s, index, &conjugated);
        value = mfi_pass_load(map, 0, &from, NULL);
        ctype = (mfi_ctype)map->chain.instr[value].ctype;
        value = conjugated ? conjugate(map, ctype, value) : value;
        int failed = has_failed(map, s);
        int nan_ = mfi_pass_constant(map, ctype, (double)NAN, ctype >= MFI_C64 ? (double)NAN : 0);
        value = choose(map, ctype, failed, nan_, value);
    }
    if (r_of_qr) {
        int i = mfi_pass_index(map, s->ndim), j = mfi_pass_index(map, s->ndim + 1);
        value = choose(map, ctype, compare(map, MF_OP_LESS_EQUAL, MFI_I64, i, j), value, constant(map, ctype, 0));
    }
    mfi_pass_store(map, 2, &o->view, mfi_pass_cast(map, mfi_compute_type(o->view.dtype), value));
}

static void out_result(mfi_problem *map, const mfi_cufactor_spec *s, int index)
{
    mfi_factor_kind kind = s->f->kind;
    if (s->empty || (kind != MFI_LU && kind != MFI_LEAST_SQUARES) || index == 0)
        out(map, s, index);
    else if (kind == MFI_LU && index == 2)
        out_pivots(map, s);
    else if (kind == MFI_LU || index == 2)
        out_number(map, s, kind == MFI_LU);
    else
        out(map, s, index);
}

/* ---- all of them ---- */

static int result_of(int which)
{
    return which == MFI_FP_OUT0 ? 0 : which == MFI_FP_OUT2 ? 2 : 3;
}

bool mfi_cufactor_pass_needed(const mfi_cufactor_spec *s, int which)
{
    const mfi_factor *f = s->f;
    if (which == MFI_FP_FINAL)
        return true;
    if (which >= MFI_FP_OUT0) {
        const mfi_factor_operand *o = &f->out[result_of(which)];
        return o->view.slot >= 0 && o->rows > 0 && o->cols > 0;
    }
    if (s->empty)
        return false;
    switch (which) {
    case MFI_FP_CHECK:
    case MFI_FP_COPY_A:
        return true;
    case MFI_FP_CHECK_B:
    case MFI_FP_SCALE:
        return f->kind == MFI_LEAST_SQUARES;
    case MFI_FP_COPY_B:
        return s->bytes[MFI_FR_B] > 0;
    default:
        return f->kind == MFI_LU_APPLY;
    }
}

void mfi_cufactor_pass(mfi_problem *map, const mfi_cufactor_spec *s, int which)
{
    switch (which) {
    case MFI_FP_CHECK:
        check(map, s, &s->f->in[0], true);
        break;
    case MFI_FP_CHECK_B:
        check(map, s, &s->f->in[1], false);
        break;
    case MFI_FP_COPY_A:
        copy_a(map, s);
        break;
    case MFI_FP_COPY_B:
        copy_b(map, s);
        break;
    case MFI_FP_PIVOTS:
        copy_pivots(map, s);
        break;
    case MFI_FP_DIAGONAL:
        check_diagonal(map, s);
        break;
    case MFI_FP_SCALE:
        scale(map, s);
        break;
    case MFI_FP_FINAL:
        final_info(map, s);
        break;
    default:
        out_result(map, s, result_of(which));
    }
}

/* Which region a result comes from. */
static mfi_fregion region_of(const mfi_cufactor_spec *s, int index)
{
    const mfi_factor *f = s->f;
    switch (f->kind) {
    case MFI_LU:
        return index == 0 ? MFI_FR_A : MFI_FR_PIVOTS;
    case MFI_QR:
        return index == 0 && !(f->flags & MF_RAW) ? MFI_FR_U : index == 2 && f->flags & MF_RAW ? MFI_FR_TAU : MFI_FR_A;
    case MFI_EIGH:
        return index == 0 ? MFI_FR_S : MFI_FR_A;
    case MFI_EIG:
        return index == 0 ? MFI_FR_S : MFI_FR_U;
    case MFI_SVD:
        return index == 0 ? MFI_FR_S : (index == 2) == !s->wide ? MFI_FR_U : MFI_FR_V;
    case MFI_LEAST_SQUARES:
        return index == 0 ? MFI_FR_X : MFI_FR_S;
    default:
        return MFI_FR_B;
    }
}

void mfi_cufactor_pass_slots(void *slots[MFI_FACTOR_PASS_SLOTS], const mfi_cufactor_spec *s, int which,
                             const mfi_run *run)
{
    const mfi_factor *f = s->f;
    void *at[MFI_FR_REGIONS], *in[MFI_FACTOR_INPUTS], *result[MFI_FACTOR_RESULTS];
    for (int i = 0; i < MFI_FR_REGIONS; i++)
        at[i] = (char *)run->workspace + s->offset[i];
    for (int i = 0; i < MFI_FACTOR_INPUTS; i++)
        in[i] = f->in[i].view.slot < 0 ? NULL : run->slots[f->in[i].view.slot];
    for (int i = 0; i < MFI_FACTOR_RESULTS; i++)
        result[i] = f->out[i].view.slot < 0 ? NULL : run->slots[f->out[i].view.slot];
    int index = which >= MFI_FP_OUT0 ? result_of(which) : 0;
    void *const table[MFI_FACTOR_PASSES][MFI_FACTOR_PASS_SLOTS] = {
        [MFI_FP_CHECK] = {in[0], at[MFI_FR_FAILED]},
        [MFI_FP_CHECK_B] = {in[1], at[MFI_FR_FAILED_B]},
        [MFI_FP_COPY_A] = {in[0], at[MFI_FR_A], at[MFI_FR_FAILED]},
        [MFI_FP_COPY_B] = {in[f->kind == MFI_LU_APPLY ? 2 : 1], at[MFI_FR_B]},
        [MFI_FP_PIVOTS] = {in[1], at[MFI_FR_PIVOTS]},
        [MFI_FP_DIAGONAL] = {at[MFI_FR_A], at[MFI_FR_INFO]},
        [MFI_FP_SCALE] = {at[MFI_FR_C], at[MFI_FR_S], at[MFI_FR_C]},
        [MFI_FP_FINAL] = {at[MFI_FR_INFO], at[MFI_FR_FAILED], at[MFI_FR_FINAL], result[MFI_INFO], at[MFI_FR_FAILED_B]},
        [MFI_FP_OUT0] = {at[region_of(s, index)], at[MFI_FR_FINAL], result[0]},
        [MFI_FP_OUT2] = {at[region_of(s, index)], at[MFI_FR_FINAL], result[2]},
        [MFI_FP_OUT3] = {at[region_of(s, index)], at[MFI_FR_FINAL], result[3]},
    };
    memcpy(slots, table[which], sizeof table[which]);
}
