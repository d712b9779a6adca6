/* Around the solvers: copies in and out, and the checks that turn a failed matrix into NaN and `info` into LAPACK's. */
#include "cusolver.h"

#include <math.h>

static bool lu(const mfi_cusolver_spec *s)
{
    return s->solve->solver == MFI_LU_SOLVE;
}

/* A view of one number per matrix, constant along the dims that follow the batch. */
static mfi_view per_matrix(const mfi_cusolver_spec *s)
{
    return mfi_pass_contiguous(MF_I32, s->ndim, s->shape);
}

/* The workspace copy of A, or of B. */
static mfi_view matrices(const mfi_cusolver_spec *s, bool rhs)
{
    int64_t shape[MF_MAX_DIMS], columns = rhs ? s->solve->nrhs : s->solve->n;
    bool by_columns = mfi_cusolver_by_columns(s, rhs);
    memcpy(shape, s->shape, sizeof shape);
    shape[s->ndim] = by_columns ? columns : s->solve->n;
    shape[s->ndim + 1] = by_columns ? s->solve->n : columns;
    mfi_view v = mfi_pass_contiguous(s->dtype, s->ndim + 2, shape);
    if (by_columns) {
        int64_t t = v.strides[s->ndim];
        v.strides[s->ndim] = v.strides[s->ndim + 1];
        v.strides[s->ndim + 1] = t;
    }
    return v;
}

static void domain(int64_t *shape, const mfi_cusolver_spec *s, int64_t columns)
{
    memcpy(shape, s->shape, (size_t)s->ndim * sizeof *shape);
    shape[s->ndim] = s->solve->n;
    shape[s->ndim + 1] = columns;
}

static void copy(mfi_problem *map, const mfi_cusolver_spec *s, const mfi_view *src, bool rhs)
{
    int64_t shape[MF_MAX_DIMS];
    mfi_view dst = matrices(s, rhs);
    domain(shape, s, rhs ? s->solve->nrhs : s->solve->n);
    mfi_pass_copy(map, s->ndim + 2, shape, src, NULL, &dst, 1, 0);
}

static void at_row_level(mfi_problem *map, int from)
{
    for (int i = from; i < map->chain.count; i++)
        if (map->chain.instr[i].kind != MFI_CONST)
            map->chain.instr[i].level = 1;
}

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

/* LU drops a NaN of its input before CUDA 13.4, wherever pivoting passes over it: look before. Slot 0: A, 1: failed. */
static void check_input(mfi_problem *map, const mfi_cusolver_spec *s)
{
    int64_t shape[MF_MAX_DIMS];
    memcpy(shape, s->shape, (size_t)s->ndim * sizeof *shape);
    shape[s->ndim] = s->solve->n * s->solve->n;
    mfi_view a = mfi_pass_contiguous(s->dtype, s->ndim + 1, shape), failed = per_matrix(s);
    mfi_pass_begin(map, s->ndim + 1, shape);
    map->nreduce = 1;
    int value = mfi_pass_load(map, 0, &a, NULL);
    int isnan_ = mfi_pass_apply(map, MF_OP_ISNAN, s->solve->ctype, value, -1, -1);
    mfi_pass_store(map, 1, &failed, reduce(map, MF_MAX, MFI_I32, isnan_));
    at_row_level(map, map->chain.count - 1);
}

/* Cholesky: the first diagonal element that is not positive, NaN included. Triangular solves: the first that is zero.
 * Slot 0: A, 1: the library's info, 2: failed = the final info. */
