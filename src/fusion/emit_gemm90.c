/* Products on sm_90a with any elementwise chain, as instances of gemm_sm90.cuh: which configuration, how each operand of the
 * chain reaches it, the arguments. emit_gemm90_text.c writes them. */
#include "emit.h"

enum { SHARED_LIMIT = 232448, MOST_SCALARS = 4, MOST_ACROSS = 2, MOST_DOWN = 4, MOST_WIDE = 8, FIRST_ROWS = 14 };

/* Those from FIRST_ROWS on reduce along rows. rate: of what the tensor cores keep up in a large product. Fitted to 15 runs of each
 * on one H200 (three shapes, five chains), so that the first choice is the fastest of them, or within 1 % of it. */
static const struct {
    int bm, bn, stages, cluster, buffers;
    bool pingpong;
    double rate;
} configurations[MFI_GEMM90_VARIANTS] = {
    {128, 256, 4, 2, 2, false, 1.00},
    {256, 128, 4, 2, 2, false, 1.00},
    {128, 256, 4, 1, 2, false, 0.98},
    {128, 256, 3, 2, 4, false, 1.00},
    {256, 128, 4, 1, 2, false, 0.98},
    {128, 128, 4, 1, 2, false, 0.83},
    {128, 128, 5, 2, 4, true, 0.88},
    {128, 128, 5, 2, 3, true, 0.88},
    {128, 128, 5, 1, 4, true, 0.85},
    {128, 192, 4, 1, 3, true, 0.93},
    {128, 192, 4, 1, 4, true, 0.91},
    {128, 192, 5, 1, 0, true, 0.96},
    {192, 128, 4, 2, 3, true, 0.91},
    {64, 256, 4, 1, 4, true, 0.69},
    /* FIRST_ROWS: */
    {128, 128, 5, 1, 3, true, 0.85},
    {128, 128, 4, 1, 4, true, 0.84},
    {128, 192, 4, 1, 2, true, 0.84},
    {128, 256, 3, 1, 4, false, 0.90},
    {128, 256, 3, 1, 2, false, 0.90},
    {64, 256, 3, 1, 4, true, 0.65},
};

/* ---- the problem as the kernel sees it ---- */

/* The chain's last two instructions reduce absolute values to the largest, one number, and store it. */
static bool ends_in_largest(const mfi_problem *p)
{
    const mfi_chain *c = &p->chain;
    const mfi_instr *reduce = &c->instr[c->count - 2], *store = &c->instr[c->count - 1];
    if (p->anchor != MFI_MATMUL || p->nreduce || c->phases != 1 || reduce->kind != MFI_REDUCE ||
        reduce->reduce != MF_MAX || store->kind != MFI_STORE || store->a != c->count - 2 || reduce->ctype != MFI_F32)
        return false;
    const mfi_instr *reduced = &c->instr[reduce->a];
    const mfi_view *to = &c->operand[store->operand].view;
    for (int d = 0; d < p->ndim; d++)
        if (to->strides[d])
            return false;
    return reduced->kind == MFI_APPLY && reduced->op == MF_OP_ABSOLUTE && reduced->from == MFI_F32 &&
           to->dtype == MF_F32;
}

mf_status mfi_gemm90_flatten(mfi_problem **out, const mfi_problem *p)
{
    mfi_problem *flat = *out = mfi_problem_copy(p);
    if (!flat)
        return MFI_NO_MEMORY(sizeof *flat);
    mfi_chain *c = &flat->chain;
    if (!ends_in_largest(p))
        return MF_OK;
    mfi_instr store = c->instr[c->count - 1];
    store.a = c->instr[c->count - 2].a;
    store.axis = 1;
    store.level = 0;
    c->instr[c->count - 2] = store;
    c->count--;
    c->phases = 0;
    return MF_OK;
}

/* ---- can it? ---- */

int64_t mfi_gemm90_ld(int64_t stride, int64_t inner, int64_t outer, mf_dtype dtype)
{
    int64_t unit = 16 / (int64_t)mf_dtype_size(dtype);
    if (outer == 1) /* it means nothing; any that is allowed */
        return mfi_ceil_div(inner, unit) * unit;
    return stride >= inner && stride % unit == 0 ? stride : -1;
}

