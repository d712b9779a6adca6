/* How a step's kernel is laid out: vector width, threads of a row, split rows; and its arguments. */
#include "emit.h"

#include <stdlib.h>

/* ---- operands ---- */

mfi_access mfi_operand_access(const mfi_problem *p, int operand)
{
    int64_t stride = p->chain.operand[operand].view.strides[p->ndim - 1];
    return stride == 1 ? MFI_ACCESS_UNIT : stride == 0 ? MFI_ACCESS_REPEAT : MFI_ACCESS_STRIDED;
}

int mfi_view_vector_alignment(const mfi_view *view, const mfi_problem *p, int vector)
{
    int64_t size = (int64_t)mf_dtype_size(view->dtype);
    int64_t a = mfi_min64(mfi_min64(view->alignment, 16), vector * size);
    for (int d = 0; vector > 1 && d < p->ndim - 1; d++)
        while (a > 1 && p->shape[d] > 1 && view->strides[d] * size % a)
            a /= 2;
    return (int)mfi_max64(a, 1);
}

bool mfi_chain_has_extents(const mfi_chain *chain)
{
    for (int o = 0; o < chain->operands; o++)
        for (int d = 0; d < MF_MAX_DIMS; d++)
            if (chain->operand[o].extent[d] >= 0)
                return true;
    return false;
}

bool mfi_chain_is_elementwise(const mfi_chain *c)
{
    for (int i = 0; i < c->count; i++) {
        const mfi_instr *in = &c->instr[i];
        if (in->kind == MFI_REDUCE || in->level ||
            (in->kind == MFI_APPLY && in->op != MF_OP_WHERE && !mfi_op_defined((mf_op)in->op, (mfi_ctype)in->from)))
            return false;
    }
    return true;
}

bool mfi_is_row_store(const mfi_problem *p, const mfi_instr *in)
{
    for (int d = p->ndim - p->nreduce; d < p->ndim; d++)
        if (p->chain.operand[in->operand].view.strides[d])
            return false;
    return p->nreduce > 0;
}

/* Is this an operand that a thread reads or writes at every point? */
static bool is_point_access(const mfi_problem *p, const mfi_instr *in)
{
    if (in->kind == MFI_LOAD)
        return in->level == 0;
    return in->kind == MFI_STORE && !mfi_is_row_store(p, in);
}

/* ---- vectors ---- */

int mfi_shape_vector(const mfi_problem *p)
{
    int last = p->ndim - 1, vector = 1;
    for (int i = 0; i < p->chain.count; i++) {
        const mfi_instr *in = &p->chain.instr[i];
        if (!is_point_access(p, in) || mfi_operand_access(p, in->operand) != MFI_ACCESS_UNIT)
            continue;
        int wanted = 16 / (int)mf_dtype_size(p->chain.operand[in->operand].view.dtype);
        vector = wanted > vector ? wanted : vector;
    }
    vector = vector > 8 ? 8 : vector;
    bool flat = p->ndim == 1 && p->nreduce == 0;
    while (vector > 1 && (p->shape[last] < vector || (!flat && p->shape[last] % vector)))
        vector /= 2;
    for (int i = 0; i < p->chain.count; i++) {
        const mfi_instr *in = &p->chain.instr[i];
        if (!is_point_access(p, in))
            continue;
        const mfi_operand *o = &p->chain.operand[in->operand];
        if (o->extent[last] >= 0)
            return 1;
        if (mfi_operand_access(p, in->operand) != MFI_ACCESS_UNIT)
            continue;
        int size = (int)mf_dtype_size(o->view.dtype);
        while (vector > 1 && mfi_view_vector_alignment(&o->view, p, vector) < (vector * size < 16 ? vector * size : 16))
            vector /= 2;
    }
    return vector;
}

/* Bytes that a thread loads for one vector. */
static int vector_bytes(const mfi_problem *p, int vector)
{
    int bytes = 0;
    for (int o = 0; o < p->chain.operands; o++)
        for (int i = 0; i < p->chain.count; i++) {
            const mfi_instr *in = &p->chain.instr[i];
            if (in->kind != MFI_LOAD || in->level != 0 || in->operand != o)
                continue;
            int size = (int)mf_dtype_size(p->chain.operand[o].view.dtype);
            bytes += mfi_operand_access(p, o) == MFI_ACCESS_REPEAT ? size : vector * size;
            break;
        }
    return bytes ? bytes : 1;
}

static int power_at_least(int64_t n)
{
    int power = 1;
    while (power < n && power < 1 << 20)
        power *= 2;
    return power;
}

