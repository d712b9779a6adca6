/* Products of few rows with any elementwise chain, as instances of gemm_skinny.cuh: which configuration, the text. */
#include "emit.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { MOST_ROWS = 64, MOST_STAGES = 8, THREADS = 256, MOST_SPLIT = 8 };

/* n * k elements of the right factor are a stage: 16 KiB where two blocks share a multiprocessor, 32 KiB where one has it.
 * across: warps that share the columns; a warp takes 32 of them, or 64. */
static const struct {
    int n, k, across, resident;
} tiles[] = {{256, 32, 8, 2}, {128, 64, 4, 2},  {64, 128, 2, 2}, {32, 256, 1, 2},
             {256, 64, 4, 1}, {128, 128, 4, 1}, {64, 256, 2, 1}};

/* ---- can it? ---- */

/* Few columns rather than few rows: the same product, transposed. */
static void turn(mfi_problem *p)
{
    int rows = p->ndim - 2, columns = p->ndim - 1;
    mfi_matmul *mm = &p->u.matmul;
    mfi_view a = mm->b, b = mm->a;
    int64_t m = mm->n, n = mm->m;
    mfi_shape_swap_dims(p, rows, columns);
    mm->a = a;
    mm->b = b;
    mm->m = m;
    mm->n = n;
    for (int i = 0; i < 2; i++) {
        int64_t *strides = i ? mm->b.strides : mm->a.strides, t = strides[rows];
        strides[rows] = strides[columns];
        strides[columns] = t;
    }
}

/* Vectors of 16 bytes along dim `along`, of `extent` elements; other dims may repeat. */
static bool in_vectors(const mfi_view *v, const mfi_problem *p, int along, int64_t extent, int64_t others)
{
    int rows = p->ndim - 2, columns = p->ndim - 1;
    if (v->strides[along] != 1 || extent % 8 || v->alignment < 16)
        return false;
    for (int d = 0; d < p->ndim; d++) {
        int64_t across = d == rows || d == columns ? others : p->shape[d];
        if (d != along && across > 1 && v->strides[d] % 8)
            return false;
    }
    return true;
}

static bool suits(mfi_gemm_skinny *g, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_matmul *mm = &p->u.matmul;
    int rows = p->ndim - 2, columns = p->ndim - 1;
    MF_REFUSE_UNLESS(c->sm >= 80, WRONG_TARGET, "sm_80 or newer is needed, this is %s", c->arch);
    MF_REFUSE_UNLESS(mm->a.dtype == mm->b.dtype && (mm->a.dtype == MF_BF16 || mm->a.dtype == MF_F16) &&
                         mm->acc == MFI_F32,
                     DTYPE, "factors are both bf16 or both f16");
    MF_REFUSE_UNLESS(mm->m <= MOST_ROWS, SIZE, "a side of the result is at most %d, this one has %lld and %lld",
                     MOST_ROWS, (long long)mm->n, (long long)mm->m);
    MF_REFUSE_UNLESS(mfi_problem_points(p) > 0 && mm->k > 0 && mm->n < 1 << 30 && mm->k < 1 << 30, SIZE,
                     "extents from 1 to 2^30");
    MF_REFUSE_UNLESS(p->nreduce == 0 && p->chain.phases == 0 && mfi_chain_is_elementwise(&p->chain), NO_EPILOGUE,
                     "elementwise chains only");
    MF_REFUSE_UNLESS(mfi_words_needed(p) <= MFI_MAX_WORDS, RANK, "%d operands of %d dims exceed a kernel's arguments",
                     p->chain.operands, p->ndim);
    MF_REFUSE_UNLESS(in_vectors(&mm->a, p, columns, mm->k, mm->m), LAYOUT,
                     "the factor of %lld rows or columns is contiguous along k, in vectors of 16 bytes",
                     (long long)mm->m);
    bool along_k = in_vectors(&mm->b, p, rows, mm->k, mm->n);
    g->b_rows = !along_k && in_vectors(&mm->b, p, columns, mm->n, mm->k);
    MF_REFUSE_UNLESS(along_k || g->b_rows, LAYOUT,
                     "the large factor is contiguous along a dim, in vectors of 16 bytes");
    return true;
}

/* ---- the configuration ---- */