/* Lines of `inner` elements, contiguous and aligned to 16 bytes. */
static bool lines_fit(const mfi_view *v, int64_t unit_stride, int64_t stride, int64_t inner, int64_t outer)
{
    return (unit_stride == 1 || inner == 1) && mfi_gemm90_ld(stride, inner, outer, v->dtype) > 0 && v->alignment >= 16;
}

/* Products one after the other, or one for all, along the dim before `first`, if there is one. */
static bool items_fit(const mfi_view *v, int first)
{
    const int64_t limit = (int64_t)1 << 38;
    return !first || (v->strides[0] >= 0 && v->strides[0] < limit &&
                      v->strides[0] % (16 / (int64_t)mf_dtype_size(v->dtype)) == 0);
}

/* Dims `first` and the next; *mn: stored along the result's dim, not along k. */
static bool factor_fits(const mfi_view *v, int first, int along_k, int64_t k, int64_t points, bool *mn)
{
    int64_t k_stride = v->strides[first + along_k], stride = v->strides[first + 1 - along_k];
    *mn = !lines_fit(v, k_stride, stride, k, points);
    return (!*mn || lines_fit(v, stride, k_stride, points, k)) && items_fit(v, first);
}

/* A matrix of the result's shape that the tensor memory accelerator can move. */
static bool tile_fits(const mfi_view *v, const mfi_problem *p)
{
    int64_t unit = 16 / (int64_t)mf_dtype_size(v->dtype);
    const int first = p->ndim - 2;
    const int64_t *strides = v->strides + first, rows = p->shape[first], columns = p->shape[first + 1];
    return columns % unit == 0 && lines_fit(v, strides[1], strides[0], columns, rows) && items_fit(v, first);
}

static bool is_fp8(mf_dtype dtype)
{
    return dtype == MF_E4M3 || dtype == MF_E5M2;
}

/* Everything the chain stores, at most three results. */
static bool results_fit(mfi_gemm90 *g, const mfi_problem *p, mfi_bid *bid)
{
    for (int i = 0; i < p->chain.count; i++) {
        const mfi_instr *in = &p->chain.instr[i];
        if (in->kind != MFI_STORE)
            continue;
        if (in->axis)
            g->largest = in->operand;
        if (in->axis || mfi_is_row_store(p, in))
            continue;
        const mfi_view *d = &p->chain.operand[in->operand].view;
        MF_REFUSE_UNLESS(g->results < MFI_GEMM90_RESULTS, NO_EPILOGUE, "at most %d results", MFI_GEMM90_RESULTS);
        MF_REFUSE_UNLESS(mf_dtype_size(d->dtype) <= 4, DTYPE, "results have at most 32 bits, %s has more",
                         mf_dtype_name(d->dtype));
        MF_REFUSE_UNLESS(tile_fits(d, p), LAYOUT,
                         "rows of a result are contiguous, of a multiple of 16 bytes, and aligned to them");
        g->result[g->results++] = in->operand;
    }
    MF_REFUSE_UNLESS(g->results > 0, NO_EPILOGUE, "it stores no more than values of rows");
    return true;
}

/* Reductions along rows, in f32. */
static bool rows_fit(mfi_gemm90 *g, const mfi_problem *p, mfi_bid *bid)
{
    const mfi_chain *c = &p->chain;
    int values[MFI_MAX_INSTR] = {0};
    MF_REFUSE_UNLESS(p->nreduce == 1 && !g->twin, NO_EPILOGUE, "reductions along rows only, of one product");
    for (int i = 0; i < c->count; i++) {
        const mfi_instr *in = &c->instr[i];
        const bool known =
            in->reduce == MF_SUM || in->reduce == MF_PROD || in->reduce == MF_MAX || in->reduce == MF_MIN;
        MF_REFUSE_UNLESS(in->kind != MFI_SUM_K, NO_EPILOGUE, "sums along k");
        MF_REFUSE_UNLESS(in->kind != MFI_APPLY || in->op == MF_OP_WHERE ||
                             mfi_op_defined((mf_op)in->op, (mfi_ctype)in->from),
                         NO_EPILOGUE, "an operation that is not defined for its dtype");
        MF_REFUSE_UNLESS(in->kind != MFI_REDUCE || (known && in->ctype == MFI_F32), NO_EPILOGUE,
                         "sums, products, maxima and minima in f32 only");
        if (in->kind == MFI_REDUCE && ++values[in->level] > g->values)
            g->values = values[in->level];
    }
    return true;
}