static int power_at_most(int64_t n, int limit)
{
    int power = 1;
    while (power * 2 <= n && power * 2 <= limit)
        power *= 2;
    return power;
}

/* Do 32-bit indices and offsets reach everything? */
bool mfi_shape_needs_wide(const mfi_problem *p)
{
    const double limit = 0x7ff00000; /* some are stepped past the end before they are compared */
    if ((double)mfi_problem_points(p) > limit)
        return true;
    for (int o = 0; o < p->chain.operands; o++) {
        double reach = 0;
        for (int d = 0; d < p->ndim; d++)
            reach += (double)llabs(p->chain.operand[o].view.strides[d]) * (double)p->shape[d];
        if (reach > limit)
            return true;
    }
    return false;
}

/* ---- maps ---- */

/* The dim along which some operand is contiguous that is not along the last one, where others are; -1: none. */
static int crossing_dim(const mfi_problem *p)
{
    int last = p->ndim - 1, found = -1;
    for (int o = 0; o < p->chain.operands; o++) {
        const int64_t *strides = p->chain.operand[o].view.strides;
        if (strides[last] == 1 || strides[last] == 0)
            continue;
        for (int d = 0; d < last; d++)
            if (strides[d] == 1 && p->shape[d] >= 16)
                found = d;
    }
    return p->shape[last] >= 16 ? found : -1;
}

static void choose_map(mfi_shape *l, const mfi_problem *p, const mfi_caps *caps)
{
    int64_t points = mfi_problem_points(p);
    l->tile_dim = crossing_dim(p);
    if (l->tile_dim >= 0) {
        l->skeleton = MFI_SK_TILES;
        l->threads = 256;
        l->vector = l->items = 1;
        return;
    }
    l->vector = mfi_shape_vector(p);
    l->tail = points % l->vector != 0;
    /* One H200, a copy and a gelu: 4.23 TB/s both; 256 threads of 4 vectors 4.04 and 4.17, 128 of 1 vector 4.27
     * and 4.19. */
    l->threads = 128;
    l->items = power_at_most(32 / vector_bytes(p, l->vector), l->vector > 1 ? 2 : 8);
    while (l->items > 1 && points / l->vector < (int64_t)caps->multiprocessors * 4 * l->threads * l->items)
        l->items /= 2; /* more blocks rather than more work each */
}

/* ---- reductions ---- */

void mfi_shape_swap_dims(mfi_problem *p, int x, int y)
{
#define SWAP(array)                                                                                                    \
    do {                                                                                                               \
        int64_t t_ = (array)[x];                                                                                       \
        (array)[x] = (array)[y];                                                                                       \
        (array)[y] = t_;                                                                                               \
    } while (0)
    SWAP(p->shape);
    for (int o = 0; o < p->chain.operands; o++) {
        SWAP(p->chain.operand[o].view.strides);
        SWAP(p->chain.operand[o].extent);
    }
#undef SWAP
    for (int i = 0; i < p->chain.count; i++)
        if (p->chain.instr[i].kind == MFI_INDEX && (p->chain.instr[i].axis == x || p->chain.instr[i].axis == y))
            p->chain.instr[i].axis = (uint8_t)(x + y - p->chain.instr[i].axis);
}

/* The point operand that moves most memory. */
static const mfi_view *lead_view(const mfi_problem *p)
{
    const mfi_view *lead = NULL;
    int64_t most = -1;
    for (int i = 0; i < p->chain.count; i++) {
        if (!is_point_access(p, &p->chain.instr[i]))
            continue;
        const mfi_view *view = &p->chain.operand[p->chain.instr[i].operand].view;
        int64_t bytes = mfi_view_bytes(view, p->ndim, p->shape);
        if (bytes > most) {
            most = bytes;
            lead = view;
        }
    }
    return lead;
}

/* Is memory contiguous across rows rather than along them? Makes that dim the last of the row dims. */
static bool across_rows(mfi_problem *p)
{
    const mfi_view *lead = lead_view(p);
    int rows = p->ndim - p->nreduce;
    if (!lead || lead->strides[p->ndim - 1] == 1)
        return false;
    for (int d = 0; d < rows; d++)
        if (lead->strides[d] == 1 && p->shape[d] >= 8) {
            mfi_shape_swap_dims(p, d, rows - 1);
            return true;
        }
    return false;
}

static void split_rows(mfi_shape *l, int64_t splits)
{
    int64_t step = (int64_t)l->lanes * l->items;
    l->chunk = mfi_ceil_div(mfi_ceil_div(l->columns_count, splits), step) * step;
    l->splits = mfi_ceil_div(l->columns_count, l->chunk);
    l->cached = false;
}

