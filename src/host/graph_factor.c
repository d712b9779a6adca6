/* Decompositions: their operands and results, and the builders. */
#include "nodes.h"

static const struct {
    const char *name;
    int inputs, results; /* results: how many there are, with info */
    bool square, sided;  /* sided: the last input is a right-hand side */
} kinds[MFI_FACTOR_COUNT] = {
    [MFI_LU] = {"lu_factor", 1, 4, false, false},
    [MFI_LU_APPLY] = {"lu_solve", 3, 2, true, true},
    [MFI_INVERSE] = {"inv", 1, 2, true, false},
    [MFI_SYMMETRIC_SOLVE] = {"solve_symmetric", 2, 2, true, true},
    [MFI_TRIDIAGONAL_SOLVE] = {"solve_tridiagonal", 2, 2, true, true},
    [MFI_QR] = {"qr", 1, 3, false, false},
    [MFI_EIGH] = {"eigh", 1, 3, true, false},
    [MFI_SVD] = {"svd", 1, 4, false, false},
    [MFI_LEAST_SQUARES] = {"lstsq", 2, 4, false, true},
    [MFI_EIG] = {"eig", 1, 3, true, false},
};

const char *mfi_factor_name(mfi_factor_kind kind)
{
    return kinds[kind].name;
}

double mfi_factor_flops(const mfi_factor *f)
{
    double m = (double)f->m, n = (double)f->n, nrhs = (double)f->nrhs, k = m < n ? m : n, base = m * n * k;
    switch (f->kind) {
    case MFI_LU_APPLY:
        return 2 * n * n * nrhs;
    case MFI_TRIDIAGONAL_SOLVE:
        return 10 * n * nrhs;
    case MFI_SYMMETRIC_SOLVE:
        return base / 3 + 2 * n * n * nrhs;
    case MFI_LU:
        return 2 * base / 3;
    case MFI_INVERSE:
        return 2 * base;
    case MFI_QR:
        return 4 * base;
    case MFI_LEAST_SQUARES:
        return 8 * base + 4 * m * n * nrhs;
    default:
        return 20 * base;
    }
}

/* ---- results ---- */

int mfi_factor_batch(const mf_graph *g, int node)
{
    mfi_factor_shape shape = {0};
    mfi_factor_result(g, node, 0, &shape);
    return g->node[node].ndim - shape.rank;
}

/* Shapes of results 0, 2 and 3; rows and columns of `b` where there is one. */
static bool shape_of(const mfi_node *node, int index, int64_t m, int64_t n, int64_t nrhs, mfi_factor_shape *out)
{
    const int64_t k = mfi_min64(m, n);
    const bool full = node->u.factor.flags & MF_FULL, raw = node->u.factor.flags & MF_RAW;
    const mf_dtype dtype = node->operand_dtype, real = mf_dtype_to_real(dtype), complex = mf_dtype_to_complex(dtype);
    const int sided = node->u.factor.vector ? 1 : 2;
    const mfi_factor_shape table[MFI_FACTOR_COUNT][MFI_FACTOR_RESULTS] = {
        [MFI_LU] = {{2, {m, n}, dtype}, {0}, {1, {k}, MF_I32}, {0, {0}, MF_I32}},
        [MFI_LU_APPLY] = {{sided, {n, nrhs}, dtype}},
        [MFI_INVERSE] = {{2, {n, n}, dtype}},
        [MFI_SYMMETRIC_SOLVE] = {{sided, {n, nrhs}, dtype}},
        [MFI_TRIDIAGONAL_SOLVE] = {{sided, {n, nrhs}, dtype}},
        [MFI_QR] = {{2,
                     {m, raw    ? n
                         : full ? m
                                : k},
                     dtype},
                    {0},
                    {raw ? 1 : 2, {full && !raw ? m : k, n}, dtype}},
        [MFI_EIGH] = {{1, {n}, real}, {0}, {2, {n, n}, dtype}},
        [MFI_SVD] = {{1, {k}, real}, {0}, {2, {m, full ? m : k}, dtype}, {2, {full ? n : k, n}, dtype}},
        [MFI_LEAST_SQUARES] = {{sided, {n, nrhs}, dtype}, {0}, {0, {0}, MF_I32}, {1, {k}, real}},
        [MFI_EIG] = {{1, {n}, complex}, {0}, {2, {n, n}, complex}},
    };
    *out = table[node->u.factor.kind][index];
    return index < kinds[node->u.factor.kind].results;
}