static bool suits(mfi_gemm90 *g, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_matmul *mm = &p->u.matmul;
    const bool narrow = is_fp8(mm->a.dtype);
    MF_REFUSE_UNLESS(!strcmp(c->arch, "sm_90a"), WRONG_TARGET, "its instructions are sm_90a's, this is %s", c->arch);
    MF_REFUSE_UNLESS(p->ndim == 2 || p->ndim == 3, RANK, "batches along one dim, not %d", p->ndim - 2);
    MF_REFUSE_UNLESS(mm->a.dtype == mm->b.dtype && (mm->a.dtype == MF_BF16 || mm->a.dtype == MF_F16 || narrow) &&
                         mm->acc == MFI_F32,
                     DTYPE, "factors are both bf16, both f16 or of one fp8 format");
    bool b2_mn = false;
    const int first = p->ndim - 2;
    g->batched = first;
    g->batches = first ? p->shape[0] : 1;
    g->twin = p->anchor == MFI_MATMUL_PAIR;
    MF_REFUSE_UNLESS(factor_fits(&mm->a, first, 1, mm->k, mm->m, &g->a_mn) &&
                         factor_fits(&mm->b, first, 0, mm->k, mm->n, &g->b_mn) &&
                         (!g->twin || factor_fits(&p->head->u.matmul.b, first, 0, mm->k, mm->n, &b2_mn)),
                     LAYOUT, "factors are contiguous along a dim and aligned to 16 bytes");
    MF_REFUSE_UNLESS(!narrow || (!g->twin && !g->a_mn && !g->b_mn), LAYOUT,
                     "fp8 factors are contiguous along k, and of one product");
    MF_REFUSE_UNLESS(!g->twin || b2_mn == g->b_mn, LAYOUT, "the right factors are stored along different dims");
    MF_REFUSE_UNLESS(g->batches > 0 && g->batches < 1 << 20 && mm->m > 0 && mm->n > 0 && mm->k > 0 && mm->m < 1 << 30 &&
                         mm->n < 1 << 30 && mm->k < 1 << 30,
                     SIZE, "extents from 1 to 2^30, up to 2^20 products");
    g->rows = p->chain.phases > 0;
    MF_REFUSE_UNLESS((g->rows || mfi_chain_is_elementwise(&p->chain)) && !mfi_chain_has_extents(&p->chain), NO_EPILOGUE,
                     "elementwise chains, reductions along rows, and the largest absolute value, only");
    return (!g->rows || rows_fit(g, p, bid)) && results_fit(g, p, bid);
}

/* ---- ports ---- */

int mfi_gemm90_widest(const mfi_gemm90 *g, const mfi_problem *p)
{
    int most = g->tile < 0 ? 1 : 2;
    for (int r = 0; r < g->results; r++) {
        int size = (int)mf_dtype_size(p->chain.operand[g->result[r]].view.dtype);
        most = size > most ? size : most;
    }
    return most;
}

static int chunk_columns(const mfi_gemm90 *g, const mfi_problem *p, int bn)
{
    int columns = 128 / mfi_gemm90_widest(g, p);
    return bn / (g->twin ? 2 : 1) % columns ? columns / 2 : columns;
}

int mfi_gemm90_chunk(const mfi_gemm90 *g, const mfi_problem *p)
{
    return chunk_columns(g, p, g->bn);
}

static bool widens_to_float(mf_dtype dtype)
{
    return mfi_compute_type(dtype) == MFI_F32;
}

