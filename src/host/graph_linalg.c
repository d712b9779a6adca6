/* Matrix products, transforms and solvers: dtype and shape rules. */
#include "nodes.h"

/* A 1-D operand as a matrix: a row if first, a column if second. */
static mf_node as_matrix(mf_graph *g, mf_node x, const mfi_node *node, bool row)
{
    int64_t length = node->shape[0];
    return mf_graph_reshape(g, x, 2, row ? (int64_t[]){1, length} : (int64_t[]){length, 1});
}

static mf_status matmul_shape(mfi_node *node, const mfi_node *a, const mfi_node *b)
{
    char left[160], right[160];
    mfi_shape_text(a->shape, a->ndim, left);
    mfi_shape_text(b->shape, b->ndim, right);
    MF_REQUIRE(a->shape[a->ndim - 1] == b->shape[b->ndim - 2], MF_E_SHAPE,
               "matmul: the last axis of the first operand, shape %s, and the one before last of the second, shape %s, "
               "must be equal (k)",
               left, right);
    node->ndim = a->ndim - 2;
    memcpy(node->shape, a->shape, (size_t)node->ndim * sizeof *node->shape);
    MF_REQUIRE(mfi_broadcast(&node->ndim, node->shape, b->ndim - 2, b->shape), MF_E_SHAPE,
               "matmul: the batch axes of %s and %s do not broadcast", left, right);
    node->shape[node->ndim] = a->shape[a->ndim - 2];
    node->shape[node->ndim + 1] = b->shape[b->ndim - 1];
    node->ndim += 2;
    return MF_OK;
}

mf_node mf_graph_matmul_ex(mf_graph *g, mf_node a, mf_node b, mf_compute compute)
{
    const mfi_node *x = mfi_graph_get(g, a, "matmul"), *y = mfi_graph_get(g, b, "matmul");
    if (!x || !y)
        return MF_NODE_NONE;
    if (x->ndim == 0 || y->ndim == 0 || (unsigned)compute >= MF_COMPUTE_COUNT)
        return mfi_graph_latch(g, mfi_fail(MF_E_SHAPE,
                                           "matmul: operands need at least one axis (got %d and %d); use "
                                           "multiply for scalars",
                                           x->ndim, y->ndim));
    int64_t flat[MF_MAX_DIMS];
    bool row = x->ndim == 1, column = y->ndim == 1;
    mf_dtype dtype = mf_dtype_promote(x->dtype, y->dtype);
    bool fp8 = mfi_dtype_kind(x->dtype) == MFI_KIND_S && mfi_dtype_kind(y->dtype) == MFI_KIND_S;
    bool narrow = fp8 || (x->dtype == MF_I8 && y->dtype == MF_I8); /* read as it is */
    if (!narrow && x->dtype != dtype)
        return mf_graph_matmul_ex(g, mf_graph_cast(g, a, dtype, 0), b, compute);
    if (!narrow && y->dtype != dtype)
        return mf_graph_matmul_ex(g, a, mf_graph_cast(g, b, dtype, 0), compute);
    a = row ? as_matrix(g, a, x, true) : a;
    b = column ? as_matrix(g, b, &g->node[b.id], false) : b;
    x = mfi_graph_get(g, a, "matmul");
    y = mfi_graph_get(g, b, "matmul");
    if (!x || !y)
        return MF_NODE_NONE;
    mfi_node node = {.kind = MFI_N_MATMUL, .sources = 2, .src = {a.id, b.id}, .u.compute = compute};
    node.dtype = dtype;
    mf_status status = matmul_shape(&node, x, y);
    if (status != MF_OK)
        return mfi_graph_latch(g, status);
    mf_node product = mfi_graph_add(g, &node);
    if (!row && !column)
        return product;
    int n = 0;
    for (int d = 0; d < node.ndim; d++)
        if (!(row && d == node.ndim - 2) && !(column && d == node.ndim - 1))
            flat[n++] = node.shape[d];
    return mf_graph_reshape(g, product, n, flat);
}

mf_node mf_graph_matmul(mf_graph *g, mf_node a, mf_node b)
{
    return mf_graph_matmul_ex(g, a, b, MF_COMPUTE_DEFAULT);
}

