/* From a chain to a CPU program: classes of values, layout of the rows, order of the work, buffers. */
#include "cpu_program.h"

typedef enum value_class { UNIFORM, ROW, ELEMENT } value_class;

typedef struct compiler {
    const mfi_problem *p;
    const mfi_loops *loops;
    mfi_cpu_chain *out;
    int row_dims;           /* of the domain; MAP: all are element dims */
    int order[MF_MAX_DIMS]; /* domain dims in the order that elements are visited in */
    value_class class[MFI_MAX_INSTR];
    int ready[MFI_MAX_INSTR]; /* phases that must have run */
    bool needed[MFI_MAX_INSTR];
    int16_t reduce_of[MFI_MAX_INSTR];
    int16_t repeated[MFI_MAX_INSTR]; /* in the list being made: value with the row value repeated, -1 */
    int32_t uniform_at, row_at;      /* uniform bytes; row bytes per row of a group */
    int32_t element_at;              /* element bytes per element of a block */
    bool register_free[MFI_MAX_VALUES];
    int registers;
    struct {
        int32_t at;
        int size;
    } reg[MFI_MAX_VALUES];
    int16_t register_of[MFI_MAX_VALUES];
} compiler;

static const mfi_instr *instr(const compiler *c, int i)
{
    return &c->p->chain.instr[i];
}

static int operands_of(const mfi_instr *in, int16_t *v)
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

static value_class load_class(const compiler *c, const mfi_operand *o)
{
    value_class class = UNIFORM;
    for (int d = 0; d < c->p->ndim; d++)
        if ((o->view.strides[d] && c->p->shape[d] != 1) || (o->extent[d] >= 0 && o->extent[d] < c->p->shape[d]))
            class = d < c->row_dims && class != ELEMENT ? ROW : ELEMENT;
    return class;
}

static void classify(compiler *c)
{
    mfi_cpu_chain *out = c->out;
    for (int i = 0; i < c->p->chain.count; i++) {
        const mfi_instr *in = instr(c, i);
        int16_t v[3];
        int count = operands_of(in, v);
        value_class class = UNIFORM;
        c->ready[i] = 0;
        for (int k = 0; k < count; k++) {
            class = c->class[v[k]] > class ? c->class[v[k]] : class;
            c->ready[i] = c->ready[v[k]] > c->ready[i] ? c->ready[v[k]] : c->ready[i];
        }
        if (in->kind == MFI_LOAD)
            class = load_class(c, &c->p->chain.operand[in->operand]);
        else if (in->kind == MFI_ACC)
            class = ELEMENT;
        else if (in->kind == MFI_INDEX)
            class = in->axis < c->row_dims ? ROW : ELEMENT;
        else if (in->kind == MFI_REDUCE)
            class = ROW, c->ready[i]++;
        else if (in->kind == MFI_STORE && class != ELEMENT)
            class = load_class(c, &c->p->chain.operand[in->operand]) == ELEMENT ? ELEMENT : ROW;
        c->class[i] = class;
        out->phases = c->ready[i] > out->phases ? c->ready[i] : out->phases;
    }
    /* Without reductions there are no rows. */
    for (int i = 0; i < c->p->chain.count && out->phases == 0; i++)
        c->class[i] = c->class[i] == ROW ? ELEMENT : c->class[i];
}

static void need(compiler *c, int i)
{
    int16_t v[3];
    if (c->needed[i])
        return;
    c->needed[i] = true;
    for (int k = operands_of(instr(c, i), v) - 1; k >= 0; k--)
        need(c, v[k]);
}

/* ---- layout ---- */