static mfi_port port_of(const mfi_gemm90 *g, const mfi_problem *p, int operand)
{
    const mfi_view *v = &p->chain.operand[operand].view;
    const int64_t *strides = v->strides + p->ndim - 2;
    if (!widens_to_float(v->dtype))
        return MFI_PORT_DIRECT;
    if (strides[0] == 0 && strides[1] == 0 && g->scalars < MOST_SCALARS)
        return MFI_PORT_SCALAR;
    if (strides[1] == 0 && g->down < MOST_DOWN)
        return MFI_PORT_DOWN;
    if (strides[0] == 0 && g->across < MOST_ACROSS)
        return MFI_PORT_ACROSS;
    bool half = v->dtype == MF_BF16 || v->dtype == MF_F16;
    return half && mfi_gemm90_widest(g, p) < 4 && g->tile < 0 && tile_fits(v, p) ? MFI_PORT_TILE : MFI_PORT_DIRECT;
}

static bool assign_ports(mfi_gemm90 *g, const mfi_problem *p, mfi_bid *bid)
{
    g->tile = -1;
    for (int i = 0; i < p->chain.count; i++) {
        const mfi_instr *in = &p->chain.instr[i];
        int o = in->operand;
        if (in->kind != MFI_LOAD || in->level || g->port[o] != MFI_PORT_NONE)
            continue;
        const mfi_view *v = &p->chain.operand[o].view;
        MF_REFUSE_UNLESS(v->alignment >= (int)mf_dtype_size(v->dtype), LAYOUT, "operand %d is not aligned", o);
        for (int r = 0; r < g->results; r++)
            MF_REFUSE_UNLESS(v->slot != p->chain.operand[g->result[r]].view.slot, LAYOUT, "an operand is the result");
        g->port[o] = port_of(g, p, o);
        g->number[o] = g->port[o] == MFI_PORT_SCALAR   ? g->scalars++
                       : g->port[o] == MFI_PORT_ACROSS ? g->across++
                       : g->port[o] == MFI_PORT_DOWN   ? g->down++
                                                       : 0;
        g->tile = g->port[o] == MFI_PORT_TILE ? o : g->tile;
    }
    bool shared = g->tile < 0; /* does a result leave from where the tile arrives? */
    for (int r = 0; r < g->results; r++)
        shared |= mf_dtype_size(p->chain.operand[g->result[r]].view.dtype) == 2;
    g->parts = g->results + !shared;
    return true;
}

/* ---- the configuration ---- */

/* Blocks side by side that share rows; 0: none. */
static int wide(int i, const mfi_gemm90 *g, const mfi_problem *p)
{
    return g->rows ? (int)mfi_min64(mfi_ceil_div(p->u.matmul.n, configurations[i].bn), MOST_WIDE + 1) : 0;
}

static size_t shared_bytes(int i, const mfi_gemm90 *g, const mfi_problem *p)
{
    int across = wide(i, g, p), rows = configurations[i].bm / (configurations[i].pingpong ? 1 : 2);
    int told = across > 1 ? 4 * g->values * rows * across * 4 : 0;
    int stage = (configurations[i].bm + configurations[i].bn) * 128;
    int own = configurations[i].stages * stage + 2 * configurations[i].buffers * 64 * 128 +
              2 * g->across * configurations[i].bn * 4 + 16 * configurations[i].stages +
              48 * configurations[i].buffers + 16;
    int bytes = own + told + (g->rows ? 32 : 0);
    return (size_t)bytes;
}

/* Buffers of staging none: a 32-bit result straight from registers. fp8's sums have parts of a stage's beside them. */
static bool fits(int i, const mfi_gemm90 *g, const mfi_problem *p)
{
    int bn = configurations[i].bn, buffers = configurations[i].buffers;
    const int rows = configurations[i].bm / (configurations[i].pingpong ? 1 : 2);
    bool shares = !g->b_mn || bn / 64 % configurations[i].cluster == 0;
    bool halves = !g->twin || bn % 128 == 0;
    /* a tile operand stays while its rows are reduced */
    int chunks = rows / 64 * (bn / chunk_columns(g, p, bn));
    if (g->rows != (i >= FIRST_ROWS) || wide(i, g, p) > MOST_WIDE ||
        (g->rows && g->tile >= 0 && buffers < g->parts * chunks))
        return false;
    bool staged = buffers ? buffers >= 2 * g->parts : g->results == 1 && mfi_gemm90_widest(g, p) == 4;
    bool registers = !is_fp8(p->u.matmul.a.dtype) || (rows / 64 * bn <= 256 && rows / 64 * bn % 128 == 0);
    return shared_bytes(i, g, p) <= SHARED_LIMIT && shares && halves && staged && registers;
}