static int64_t steps_of(const mfi_gemm_skinny *g, const mfi_problem *p)
{
    return mfi_ceil_div(mfi_ceil_div(p->u.matmul.k, g->k), g->split);
}

/* Bytes of a stage, and of the sums that take its place: as gemm_skinny_config counts them. */
static void use_memory(mfi_gemm_skinny *g, const mfi_caps *c, int resident)
{
    size_t budget = (c->shared_bytes + 1024) / (size_t)resident - 1024;
    size_t lines = (size_t)(g->b_rows ? g->k * (g->n + 8) : g->n * (g->k + 8));
    size_t stage = 2 * ((size_t)g->m * (size_t)(g->k + 8) + lines);
    size_t sums = (size_t)g->along * (size_t)g->m * (size_t)(g->n + 8) * 4;
    g->stages = (int)mfi_min64((int64_t)(budget / stage), MOST_STAGES);
    g->shared = g->stages * stage > sums ? g->stages * stage : sums;
    if (g->shared > budget)
        g->stages = 0;
}

/* Blocks run at once. Clusters of more than two do not find room on every multiprocessor. */
static int64_t slots_of(const mfi_gemm_skinny *g, const mfi_caps *c)
{
    int usable = g->split > 2 ? c->multiprocessors * 7 / 8 : c->multiprocessors;
    return mfi_max64(g->resident * usable / g->split * g->split, g->split);
}

/* What is under way at once makes the rate, up to what a multiprocessor takes in, and all of them together: a copy's, less
 * where lines are read in short pieces. */
static double stream_us(const mfi_gemm_skinny *g, const mfi_caps *c, int64_t blocks, double block_bytes)
{
    const double latency_us = 1.0, own_share = 1.5, piece = 2.0 * (g->b_rows ? g->n : g->k);
    double taking = (double)mfi_min64(blocks, c->multiprocessors) / c->multiprocessors * own_share;
    double rates[] = {(double)blocks * (g->stages - 1) * 2 * g->n * g->k / latency_us, taking * c->bytes_per_us,
                      c->bytes_per_us * piece / (piece + 16)};
    double rate = rates[0];
    for (size_t i = 1; i < MFI_COUNT(rates); i++)
        rate = rates[i] < rate ? rates[i] : rate;
    return blocks > 0 ? (double)blocks * block_bytes / rate : 0;
}

/* The left factor comes from the second-level cache, again for every tile. */
static double estimate(const mfi_gemm_skinny *g, const mfi_problem *p, const mfi_caps *c)
{
    const double start_us = 2.0, cluster_us = 0.4, member_us = 0.08, cache_rate = 1.3, gather_bytes_a_us = 6e4;
    double k = (double)steps_of(g, p) * g->k, right = 2 * k * g->n, left = 2 * k * (double)p->u.matmul.m;
    int64_t slots = slots_of(g, c), rounds = g->blocks / slots;
    double memory = (double)rounds * stream_us(g, c, slots, right) + stream_us(g, c, g->blocks % slots, right);
    double cached = (double)g->blocks * (right + left) / (cache_rate * c->bytes_per_us);
    double gather = 4.0 * g->m * g->n * (g->along + (g->split > 1)) / gather_bytes_a_us;
    double meet = g->split > 1 ? cluster_us + member_us * g->split : 0;
    /* N = K = 8192 on one H200: with rows of the tile, of its sharers and of short steps along k, beyond the above. */
    double shared = g->split > 4 ? 1.35 : g->split > 2 ? 1.25 : 1, rows = g->m <= 16 ? 1.08 : g->m <= 32 ? 1.2 : 1.35;
    double steps = g->k < 64 ? 1.2 : 1;
    return (memory > cached ? memory : cached) * shared * rows * steps + start_us + gather + meet;
}

/* False: there is no such way to do it. */
static bool use(mfi_gemm_skinny *g, size_t tile, int split, const mfi_problem *p, const mfi_caps *c)
{
    const mfi_matmul *mm = &p->u.matmul;
    g->n = tiles[tile].n;
    g->k = tiles[tile].k;
    g->across = tiles[tile].across;
    g->along = THREADS / 32 / g->across;
    g->resident = tiles[tile].resident;
    g->split = split;
    g->m = (int)mfi_ceil_div(mm->m, 16) * 16;
    use_memory(g, c, g->resident);
    int64_t batch = mfi_problem_points(p) / (mm->m * mm->n);
    g->blocks = batch * mfi_ceil_div(mm->n, g->n) * split;
    bool room = g->stages >= 2 && g->blocks <= 0x7fffffff;
    bool shares = split == 1 || (c->sm >= 90 && mfi_ceil_div(mm->k, g->k) >= split);
    if (room && shares)
        g->us = estimate(g, p, c);
    return room && shares;
}