/* Do element operands lie along the last row dim rather than along the row? */
static bool column_wise(const compiler *c)
{
    int64_t along = 0, across = 0;
    int last = c->p->ndim - 1, r = c->row_dims - 1;
    for (int i = 0; i < c->p->chain.count; i++) {
        const mfi_instr *in = instr(c, i);
        if (in->kind == MFI_ACC)
            return false;
        if ((in->kind != MFI_LOAD && in->kind != MFI_STORE) || c->class[i] != ELEMENT)
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

static void choose_layout(compiler *c)
{
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
    out->last_rows = column ? p->shape[c->row_dims - 1] : 1;
    /* Long rows are reduced in parts, which may run on different threads, but are the same parts always. */
    const int64_t least = column ? 2048 : 65536;
    out->chunk = mfi_max64(out->row_length, 1);
    if (out->layout != MFI_LAYOUT_SHORT && out->row_length >= 2 * least)
        out->chunk = mfi_max64(least, (mfi_ceil_div(out->row_length, 64) + 1023) / 1024 * 1024);
    out->chunks = mfi_ceil_div(out->row_length, out->chunk);
}

/* ---- buffers ---- */

static int value_size(const compiler *c, int i)
{
    return (int)mfi_ctype_size((mfi_ctype)instr(c, i)->ctype);
}

static int32_t take_register(compiler *c, int value, int size)
{
    for (int r = 0; r < c->registers; r++)
        if (c->register_free[r] && c->reg[r].size == size) {
            c->register_free[r] = false;
            c->register_of[value] = (int16_t)r;
            return c->reg[r].at;
        }
    int r = c->registers++;
    c->reg[r].at = c->element_at;
    c->reg[r].size = size;
    c->element_at += size;
    c->register_free[r] = false;
    c->register_of[value] = (int16_t)r;
    return c->reg[r].at;
}

/* Where dst of a uop goes. Element offsets count elements of a block and row offsets rows of a group: scaled at the
 * end. */
static int32_t place(compiler *c, int value, value_class class, int size)
{
    if (class == ELEMENT)
        return take_register(c, value, size);
    int32_t *at = class == ROW ? &c->row_at : &c->uniform_at;
    int32_t here = *at;
    *at += class == ROW ? size : 16;
    return here;
}

/* ---- lists ---- */

static mfi_uop *add(compiler *c, mfi_uop_kind kind)
{
    mfi_uop *u = &c->out->uop[c->out->uops++];
    *u = (mfi_uop){.kind = (uint8_t)kind, .dst = -1, .a = -1, .b = -1, .c = -1, .walk = -1, .reduce = -1, .direct = -1};
    return u;
}

static int16_t add_walk(compiler *c, const mfi_instr *in, value_class class)
{
    const mfi_operand *o = &c->p->chain.operand[in->operand];
    static const int natural[MF_MAX_DIMS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    int16_t index = (int16_t)c->out->walks++;
    const int64_t *extent = in->kind == MFI_LOAD ? o->extent : NULL;
    if (class == ELEMENT)
        mfi_walk_init(&c->out->walk[index], &o->view, extent, c->p->shape, c->order, c->p->ndim);
    else
        mfi_walk_init(&c->out->walk[index], &o->view, extent, c->p->shape, natural, class == ROW ? c->row_dims : 0);
    return index;
}

/* Operand value v of a uop of class `class`: row values reach blocks repeated, except that a LONG row has just one. */
static int16_t operand_value(compiler *c, int16_t v, value_class class)
{
    if (class != ELEMENT || c->class[v] != ROW || c->out->layout == MFI_LAYOUT_LONG)
        return v;
    if (c->repeated[v] < 0) {
        mfi_uop *u = add(c, MFI_U_REPEAT);
        u->a = v;
        u->dst = c->repeated[v] = (int16_t)(MFI_MAX_INSTR + v);
        u->size = (uint8_t)value_size(c, v);
    }
    return c->repeated[v];
}

static void add_index(compiler *c, mfi_uop *u, const mfi_instr *in, value_class class)
{
    u->inner = 1;
    u->extent = c->p->shape[in->axis];
    u->ctype = in->ctype;
    if (class == ELEMENT)
        for (int k = c->p->ndim - 1; c->order[k] != in->axis; k--)
            u->inner *= c->p->shape[c->order[k]];
    else
        for (int d = in->axis + 1; d < c->row_dims; d++)
            u->inner *= c->p->shape[d];
}

static void add_memory(compiler *c, mfi_uop *u, const mfi_instr *in, value_class class)
{
    mf_dtype dtype = c->p->chain.operand[in->operand].view.dtype;
    u->walk = add_walk(c, in, class);
    if (in->kind == MFI_LOAD) {
        u->native = mfi_ctype_dtype(mfi_compute_type(dtype)) == dtype;
        u->convert = c->loops->load[dtype];
    } else {
        mfi_ctype from = (mfi_ctype)instr(c, in->a)->ctype;
        u->native = mfi_ctype_dtype(from) == dtype;
        u->convert = c->loops->store[from][dtype][in->saturate != 0];
    }
}

static void add_cast(compiler *c, mfi_uop *u, const mfi_instr *in)
{
    mf_dtype dtype = (mf_dtype)in->dtype;
    u->convert = c->loops->store[instr(c, in->a)->ctype][dtype][in->saturate != 0];
    u->widen = mfi_ctype_dtype(mfi_compute_type(dtype)) == dtype ? NULL : c->loops->load[dtype];
}

/* Instruction i as a uop of the list being made, computed for class `class`. */
static void add_instr(compiler *c, int i)
{
    static const uint8_t kinds[] = {
        [MFI_ACC] = MFI_U_ACC,     [MFI_LOAD] = MFI_U_LOAD, [MFI_CONST] = MFI_U_CONST,   [MFI_INDEX] = MFI_U_INDEX,
        [MFI_APPLY] = MFI_U_APPLY, [MFI_CAST] = MFI_U_CAST, [MFI_REDUCE] = MFI_U_FINISH, [MFI_STORE] = MFI_U_STORE};
    const mfi_instr *in = instr(c, i);
    value_class class = c->class[i];
    int16_t v[3] = {-1, -1, -1}, used[3] = {-1, -1, -1};
    int count = in->kind == MFI_REDUCE ? 0 : operands_of(in, v);
    for (int k = 0; k < count; k++)
        used[k] = operand_value(c, v[k], class);
    mfi_uop *u = add(c, (mfi_uop_kind)kinds[in->kind]);
    u->a = used[0], u->b = used[1], u->c = used[2];
    u->dst = in->kind == MFI_STORE ? -1 : (int16_t)i;
    u->size = (uint8_t)value_size(c, in->kind == MFI_STORE ? in->a : i);
    if (in->kind == MFI_LOAD || in->kind == MFI_STORE)
        add_memory(c, u, in, class);
    else if (in->kind == MFI_CONST)
        u->re = in->re, u->im = in->im, u->ctype = in->ctype;
    else if (in->kind == MFI_INDEX)
        add_index(c, u, in, class);
    else if (in->kind == MFI_APPLY)
        u->apply = c->loops->apply[in->from][in->op];
    else if (in->kind == MFI_CAST)
        add_cast(c, u, in);
    else if (in->kind == MFI_REDUCE)
        u->reduce = c->reduce_of[i];
}

static void add_fold(compiler *c, int i)
{
    int16_t v = operand_value(c, instr(c, i)->a, ELEMENT);
    mfi_uop *u = add(c, MFI_U_FOLD);
    u->a = v;
    u->size = (uint8_t)value_size(c, instr(c, i)->a);
    u->reduce = c->reduce_of[i];
}

/* Loads whose memory a store of the same list may overwrite before another reads them; and a store's value made in
 * place. */
static void refine_stores(compiler *c, mfi_list list)
{
    mfi_uop *u = &c->out->uop[list.first];
    int stores = 0, last = -1;
    for (int i = 0; i < list.count; i++) {
        stores += u[i].kind == MFI_U_STORE;
        last = u[i].kind != MFI_U_STORE ? i : last;
    }
    for (int i = 0; i < list.count && stores > 1; i++)
        for (int s = 0; s < list.count && u[i].kind == MFI_U_LOAD; s++)
            u[i].copy |= u[s].kind == MFI_U_STORE && u[s].a == u[i].dst;
    if (stores == 1 && last == list.count - 2 && u[last].kind == MFI_U_APPLY && u[list.count - 1].native &&
        u[list.count - 1].a == u[last].dst)
        u[last].direct = u[list.count - 1].walk;
}

/* Linear scan over the list: a buffer is free again after the last use of its value. */
static void assign(compiler *c, mfi_list list, value_class class)
{
    int last_use[MFI_MAX_VALUES];
    mfi_uop *u = &c->out->uop[list.first];
    for (int r = 0; r < c->registers; r++)
        c->register_free[r] = true;
    for (int v = 0; v < MFI_MAX_VALUES; v++)
        last_use[v] = -1, c->register_of[v] = -1;
    for (int i = 0; i < list.count; i++) {
        const int16_t v[3] = {u[i].a, u[i].b, u[i].c};
        for (int k = 0; k < 3; k++)
            if (v[k] >= 0)
                last_use[v[k]] = i;
    }
    for (int i = 0; i < list.count; i++) {
        const int16_t v[3] = {u[i].a, u[i].b, u[i].c};
        for (int k = 0; k < 3; k++)
            if (v[k] >= 0 && last_use[v[k]] == i && c->register_of[v[k]] >= 0) {
                c->register_free[c->register_of[v[k]]] = true;
                c->register_of[v[k]] = -1;
            }
        if (u[i].dst >= 0)
            u[i].buffer = place(c, u[i].dst, class, u[i].size);
    }
}

static mfi_list begin_list(compiler *c)
{
    for (int i = 0; i < MFI_MAX_INSTR; i++)
        c->repeated[i] = -1;
    return (mfi_list){c->out->uops, 0};
}

static void end_list(compiler *c, mfi_list *list, value_class class)
{
    list->count = c->out->uops - list->first;
    refine_stores(c, *list);
    assign(c, *list, class);
}

/* Everything of a class that is ready after `phase` phases, and not before. */
static void list_values(compiler *c, mfi_list *list, value_class class, int phase)
{
    *list = begin_list(c);
    for (int i = 0; i < c->p->chain.count; i++)
        if (c->needed[i] && c->class[i] == class && instr(c, i)->kind != MFI_STORE && c->ready[i] == phase)
            add_instr(c, i);
    end_list(c, list, class);
}

static void list_stores(compiler *c, mfi_list *list)
{
    *list = begin_list(c);
    for (int i = 0; i < c->p->chain.count; i++)
        if (instr(c, i)->kind == MFI_STORE && c->class[i] != ELEMENT)
            c->class[i] = ROW, add_instr(c, i);
    end_list(c, list, ROW);
}

static void mark_elements(const compiler *c, int i, bool *want)
{
    int16_t v[3];
    if (want[i] || c->class[i] != ELEMENT)
        return;
    want[i] = true;
    for (int k = operands_of(instr(c, i), v) - 1; k >= 0; k--)
        mark_elements(c, v[k], want);
}

/* The element values that the reductions of a phase, or in the last one the stores, need; then those. */
static void list_elements(compiler *c, mfi_list *list, int phase)
{
    bool want[MFI_MAX_INSTR] = {false}, goal[MFI_MAX_INSTR] = {false};
    int count = c->p->chain.count;
    for (int i = 0; i < count; i++) {
        const mfi_instr *in = instr(c, i);
        goal[i] = c->needed[i] && (phase < c->out->phases ? in->kind == MFI_REDUCE && c->ready[i] == phase + 1
                                                          : in->kind == MFI_STORE && c->class[i] == ELEMENT);
        if (goal[i])
            mark_elements(c, in->a, want);
    }
    *list = begin_list(c);
    for (int i = 0; i < count; i++)
        if (want[i])
            add_instr(c, i);
    for (int i = 0; i < count; i++)
        if (goal[i] && phase < c->out->phases)
            add_fold(c, i);
    for (int i = 0; i < count && phase == c->out->phases; i++)
        if (goal[i])
            operand_value(c, instr(c, i)->a, ELEMENT); /* repetitions before the first store */
    for (int i = 0; i < count && phase == c->out->phases; i++)
        if (goal[i])
            add_instr(c, i);
    end_list(c, list, ELEMENT);
    if (phase == c->out->phases)
        c->out->element_stores = list->count > 0;
}

/* ---- reductions ---- */

static mf_status number_reductions(compiler *c)
{
    mfi_cpu_chain *out = c->out;
    for (int i = 0; i < c->p->chain.count; i++) {
        const mfi_instr *in = instr(c, i);
        if (in->kind != MFI_REDUCE || !c->needed[i])
            continue;
        MF_REQUIRE(out->reduces < MFI_MAX_REDUCES && c->ready[i] <= MFI_MAX_PHASES, MF_E_UNSUPPORTED,
                   "a fused step has more than %d reductions, or more than %d of them one after the other; the CPU "
                   "executor takes no more: split it with outputs in between",
                   MFI_MAX_REDUCES, MFI_MAX_PHASES);
        mfi_cpu_reduce *r = &out->reduce[out->reduces];
        mfi_ctype type = (mfi_ctype)instr(c, in->a)->ctype;
        bool logical = in->reduce == MF_ANY || in->reduce == MF_ALL;
        *r = (mfi_cpu_reduce){.op = (mf_reduce_op)in->reduce, .ctype = type, .phase = c->ready[i] - 1};
        r->narrow = logical ? MFI_I32 : type;
        r->wide = type >= MFI_F32 && (r->op == MF_SUM || r->op == MF_PROD);
        r->fold = c->loops->fold[r->op][type];
        r->fold_narrow = c->loops->fold[r->op][r->narrow];
        r->column = c->loops->column[r->op][type];
        MF_REQUIRE(r->fold, MF_E_INTERNAL, "reduction %d is not defined for %s", (int)r->op, mfi_ctype_name(type));
        c->reduce_of[i] = (int16_t)out->reduces++;
    }
    return MF_OK;
}

/* ---- sizes ---- */

static int group_rows(const mfi_cpu_chain *out, int block)
{
    switch (out->layout) {
    case MFI_LAYOUT_SHORT:
        return (int)mfi_max64(1, block / mfi_max64(out->row_length, 1));
    case MFI_LAYOUT_COLUMN:
        return (int)mfi_min64(block, out->last_rows);
    default:
        return 1;
    }
}

static int64_t scratch_bytes(const compiler *c, int block)
{
    int64_t group = (int64_t)mfi_align_up((size_t)group_rows(c->out, block), 16), reduces = c->out->reduces;
    return block * (int64_t)(c->element_at + 32) + group * (c->row_at + reduces * (16 + 2 * (int64_t)sizeof(mfi_acc))) +
           c->uniform_at + 64 * (MFI_MAX_VALUES + 2 * MFI_MAX_REDUCES + 8);
}

/* Choose the block's length by what is live, and turn offsets into bytes. Offsets stay multiples of 64. */
static void scale_buffers(compiler *c)
{
    mfi_cpu_chain *out = c->out;
    int block = out->block;
    while (block > 256 && scratch_bytes(c, block) > 48 * 1024)
        block /= 2;
    while (block > 16 && scratch_bytes(c, block) > MFI_CPU_SCRATCH)
        block /= 2;
    out->block = block;
    out->group = group_rows(out, block);
    int group = (int)mfi_align_up((size_t)out->group, 16);
    for (int i = 0; i < out->uops; i++) {
        mfi_uop *u = &out->uop[i];
        if (u->dst < 0)
            continue;
        value_class class = u->dst >= MFI_MAX_INSTR ? ELEMENT : c->class[u->dst];
        u->buffer = class == ELEMENT ? u->buffer * block
                    : class == ROW   ? (int32_t)mfi_align_up((size_t)c->uniform_at, 64) + u->buffer * group
                                     : u->buffer;
    }
    out->row_bytes =
        (int32_t)mfi_align_up((size_t)c->uniform_at, 64) + (int32_t)mfi_align_up((size_t)(c->row_at * group), 64);
    out->fill = c->element_at * block;
    out->raw = out->fill + 16 * block;
    int32_t at = out->raw + 16 * block;
    for (int r = 0; r < out->reduces; r++) {
        out->reduce[r].narrow_buffer = at;
        at += 16 * group;
    }
    out->element_bytes = (int32_t)mfi_align_up((size_t)at, 64);
}

/* ---- entry ---- */

static mf_status check_operations(const compiler *c)
{
    for (int i = 0; i < c->p->chain.count; i++) {
        const mfi_instr *in = instr(c, i);
        MF_REQUIRE(in->kind != MFI_APPLY || c->loops->apply[in->from][in->op], MF_E_INTERNAL,
                   "operation %s is not defined for %s", mf_op_name((mf_op)in->op),
                   mfi_ctype_name((mfi_ctype)in->from));
    }
    return MF_OK;
}

static void count_domain(compiler *c)
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

static void schedule(compiler *c)
{
    mfi_cpu_chain *out = c->out;
    list_values(c, &out->uniform, UNIFORM, 0);
    for (int phase = 0; phase <= out->phases; phase++) {
        list_values(c, &out->row[phase], ROW, phase);
        list_elements(c, &out->element[phase], phase);
    }
    list_stores(c, &out->row_stores);
    scale_buffers(c);
}

static mf_status compile(compiler *c)
{
    mfi_cpu_chain *out = c->out;
    size_t count = (size_t)c->p->chain.count;
    MF_TRY(check_operations(c));
    classify(c);
    for (int i = 0; i < c->p->chain.count; i++)
        if (instr(c, i)->kind == MFI_STORE)
            need(c, i);
    MF_TRY(number_reductions(c));
    size_t passes = (size_t)out->phases + 2;
    out->uop = mfi_calloc(count * 2 * passes, sizeof *out->uop);
    out->walk = mfi_calloc(count * passes, sizeof *out->walk);
    if (!out->uop || !out->walk)
        return MFI_NO_MEMORY(count * 2 * passes * sizeof *out->uop);
    out->block = 1024;
    count_domain(c);
    choose_layout(c);
    schedule(c);
    return MF_OK;
}

mf_status mfi_cpu_chain_new_isa(mfi_cpu_chain **out, const mfi_problem *p, const mfi_loops *loops)
{
    *out = NULL;
    compiler *c = mfi_calloc(1, sizeof *c);
    mfi_cpu_chain *chain = mfi_calloc(1, sizeof *chain);
    mf_status status = c && chain ? MF_OK : MFI_NO_MEMORY(sizeof *c + sizeof *chain);
    if (status == MF_OK) {
        c->p = p;
        c->loops = loops;
        c->out = chain;
        c->row_dims = p->ndim - p->nreduce;
        status = compile(c);
    }
    mf_free(c);
    if (status == MF_OK)
        *out = chain;
    else
        mfi_cpu_chain_free(chain);
    return status;
}

mf_status mfi_cpu_chain_new(mfi_cpu_chain **out, const mfi_problem *p)
{
    return mfi_cpu_chain_new_isa(out, p, mfi_loops_at(0));
}

void mfi_cpu_chain_free(mfi_cpu_chain *chain)
{
    if (!chain)
        return;
    mf_free(chain->uop);
    mf_free(chain->walk);
    mf_free(chain);
}
