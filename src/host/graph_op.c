/* Elementwise operations, casts and reductions: dtype and shape rules. */
#include "nodes.h"

typedef enum rule { SAME, FLOAT, BOOL, REAL } rule;

static const struct {
    const char *name, *doc;
    int arity;
    rule rule;
} ops[] = {
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) {#name, doc, arity, rule},
#include "mathfuse/def/op.def"
#undef MF_OP
};

const char *mf_op_name(mf_op op)
{
    return (unsigned)op < MF_OP_COUNT ? ops[op].name : NULL;
}

int mf_op_arity(mf_op op)
{
    return (unsigned)op < MF_OP_COUNT ? ops[op].arity : 0;
}

const char *mf_op_doc(mf_op op)
{
    return (unsigned)op < MF_OP_COUNT ? ops[op].doc : NULL;
}

mf_status mf_op_parse(mf_op *out, const char *name)
{
    for (int i = 0; i < MF_OP_COUNT; i++)
        if (!strcmp(ops[i].name, name)) {
            *out = (mf_op)i;
            return MF_OK;
        }
    return mfi_fail(MF_E_INVALID, "no elementwise operation is called \"%s\"; op.def lists them", name);
}

static bool weak(const mfi_node *x)
{
    return x->kind == MFI_N_CONST && x->u.constant.weak;
}

/* What `dtype` becomes when it meets a Python number of dtype I64, F64 or C128. */
static mf_dtype promote_weak(mf_dtype dtype, mf_dtype number)
{
    mfi_dkind kind = mfi_dtype_kind(dtype);
    if (kind == MFI_KIND_S)
        return promote_weak(MF_F32, number);
    if (number == MF_I64)
        return dtype == MF_BOOL ? MF_I64 : dtype;
    if (kind <= MFI_KIND_I)
        return number;
    return number == MF_C128 ? mf_dtype_to_complex(dtype) : dtype;
}

/* The dtype in which operands [first, count) meet. */
static mf_dtype promote_all(const mfi_node *const *x, int first, int count)
{
    int strong = -1;
    mf_dtype dtype = MF_BOOL, number = MF_BOOL;
    for (int i = first; i < count; i++) {
        if (weak(x[i])) {
            number = x[i]->dtype > number ? x[i]->dtype : number; /* I64 < F64 < C128 in dtype.def */
        } else {
            dtype = strong < 0 ? x[i]->dtype : mf_dtype_promote(dtype, x[i]->dtype);
            strong = i;
        }
    }
    if (strong < 0)
        return number;
    if (mfi_dtype_kind(dtype) == MFI_KIND_S)
        dtype = MF_F32;
    if (dtype == MF_I8)
        dtype = MF_I32;
    return number == MF_BOOL ? dtype : promote_weak(dtype, number);
}

static mf_status broadcast_all(mfi_node *node, const mfi_node *const *x, int count, const char *name)
{
    node->ndim = 0;
    for (int i = 0; i < count; i++) {
        if (mfi_broadcast(&node->ndim, node->shape, x[i]->ndim, x[i]->shape))
            continue;
        char have[160], other[160];
        mfi_shape_text(node->shape, node->ndim, have);
        mfi_shape_text(x[i]->shape, x[i]->ndim, other);
        return mfi_fail(MF_E_SHAPE,
                        "%s: operand %d has shape %s, which does not broadcast with %s; extents must be equal or 1, "
                        "counted from the last axis",
                        name, i, other, have);
    }
    return MF_OK;
}

static mf_dtype result_dtype(rule r, mf_dtype operands)
{
    return r == BOOL ? MF_BOOL : r == REAL ? mf_dtype_to_real(operands) : operands;
}

/* bool has no subtraction or negation in NumPy; a logical operation is meant. */
static bool bool_refused(mf_op op)
{
    return op == MF_OP_SUBTRACT || op == MF_OP_NEGATIVE;
}

mf_node mf_graph_op(mf_graph *g, mf_op op, int count, const mf_node *operands)
{
    if (!g || g->error != MF_OK)
        return MF_NODE_NONE;
    if (!operands)
        return mfi_graph_missing(g, "mf_graph_op", "operands");
    if ((unsigned)op >= MF_OP_COUNT || count != ops[op].arity)
        return mfi_graph_latch(
            g, mfi_fail(MF_E_INVALID, "operation %d with %d operands: there is none; see op.def", (int)op, count));
    const mfi_node *x[3];
    mfi_node node = {.kind = MFI_N_APPLY, .sources = count, .u.op = op};
    for (int i = 0; i < count; i++) {
        x[i] = mfi_graph_get(g, operands[i], ops[op].name);
        if (!x[i])
            return MF_NODE_NONE;
        node.src[i] = operands[i].id;
    }
    mf_dtype dtype = promote_all(x, op == MF_OP_WHERE, count);
    if (ops[op].rule == FLOAT && mfi_is_integer(dtype))
        dtype = MF_F64;
    if (!mfi_op_defined(op, mfi_compute_type(dtype)) || (dtype == MF_BOOL && bool_refused(op)))
        return mfi_graph_latch(g, mfi_fail(MF_E_TYPE, "%s is not defined for %s%s", ops[op].name, mf_dtype_name(dtype),
                                           dtype == MF_BOOL ? "; use logical_not or logical_xor" : ""));
    node.operand_dtype = dtype;
    node.dtype = result_dtype(ops[op].rule, dtype);
    mf_status status = broadcast_all(&node, x, count, ops[op].name);
    return status == MF_OK ? mfi_graph_add(g, &node) : mfi_graph_latch(g, status);
}

