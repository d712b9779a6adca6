/* Two products of one left factor, the first of which only the second reads, as one step: silu(x @ w) * (x @ v). What
 * passes between them stays in registers. */
#include "schedule.h"

bool mfi_same_matrix(const mfi_view *a, const mfi_view *b, const int64_t *shape)
{
    for (int d = 0; d < 2; d++)
        if (shape[d] > 1 && a->strides[d] != b->strides[d])
            return false;
    return a->slot == b->slot && a->offset == b->offset && a->dtype == b->dtype;
}

static bool alike(const mfi_problem *p, const mfi_problem *q)
{
    const mfi_matmul *m = &p->u.matmul, *n = &q->u.matmul;
    const int64_t left[2] = {m->m, m->k};
    return p->anchor == MFI_MATMUL && q->anchor == MFI_MATMUL && p->ndim == 2 && q->ndim == 2 && m->m == n->m &&
           m->n == n->n && m->k == n->k && m->acc == n->acc && m->compute == n->compute && m->b.dtype == n->b.dtype &&
           !p->chain.phases && !q->chain.phases && !p->head && !q->head && mfi_same_matrix(&m->a, &n->a, left);
}

/* How step p reads all of what lies at `store`: the operand; -1: otherwise or not. */
static int reader_of(const mfi_problem *p, const mfi_view *store)
{
    for (int o = 0; o < p->chain.operands; o++) {
        const mfi_operand *operand = &p->chain.operand[o];
        if (operand->view.slot == store->slot)
            return mfi_same_matrix(&operand->view, store, p->shape) && operand->extent[0] < 0 && operand->extent[1] < 0
                       ? o
                       : -1;
    }
    return -1;
}

static int find_maker(int *operand, const mfi_schedule *s, int index)
{
    const mfi_problem *p = s->step[index];
    for (int i = 0; i < index; i++) {
        const mfi_view *store = alike(s->step[i], p) ? mfi_only_store(s->step[i]) : NULL;
        if (store && mfi_is_private(s, store->slot) && (*operand = reader_of(p, store)) >= 0)
            return i;
    }
    return -1;
}

static int16_t add(mfi_chain *c, const mfi_instr *in, const int16_t *moved)
{
    mfi_instr own = *in;
    own.a = own.a < 0 ? own.a : moved[own.a];
    own.b = own.b < 0 ? own.b : moved[own.b];
    own.c = own.c < 0 ? own.c : moved[own.c];
    c->instr[c->count] = own;
    return (int16_t)c->count++;
}

static int16_t add_operand(mfi_chain *c, const mfi_operand *operand)
{
    c->operand[c->operands] = *operand;
    return (int16_t)c->operands++;
}

/* The maker's chain; its stored value. `round`: as it is stored. */
static int16_t add_made(mfi_chain *c, const mfi_chain *maker, bool round)
{
    int16_t moved[MFI_MAX_INSTR] = {0}, place[MFI_MAX_OPERANDS], result = -1;
    for (int o = 0; o < maker->operands; o++)
        place[o] = -1;
    for (int i = 0; i < maker->count; i++) {
        mfi_instr in = maker->instr[i];
        if (in.kind == MFI_STORE) {
            result = moved[in.a];
            mf_dtype dtype = maker->operand[in.operand].view.dtype;
            mfi_instr cast = {.kind = MFI_CAST,
                              .ctype = (uint8_t)mfi_compute_type(dtype),
                              .from = maker->instr[in.a].ctype,
                              .dtype = (uint8_t)dtype,
                              .saturate = in.saturate,
                              .operand = -1,
                              .a = in.a,
                              .b = -1,
                              .c = -1};
            if (round || cast.from != cast.ctype || in.saturate)
                result = add(c, &cast, moved);
            continue;
        }
        if (in.kind == MFI_ACC)
            in.axis = 1;
        if (in.kind == MFI_LOAD && place[in.operand] < 0)
            place[in.operand] = add_operand(c, &maker->operand[in.operand]);
        in.operand = in.kind == MFI_LOAD ? place[in.operand] : in.operand;
        moved[i] = add(c, &in, moved);
    }
    return result;
}

/* p's own chain, with the maker's before what reads it. */
static void join_chains(mfi_chain *c, const mfi_problem *p, const mfi_problem *maker, int operand, bool round)
{
    int16_t moved[MFI_MAX_INSTR] = {0}, place[MFI_MAX_OPERANDS];
    memset(c, 0, sizeof *c);
    for (int o = 0; o < p->chain.operands; o++)
        place[o] = o == operand ? (int16_t)-1 : add_operand(c, &p->chain.operand[o]);
    moved[0] = add(c, &p->chain.instr[0], moved);
    int16_t made = add_made(c, &maker->chain, round);
    for (int i = 1; i < p->chain.count; i++) {
        mfi_instr in = p->chain.instr[i];
        if (in.kind == MFI_LOAD && in.operand == operand) {
            moved[i] = made;
            continue;
        }
        in.operand = in.kind == MFI_LOAD || in.kind == MFI_STORE ? place[in.operand] : in.operand;
        moved[i] = add(c, &in, moved);
    }
}

mf_status mfi_pair_matmul(mfi_problem **out, int *maker, const mfi_schedule *s, int index, bool round)
{
    int operand = -1;
    *out = NULL;
    *maker = find_maker(&operand, s, index);
    if (*maker < 0)
        return MF_OK;
    const mfi_problem *p = s->step[index], *first = s->step[*maker];
    if (p->chain.count + first->chain.count > MFI_MAX_INSTR || p->chain.instr[0].kind != MFI_ACC ||
        p->chain.operands + first->chain.operands > MFI_MAX_OPERANDS)
        return MF_OK;
    mfi_problem *pair = mfi_problem_copy(p);
    if (pair && (pair->head = mfi_problem_copy(first)))
        pair->head->head = mfi_problem_copy(p);
    if (!pair || !pair->head || !pair->head->head) {
        mfi_problem_free(pair);
        return MFI_NO_MEMORY(sizeof *pair);
    }
    pair->anchor = MFI_MATMUL_PAIR;
    join_chains(&pair->chain, p, first, operand, round);
    *out = pair;
    return MF_OK;
}