bool mfi_factor_result(const mf_graph *g, int id, int index, mfi_factor_shape *out)
{
    const mfi_node *node = &g->node[id], *a = &g->node[node->src[0]], *b = &g->node[node->src[node->sources - 1]];
    *out = (mfi_factor_shape){.dtype = MF_I32};
    if (index == MFI_INFO)
        return true;
    int64_t nrhs = node->u.factor.vector ? 1 : b->shape[b->ndim - 1];
    return index >= 0 && index < MFI_FACTOR_RESULTS &&
           shape_of(node, index, a->shape[a->ndim - 2], a->shape[a->ndim - 1], nrhs, out);
}

mf_node mfi_factor_info(mf_graph *g, mf_node x, int index)
{
    const mfi_node *source = &g->node[x.id];
    mfi_factor_shape shape;
    if (!mfi_factor_result(g, x.id, index, &shape))
        return mfi_graph_latch(g, mfi_fail(MF_E_INVALID, "result %d: %s has results 0 to %d; 1 is info", index,
                                           mfi_factor_name(source->u.factor.kind),
                                           kinds[source->u.factor.kind].results - 1));
    if (index == 0)
        return x;
    mfi_node node = {.kind = MFI_N_RESULT, .dtype = shape.dtype, .sources = 1, .src = {x.id}, .u.result = index};
    int batch = mfi_factor_batch(g, x.id);
    memcpy(node.shape, source->shape, (size_t)batch * sizeof *node.shape);
    memcpy(node.shape + batch, shape.shape, (size_t)shape.rank * sizeof *node.shape);
    node.ndim = batch + shape.rank;
    return mfi_graph_add(g, &node);
}

/* ---- builders ---- */

static mf_status check_matrix(const mfi_node *a, mfi_factor_kind kind)
{
    char shape[160];
    mfi_shape_text(a->shape, a->ndim, shape);
    MF_REQUIRE(a->ndim >= 2, MF_E_SHAPE, "%s: the matrix has shape %s; it needs two axes or more", kinds[kind].name,
               shape);
    MF_REQUIRE(!kinds[kind].square || a->shape[a->ndim - 1] == a->shape[a->ndim - 2], MF_E_SHAPE,
               "%s: the matrix has shape %s; the last two axes must be equal", kinds[kind].name, shape);
    return MF_OK;
}

/* Pivots of lu_solve: one i32 for each row of the factor, and a batch like the factor's. */
static mf_status check_pivots(const mfi_node *lu, const mfi_node *pivots)
{
    char left[160], right[160];
    mfi_shape_text(lu->shape, lu->ndim, left);
    mfi_shape_text(pivots->shape, pivots->ndim, right);
    bool same = pivots->ndim == lu->ndim - 1;
    for (int d = 0; same && d < pivots->ndim; d++)
        same = pivots->shape[d] == lu->shape[d];
    MF_REQUIRE(same && pivots->dtype == MF_I32, MF_E_SHAPE,
               "lu_solve: the factor has shape %s and the pivots are %s of shape %s; they are what lu_factor gave, i32 "
               "without the last axis",
               left, mf_dtype_name(pivots->dtype), right);
    return MF_OK;
}

