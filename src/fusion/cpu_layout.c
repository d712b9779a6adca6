/* First half of compiling a CPU chain: classes of values, layout of the rows, order of the elements. */
#include "cpu_compile.h"

int mfi_instr_operands(const mfi_instr *in, int16_t *v)
{
    v[0] = in->a, v[1] = in->b, v[2] = in->c;
    switch (in->kind) {
    case MFI_APPLY:
        return mfi_op_arity(in->op);
    case MFI_CAST:
    case MFI_REDUCE:
    case MFI_STORE:
        return 1;
    default:
        return 0;
    }
}

/* ---- classes ---- */

mfi_value_class mfi_load_class(const mfi_compiler *c, const mfi_operand *o)
{
    mfi_value_class class = MFI_UNIFORM;
    for (int d = 0; d < c->p->ndim; d++)
        if ((o->view.strides[d] && c->p->shape[d] != 1) || (o->extent[d] >= 0 && o->extent[d] < c->p->shape[d]))
            class = d < c->row_dims && class != MFI_ELEMENT ? MFI_ROW : MFI_ELEMENT;
    return class;
}

static void need(mfi_compiler *c, int i)
{
    int16_t v[3];
    if (c->needed[i])
        return;
    c->needed[i] = true;
    for (int k = mfi_instr_operands(mfi_instr_of(c, i), v) - 1; k >= 0; k--)
        need(c, v[k]);
}

void mfi_classify(mfi_compiler *c)
{
    mfi_cpu_chain *out = c->out;
    for (int i = 0; i < c->p->chain.count; i++) {
        const mfi_instr *in = mfi_instr_of(c, i);
        int16_t v[3];
        int count = mfi_instr_operands(in, v);
        mfi_value_class class = MFI_UNIFORM;
        c->ready[i] = 0;
        for (int k = 0; k < count; k++) {
            class = c->class[v[k]] > class ? c->class[v[k]] : class;
            c->ready[i] = c->ready[v[k]] > c->ready[i] ? c->ready[v[k]] : c->ready[i];
        }
        if (in->kind == MFI_LOAD)
            class = mfi_load_class(c, &c->p->chain.operand[in->operand]);
        else if (in->kind == MFI_ACC)
            class = MFI_ELEMENT;
        else if (in->kind == MFI_INDEX)
            class = in->axis < c->row_dims ? MFI_ROW : MFI_ELEMENT;
        else if (in->kind == MFI_REDUCE)
            class = MFI_ROW, c->ready[i]++;
        else if (in->kind == MFI_STORE && class != MFI_ELEMENT)
            class = mfi_load_class(c, &c->p->chain.operand[in->operand]) == MFI_ELEMENT ? MFI_ELEMENT : MFI_ROW;
        c->class[i] = class;
        out->phases = c->ready[i] > out->phases ? c->ready[i] : out->phases;
    }
    /* Without reductions there are no rows. */
    for (int i = 0; i < c->p->chain.count && out->phases == 0; i++)
        c->class[i] = c->class[i] == MFI_ROW ? MFI_ELEMENT : c->class[i];
    for (int i = 0; i < c->p->chain.count; i++)
        if (mfi_instr_of(c, i)->kind == MFI_STORE)
            need(c, i);
}

/* ---- layout ---- */

static void count_domain(mfi_compiler *c)
{
    mfi_cpu_chain *out = c->out;
    int64_t rows = 1, length = 1;
    for (int d = 0; d < c->p->ndim; d++)
        *(d < c->row_dims ? &rows : &length) *= c->p->shape[d];
    bool map = out->phases == 0;
    out->rows = map ? rows * length : rows;
    out->row_length = map ? 1 : length;
    out->scale = map ? length : 1;
}

/* Do element operands lie along the last row dim rather than along the row? */
static bool column_wise(const mfi_compiler *c)
{
    int64_t along = 0, across = 0;
    int last = c->p->ndim - 1, r = c->row_dims - 1;
    for (int i = 0; i < c->p->chain.count; i++) {
        const mfi_instr *in = mfi_instr_of(c, i);
        if (in->kind == MFI_ACC)
            return false;
        if ((in->kind != MFI_LOAD && in->kind != MFI_STORE) || c->class[i] != MFI_ELEMENT)
            continue;
        const mfi_view *view = &c->p->chain.operand[in->operand].view;
        int64_t size = (int64_t)mf_dtype_size(view->dtype);
        if (view->strides[last] == 1 || view->strides[last] == -1)
            along += size;
        else if (r >= 0 && (view->strides[r] == 1 || view->strides[r] == -1))
            across += size;
    }
    return across > along && c->p->shape[r] > 1;
}

/* Does a map read or write something that is contiguous along the last dim but one, with long steps along the last? */
static bool transposed(const mfi_compiler *c)
{
    int last = c->p->ndim - 1;
    for (int i = 0; i < c->p->chain.count && last > 0; i++) {
        const mfi_instr *in = mfi_instr_of(c, i);
        if (in->kind != MFI_LOAD && in->kind != MFI_STORE)
            continue;
        const int64_t *strides = c->p->chain.operand[in->operand].view.strides;
        if ((strides[last - 1] == 1 || strides[last - 1] == -1) && (strides[last] > 16 || strides[last] < -16))
            return c->p->shape[last] >= 128 && c->p->shape[last - 1] >= 8;
    }
    return false;
}

void mfi_choose_layout(mfi_compiler *c)
{
    count_domain(c);
    mfi_cpu_chain *out = c->out;
    const mfi_problem *p = c->p;
    int n = 0;
    out->layout = out->phases == 0                    ? MFI_LAYOUT_MAP
                  : column_wise(c)                    ? MFI_LAYOUT_COLUMN
                  : out->row_length <= out->block / 2 ? MFI_LAYOUT_SHORT
                                                      : MFI_LAYOUT_LONG;
    bool column = out->layout == MFI_LAYOUT_COLUMN;
    for (int d = 0; d < p->ndim; d++)
        if (!column || d != c->row_dims - 1)
            c->order[n++] = d;
    if (column)
        c->order[n++] = c->row_dims - 1;
    out->strip_row = out->phases == 0 && transposed(c) ? p->shape[p->ndim - 1] : 0;
    out->last_rows = column ? p->shape[c->row_dims - 1] : 1;
    /* Long rows are reduced in parts, which may run on different threads, but are the same parts always. */
    const int64_t least = column ? 2048 : 65536;
    out->chunk = mfi_max64(out->row_length, 1);
    if (out->layout != MFI_LAYOUT_SHORT && out->row_length >= 2 * least)
        out->chunk = mfi_max64(least, (mfi_ceil_div(out->row_length, 64) + 1023) / 1024 * 1024);
    out->chunks = mfi_ceil_div(out->row_length, out->chunk);
    out->plain_columns = column && out->row_length > 0 && out->row_length <= MFI_COLUMN_FLUSH;
}