static void choose_columns(mfi_shape *l, const mfi_problem *p, const mfi_caps *caps)
{
    int64_t count = l->columns_count = mfi_problem_points(p) / mfi_max64(mfi_problem_rows(p), 1);
    int64_t blocks = mfi_ceil_div(mfi_problem_rows(p), 32);
    l->vector = 1;
    l->lanes = blocks < caps->multiprocessors * 2 && count >= 64 ? 32 : 8;
    int limit = power_at_most(128 / vector_bytes(p, 1), 8);
    int64_t each = mfi_ceil_div(count, l->lanes);
    l->cached = each <= limit;
    l->items = l->cached ? power_at_least(each) : limit;
    if (blocks < caps->multiprocessors && count >= 2048) {
        l->lanes = 8;
        l->items = limit;
        split_rows(l, mfi_min64(4 * caps->multiprocessors / blocks, count / 256));
    }
    l->threads = 32 * l->lanes;
}

static void choose_rows(mfi_shape *l, const mfi_problem *p, const mfi_caps *caps)
{
    int64_t rows = mfi_problem_rows(p);
    l->vector = mfi_shape_vector(p);
    int64_t count = l->columns_count = mfi_problem_points(p) / mfi_max64(rows, 1) / l->vector;
    int bytes = vector_bytes(p, l->vector), limit = power_at_most(128 / bytes, 8);
    l->items = 1;
    l->cached = true;
    l->lanes = power_at_least(count);
    if (count > 32) {
        l->lanes = 32;
        while (l->lanes < 1024 && l->lanes * (limit < 4 ? limit : 4) < count)
            l->lanes *= 2;
        l->items = power_at_least(mfi_ceil_div(count, l->lanes));
        l->cached = l->items <= limit && (l->lanes < 1024 || l->items * bytes <= 64);
    }
    if (!l->cached) {
        l->lanes = 512;
        l->items = limit < 4 ? limit : 4;
    }
    if (rows * 2 < caps->multiprocessors && count >= 4096) {
        l->lanes = 256;
        l->items = limit < 4 ? limit : 4;
        split_rows(l, mfi_min64(2 * caps->multiprocessors / rows, count / (l->lanes * l->items)));
    }
    l->threads = l->lanes > 256 ? l->lanes : 256;
    while (l->threads > 64 && l->threads > l->lanes && l->threads / l->lanes > rows)
        l->threads /= 2;
}

/* ---- levels ---- */

static bool is_row_constant(const mfi_problem *p, const mfi_operand *o)
{
    for (int d = p->ndim - p->nreduce; d < p->ndim; d++)
        if (o->view.strides[d] || o->extent[d] >= 0)
            return false;
    return true;
}

/* Levels as kernels want them: a value that some point-dependent value goes into has level 0, one that only reductions,
 * constants and repeated loads go into has the number of reductions below it. */
static void assign_levels(mfi_problem *p)
{
    mfi_chain *c = &p->chain;
    int depth[MFI_MAX_INSTR];
    bool moves[MFI_MAX_INSTR];
    c->phases = 0;
    for (int i = 0; i < c->count; i++) {
        mfi_instr *in = &c->instr[i];
        const int16_t operands[3] = {in->a, in->b, in->c};
        depth[i] = 0;
        moves[i] = in->kind == MFI_ACC || (in->kind == MFI_INDEX && in->axis >= p->ndim - p->nreduce) ||
                   (in->kind == MFI_LOAD && !is_row_constant(p, &c->operand[in->operand]));
        for (int k = 0; k < 3; k++)
            if (operands[k] >= 0) {
                depth[i] = depth[operands[k]] > depth[i] ? depth[operands[k]] : depth[i];
                moves[i] |= moves[operands[k]];
            }
        if (in->kind == MFI_REDUCE) {
            moves[i] = false;
            c->phases = ++depth[i] > c->phases ? depth[i] : c->phases;
        }
        in->level = (uint8_t)(moves[i] ? 0 : depth[i]);
    }
}

