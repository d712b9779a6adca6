/* FFT_PAIR on the CPU: threads take blocks of the batch through all parts, and what passes from part to part stays in a buffer of
 * the thread that the slot of the temporary stands for. */
#include "fft_cpu.h"

enum {
    MOST_PARTS = 3,
    MOST_PASSED = 256 << 10, /* bytes between the parts, of one item */
    LEAST_PASSED = 32 << 10  /* and of what a thread takes at least */
};

typedef struct part {
    const mfi_problem *p;
    mfi_cpu_chain *chain; /* a map */
    void *fft;            /* or a transform */
    /* what it passes on: the temporary's slot, bytes of an item, of all before the first */
    int slot;
    int64_t item_bytes, offset;
} part;

typedef struct pair_state {
    int parts, threads, slots;
    part part[MOST_PARTS];
    int64_t items, block, grain; /* blocks that are worth a thread */
} pair_state;

static const mfi_view *only_store(const mfi_problem *p)
{
    for (int i = 0; i < p->chain.count; i++)
        if (p->chain.instr[i].kind == MFI_STORE)
            return &p->chain.operand[p->chain.instr[i].operand].view;
    return NULL;
}

/* Of one item: the elements that a part makes of it. */
static int64_t item_points(const mfi_problem *p)
{
    return p->shape[p->ndim - 1];
}

static int64_t item_count(const mfi_problem *p)
{
    return mfi_product(p->shape, p->ndim - 1);
}

/* Items lie behind each other in the temporary. */
static bool in_order(const mfi_problem *p)
{
    const mfi_view *view = only_store(p);
    int64_t expected = 1;
    for (int d = p->ndim - 1; d >= 0; d--) {
        if (p->shape[d] != 1 && view->strides[d] != expected)
            return false;
        expected *= p->shape[d];
    }
    return true;
}

static int64_t passed_bytes(const mfi_problem *p)
{
    return item_points(p) * (int64_t)mf_dtype_size(only_store(p)->dtype);
}

bool mfi_fft_pair_query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    int64_t items = item_count(p), each = 0;
    for (const mfi_problem *h = p->head; h; h = h->head) {
        MF_REFUSE_UNLESS(in_order(h), LAYOUT, "what passes between the parts has another order than the batch");
        each += passed_bytes(h);
    }
    MF_REFUSE_UNLESS(items >= c->threads && each <= MOST_PASSED, SIZE,
                     "%lld transforms of %lld bytes between them leave threads idle or the cache too small",
                     (long long)items, (long long)each);
    return true;
}

static int highest_slot(const mfi_problem *p)
{
    int most = p->anchor == MFI_FFT ? p->u.fft.in.slot : 0, below = p->head ? highest_slot(p->head) : 0;
    for (int o = 0; o < p->chain.operands; o++)
        most = p->chain.operand[o].view.slot > most ? p->chain.operand[o].view.slot : most;
    return below > most ? below : most;
}

static mf_status add_part(pair_state *s, const mfi_problem *p, const mfi_fft_engine *engine, bool last)
{
    part *part = &s->part[s->parts++];
    part->p = p;
    part->slot = -1;
    if (!last) {
        part->slot = only_store(p)->slot;
        part->item_bytes = passed_bytes(p);
        part->offset = only_store(p)->offset * (int64_t)mf_dtype_size(only_store(p)->dtype);
    }
    if (p->anchor == MFI_MAP)
        return mfi_cpu_chain_new(&part->chain, p);
    MF_TRY(mfi_fft_cpu_new(&part->fft, p, engine, 1, s->parts > 1));
    s->block = mfi_min64(s->block, mfi_fft_cpu_block(part->fft));
    return MF_OK;
}

mf_status mfi_fft_pair_new(void **state, const mfi_problem *p, const mfi_fft_engine *engine, int threads)
{
    const mfi_problem *chain[MOST_PARTS] = {p, p->head, p->head->head};
    int count = p->head->head ? 3 : 2;
    pair_state *s = mfi_calloc(1, sizeof *s);
    *state = NULL;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->threads = threads;
    s->slots = highest_slot(p) + 1;
    s->items = item_count(p);
    s->block = mfi_max64(s->items / (2 * (int64_t)threads), 1);
    mf_status status = MF_OK;
    while (count-- > 0 && status == MF_OK)
        status = add_part(s, chain[count], engine, count == 0);
    if (status != MF_OK) {
        mfi_fft_pair_free(s);
        return status;
    }
    s->grain = mfi_ceil_div(LEAST_PASSED, s->block * passed_bytes(p->head));
    *state = s;
    return MF_OK;
}

void mfi_fft_pair_free(void *state)
{
    pair_state *s = state;
    for (int i = 0; s && i < s->parts; i++) {
        mfi_cpu_chain_free(s->part[i].chain);
        mfi_fft_cpu_free(s->part[i].fft);
    }
    mf_free(s);
}

typedef struct pair_job {
    const pair_state *s;
    void *const *slots;
    mfi_first_error *error;
} pair_job;

/* What a thread works with: the slots as its parts see them. */
typedef struct desk {
    void **slots;
    char *passed[MOST_PARTS];
    void *buffers[MOST_PARTS];
} desk;

static void clear_desk(desk *d, const pair_state *s)
{
    for (int i = 0; i < s->parts; i++) {
        mfi_free_aligned(d->passed[i]);
        mfi_fft_cpu_release(d->buffers[i]);
    }
    mf_free(d->slots);
}

static bool set_desk(desk *d, const pair_state *s, void *const *slots)
{
    *d = (desk){.slots = mfi_alloc(sizeof *d->slots * (size_t)s->slots)};
    if (!d->slots)
        return false;
    memcpy(d->slots, slots, sizeof *d->slots * (size_t)s->slots);
    for (int i = 0; i < s->parts; i++) {
        const part *part = &s->part[i];
        if (part->slot >= 0 && !(d->passed[i] = mfi_alloc_aligned((size_t)(s->block * part->item_bytes))))
            return false;
        if (part->fft && !(d->buffers[i] = mfi_fft_cpu_buffers(part->fft)))
            return false;
    }
    return true;
}

static void run_items(const pair_state *s, desk *d, int64_t first, int64_t items, mfi_first_error *error)
{
    for (int i = 0; i < s->parts; i++) {
        const part *part = &s->part[i];
        if (part->slot >= 0) /* item `first` of the temporary is where the thread's buffer begins */
            d->slots[part->slot] =
                (void *)((uintptr_t)d->passed[i] - (uintptr_t)(part->offset + first * part->item_bytes));
        int64_t points = item_points(part->p);
        if (part->fft)
            mfi_fft_cpu_items(part->fft, d->slots, first, items, d->buffers[i], error);
        else
            mfi_chain_points(part->p, part->chain, d->slots, first * points, (first + items) * points, NULL, 0);
    }
}

static void block_piece(void *context, int64_t begin, int64_t end)
{
    const pair_job *job = context;
    const pair_state *s = job->s;
    desk d;
    if (set_desk(&d, s, job->slots))
        for (int64_t i = begin; i < end; i++)
            run_items(s, &d, i * s->block, mfi_min64(s->block, s->items - i * s->block), job->error);
    else
        mfi_note(job->error, MF_E_MEMORY);
    clear_desk(&d, s);
}

mf_status mfi_fft_pair_run(void *state, const mfi_run *run)
{
    const pair_state *s = state;
    mfi_first_error error = {MF_OK};
    pair_job job = {s, run->slots, &error};
    mfi_parallel_for(mfi_ceil_div(s->items, s->block), s->grain, s->threads, block_piece, &job);
    return mfi_noted(&error, "FFT");
}