/* Instructions of the chain for an element, with what brings its operands and packs its result. */
static double chain_work(const mfi_problem *p)
{
    static const struct {
        mf_op op;
        int work;
    } known[] = {{MF_OP_ADD, 1},   {MF_OP_SUBTRACT, 1}, {MF_OP_MULTIPLY, 1}, {MF_OP_MAXIMUM, 2}, {MF_OP_MINIMUM, 2},
                 {MF_OP_RELU, 2},  {MF_OP_NEGATIVE, 1}, {MF_OP_ABSOLUTE, 1}, {MF_OP_WHERE, 1},   {MF_OP_SQUARE, 1},
                 {MF_OP_SILU, 16}, {MF_OP_SIGMOID, 15}, {MF_OP_GELU, 14},    {MF_OP_EXP, 10}};
    double work = 9;
    for (int i = 0; i < p->chain.count; i++) {
        const mfi_instr *in = &p->chain.instr[i];
        if (in->level)
            continue;
        int own = in->kind == MFI_LOAD ? 2 : in->kind == MFI_APPLY ? 24 : in->kind == MFI_STORE ? 3 : 0;
        for (size_t k = 0; k < MFI_COUNT(known) && in->kind == MFI_APPLY; k++)
            own = (int)known[k].op == in->op ? known[k].work : own;
        work += own;
    }
    return work;
}

/* Clusters that run together: larger ones must fit into groups of 16 multiprocessors. */
static int64_t most_clusters(const mfi_caps *c, int blocks)
{
    const int group = 16;
    int64_t most = blocks <= 2 ? c->multiprocessors / blocks : c->multiprocessors / group * (group / blocks);
    return mfi_max64(most, 1);
}

/* Every round of tiles is done whole. Cooperating warpgroups multiply, then both run the chain; in ping-pong one runs it
 * while the other multiplies, but for the last tile. */
static double estimate(int i, const mfi_gemm90 *g, const mfi_problem *p, const mfi_caps *c)
{
    const double lanes_a_us = 128 * 1700, start_us = 2.5, pair_us = 0.8;
    int rows = configurations[i].bm * configurations[i].cluster, columns = configurations[i].bn / (g->twin ? 2 : 1);
    const int across = wide(i, g, p), blocks = across ? across : configurations[i].cluster;
    int64_t tiles = mfi_ceil_div(p->u.matmul.m, rows) * mfi_ceil_div(p->u.matmul.n, columns) * g->batches;
    double rounds = (double)mfi_ceil_div(across ? tiles / across : tiles, most_clusters(c, blocks));
    double elements = (double)configurations[i].bm * columns, rate = configurations[i].rate * c->tensor_flops_per_us;
    /* fp8 as bf16: cuBLASLt's bids take it so too, and in one run on an H200 it was faster with what it can express */
    double product = (g->twin ? 4 : 2) * elements * (double)p->u.matmul.k * c->multiprocessors / rate;
    double chain = elements * chain_work(p) * (1 + 0.5 * p->chain.phases) / lanes_a_us;
    double main = configurations[i].pingpong ? rounds * (product > chain / 2 ? product : chain / 2) + chain
                                             : rounds * (product + chain);
    return main + start_us + (blocks > 1 ? pair_us : 0);
}

static void use(mfi_gemm90 *g, int i, const mfi_problem *p, const mfi_caps *c)
{
    g->bm = configurations[i].bm;
    g->bn = configurations[i].bn;
    g->stages = configurations[i].stages;
    g->cluster = configurations[i].cluster;
    g->buffers = configurations[i].buffers;
    g->pingpong = configurations[i].pingpong;
    g->tiles_m = mfi_ceil_div(p->u.matmul.m, g->bm * g->cluster);
    g->tiles_n = mfi_ceil_div(p->u.matmul.n, g->bn / (g->twin ? 2 : 1));
    g->wide = wide(i, g, p);
    g->clusters = mfi_min64(most_clusters(c, g->wide ? g->wide : g->cluster),
                            g->tiles_m * (g->wide ? 1 : g->tiles_n) * g->batches);
    g->shared = shared_bytes(i, g, p);
    g->us = estimate(i, g, p, c);
    int64_t least = 0;
    for (int group = 4; group <= 16; group *= 2) { /* the smallest footprint of the tiles that run together */
        int64_t footprint = (int64_t)group * g->bm * g->cluster + mfi_ceil_div(g->clusters, group) * g->bn;
        if (!least || footprint < least) {
            least = footprint;
            g->group = group;
        }
    }
}

