/* Cut a step in two where no provider can fuse its whole chain: the anchor with the head of the chain, then a map. */
#include "schedule.h"

static bool reloadable(const mfi_instr *in)
{
    return in->kind == MFI_LOAD || in->kind == MFI_CONST || in->kind == MFI_INDEX;
}

static bool uses_before(const mfi_chain *c, const mfi_instr *in, int at)
{
    const int16_t operands[3] = {in->a, in->b, in->c};
    for (int i = 0; i < 3; i++)
        if (operands[i] >= 0 && operands[i] < at && !reloadable(&c->instr[operands[i]]))
            return true;
    return false;
}

bool mfi_can_split(const mfi_problem *p, int at)
{
    const mfi_chain *c = &p->chain;
    bool anything_after = false;
    if (p->anchor == MFI_MAP || p->anchor >= MFI_SOLVE || c->phases || reloadable(&c->instr[at]) ||
        c->instr[at].kind == MFI_STORE)
        return false;
    for (int i = at + 1; i < c->count; i++) {
        if (c->instr[i].kind == MFI_STORE || reloadable(&c->instr[i]))
            continue;
        anything_after = true;
        if (uses_before(c, &c->instr[i], at))
            return false;
    }
    return anything_after;
}

mf_dtype mfi_split_dtype(const mfi_problem *p, int at)
{
    const mfi_chain *c = &p->chain;
    const mfi_operand *last = NULL;
    int applied = at;
    for (int i = at + 1; i < c->count; i++) {
        const mfi_instr *in = &c->instr[i];
        if (in->kind == MFI_STORE && !last && in->a == applied)
            last = &c->operand[in->operand];
        else if (in->kind == MFI_APPLY && in->op == MF_OP_RELU && in->a == applied && !last)
            applied = i;
        else if (!reloadable(in))
            return mfi_ctype_dtype((mfi_ctype)c->instr[at].ctype);
    }
    return last ? last->view.dtype : mfi_ctype_dtype((mfi_ctype)c->instr[at].ctype);
}

/* Copy instruction `i` and what it needs from `from` to `to`; values already there are in `moved`. */
static int16_t move(mfi_chain *to, const mfi_chain *from, int i, int16_t *moved)
{
    if (i < 0 || moved[i] >= 0)
        return i < 0 ? -1 : moved[i];
    mfi_instr in = from->instr[i];
    in.a = move(to, from, in.a, moved);
    in.b = move(to, from, in.b, moved);
    in.c = move(to, from, in.c, moved);
    if (in.operand >= 0) {
        to->operand[to->operands] = from->operand[in.operand];
        in.operand = (int16_t)to->operands++;
    }
    to->instr[to->count] = in;
    return moved[i] = (int16_t)to->count++;
}

/* The operand through which the value crosses: a contiguous temporary, or the final store's own place. */
static mfi_operand crossing(const mfi_problem *p, int slot, mf_dtype dtype)
{
    mfi_operand o;
    memset(&o, 0, sizeof o);
    for (int d = 0; d < MF_MAX_DIMS; d++)
        o.extent[d] = -1;
    if (slot < 0) {
        for (int i = 0; i < p->chain.count; i++)
            if (p->chain.instr[i].kind == MFI_STORE)
                return p->chain.operand[p->chain.instr[i].operand];
    }
    o.view.slot = (int16_t)slot;
    o.view.dtype = dtype;
    o.view.alignment = 256;
    int64_t step = 1;
    for (int d = p->ndim - 1; d >= 0; d--) {
        o.view.strides[d] = step;
        step *= p->shape[d];
    }
    return o;
}

static void add_access(mfi_chain *c, mfi_instr_kind kind, mfi_ctype ctype, int16_t value, const mfi_operand *operand)
{
    c->operand[c->operands] = *operand;
    c->instr[c->count++] = (mfi_instr){.kind = (uint8_t)kind,
                                       .ctype = (uint8_t)ctype,
                                       .operand = (int16_t)c->operands++,
                                       .a = value,
                                       .b = -1,
                                       .c = -1,
                                       .op = -1};
}

/* After a transform: the library's result is not scaled yet. */
static int16_t scale_after(mfi_chain *c, mfi_ctype ctype, double scale, int16_t value)
{
    mfi_instr constant = {
        .kind = MFI_CONST, .ctype = (uint8_t)ctype, .operand = -1, .a = -1, .b = -1, .c = -1, .op = -1};
    constant.re = scale;
    c->instr[c->count] = constant;
    mfi_instr product = {.kind = MFI_APPLY,
                         .ctype = (uint8_t)ctype,
                         .from = (uint8_t)ctype,
                         .operand = -1,
                         .a = value,
                         .b = (int16_t)c->count++,
                         .c = -1,
                         .op = MF_OP_MULTIPLY};
    c->instr[c->count] = product;
    return (int16_t)c->count++;
}

bool mfi_scale_stored(mfi_problem *map, double scale)
{
    mfi_chain *c = &map->chain;
    mfi_instr store = c->instr[c->count - 1];
    if (map->anchor != MFI_MAP || map->nreduce || !mfi_only_store(map) || store.kind != MFI_STORE ||
        c->count + 2 > MFI_MAX_INSTR)
        return false;
    c->count--;
    store.a = scale_after(c, (mfi_ctype)c->instr[store.a].ctype, scale, store.a);
    c->instr[c->count++] = store;
    return true;
}

mf_status mfi_split(mfi_problem **rest, mfi_problem *p, int at, int slot, mf_dtype dtype)
{
    mfi_problem *r = mfi_calloc(1, sizeof *r), *head = mfi_calloc(1, sizeof *head);
    *rest = NULL;
    if (!r || !head) {
        mf_free(r);
        mf_free(head);
        return MFI_NO_MEMORY(sizeof *r);
    }
    const mfi_chain *c = &p->chain;
    mfi_operand through = crossing(p, slot, dtype);
    mfi_ctype ctype = (mfi_ctype)c->instr[at].ctype;
    int16_t in_head[MFI_MAX_INSTR], in_rest[MFI_MAX_INSTR];
    memset(in_head, -1, sizeof in_head);
    memset(in_rest, -1, sizeof in_rest);

    r->anchor = MFI_MAP;
    r->ndim = p->ndim;
    memcpy(r->shape, p->shape, sizeof r->shape);
    add_access(&r->chain, MFI_LOAD, ctype, -1, &through);
    in_rest[at] = 0;
    if (p->anchor == MFI_FFT && p->u.fft.scale != 1 && at == 0) {
        in_rest[at] = scale_after(&r->chain, ctype, p->u.fft.scale, 0);
        p->u.fft.scale = 1;
    }
    move(&head->chain, c, 0, in_head); /* ACC stays first */
    int16_t value = move(&head->chain, c, at, in_head);
    for (int i = 0; i < c->count; i++) {
        bool early = c->instr[i].kind == MFI_STORE && c->instr[i].a < at && !reloadable(&c->instr[c->instr[i].a]);
        if (early)
            move(&head->chain, c, i, in_head);
        else if (c->instr[i].kind == MFI_STORE)
            move(&r->chain, c, i, in_rest);
    }
    add_access(&head->chain, MFI_STORE, ctype, value, &through);
    p->chain = head->chain;
    mf_free(head);
    mfi_collapse(r);
    *rest = r;
    return MF_OK;
}
