/* A transform whose result is read in part, as of its lowest terms: it then need not store the rest. */
#include "schedule.h"

/* Terms of an axis in memory: `all` of them, `step` elements apart; what else there is lies between or beyond them. */
typedef struct axis {
    int64_t all, step;
} axis;

/* How many of the first terms hold what a view covers; all where that is unknown. */
static int64_t reach(const mfi_view *v, int ndim, const int64_t *shape, const axis *a)
{
    const int64_t block = a->all * a->step;
    int64_t last = v->offset % block; /* the farthest place in a block */
    for (int d = 0; d < ndim; d++) {
        if (shape[d] <= 1 || v->strides[d] % block == 0)
            continue;
        if (v->strides[d] < 0)
            return a->all;
        last += (shape[d] - 1) * v->strides[d];
    }
    return mfi_min64(last / a->step + 1, a->all);
}

static int64_t matmul_reach(const mfi_problem *p, int slot, const axis *a)
{
    const mfi_matmul *mm = &p->u.matmul;
    int64_t shape[MF_MAX_DIMS], most = 0;
    int m = p->ndim - 2, n = p->ndim - 1;
    memcpy(shape, p->shape, sizeof shape);
    shape[m] = mm->m;
    shape[n] = mm->k;
    if (mm->a.slot == slot)
        most = reach(&mm->a, p->ndim, shape, a);
    shape[m] = mm->k;
    shape[n] = mm->n;
    if (mm->b.slot == slot)
        most = mfi_max64(most, reach(&mm->b, p->ndim, shape, a));
    return most;
}

static int64_t anchor_reach(const mfi_problem *p, int slot, const axis *a)
{
    if (p->anchor == MFI_MATMUL_PAIR)
        return mfi_max64(matmul_reach(p, slot, a), matmul_reach(p->head, slot, a));
    if (p->anchor == MFI_MATMUL)
        return matmul_reach(p, slot, a);
    if (p->anchor == MFI_FFT && p->u.fft.in.slot == slot) {
        int64_t shape[MF_MAX_DIMS];
        memcpy(shape, p->shape, sizeof shape);
        memcpy(shape + p->ndim - p->u.fft.naxes, p->u.fft.in_extent, (size_t)p->u.fft.naxes * sizeof *shape);
        return reach(&p->u.fft.in, p->ndim, shape, a);
    }
    for (int i = 0; p->anchor == MFI_FACTOR && i < MFI_FACTOR_INPUTS; i++)
        if (p->u.factor.in[i].view.slot == slot)
            return a->all;
    return p->anchor == MFI_SOLVE && (p->u.solve.a.slot == slot || p->u.solve.b.slot == slot) ? a->all : 0;
}

static int64_t step_reach(const mfi_problem *p, int slot, const axis *a)
{
    int64_t most = mfi_max64(anchor_reach(p, slot, a), p->anchor == MFI_FFT_PAIR ? step_reach(p->head, slot, a) : 0);
    for (int o = 0; o < p->chain.operands; o++) {
        const mfi_operand *operand = &p->chain.operand[o];
        int64_t shape[MF_MAX_DIMS];
        for (int d = 0; d < p->ndim; d++)
            shape[d] = operand->extent[d] >= 0 ? operand->extent[d] : p->shape[d];
        if (operand->view.slot == slot)
            most = mfi_max64(most, reach(&operand->view, p->ndim, shape, a));
    }
    return most;
}

/* The store's terms lie in blocks, with nothing of the same store's between them but whole other signals. */
static bool in_blocks(const mfi_view *v, const mfi_problem *p, const axis *a)
{
    int64_t between = 0;
    for (int d = 0; d < p->ndim - 1; d++) {
        if (p->shape[d] <= 1 || v->strides[d] % (a->all * a->step) == 0)
            continue;
        between += (p->shape[d] - 1) * v->strides[d];
        if (v->strides[d] < 0)
            return false;
    }
    return a->step > 0 && between < a->step && v->offset % (a->all * a->step) == 0;
}

int64_t mfi_terms_read(const mfi_schedule *s, int index)
{
    const mfi_problem *p = s->step[index];
    const mfi_view *store = mfi_only_store(p);
    axis a = {p->shape[p->ndim - 1], store ? store->strides[p->ndim - 1] : 0};
    int64_t most = 1;
    bool suits = (p->anchor == MFI_FFT || p->anchor == MFI_FFT_PAIR) && p->u.fft.naxes == 1 &&
                 p->u.fft.kind != MF_IRFFT; /* which stores pairs */
    if (!suits || a.all < 2 || !store || store->slot < s->inputs + s->outputs || !in_blocks(store, p, &a))
        return a.all;
    for (int i = 0; i < s->steps; i++)
        if (i != index)
            most = mfi_max64(most, step_reach(s->step[i], store->slot, &a));
    return most;
}

