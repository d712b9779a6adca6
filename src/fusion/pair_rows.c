/* A product and what reduces its result along rows and goes on with it, as one step: rms_norm(x @ w + r), a scale for each row
 * of an fp8 result. What passes between them stays in registers. */
#include "schedule.h"

/* The instruction that stores what is read: -1: none stores into this slot, -2: it does so otherwise. */
static int maker_of(const mfi_problem *p, const mfi_operand *read)
{
    int found = -1;
    for (int i = 0; i < p->chain.count; i++) {
        const mfi_instr *in = &p->chain.instr[i];
        if (in->kind != MFI_STORE || p->chain.operand[in->operand].view.slot != read->view.slot)
            continue;
        const mfi_view *store = &p->chain.operand[in->operand].view;
        bool whole = read->extent[0] < 0 && read->extent[1] < 0 && mfi_same_matrix(store, &read->view, p->shape);
        /* of 16 bits or more: what is not rounded to them is better for it */
        bool alike = !in->saturate && mf_dtype_size(store->dtype) >= 2 &&
                     p->chain.instr[in->a].ctype == mfi_compute_type(store->dtype);
        found = whole && alike && found == -1 ? i : -2;
    }
    return found;
}

/* Does step r reduce rows of what p makes, and take from p nothing but what it stores whole? */
static bool follows(const mfi_problem *p, const mfi_problem *r)
{
    bool any = false;
    if (r->anchor != MFI_MAP || r->nreduce != 1 || r->ndim != 2 || r->shape[0] != p->shape[0] ||
        r->shape[1] != p->shape[1])
        return false;
    for (int o = 0; o < r->chain.operands; o++) {
        int maker = maker_of(p, &r->chain.operand[o]);
        if (maker == -2)
            return false;
        any |= maker >= 0;
    }
    return any;
}

/* May step `reader` run where step `product` does? Then what lies between uses nothing of its but what is there from the start. */
static bool movable(const mfi_schedule *s, int product, int reader)
{
    const mfi_chain *c = &s->step[reader]->chain;
    for (int o = 0; o < c->operands; o++) {
        int slot = c->operand[o].view.slot;
        for (int i = product + 1; i < reader; i++)
            if (s->buffer[slot].kind != MFI_BUF_INPUT && mfi_slot_uses(s->step[i], slot))
                return false;
    }
    return true;
}

static int16_t add(mfi_chain *c, const mfi_problem *from, int i, const int16_t *moved, int16_t *place)
{
    mfi_instr in = from->chain.instr[i];
    in.a = in.a < 0 ? in.a : moved[in.a];
    in.b = in.b < 0 ? in.b : moved[in.b];
    in.c = in.c < 0 ? in.c : moved[in.c];
    if (in.operand >= 0 && place[in.operand] < 0) {
        c->operand[c->operands] = from->chain.operand[in.operand];
        place[in.operand] = (int16_t)c->operands++;
    }
    in.operand = in.operand < 0 ? in.operand : place[in.operand];
    c->instr[c->count] = in;
    return (int16_t)c->count++;
}

static void join_chains(mfi_chain *c, const mfi_schedule *s, const mfi_problem *p, const mfi_problem *r)
{
    int16_t in_p[MFI_MAX_INSTR], in_r[MFI_MAX_INSTR], place[MFI_MAX_OPERANDS];
    memset(c, 0, sizeof *c);
    memset(place, -1, sizeof place);
    for (int i = 0; i < p->chain.count; i++) {
        const mfi_instr *in = &p->chain.instr[i];
        bool stores = in->kind == MFI_STORE;
        int slot = stores ? p->chain.operand[in->operand].view.slot : -1;
        if (!stores || !mfi_slot_uses(r, slot) || !mfi_is_private(s, slot))
            in_p[i] = add(c, p, i, in_p, place);
    }
    memset(place, -1, sizeof place);
    for (int i = 0; i < r->chain.count; i++) {
        const mfi_instr *in = &r->chain.instr[i];
        int maker = in->kind == MFI_LOAD ? maker_of(p, &r->chain.operand[in->operand]) : -1;
        in_r[i] = maker < 0 ? add(c, r, i, in_r, place) : in_p[p->chain.instr[maker].a];
    }
    c->phases = r->chain.phases;
}

mf_status mfi_pair_rows(mfi_problem **out, int *reader, const mfi_schedule *s, int product)
{
    const mfi_problem *p = s->step[product], *r = NULL;
    *out = NULL;
    if (p->anchor != MFI_MATMUL || p->ndim != 2 || p->chain.phases)
        return MF_OK;
    for (*reader = product + 1; *reader < s->steps && !r; ++*reader)
        if (follows(p, s->step[*reader]) && movable(s, product, *reader))
            r = s->step[*reader];
    --*reader;
    if (!r || p->chain.count + r->chain.count > MFI_MAX_INSTR ||
        p->chain.operands + r->chain.operands > MFI_MAX_OPERANDS)
        return MF_OK;
    mfi_problem *pair = mfi_problem_copy(p);
    if (pair && (pair->head = mfi_problem_copy(p)))
        pair->head->head = mfi_problem_copy(r);
    if (!pair || !pair->head || !pair->head->head) {
        mfi_problem_free(pair);
        return MFI_NO_MEMORY(sizeof *pair);
    }
    join_chains(&pair->chain, s, p, r);
    pair->nreduce = 1;
    *out = pair;
    return MF_OK;
}
