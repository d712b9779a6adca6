/* A reduction of what a product makes or reads, as part of the product's step: the gradient of a bias, the largest absolute
 * value of a result. Libraries give it with the product, for no pass over memory. */
#include "schedule.h"

enum { OF_A, OF_B, OF_RESULT };

/* What the reduction reads, in the product's terms. */
typedef struct source {
    int of;
    int16_t value; /* OF_RESULT: what is reduced */
    int store;     /* OF_RESULT: the instruction that stores it */
    int kept;      /* the product's dim that the reduction keeps; -1: none */
} source;

/* Does the reduction read all of `v`, a matrix of this shape? *kept: its dim that remains. */
static bool reads(const mfi_problem *r, const mfi_view *v, int64_t rows, int64_t columns, int *kept)
{
    const mfi_operand *load = &r->chain.operand[r->chain.instr[0].operand];
    const int64_t shape[2] = {rows, columns}, *have = load->view.strides;
    if (load->view.slot != v->slot || load->view.offset != v->offset || load->view.dtype != v->dtype)
        return false;
    for (int d = 0; d < r->ndim; d++)
        if (load->extent[d] >= 0)
            return false;
    for (*kept = 0; r->ndim == 2 && *kept < 2; ++*kept) {
        int gone = 1 - *kept;
        if (r->shape[0] == shape[*kept] && r->shape[1] == shape[gone] && have[0] == v->strides[*kept] &&
            have[1] == v->strides[gone])
            return true;
    }
    *kept = -1;
    bool contiguous = (v->strides[1] == 1 && v->strides[0] == columns) || (v->strides[0] == 1 && v->strides[1] == rows);
    return r->ndim == 1 && contiguous && have[0] == 1 && r->shape[0] == rows * columns;
}

/* One value in, one reduction, one value out. */
static bool is_reduction(const mfi_problem *r)
{
    int count[MFI_INSTR_KINDS] = {0};
    if (r->anchor != MFI_MAP || r->nreduce != 1 || r->chain.phases != 1 || r->chain.instr[0].kind != MFI_LOAD)
        return false;
    for (int i = 0; i < r->chain.count; i++)
        count[r->chain.instr[i].kind]++;
    return count[MFI_LOAD] == 1 && count[MFI_REDUCE] == 1 && count[MFI_STORE] == 1 && count[MFI_INDEX] == 0;
}

static bool find_source(source *out, const mfi_problem *p, const mfi_problem *r)
{
    const mfi_matmul *mm = &p->u.matmul;
    bool sum = r->chain.count == 3 && r->chain.instr[1].reduce == MF_SUM;
    *out = (source){.of = OF_A};
    if (sum && reads(r, &mm->a, mm->m, mm->k, &out->kept) && out->kept == 0)
        return true;
    out->of = OF_B;
    if (sum && reads(r, &mm->b, mm->k, mm->n, &out->kept) && out->kept == 1)
        return true;
    out->of = OF_RESULT;
    for (int i = 0; i < p->chain.count; i++) {
        const mfi_instr *in = &p->chain.instr[i];
        if (in->kind != MFI_STORE || !reads(r, &p->chain.operand[in->operand].view, mm->m, mm->n, &out->kept))
            continue;
        out->value = in->a;
        out->store = i;
        return true;
    }
    return false;
}

/* Nothing between the two reads what the reduction gives: it can be had at the product's place. */
static bool movable(const mfi_schedule *s, int product, int reduction)
{
    int slot = mfi_only_store(s->step[reduction])->slot;
    for (int i = reduction + 1; i <= product; i++)
        if (mfi_slot_uses(s->step[i], slot))
            return false;
    return true;
}