void mfi_shape_choose(mfi_shape *l, mfi_problem *p, const mfi_caps *caps)
{
    *l = (mfi_shape){.vector = 1, .threads = 256, .items = 1, .lanes = 1, .splits = 1, .launches = 1, .tile_dim = -1};
    if (p->ndim == 0) {
        p->ndim = 1;
        p->shape[0] = 1;
    }
    assign_levels(p);
    if (p->chain.phases == 0)
        p->nreduce = 0;
    if (p->anchor == MFI_MATMUL) {
        (void)mfi_shape_choose_gemm(l, p, caps, 0);
    } else if (p->nreduce == 0) {
        l->skeleton = MFI_SK_MAP;
        choose_map(l, p, caps);
    } else {
        l->skeleton = MFI_SK_REDUCE;
        l->columns = across_rows(p);
        if (l->columns)
            choose_columns(l, p, caps);
        else
            choose_rows(l, p, caps);
        if (l->splits > 1)
            l->launches = p->chain.phases + 1;
    }
    l->wide = mfi_shape_needs_wide(p);
}

/* Results of a thread, as many as leave each one some. */
static void choose_small(mfi_shape *l, const mfi_problem *p)
{
    const mfi_matmul *mm = &p->u.matmul;
    int64_t results = mfi_problem_points(p);
    int most = mfi_ctype_size(mm->acc) > 8 ? 2 : 4;
    l->skeleton = MFI_SK_GEMM_SMALL;
    l->own_m = l->own_n = 1;
    while (l->own_m * l->own_n * l->threads * 2 <= results && (l->own_m < most || l->own_n < most)) {
        bool rows =
            l->own_n >= most || l->own_n >= mm->n || (l->own_m < most && l->own_m <= l->own_n && l->own_m < mm->m);
        int *own = rows ? &l->own_m : &l->own_n;
        if (*own >= most || *own >= (rows ? mm->m : mm->n))
            break;
        *own *= 2;
    }
}

bool mfi_shape_choose_within(mfi_shape *l, mfi_problem *p, const mfi_caps *caps, int threads)
{
    *l = (mfi_shape){
        .vector = 1, .threads = threads, .items = 1, .lanes = 1, .splits = 1, .launches = 1, .tile_dim = -1};
    assign_levels(p);
    if (p->chain.phases == 0)
        p->nreduce = 0;
    if (p->anchor == MFI_MATMUL) {
        choose_small(l, p);
    } else if (p->nreduce == 0) {
        l->skeleton = MFI_SK_MAP;
        l->vector = mfi_shape_vector(p);
        l->tail = mfi_problem_points(p) % l->vector != 0;
    } else {
        l->skeleton = MFI_SK_REDUCE;
        choose_rows(l, p, caps);
        l->threads = threads;
    }
    l->wide = mfi_shape_needs_wide(p);
    return l->lanes <= 32 && l->splits == 1;
}

mf_status mfi_shape_set_threads(mfi_shape *l, int threads)
{
    bool power = threads >= 32 && threads <= 1024 && !(threads & (threads - 1));
    MF_REQUIRE(power, MF_E_INVALID, "blocks have 32, 64, 128, 256, 512 or 1024 threads, not %d", threads);
    bool rows = l->skeleton == MFI_SK_REDUCE && !l->columns;
    MF_REQUIRE(threads == l->threads || l->skeleton == MFI_SK_MAP || rows, MF_E_UNSUPPORTED,
               "its blocks have %d threads, not %d", l->threads, threads);
    MF_REQUIRE(!rows || threads >= l->lanes, MF_E_UNSUPPORTED,
               "its rows take %d threads each; blocks have as many or more", l->lanes);
    l->threads = threads;
    return MF_OK;
}

/* ---- launches ---- */

static bool stores_points(const mfi_problem *p)
{
    for (int i = 0; i < p->chain.count; i++)
        if (p->chain.instr[i].kind == MFI_STORE && !mfi_is_row_store(p, &p->chain.instr[i]))
            return true;
    return false;
}

int64_t mfi_shape_grid(const mfi_shape *l, const mfi_problem *p, int launch)
{
    int64_t points = mfi_problem_points(p), last = p->shape[p->ndim - 1];
    if (l->skeleton == MFI_SK_MAP)
        return mfi_max64(mfi_ceil_div(points / l->vector, (int64_t)l->threads * l->items), 1);
    if (l->skeleton == MFI_SK_TILES) {
        int64_t rows = p->shape[l->tile_dim];
        return points / rows / last * mfi_ceil_div(rows, 64) * mfi_ceil_div(last, 64);
    }
    if (l->skeleton == MFI_SK_GEMM_LANES) {
        int64_t rows = p->shape[p->ndim - 2], lanes = p->shape[l->tile_dim];
        return points / mfi_max64(rows * last * lanes, 1) * mfi_ceil_div(lanes, l->lanes) *
               mfi_ceil_div(rows, l->tile_m) * mfi_ceil_div(last, l->tile_n);
    }
    if (l->skeleton == MFI_SK_GEMM_SMALL) {
        int64_t rows = p->shape[p->ndim - 2];
        return mfi_ceil_div(points / mfi_max64(rows * last, 1) * mfi_ceil_div(rows, l->own_m) *
                                mfi_ceil_div(last, l->own_n),
                            l->threads);
    }
    if (p->anchor == MFI_MATMUL) {
        int64_t rows = p->shape[p->ndim - 2];
        return points / mfi_max64(rows * last, 1) * mfi_ceil_div(rows, l->tile_m) * mfi_ceil_div(last, l->tile_n);
    }
    bool shares = l->launches > 1 && (launch + 1 < l->launches || stores_points(p));
    return mfi_ceil_div(mfi_problem_rows(p), l->threads / l->lanes) * (shares ? l->splits : 1);
}