#define BUILD_1(name, ENUM)                                                                                            \
    mf_node mf_graph_##name(mf_graph *g, mf_node x)                                                                    \
    {                                                                                                                  \
        return mf_graph_op(g, MF_OP_##ENUM, 1, &x);                                                                    \
    }
#define BUILD_2(name, ENUM)                                                                                            \
    mf_node mf_graph_##name(mf_graph *g, mf_node x, mf_node y)                                                         \
    {                                                                                                                  \
        return mf_graph_op(g, MF_OP_##ENUM, 2, (mf_node[]){x, y});                                                     \
    }
#define BUILD_3(name, ENUM)                                                                                            \
    mf_node mf_graph_##name(mf_graph *g, mf_node x, mf_node y, mf_node z)                                              \
    {                                                                                                                  \
        return mf_graph_op(g, MF_OP_##ENUM, 3, (mf_node[]){x, y, z});                                                  \
    }
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) BUILD_##arity(name, ENUM)
#include "mathfuse/def/op.def"
#undef MF_OP

mf_node mf_graph_cast(mf_graph *g, mf_node x, mf_dtype dtype, int flags)
{
    const mfi_node *source = mfi_graph_get(g, x, "cast");
    if (!source)
        return MF_NODE_NONE;
    if ((unsigned)dtype >= MF_DTYPE_COUNT)
        return mfi_graph_latch(
            g, mfi_fail(MF_E_TYPE, "cast: dtype %d is none of the %d there are", (int)dtype, (int)MF_DTYPE_COUNT));
    if (mfi_is_complex(source->dtype) && !mfi_is_complex(dtype))
        return mfi_graph_latch(g,
                               mfi_fail(MF_E_TYPE, "cast: %s to %s would drop the imaginary part; take real(x) first",
                                        mf_dtype_name(source->dtype), mf_dtype_name(dtype)));
    mfi_node node = *source;
    node.kind = MFI_N_CAST;
    node.dtype = dtype;
    node.sources = 1;
    node.src[0] = x.id;
    node.u.cast.saturate = flags & MF_CAST_SATURATE;
    return mfi_graph_add(g, &node);
}

/* Axes as a bit mask. */
static mf_status axes_mask(const mfi_node *x, int count, const int *axes, uint32_t *mask)
{
    MF_REQUIRE(axes ? count >= 0 : count == 0, MF_E_INVALID, "reduce: %d axes%s; pass 0 and NULL for all of them",
               count, axes ? "" : ", and axes is NULL");
    *mask = axes ? 0 : (1u << x->ndim) - 1;
    for (int i = 0; axes && i < count; i++) {
        int axis = axes[i] < 0 ? axes[i] + x->ndim : axes[i];
        MF_REQUIRE(axis >= 0 && axis < x->ndim, MF_E_INVALID, "reduce: axis %d of an array with %d axes", axes[i],
                   x->ndim);
        MF_REQUIRE(!(*mask & 1u << axis), MF_E_INVALID, "reduce: axis %d is named twice", axes[i]);
        *mask |= 1u << axis;
    }
    return MF_OK;
}

static mf_dtype reduce_dtype(mf_reduce_op op, mf_dtype dtype)
{
    if (op == MF_ANY || op == MF_ALL)
        return MF_BOOL;
    if (op == MF_MAX || op == MF_MIN)
        return dtype;
    if (mfi_is_integer(dtype))
        return op == MF_MEAN ? MF_F64 : MF_I64;
    return mfi_dtype_kind(dtype) == MFI_KIND_S ? MF_F32 : dtype;
}

/* The shape after reduction, and how many elements go into each result. */
static int64_t reduce_shape(mfi_node *node, const mfi_node *x, uint32_t mask, bool keepdims)
{
    int64_t length = 1;
    node->ndim = 0;
    for (int d = 0; d < x->ndim; d++) {
        bool reduced = mask & 1u << d;
        length *= reduced ? x->shape[d] : 1;
        if (!reduced || keepdims)
            node->shape[node->ndim++] = reduced ? 1 : x->shape[d];
    }
    return length;
}

mf_node mf_graph_reduce(mf_graph *g, mf_reduce_op op, mf_node x, int count, const int *axes, int keepdims)
{
    const mfi_node *source = mfi_graph_get(g, x, "reduce");
    if (!source)
        return MF_NODE_NONE;
    uint32_t mask = 0;
    mf_status status = (unsigned)op < MF_REDUCE_COUNT ? axes_mask(source, count, axes, &mask)
                                                      : mfi_fail(MF_E_INVALID, "reduction %d does not exist", (int)op);
    if (status != MF_OK)
        return mfi_graph_latch(g, status);
    mfi_node node = {.kind = MFI_N_REDUCE, .sources = 1, .src = {x.id}};
    int64_t length = reduce_shape(&node, source, mask, keepdims);
    node.dtype = reduce_dtype(op, source->dtype);
    node.u.reduce.op = op == MF_MEAN ? MF_SUM : op;
    node.u.reduce.axes = mask;
    node.u.reduce.keepdims = keepdims;
    if (op == MF_MAX || op == MF_MIN) {
        if (mfi_is_complex(source->dtype))
            return mfi_graph_latch(
                g, mfi_fail(MF_E_TYPE, "max and min are not defined for %s", mf_dtype_name(source->dtype)));
        if (length == 0)
            return mfi_graph_latch(g, mfi_fail(MF_E_SHAPE, "max and min of an empty axis have no value"));
    }
    mf_node sum = mfi_graph_add(g, &node);
    if (op != MF_MEAN || sum.id < 0)
        return sum;
    mf_node divisor = mf_graph_constant(g, mf_dtype_to_real(node.dtype), (double)length, 0);
    return mf_graph_divide(g, sum, divisor);
}