static void check_factor(mfi_problem *map, const mfi_cusolver_spec *s)
{
    const int64_t n = s->solve->n;
    int64_t shape[MF_MAX_DIMS];
    bool cholesky = mfi_cusolver_definite(s);
    mfi_ctype ctype = s->solve->ctype, real = ctype == MFI_C64 ? MFI_F32 : ctype == MFI_C128 ? MFI_F64 : ctype;
    memcpy(shape, s->shape, (size_t)s->ndim * sizeof *shape);
    shape[s->ndim] = n;
    mfi_view diagonal = matrices(s, false), info = per_matrix(s);
    diagonal.strides[s->ndim] = n + 1;
    mfi_pass_begin(map, s->ndim + 1, shape);
    map->nreduce = 1;
    int d = mfi_pass_load(map, 0, &diagonal, NULL);
    int compared = cholesky && real != ctype ? mfi_pass_apply(map, MF_OP_REAL, ctype, d, -1, -1) : d;
    mfi_ctype of = cholesky ? real : ctype;
    int zero = mfi_pass_constant(map, of, 0, 0);
    int good = mfi_pass_apply(map, cholesky ? MF_OP_GREATER : MF_OP_NOT_EQUAL, of, compared, zero, -1);
    int none = mfi_pass_constant(map, MFI_I64, (double)(n + 1), 0), one = mfi_pass_constant(map, MFI_I64, 1, 0);
    int position = mfi_pass_apply(map, MF_OP_ADD, MFI_I64, mfi_pass_index(map, s->ndim), one, -1);
    int candidate = mfi_pass_apply(map, MF_OP_WHERE, MFI_I64, good, none, position);
    int first = reduce(map, MF_MIN, MFI_I64, candidate), row = map->chain.count;
    int nothing = mfi_pass_constant(map, MFI_I64, 0, 0);
    int fine = mfi_pass_apply(map, MF_OP_EQUAL, MFI_I64, first, none, -1);
    int own = mfi_pass_apply(map, MF_OP_WHERE, MFI_I64, fine, nothing, first);
    if (cholesky) {
        int library = mfi_pass_cast(map, MFI_I64, mfi_pass_load(map, 1, &info, NULL));
        int said = mfi_pass_apply(map, MF_OP_NOT_EQUAL, MFI_I64, library, nothing, -1);
        own = mfi_pass_apply(map, MF_OP_WHERE, MFI_I64, said, library, own);
    }
    mfi_pass_store(map, 2, &info, mfi_pass_cast(map, MFI_I32, own));
    at_row_level(map, row);
}

/* x where the matrix did not fail, NaN where it did; a factor's other triangle is 0 in any case. Slot 0: solution, 1:
 * failed, 2: x; LU also looks at the library's info, slot 3. */
static void result(mfi_problem *map, const mfi_cusolver_spec *s)
{
    const mfi_solve *solve = s->solve;
    bool cholesky = solve->solver == MFI_CHOLESKY;
    int64_t shape[MF_MAX_DIMS], columns = cholesky ? solve->n : solve->nrhs;
    mfi_view source = matrices(s, !cholesky), flag = per_matrix(s);
    bool checked = !(solve->solver == MFI_TRSM && solve->flags & MF_UNIT);
    domain(shape, s, columns);
    mfi_pass_begin(map, s->ndim + 2, shape);
    int value = mfi_pass_load(map, 0, &source, NULL);
    int nan_ = mfi_pass_constant(map, solve->ctype, NAN, solve->ctype >= MFI_C64 ? NAN : 0);
    int nothing = mfi_pass_constant(map, MFI_I32, 0, 0);
    for (int slot = 1; checked && slot <= (lu(s) ? 3 : 1); slot += 2) {
        int failed = mfi_pass_load(map, slot, &flag, NULL);
        int fine = mfi_pass_apply(map, MF_OP_EQUAL, MFI_I32, failed, nothing, -1);
        value = mfi_pass_apply(map, MF_OP_WHERE, solve->ctype, fine, value, nan_);
    }
    if (cholesky) {
        int i = mfi_pass_index(map, s->ndim), j = mfi_pass_index(map, s->ndim + 1);
        mf_op inside = solve->flags & MF_UPPER ? MF_OP_LESS_EQUAL : MF_OP_GREATER_EQUAL;
        int zero = mfi_pass_constant(map, solve->ctype, 0, 0);
        int keep = mfi_pass_apply(map, inside, MFI_I64, i, j, -1);
        value = mfi_pass_apply(map, MF_OP_WHERE, solve->ctype, keep, value, zero);
    }
    mfi_pass_store(map, 2, &solve->x, mfi_pass_cast(map, mfi_compute_type(solve->x.dtype), value));
}