bool mfi_gemm90_choose(mfi_gemm90 *g, const mfi_problem *p, const mfi_caps *c, int rank, mfi_bid *bid)
{
    bool taken[MFI_GEMM90_VARIANTS] = {false};
    memset(g, 0, sizeof *g);
    g->largest = -1;
    if (!suits(g, p, c, bid) || !assign_ports(g, p, bid))
        return false;
    g->layout = (mfi_shape){.vector = 1, .threads = 384, .splits = 1, .launches = 1, .results = true, .widened = true};
    int best = -1;
    for (int r = 0; r <= rank; r++) {
        best = -1;
        for (int i = 0; i < MFI_GEMM90_VARIANTS; i++)
            if (!taken[i] && fits(i, g, p) && (best < 0 || estimate(i, g, p, c) < estimate(best, g, p, c)))
                best = i;
        MF_REFUSE_UNLESS(best >= 0 || r, NO_EPILOGUE, "its results need more shared memory than any configuration has");
        MF_REFUSE_UNLESS(best >= 0, SIZE, "there are %d configurations", r);
        taken[best] = true;
    }
    use(g, best, p, c);
    MF_REFUSE_UNLESS(g->tiles_m * g->tiles_n * g->batches < 1 << 30, SIZE, "the result has too many tiles");
    return true;
}

/* ---- arguments ---- */

static uint64_t pair(int64_t low, int64_t high)
{
    return (uint64_t)(uint32_t)low | (uint64_t)(uint32_t)high << 32;
}

int mfi_gemm90_maps(const mfi_gemm90 *g)
{
    return 3 + g->results + g->twin;
}

/* Bits of those that are the same for all products. */
static int64_t shared_operands(const mfi_problem *p, const mfi_gemm90 *g)
{
    const mfi_view *tile = g->tile < 0 ? NULL : &p->chain.operand[g->tile].view;
    return (p->u.matmul.a.strides[0] ? 0 : 1) | (p->u.matmul.b.strides[0] ? 0 : 2) | (tile && tile->strides[0] ? 0 : 4);
}

mf_status mfi_gemm90_words(mfi_words *w, const mfi_problem *p, const mfi_gemm90 *g)
{
    const mfi_matmul *mm = &p->u.matmul;
    mfi_problem *chain = mfi_alloc(sizeof *chain);
    mfi_words *own = mfi_alloc(sizeof *own);
    mf_status status = chain && own ? MF_OK : MFI_NO_MEMORY(sizeof *chain + sizeof *own);
    memset(w, 0, sizeof *w);
    w->count = mfi_gemm90_maps(g) * MFI_GEMM90_MAP_WORDS;
    w->word[w->count++] = pair(mm->m, mm->n);
    w->word[w->count++] = pair(mm->k, g->tiles_m);
    w->word[w->count++] = pair(g->tiles_n, g->group);
    w->word[w->count++] = pair(g->batches, shared_operands(p, g));
    if (status == MF_OK) {
        *chain = *p;
        chain->anchor = MFI_MAP; /* the chain's arguments alone */
        if (w->count + mfi_words_needed(chain) > MFI_MAX_WORDS)
            status = mfi_fail(MF_E_UNSUPPORTED, "the chain's operands exceed a kernel's arguments");
    }
    if (status == MF_OK) {
        mfi_words_fill(own, &g->layout, chain);
        w->data = w->count + own->data;
        memcpy(w->word + w->count, own->word, sizeof *own->word * (size_t)own->count);
        w->count += own->count;
    }
    mf_free(chain);
    mf_free(own);
    return status;
}