static mf_status shape_node(const mf_graph *g, mfi_node *node)
{
    const mfi_factor_kind kind = node->u.factor.kind;
    const mfi_node *a = &g->node[node->src[0]], *b = &g->node[node->src[node->sources - 1]];
    mfi_factor_shape shape;
    MF_TRY(check_matrix(a, kind));
    if (kind == MFI_LU_APPLY)
        MF_TRY(check_pivots(a, &g->node[node->src[1]]));
    node->operand_dtype = mfi_solver_dtype(kinds[kind].sided ? mf_dtype_promote(a->dtype, b->dtype) : a->dtype);
    if (kinds[kind].sided) {
        node->dtype = node->operand_dtype;
        return mfi_right_side(node, a, b, a->shape[a->ndim - 1], &node->u.factor.vector, kinds[kind].name);
    }
    shape_of(node, 0, a->shape[a->ndim - 2], a->shape[a->ndim - 1], 0, &shape);
    int batch = a->ndim - 2;
    memcpy(node->shape, a->shape, (size_t)batch * sizeof *node->shape);
    memcpy(node->shape + batch, shape.shape, (size_t)shape.rank * sizeof *node->shape);
    node->ndim = batch + shape.rank;
    node->dtype = shape.dtype;
    return MF_OK;
}

static mf_node factor(mf_graph *g, mfi_factor_kind kind, const mf_node operands[MFI_FACTOR_INPUTS], int flags,
                      double rcond)
{
    mfi_node node = {.kind = MFI_N_FACTOR, .sources = kinds[kind].inputs};
    for (int i = 0; i < node.sources; i++) {
        if (!mfi_graph_get(g, operands[i], kinds[kind].name))
            return MF_NODE_NONE;
        node.src[i] = operands[i].id;
    }
    node.u.factor.kind = kind;
    node.u.factor.flags = flags;
    node.u.factor.rcond = rcond;
    mf_status status = shape_node(g, &node);
    return status == MF_OK ? mfi_graph_add(g, &node) : mfi_graph_latch(g, status);
}

mf_node mf_graph_lu_factor(mf_graph *g, mf_node a)
{
    return factor(g, MFI_LU, (mf_node[MFI_FACTOR_INPUTS]){a}, 0, 0);
}

mf_node mf_graph_lu_solve(mf_graph *g, mf_node lu, mf_node pivots, mf_node b, int flags)
{
    return factor(g, MFI_LU_APPLY, (mf_node[MFI_FACTOR_INPUTS]){lu, pivots, b}, flags & (MF_TRANS | MF_ADJOINT), 0);
}

mf_node mf_graph_inv(mf_graph *g, mf_node a)
{
    return factor(g, MFI_INVERSE, (mf_node[MFI_FACTOR_INPUTS]){a}, 0, 0);
}

mf_node mf_graph_solve_symmetric(mf_graph *g, mf_node a, mf_node b, int flags)
{
    return factor(g, MFI_SYMMETRIC_SOLVE, (mf_node[MFI_FACTOR_INPUTS]){a, b}, flags & (MF_UPPER | MF_SYMMETRIC), 0);
}

mf_node mf_graph_solve_tridiagonal(mf_graph *g, mf_node a, mf_node b)
{
    return factor(g, MFI_TRIDIAGONAL_SOLVE, (mf_node[MFI_FACTOR_INPUTS]){a, b}, 0, 0);
}

mf_node mf_graph_qr(mf_graph *g, mf_node a, int flags)
{
    return factor(g, MFI_QR, (mf_node[MFI_FACTOR_INPUTS]){a}, flags & (MF_FULL | MF_RAW), 0);
}

mf_node mf_graph_eigh(mf_graph *g, mf_node a, int flags)
{
    return factor(g, MFI_EIGH, (mf_node[MFI_FACTOR_INPUTS]){a}, flags & MF_UPPER, 0);
}

mf_node mf_graph_svd(mf_graph *g, mf_node a, int flags)
{
    return factor(g, MFI_SVD, (mf_node[MFI_FACTOR_INPUTS]){a}, flags & MF_FULL, 0);
}

mf_node mf_graph_eig(mf_graph *g, mf_node a)
{
    return factor(g, MFI_EIG, (mf_node[MFI_FACTOR_INPUTS]){a}, 0, 0);
}

mf_node mf_graph_lstsq(mf_graph *g, mf_node a, mf_node b, double rcond)
{
    return factor(g, MFI_LEAST_SQUARES, (mf_node[MFI_FACTOR_INPUTS]){a, b}, 0, rcond);
}