/* One transformed axis: its length, and the result's extent. */
static mf_status fft_axis(mfi_node *node, int i, const mfi_node *x, int axis, int64_t n, mf_fft_kind kind, bool last)
{
    MF_REQUIRE(axis >= -x->ndim && axis < x->ndim, MF_E_INVALID, "fft: axis %d of an array with %d axes", axis,
               x->ndim);
    axis += axis < 0 ? x->ndim : 0;
    for (int j = 0; j < i; j++)
        MF_REQUIRE(node->u.fft.axes[j] != axis, MF_E_INVALID, "fft: axis %d is named twice", axis);
    bool half = last && kind == MF_IRFFT;
    if (n == -1)
        n = half ? 2 * (x->shape[axis] - 1) : x->shape[axis];
    MF_REQUIRE(n >= 1, MF_E_INVALID, "fft: length %lld along axis %d is invalid: a transform needs at least 1 point%s",
               (long long)n, axis, half ? "; an inverse real transform of m bins has 2 (m - 1) unless n is given" : "");
    node->u.fft.axes[i] = axis;
    node->u.fft.n[i] = n;
    node->shape[axis] = last && kind == MF_RFFT ? n / 2 + 1 : n;
    return MF_OK;
}

mf_node mf_graph_fft(mf_graph *g, mf_fft_kind kind, mf_node x, int count, const int *axes, const int64_t *n,
                     mf_fft_norm norm)
{
    const mfi_node *source = mfi_graph_get(g, x, "fft");
    if (!source)
        return MF_NODE_NONE;
    if (kind == MF_RFFT && mfi_is_complex(source->dtype))
        return mfi_graph_latch(g,
                               mfi_fail(MF_E_TYPE, "rfft: the input is %s; a real transform takes real input: use fft",
                                        mf_dtype_name(source->dtype)));
    if ((unsigned)kind > MF_IRFFT || (unsigned)norm > MF_NORM_FORWARD)
        return mfi_graph_latch(
            g, mfi_fail(MF_E_INVALID, "fft: kind %d with norm %d: there is none", (int)kind, (int)norm));
    if (!axes)
        return mfi_graph_missing(g, "fft", "axes");
    if (count < 1 || count > source->ndim)
        return mfi_graph_latch(g, mfi_fail(MF_E_INVALID, "fft: %d axes of an array with %d axes", count, source->ndim));
    mf_dtype dtype = mf_dtype_to_complex(source->dtype);
    mfi_node node = {.kind = MFI_N_FFT, .ndim = source->ndim, .sources = 1, .src = {x.id}};
    node.dtype = kind == MF_IRFFT ? mf_dtype_to_real(dtype) : dtype;
    memcpy(node.shape, source->shape, sizeof node.shape);
    node.u.fft.kind = kind;
    node.u.fft.norm = norm;
    node.u.fft.count = count;
    for (int i = 0; i < count; i++) {
        mf_status status = fft_axis(&node, i, source, axes[i], n ? n[i] : -1, kind, i == count - 1);
        if (status != MF_OK)
            return mfi_graph_latch(g, status);
    }
    return mfi_graph_add(g, &node);
}

/* ---- solvers ---- */

static mf_status square(const mfi_node *a, const char *name)
{
    char shape[160];
    mfi_shape_text(a->shape, a->ndim, shape);
    MF_REQUIRE(a->ndim >= 2 && a->shape[a->ndim - 1] == a->shape[a->ndim - 2], MF_E_SHAPE,
               "%s: the matrix has shape %s; the last two axes must be equal", name, shape);
    return MF_OK;
}

mf_dtype mfi_solver_dtype(mf_dtype dtype)
{
    if (mfi_is_integer(dtype))
        return MF_F64;
    return mfi_ctype_dtype(mfi_compute_type(dtype));
}

