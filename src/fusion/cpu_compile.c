/* Second half of compiling a CPU chain: the order of the work, its uops, their buffers. */
#include "cpu_compile.h"

enum { LEAST_ROW = 32 }; /* from that length on a call of a loop for each row costs less than repeating its values */

/* ---- buffers ---- */

static int value_size(const mfi_compiler *c, int i)
{
    return (int)mfi_ctype_size((mfi_ctype)mfi_instr_of(c, i)->ctype);
}

static int32_t take_register(mfi_compiler *c, int value, int size)
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
static int32_t place(mfi_compiler *c, int value, mfi_value_class class, int size)
{
    if (class == MFI_ELEMENT)
        return take_register(c, value, size);
    int32_t *at = class == MFI_ROW ? &c->row_at : &c->uniform_at;
    int32_t here = *at;
    *at += class == MFI_ROW ? size : 16;
    return here;
}

/* ---- lists ---- */

static mfi_uop *add(mfi_compiler *c, mfi_uop_kind kind)
{
    mfi_uop *u = &c->out->uop[c->out->uops++];
    *u = (mfi_uop){.kind = (uint8_t)kind, .dst = -1, .a = -1, .b = -1, .c = -1, .walk = -1, .reduce = -1, .direct = -1};
    return u;
}

static int16_t add_walk(mfi_compiler *c, const mfi_instr *in, mfi_value_class class)
{
    const mfi_operand *o = &c->p->chain.operand[in->operand];
    static const int natural[MF_MAX_DIMS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    int16_t index = (int16_t)c->out->walks++;
    const int64_t *extent = in->kind == MFI_LOAD ? o->extent : NULL;
    if (class == MFI_ELEMENT)
        mfi_walk_init(&c->out->walk[index], &o->view, extent, c->p->shape, c->order, c->p->ndim);
    else
        mfi_walk_init(&c->out->walk[index], &o->view, extent, c->p->shape, natural, class == MFI_ROW ? c->row_dims : 0);
    return index;
}

/* Row values are scalars to the loops over such rows; shorter ones go through the loops together. */
static bool row_by_row(const mfi_compiler *c)
{
    return c->out->layout == MFI_LAYOUT_SHORT && c->out->row_length >= LEAST_ROW;
}

/* Operand value v of a uop of class `class`: row values reach blocks repeated, except that a LONG row has just one. */
static int16_t operand_value(mfi_compiler *c, int16_t v, mfi_value_class class)
{
    if (class != MFI_ELEMENT || c->class[v] != MFI_ROW || c->out->layout == MFI_LAYOUT_LONG)
        return v;
    if (c->repeated[v] < 0) {
        mfi_uop *u = add(c, MFI_U_REPEAT);
        u->a = v;
        u->dst = c->repeated[v] = (int16_t)(MFI_MAX_INSTR + v);
        u->size = (uint8_t)value_size(c, v);
    }
    return c->repeated[v];
}

static void add_index(mfi_compiler *c, mfi_uop *u, const mfi_instr *in, mfi_value_class class)
{
    u->inner = 1;
    u->extent = c->p->shape[in->axis];
    u->ctype = in->ctype;
    if (class == MFI_ELEMENT)
        for (int k = c->p->ndim - 1; c->order[k] != in->axis; k--)
            u->inner *= c->p->shape[c->order[k]];
    else
        for (int d = in->axis + 1; d < c->row_dims; d++)
            u->inner *= c->p->shape[d];
}

static void add_memory(mfi_compiler *c, mfi_uop *u, const mfi_instr *in, mfi_value_class class)
{
    mf_dtype dtype = c->p->chain.operand[in->operand].view.dtype;
    u->walk = add_walk(c, in, class);
    if (in->kind == MFI_LOAD) {
        u->native = mfi_ctype_dtype(mfi_compute_type(dtype)) == dtype;
        u->convert = c->loops->load[dtype];
    } else {
        mfi_ctype from = (mfi_ctype)mfi_instr_of(c, in->a)->ctype;
        u->native = mfi_ctype_dtype(from) == dtype;
        u->convert = c->loops->store[from][dtype][in->saturate != 0];
    }
}

static void add_apply(mfi_compiler *c, mfi_uop *u, const mfi_instr *in, mfi_value_class class)
{
    const int16_t v[3] = {in->a, in->b, in->c};
    u->apply = c->loops->apply[in->from][in->op];
    for (int k = 0; k < 3 && k < mfi_op_arity(in->op); k++) {
        u->operand_size[k] = (uint8_t)value_size(c, v[k]);
        if (class == MFI_ELEMENT && c->class[v[k]] == MFI_ROW && row_by_row(c))
            u->by_row |= (uint8_t)(1u << k);
    }
}

static void add_cast(mfi_compiler *c, mfi_uop *u, const mfi_instr *in)
{
    mf_dtype dtype = (mf_dtype)in->dtype;
    u->convert = c->loops->store[mfi_instr_of(c, in->a)->ctype][dtype][in->saturate != 0];
    u->widen = mfi_ctype_dtype(mfi_compute_type(dtype)) == dtype ? NULL : c->loops->load[dtype];
}

/* Instruction i as a uop of the list being made, computed for class `class`. */
static void add_instr(mfi_compiler *c, int i)
{
    static const uint8_t kinds[] = {
        [MFI_ACC] = MFI_U_ACC,     [MFI_LOAD] = MFI_U_LOAD, [MFI_CONST] = MFI_U_CONST,   [MFI_INDEX] = MFI_U_INDEX,
        [MFI_APPLY] = MFI_U_APPLY, [MFI_CAST] = MFI_U_CAST, [MFI_REDUCE] = MFI_U_FINISH, [MFI_STORE] = MFI_U_STORE};
    const mfi_instr *in = mfi_instr_of(c, i);
    mfi_value_class class = c->class[i];
    int16_t v[3] = {-1, -1, -1}, used[3] = {-1, -1, -1};
    int count = in->kind == MFI_REDUCE ? 0 : mfi_instr_operands(in, v);
    for (int k = 0; k < count; k++)
        used[k] = in->kind == MFI_APPLY && row_by_row(c) ? v[k] : operand_value(c, v[k], class);
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
        add_apply(c, u, in, class);
    else if (in->kind == MFI_CAST)
        add_cast(c, u, in);
    else if (in->kind == MFI_REDUCE)
        u->reduce = c->reduce_of[i];
}

static void add_fold(mfi_compiler *c, int i)
{
    int16_t v = operand_value(c, mfi_instr_of(c, i)->a, MFI_ELEMENT);
    mfi_uop *u = add(c, MFI_U_FOLD);
    u->a = v;
    u->size = (uint8_t)value_size(c, mfi_instr_of(c, i)->a);
    u->reduce = c->reduce_of[i];
}

/* Loads whose memory a store of the same list may overwrite before another reads them; and a store's value made in
 * place. */
static void refine_stores(mfi_compiler *c, mfi_list list)
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
static void assign(mfi_compiler *c, mfi_list list, mfi_value_class class)
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

static mfi_list begin_list(mfi_compiler *c)
{
    for (int i = 0; i < MFI_MAX_INSTR; i++)
        c->repeated[i] = -1;
    return (mfi_list){c->out->uops, 0};
}

static void end_list(mfi_compiler *c, mfi_list *list, mfi_value_class class)
{
    list->count = c->out->uops - list->first;
    refine_stores(c, *list);
    assign(c, *list, class);
}

/* Everything of a class that is ready after `phase` phases, and not before. */
static void list_values(mfi_compiler *c, mfi_list *list, mfi_value_class class, int phase)
{
    *list = begin_list(c);
    for (int i = 0; i < c->p->chain.count; i++)
        if (c->needed[i] && c->class[i] == class && mfi_instr_of(c, i)->kind != MFI_STORE && c->ready[i] == phase)
            add_instr(c, i);
    end_list(c, list, class);
}

static void list_stores(mfi_compiler *c, mfi_list *list)
{
    *list = begin_list(c);
    for (int i = 0; i < c->p->chain.count; i++)
        if (mfi_instr_of(c, i)->kind == MFI_STORE && c->class[i] != MFI_ELEMENT)
            c->class[i] = MFI_ROW, add_instr(c, i);
    end_list(c, list, MFI_ROW);
}

/* The uop of an element list before `phase` that computes value i; NULL: none, or what it computes lies in memory. */
static mfi_uop *earlier(const mfi_compiler *c, int i, int phase)
{
    for (int p = 0; p < phase; p++)
        for (int k = 0; k < c->out->element[p].count; k++) {
            mfi_uop *u = &c->out->uop[c->out->element[p].first + k];
            if (u->dst == i &&
                (u->kind == MFI_U_APPLY || u->kind == MFI_U_CAST || (u->kind == MFI_U_LOAD && !u->native)))
                return u;
        }
    return NULL;
}

static int64_t kept_length(const mfi_cpu_chain *out)
{
    return (int64_t)mfi_align_up((size_t)mfi_max64(out->row_length, out->block), 16);
}

/* Have value i of an earlier phase kept, if there is one and it fits. `keep` is in bytes per element, from 1 on, until
 * scale_buffers. */
static bool keep_value(mfi_compiler *c, int i, int phase)
{
    mfi_cpu_chain *out = c->out;
    bool whole = out->chunks == 1 && (out->layout == MFI_LAYOUT_SHORT || out->layout == MFI_LAYOUT_LONG);
    mfi_uop *u = whole ? earlier(c, i, phase) : NULL;
    if (u && !u->keep && (c->kept_size + u->size) * kept_length(out) <= MFI_CPU_KEPT) {
        u->keep = c->kept_size + 1;
        c->kept_size += u->size;
    }
    return u && u->keep;
}

static void mark_elements(mfi_compiler *c, int i, int phase, bool *want)
{
    int16_t v[3];
    if (want[i] || c->class[i] != MFI_ELEMENT)
        return;
    want[i] = true;
    if (keep_value(c, i, phase))
        return;
    for (int k = mfi_instr_operands(mfi_instr_of(c, i), v) - 1; k >= 0; k--)
        mark_elements(c, v[k], phase, want);
}

/* The element values that the reductions of a phase, or in the last one the stores, need; then those. */
static void list_elements(mfi_compiler *c, mfi_list *list, int phase)
{
    bool want[MFI_MAX_INSTR] = {false}, goal[MFI_MAX_INSTR] = {false};
    int count = c->p->chain.count;
    for (int i = 0; i < count; i++) {
        const mfi_instr *in = mfi_instr_of(c, i);
        goal[i] = c->needed[i] && (phase < c->out->phases ? in->kind == MFI_REDUCE && c->ready[i] == phase + 1
                                                          : in->kind == MFI_STORE && c->class[i] == MFI_ELEMENT);
        if (goal[i])
            mark_elements(c, in->a, phase, want);
    }
    *list = begin_list(c);
    for (int i = 0; i < count; i++) {
        const mfi_uop *kept = want[i] ? earlier(c, i, phase) : NULL;
        if (kept && kept->keep) {
            mfi_uop *u = add(c, MFI_U_KEPT);
            u->dst = (int16_t)i, u->size = kept->size, u->keep = kept->keep;
        } else if (want[i]) {
            add_instr(c, i);
        }
    }
    for (int i = 0; i < count; i++)
        if (goal[i] && phase < c->out->phases)
            add_fold(c, i);
    for (int i = 0; i < count && phase == c->out->phases; i++)
        if (goal[i])
            operand_value(c, mfi_instr_of(c, i)->a, MFI_ELEMENT); /* repetitions before the first store */
    for (int i = 0; i < count && phase == c->out->phases; i++)
        if (goal[i])
            add_instr(c, i);
    end_list(c, list, MFI_ELEMENT);
    if (phase == c->out->phases)
        c->out->element_stores = list->count > 0;
}

/* ---- reductions ---- */

static mf_status number_reductions(mfi_compiler *c)
{
    mfi_cpu_chain *out = c->out;
    for (int i = 0; i < c->p->chain.count; i++) {
        const mfi_instr *in = mfi_instr_of(c, i);
        if (in->kind != MFI_REDUCE || !c->needed[i])
            continue;
        MF_REQUIRE(out->reduces < MFI_MAX_REDUCES && c->ready[i] <= MFI_MAX_PHASES, MF_E_UNSUPPORTED,
                   "a fused step has more than %d reductions, or more than %d of them one after the other; the CPU "
                   "executor takes no more: split it with outputs in between",
                   MFI_MAX_REDUCES, MFI_MAX_PHASES);
        mfi_cpu_reduce *r = &out->reduce[out->reduces];
        mfi_ctype type = (mfi_ctype)mfi_instr_of(c, in->a)->ctype;
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

static int64_t scratch_bytes(const mfi_compiler *c, int block)
{
    int64_t group = (int64_t)mfi_align_up((size_t)group_rows(c->out, block), 16), reduces = c->out->reduces;
    return block * (int64_t)(c->element_at + 32) + group * (c->row_at + reduces * (16 + 2 * (int64_t)sizeof(mfi_acc))) +
           c->uniform_at + 64 * (MFI_MAX_VALUES + 2 * MFI_MAX_REDUCES + 8);
}

/* Choose the block's length by what is live, and turn offsets into bytes. Offsets stay multiples of 64. */
static void scale_buffers(mfi_compiler *c)
{
    mfi_cpu_chain *out = c->out;
    int block = out->block;
    int64_t most = MFI_CPU_SCRATCH - c->kept_size * kept_length(out);
    /* Columns are read in lines of a block's length: the longer, the fewer of memory's pages are begun. */
    int64_t wanted = out->layout == MFI_LAYOUT_COLUMN ? most : 48 * 1024;
    while (block > 256 && scratch_bytes(c, block) > wanted)
        block /= 2;
    while (block > 16 && scratch_bytes(c, block) > most)
        block /= 2;
    out->block = block;
    out->group = group_rows(out, block);
    int group = (int)mfi_align_up((size_t)out->group, 16);
    for (int i = 0; i < out->uops; i++) {
        mfi_uop *u = &out->uop[i];
        if (u->dst < 0)
            continue;
        mfi_value_class class = u->dst >= MFI_MAX_INSTR ? MFI_ELEMENT : c->class[u->dst];
        u->buffer = class == MFI_ELEMENT ? u->buffer * block
                    : class == MFI_ROW   ? (int32_t)mfi_align_up((size_t)c->uniform_at, 64) + u->buffer * group
                                         : u->buffer;
    }
    out->row_bytes =
        (int32_t)mfi_align_up((size_t)c->uniform_at, 64) + (int32_t)mfi_align_up((size_t)c->row_at * (size_t)group, 64);
    out->fill = c->element_at * block;
    out->raw = out->fill + 16 * block;
    int32_t at = out->raw + 16 * block;
    for (int r = 0; r < out->reduces; r++) {
        out->reduce[r].narrow_buffer = at;
        at += 16 * group;
    }
    at = (int32_t)mfi_align_up((size_t)at, 64);
    for (int i = 0; i < out->uops; i++)
        if (out->uop[i].keep)
            out->uop[i].keep = at + (out->uop[i].keep - 1) * (int32_t)kept_length(out);
    out->element_bytes = (int32_t)mfi_align_up((size_t)at + (size_t)c->kept_size * (size_t)kept_length(out), 64);
}

/* ---- entry ---- */

static mf_status check_operations(const mfi_compiler *c)
{
    for (int i = 0; i < c->p->chain.count; i++) {
        const mfi_instr *in = mfi_instr_of(c, i);
        MF_REQUIRE(in->kind != MFI_APPLY || c->loops->apply[in->from][in->op], MF_E_INTERNAL,
                   "operation %s is not defined for %s", mf_op_name((mf_op)in->op),
                   mfi_ctype_name((mfi_ctype)in->from));
    }
    return MF_OK;
}

static void schedule(mfi_compiler *c)
{
    mfi_cpu_chain *out = c->out;
    list_values(c, &out->uniform, MFI_UNIFORM, 0);
    for (int phase = 0; phase <= out->phases; phase++) {
        list_values(c, &out->row[phase], MFI_ROW, phase);
        list_elements(c, &out->element[phase], phase);
    }
    list_stores(c, &out->row_stores);
    scale_buffers(c);
}

static mf_status compile(mfi_compiler *c)
{
    mfi_cpu_chain *out = c->out;
    size_t count = (size_t)c->p->chain.count;
    MF_TRY(check_operations(c));
    mfi_classify(c);
    MF_TRY(number_reductions(c));
    size_t passes = (size_t)out->phases + 2;
    out->uop = mfi_calloc(count * 2 * passes, sizeof *out->uop);
    out->walk = mfi_calloc(count * passes, sizeof *out->walk);
    if (!out->uop || !out->walk)
        return MFI_NO_MEMORY(count * 2 * passes * sizeof *out->uop);
    out->block = 1024;
    mfi_choose_layout(c);
    if (out->layout == MFI_LAYOUT_COLUMN)
        out->block *= 2;
    schedule(c);
    return MF_OK;
}

mf_status mfi_cpu_chain_new_isa(mfi_cpu_chain **out, const mfi_problem *p, const mfi_loops *loops)
{
    *out = NULL;
    mfi_compiler *c = mfi_calloc(1, sizeof *c);
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