/* info as the caller wants it. Slot 0: the final info, 1: the caller's. */
static void store_info(mfi_problem *map, const mfi_cusolver_spec *s)
{
    mfi_view info = per_matrix(s);
    if (s->solve->solver != MFI_TRSM || !(s->solve->flags & MF_UNIT)) {
        mfi_pass_copy(map, s->ndim, s->shape, &info, NULL, &s->solve->info, 1, 0);
        return;
    }
    mfi_pass_begin(map, s->ndim, s->shape);
    mfi_pass_store(map, 1, &s->solve->info, mfi_pass_constant(map, MFI_I32, 0, 0));
}

bool mfi_cusolver_pass_needed(const mfi_cusolver_spec *s, int which)
{
    const mfi_solve *solve = s->solve;
    bool unit = solve->solver == MFI_TRSM && solve->flags & MF_UNIT;
    const bool needed[MFI_SOLVE_PASSES] = {
        [MFI_PASS_COPY_A] = true,
        [MFI_PASS_COPY_B] = solve->solver != MFI_CHOLESKY,
        [MFI_PASS_CHECK_INPUT] = lu(s),
        [MFI_PASS_CHECK_FACTOR] = !lu(s) && !unit,
        [MFI_PASS_RESULT] = solve->x.slot >= 0,
        [MFI_PASS_INFO] = solve->info.slot >= 0,
    };
    return needed[which];
}

void mfi_cusolver_pass(mfi_problem *map, const mfi_cusolver_spec *s, int which)
{
    switch (which) {
    case MFI_PASS_COPY_A:
        copy(map, s, &s->solve->a, false);
        break;
    case MFI_PASS_COPY_B:
        copy(map, s, &s->solve->b, true);
        break;
    case MFI_PASS_CHECK_INPUT:
        check_input(map, s);
        break;
    case MFI_PASS_CHECK_FACTOR:
        check_factor(map, s);
        break;
    case MFI_PASS_RESULT:
        result(map, s);
        break;
    default:
        store_info(map, s);
    }
}

void mfi_cusolver_pass_slots(void *slots[4], const mfi_cusolver_spec *s, int which, const mfi_run *run)
{
    const mfi_solve *solve = s->solve;
    char *w = run->workspace;
    void *a = w + s->offset[MFI_CUSOLVER_A], *b = w + s->offset[MFI_CUSOLVER_B];
    void *info = w + s->offset[MFI_CUSOLVER_INFO], *failed = w + s->offset[MFI_CUSOLVER_FAILED];
    void *x = solve->x.slot < 0 ? NULL : run->slots[solve->x.slot];
    void *caller = solve->info.slot < 0 ? NULL : run->slots[solve->info.slot];
    void *rhs = solve->solver == MFI_CHOLESKY ? NULL : run->slots[solve->b.slot];
    void *const table[MFI_SOLVE_PASSES][4] = {
        [MFI_PASS_COPY_A] = {run->slots[solve->a.slot], a},
        [MFI_PASS_COPY_B] = {rhs, b},
        [MFI_PASS_CHECK_INPUT] = {a, failed},
        [MFI_PASS_CHECK_FACTOR] = {a, info, failed},
        [MFI_PASS_RESULT] = {solve->solver == MFI_CHOLESKY ? a : b, failed, x, info},
        [MFI_PASS_INFO] = {lu(s) ? info : failed, caller},
    };
    memcpy(slots, table[which], sizeof table[which]);
}