mf_status mfi_right_side(mfi_node *node, const mfi_node *a, const mfi_node *b, int64_t rows, bool *is_vector,
                         const char *name)
{
    int64_t needed = a->shape[a->ndim - 2];
    bool vector = b->ndim == 1;
    char left[160], right[160];
    mfi_shape_text(a->shape, a->ndim, left);
    mfi_shape_text(b->shape, b->ndim, right);
    MF_REQUIRE(
        b->ndim >= 1 && b->shape[b->ndim - (vector ? 1 : 2)] == needed, MF_E_SHAPE,
        "%s: the matrix has shape %s and the right-hand side %s; the latter needs %lld rows, as (…, n, nrhs) or (n,)",
        name, left, right, (long long)needed);
    node->ndim = a->ndim - 2;
    memcpy(node->shape, a->shape, (size_t)node->ndim * sizeof *node->shape);
    MF_REQUIRE(mfi_broadcast(&node->ndim, node->shape, vector ? 0 : b->ndim - 2, b->shape), MF_E_SHAPE,
               "%s: the batch axes of %s and %s do not broadcast", name, left, right);
    node->shape[node->ndim++] = rows;
    if (!vector)
        node->shape[node->ndim++] = b->shape[b->ndim - 1];
    *is_vector = vector;
    return MF_OK;
}

static mf_node solver(mf_graph *g, mfi_solver kind, const char *name, mf_node a, const mf_node *b, int flags)
{
    const mfi_node *x = mfi_graph_get(g, a, name), *y = b ? mfi_graph_get(g, *b, name) : NULL;
    if (!x || (b && !y))
        return MF_NODE_NONE;
    mfi_node node = {.kind = MFI_N_SOLVE, .sources = b ? 2 : 1, .src = {a.id, b ? b->id : 0}};
    node.u.solve.solver = kind;
    node.u.solve.flags = flags;
    node.dtype = mfi_solver_dtype(b ? mf_dtype_promote(x->dtype, y->dtype) : x->dtype);
    mf_status status = square(x, name);
    if (status == MF_OK && b) {
        status = mfi_right_side(&node, x, y, x->shape[x->ndim - 1], &node.u.solve.vector, name);
    } else if (status == MF_OK) {
        node.ndim = x->ndim;
        memcpy(node.shape, x->shape, sizeof node.shape);
    }
    return status == MF_OK ? mfi_graph_add(g, &node) : mfi_graph_latch(g, status);
}

mf_node mf_graph_cholesky(mf_graph *g, mf_node a, int flags)
{
    return solver(g, MFI_CHOLESKY, "cholesky", a, NULL, flags);
}

mf_node mf_graph_solve(mf_graph *g, mf_node a, mf_node b)
{
    return solver(g, MFI_LU_SOLVE, "solve", a, &b, 0);
}

mf_node mf_graph_cho_solve(mf_graph *g, mf_node factor, mf_node b, int flags)
{
    return solver(g, MFI_CHO_SOLVE, "cho_solve", factor, &b, flags);
}

mf_node mf_graph_solve_triangular(mf_graph *g, mf_node a, mf_node b, int flags)
{
    return solver(g, MFI_TRSM, "solve_triangular", a, &b, flags);
}

/* The node of a result that was asked for before: a step has one place for each. */
static mf_node known_result(const mf_graph *g, mf_node x, int index)
{
    for (int i = x.id + 1; i < g->count; i++) {
        const mfi_node *node = &g->node[i];
        if (node->kind == MFI_N_RESULT && node->src[0] == x.id && node->u.result == index)
            return (mf_node){i};
    }
    return MF_NODE_NONE;
}

mf_node mf_graph_result(mf_graph *g, mf_node x, int index)
{
    const mfi_node *source = mfi_graph_get(g, x, "result");
    if (!source)
        return MF_NODE_NONE;
    mf_node known = known_result(g, x, index);
    if (known.id >= 0)
        return known;
    if (source->kind == MFI_N_FACTOR)
        return mfi_factor_info(g, x, index);
    if (source->kind != MFI_N_SOLVE || index < 0 || index > 1)
        return mfi_graph_latch(g, mfi_fail(MF_E_INVALID, "result %d: a solver has results 0 and 1 (info)%s", index,
                                           source->kind != MFI_N_SOLVE ? ", and this node is none" : ""));
    if (index == 0)
        return x;
    const mfi_node *a = &g->node[source->src[0]];
    bool vector = source->u.solve.vector;
    mfi_node node = {.kind = MFI_N_RESULT, .dtype = MF_I32, .sources = 1, .src = {x.id}, .u.result = index};
    node.ndim = source->u.solve.solver == MFI_CHOLESKY ? a->ndim - 2 : source->ndim - (vector ? 1 : 2);
    memcpy(node.shape, source->shape, (size_t)node.ndim * sizeof *node.shape);
    return mfi_graph_add(g, &node);
}