/* The one operand through which the map reads what `store` holds, point for point; -1: it does not. */
static int same_points(const mfi_problem *map, const mfi_problem *p, const mfi_view *store)
{
    int found = -1;
    if (map->anchor != MFI_MAP || map->nreduce || map->ndim != p->ndim)
        return -1;
    for (int o = 0; o < map->chain.operands; o++)
        if (map->chain.operand[o].view.slot == store->slot)
            found = o;
    if (found < 0 || map->chain.operand[found].view.offset != store->offset)
        return -1;
    for (int d = 0; d < p->ndim; d++) {
        const mfi_operand *operand = &map->chain.operand[found];
        bool same = p->shape[d] == 1 || operand->view.strides[d] == store->strides[d];
        if (map->shape[d] != p->shape[d] || operand->extent[d] >= 0 || !same)
            return -1;
    }
    return found;
}

static int16_t renamed(const int16_t *moved, int16_t value)
{
    return value < 0 ? -1 : moved[value];
}

/* The map's chain, on what `acc` gives in place of operand `through`. */
static void chain_on(mfi_chain *out, const mfi_chain *map, int through, mfi_instr acc)
{
    int16_t moved[MFI_MAX_INSTR];
    *out = *map;
    out->count = 0;
    out->instr[out->count++] = acc;
    for (int i = 0; i < map->count; i++) {
        mfi_instr in = map->instr[i];
        moved[i] = 0;
        if (in.kind == MFI_LOAD && in.operand == through)
            continue;
        in.a = renamed(moved, in.a);
        in.b = renamed(moved, in.b);
        in.c = renamed(moved, in.c);
        in.operand = (int16_t)(in.operand - (in.operand > through));
        moved[i] = (int16_t)out->count;
        out->instr[out->count++] = in;
    }
    out->operands--;
    memmove(out->operand + through, out->operand + through + 1,
            sizeof *out->operand * (size_t)(out->operands - through));
}

mf_status mfi_narrow_with(mfi_problem **out, const mfi_schedule *s, int index)
{
    const mfi_problem *p = s->step[index], *map = index + 1 < s->steps ? s->step[index + 1] : NULL;
    const mfi_view *store = mfi_only_store(p);
    *out = NULL;
    if (!map || p->anchor != MFI_FFT || p->chain.count != 2 || !store || !mfi_is_private(s, store->slot) ||
        store->dtype != mfi_ctype_dtype((mfi_ctype)p->chain.instr[0].ctype) || map->chain.count >= MFI_MAX_INSTR)
        return MF_OK;
    int through = same_points(map, p, store);
    if (through < 0)
        return MF_OK;
    *out = mfi_problem_copy(p);
    if (!*out)
        return MFI_NO_MEMORY(sizeof *p);
    chain_on(&(*out)->chain, &map->chain, through, p->chain.instr[0]);
    return MF_OK;
}

mf_status mfi_widen(mfi_schedule *s, int index)
{
    mfi_problem *p = s->step[index], *rest;
    const mfi_view *store = mfi_only_store(p);
    int64_t kept = p->shape[p->ndim - 1], room = 1, points = 1;
    p->shape[p->ndim - 1] = mfi_fft_terms(&p->u.fft);
    for (int d = 0; d < p->ndim; d++)
        points *= p->shape[d];
    for (int d = 0; store && d < s->buffer[store->slot].ndim; d++)
        room *= s->buffer[store->slot].shape[d];
    if (store && s->buffer[store->slot].kind == MFI_BUF_TEMP && room == points)
        return MF_OK;
    mf_dtype dtype = mfi_ctype_dtype((mfi_ctype)p->chain.instr[0].ctype);
    int slot = mfi_schedule_temp(s, dtype, p->ndim, p->shape);
    MF_REQUIRE(slot >= 0, MF_E_MEMORY, "out of memory for the plan's buffers");
    MF_TRY(mfi_split(&rest, p, 0, slot, dtype));
    rest->shape[rest->ndim - 1] = kept;
    return mfi_schedule_insert(s, index + 1, rest);
}