/* The configuration of that rank by estimate: the number of ways before it is what it costs more than. */
static bool choose_way(mfi_gemm_skinny *g, const mfi_problem *p, const mfi_caps *c, int rank)
{
    bool taken[MFI_COUNT(tiles)][MOST_SPLIT + 1] = {{false}};
    mfi_gemm_skinny best = *g;
    for (int r = 0; r <= rank; r++) {
        bool found = false;
        size_t at = 0;
        for (size_t i = 0; i < MFI_COUNT(tiles); i++)
            for (int split = 1; split <= MOST_SPLIT; split *= 2)
                if (!taken[i][split] && use(g, i, split, p, c) && (!found || g->us < best.us)) {
                    found = true;
                    best = *g;
                    at = i;
                }
        if (!found)
            return false;
        taken[at][best.split] = true;
    }
    *g = best;
    return true;
}

bool mfi_gemm_skinny_choose(mfi_gemm_skinny *g, mfi_problem *p, const mfi_caps *c, int rank, mfi_bid *bid)
{
    memset(g, 0, sizeof *g);
    if (p->u.matmul.m > MOST_ROWS)
        turn(p);
    if (!suits(g, p, c, bid))
        return false;
    MF_REFUSE_UNLESS(rank < MFI_GEMM_SKINNY_VARIANTS && choose_way(g, p, c, rank), SIZE,
                     "there are no more than %d configurations", rank);
    g->layout = (mfi_shape){
        .threads = THREADS, .vector = mfi_shape_vector(p), .splits = 1, .launches = 1, .wide = mfi_shape_needs_wide(p)};
    return true;
}

/* ---- the text ---- */

static void attributes(mfi_text *out, const mfi_gemm_skinny *g)
{
    if (g->split > 1)
        mfi_text_add(out, "__cluster_dims__(%d, 1, 1) ", g->split);
    mfi_text_add(out, "__launch_bounds__(%d, %d)", THREADS, g->resident);
}

mf_status mfi_emit_gemm_skinny(mfi_source *out, const mfi_problem *p, const mfi_gemm_skinny *g)
{
    mfi_text text = {0};
    *out = (mfi_source){.text = NULL};
    mfi_text_add(&text, "#include \"device/gemm_skinny.cuh\"\n\nnamespace\n{\n\n");
    mfi_emit_chain(&text, p, &g->layout);
    mfi_text_add(&text,
                 "\ntypedef mf::gemm_args<%d, args> kernel_args;\n"
                 "typedef mf::gemm_skinny_config<%s, %d, %d, %d, %d, %d, %d, %d, %s> config;\n"
                 "static_assert(config::BYTES == %zu && config::THREADS == %d, \"as it is launched\");\n\n"
                 "} // namespace\n\n",
                 p->ndim, mfi_emit_storage(p->u.matmul.a.dtype), g->m, g->n, g->k, g->stages, g->across, g->along,
                 g->split, g->b_rows ? "true" : "false", g->shared, THREADS);
    if (!text.failed) {
        uint64_t seed = (uint64_t)g->layout.vector << 8 | (uint64_t)g->resident;
        snprintf(out->name, sizeof out->name, "mf_skinny_%016llx",
                 (unsigned long long)XXH3_64bits_withSeed(text.data, text.length, seed));
        mfi_text_add(&text, "extern \"C\" __global__ void ");
        attributes(&text, g);
        mfi_text_add(&text,
                     "\n    %s(const __grid_constant__ kernel_args a)\n{\n"
                     "    MF_DYNAMIC_SHARED(unsigned char, shared);\n"
                     "    mf::gemm_skinny<chain, config, %d, %d>(a, blockIdx.x, shared);\n}\n",
                     out->name, p->ndim, g->layout.vector);
        out->text = mfi_text_take(&text);
    }
    mfi_text_free(&text);
    return out->text ? MF_OK : MFI_NO_MEMORY(text.capacity);
}