/* The instruction that stores into memory which only the reduction reads goes, with its operand. */
static void drop_store(mfi_chain *c, int at)
{
    int operand = c->instr[at].operand;
    memmove(c->instr + at, c->instr + at + 1, (size_t)(c->count - at - 1) * sizeof *c->instr);
    memmove(c->operand + operand, c->operand + operand + 1, (size_t)(c->operands - operand - 1) * sizeof *c->operand);
    c->count--;
    c->operands--;
    for (int i = 0; i < c->count; i++) {
        mfi_instr *in = &c->instr[i];
        in->a = (int16_t)(in->a - (in->a > at));
        in->b = (int16_t)(in->b - (in->b > at));
        in->c = (int16_t)(in->c - (in->c > at));
        in->operand = (int16_t)(in->operand - (in->operand > operand));
    }
}

static mfi_operand row_operand(const mfi_problem *r, const mfi_instr *in, int kept)
{
    mfi_operand o = r->chain.operand[in->operand];
    int64_t stride = o.view.strides[0];
    memset(o.view.strides, 0, sizeof o.view.strides);
    if (kept >= 0)
        o.view.strides[kept] = stride;
    return o;
}

/* Write the reduction's instructions after the product's. */
static void append(mfi_problem *p, const mfi_problem *r, const source *from)
{
    int16_t moved[MFI_MAX_INSTR];
    mfi_chain *c = &p->chain;
    for (int i = 0; i < r->chain.count; i++) {
        mfi_instr in = r->chain.instr[i];
        if (in.kind == MFI_LOAD) {
            moved[i] = from->value;
            continue;
        }
        in.a = in.a < 0 ? in.a : moved[in.a];
        in.b = in.b < 0 ? in.b : moved[in.b];
        in.c = in.c < 0 ? in.c : moved[in.c];
        if (in.kind == MFI_REDUCE && from->of != OF_RESULT) {
            in.kind = MFI_SUM_K;
            in.axis = (uint8_t)from->of;
            in.a = -1;
        }
        if (in.kind == MFI_STORE) {
            c->operand[c->operands] = row_operand(r, &in, from->kept);
            in.operand = (int16_t)c->operands++;
        }
        moved[i] = (int16_t)c->count;
        c->instr[c->count++] = in;
    }
    c->phases = 1;
}

mf_status mfi_beside(mfi_problem **out, const mfi_schedule *s, int product, int reduction)
{
    const mfi_problem *p = s->step[product], *r = s->step[reduction];
    source from;
    *out = NULL;
    if (p->anchor != MFI_MATMUL || p->ndim != 2 || p->chain.phases || !is_reduction(r) || !find_source(&from, p, r) ||
        !movable(s, product, reduction) || p->chain.count + r->chain.count > MFI_MAX_INSTR ||
        p->chain.operands == MFI_MAX_OPERANDS)
        return MF_OK;
    mfi_problem *joined = mfi_problem_copy(p);
    if (joined)
        joined->head = mfi_problem_copy(p);
    if (joined && joined->head)
        joined->head->head = mfi_problem_copy(r);
    if (!joined || !joined->head || !joined->head->head) {
        mfi_problem_free(joined);
        return MFI_NO_MEMORY(sizeof *joined);
    }
    if (from.of == OF_RESULT && mfi_is_private(s, r->chain.operand[r->chain.instr[0].operand].view.slot)) {
        drop_store(&joined->chain, from.store);
        from.value = (int16_t)(from.value - (from.value > from.store));
    }
    append(joined, r, &from);
    *out = joined;
    return MF_OK;
}

void mfi_schedule_absorb(mfi_schedule *s, int product, int reduction, mfi_problem *joined)
{
    mfi_problem_free(s->step[product]);
    mfi_problem_free(s->step[reduction]);
    s->step[product] = joined;
    s->steps--;
    memmove(s->step + reduction, s->step + reduction + 1, (size_t)(s->steps - reduction) * sizeof *s->step);
}

mf_status mfi_schedule_part_beside(mfi_schedule *s, int index)
{
    mfi_problem *joined = s->step[index], *product = joined->head, *reduction = product->head;
    joined->head = product->head = NULL;
    mfi_problem_free(joined);
    s->step[index] = product;
    return mfi_schedule_insert(s, index + 1, reduction);
}