size_t mfi_shape_workspace(const mfi_shape *l, const mfi_problem *p)
{
    size_t reductions = 0;
    for (int i = 0; i < p->chain.count; i++)
        reductions += p->chain.instr[i].kind == MFI_REDUCE;
    return l->splits > 1 ? 16 * reductions * (size_t)mfi_problem_rows(p) * (size_t)l->splits : 0;
}

/* ---- arguments ---- */

int mfi_words_needed(const mfi_problem *p)
{
    int operands = p->chain.operands ? p->chain.operands : 1;
    int chain = 5 + 2 * p->ndim + operands + operands * p->ndim +
                (mfi_chain_has_extents(&p->chain) ? operands * p->ndim : p->ndim);
    return chain + (p->anchor == MFI_MATMUL ? 3 + 2 * p->ndim : 0);
}

static void add(mfi_words *w, int64_t value)
{
    w->word[w->count++] = (uint64_t)value;
}

/* n / d = (high half of n * magic + n) >> shift for n < 2^31: the low and the high half of the word. */
static uint64_t divisor(int64_t d)
{
    int shift = 0;
    if (d < 1 || d > 0x7fffffff)
        return 0;
    while ((int64_t)1 << shift < d)
        shift++;
    uint64_t magic = ((((uint64_t)1 << shift) - (uint64_t)d) << 32) / (uint64_t)d + 1;
    return (uint64_t)shift << 32 | (magic & 0xffffffff);
}

void mfi_words_strides(mfi_words *w, const mfi_problem *p, const mfi_view *v, int rank, bool transposed)
{
    bool batched = v->slot >= 0 && p->ndim > 0;
    for (int d = 0; d < (p->ndim > 0 ? p->ndim : 1); d++)
        add(w, batched ? v->strides[d] : 0);
    for (int d = 0; d < rank; d++)
        add(w, v->slot < 0 ? 0 : v->strides[p->ndim + (transposed ? rank - 1 - d : d)]);
}

void mfi_words_fill(mfi_words *w, const mfi_shape *l, const mfi_problem *p)
{
    bool extents = mfi_chain_has_extents(&p->chain);
    int operands = p->chain.operands ? p->chain.operands : 1;
    w->count = 0;
    w->a = w->b = -1;
    if (p->anchor == MFI_MATMUL) {
        add(w, p->u.matmul.k);
        w->a = w->count;
        add(w, 0);
        w->b = w->count;
        add(w, 0);
        for (int d = 0; d < p->ndim; d++)
            add(w, p->u.matmul.a.strides[d]);
        for (int d = 0; d < p->ndim; d++)
            add(w, p->u.matmul.b.strides[d]);
    }
    add(w, p->nreduce ? mfi_problem_rows(p) : mfi_problem_points(p));
    add(w, l->columns_count);
    add(w, l->splits);
    add(w, l->chunk);
    w->work = w->count;
    add(w, 0);
    for (int d = 0; d < p->ndim; d++)
        add(w, p->shape[d]);
    for (int d = 0; d < p->ndim; d++)
        add(w, (int64_t)divisor(d == p->ndim - 1 ? p->shape[d] / l->vector : p->shape[d]));
    w->data = w->count;
    for (int o = 0; o < operands; o++)
        add(w, 0);
    for (int o = 0; o < operands; o++)
        for (int d = 0; d < p->ndim; d++)
            add(w, p->chain.operand[o].view.strides[d]);
    for (int o = 0; o < (extents ? operands : 1); o++)
        for (int d = 0; d < p->ndim; d++)
            add(w, p->chain.operand[o].extent[d] < 0 ? INT64_MAX : p->chain.operand[o].extent[d]);
}
