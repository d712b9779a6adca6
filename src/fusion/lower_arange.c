/* A view of an arange as instructions: an affine function of the position, offset + sum of stride * index. */
#include "schedule.h"

/* -1 when the chain is full. */
static int16_t append(mfi_chain *c, mfi_instr in)
{
    if (c->count == MFI_MAX_INSTR)
        return -1;
    c->instr[c->count] = in;
    return (int16_t)c->count++;
}

static mfi_instr integer_instr(mfi_instr_kind kind, int level)
{
    return (mfi_instr){.kind = (uint8_t)kind,
                       .ctype = MFI_I64,
                       .from = MFI_I64,
                       .level = (uint8_t)level,
                       .op = -1,
                       .operand = -1,
                       .a = -1,
                       .b = -1,
                       .c = -1};
}

static int16_t number(mfi_chain *c, int64_t value)
{
    mfi_instr in = integer_instr(MFI_CONST, 0);
    in.re = (double)value;
    return append(c, in);
}

static int16_t combine(mfi_chain *c, mf_op op, int16_t a, int16_t b, int level)
{
    mfi_instr in = integer_instr(MFI_APPLY, level);
    in.op = (int16_t)op;
    in.a = a;
    in.b = b;
    return a < 0 || b < 0 ? -1 : append(c, in);
}

int16_t mfi_lower_arange(mfi_chain *c, const mf_graph *g, int node, const int8_t *axes, int level)
{
    const int64_t unit[MF_MAX_DIMS] = {1};
    const mfi_node *x = &g->node[node];
    int64_t offset = 0, strides[MF_MAX_DIMS] = {0};
    int terms = 0;
    int16_t sum = -1;
    if (!mfi_view_resolve(g, node, unit, &offset, strides))
        return -1; /* normalise.c put a copy below every such view */
    for (int d = 0; d < x->ndim; d++) {
        if (axes[d] < 0 || x->shape[d] == 1 || strides[d] == 0)
            continue;
        mfi_instr in = integer_instr(MFI_INDEX, level);
        in.axis = (uint8_t)axes[d];
        int16_t term = append(c, in);
        if (strides[d] != 1)
            term = combine(c, MF_OP_MULTIPLY, term, number(c, strides[d]), level);
        sum = terms++ ? combine(c, MF_OP_ADD, sum, term, level) : term;
    }
    if (!terms)
        return number(c, offset);
    return offset ? combine(c, MF_OP_ADD, sum, number(c, offset), level) : sum;
}
