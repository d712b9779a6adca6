/* Generated matrix products: which kernel, its tiles, how it reads the factors, and its call. */
#include "emit.h"

static const char *word(bool value)
{
    return value ? "true" : "false";
}

/* gemm_tiles.cuh: blocks of 256 threads, whose stages fit into 47 KiB in either layout. share: of the peak, of tensor cores for
 * 16 bits, that the loop is taken to reach. */
static const struct {
    mf_dtype dtype;
    int m, n, k;
    double share;
} tiles[] = {{MF_F16, 128, 128, 32, 0.2}, {MF_F16, 64, 64, 32, 0.15},   {MF_BF16, 128, 128, 32, 0.2},
             {MF_BF16, 64, 64, 32, 0.15}, {MF_F32, 128, 128, 16, 0.35}, {MF_F32, 64, 64, 8, 0.3},
             {MF_F64, 64, 64, 16, 0.35},  {MF_C64, 64, 64, 16, 0.35},   {MF_C128, 64, 32, 8, 0.35}};

/* gemm_lanes.cuh: for accumulators of that many bytes, products of a block, its results of each and those of a thread, threads
 * that share k. share: of the peak that it is taken to reach. */
static const struct {
    int size, lanes, m, n, own_m, own_n, parts;
    double share;
} lane_tiles[] = {{4, 8, 32, 32, 8, 8, 1, 0.6},  {4, 8, 32, 32, 8, 8, 2, 0.6},  {4, 8, 32, 32, 4, 4, 1, 0.4},
                  {4, 8, 16, 16, 4, 4, 2, 0.35}, {4, 8, 8, 32, 4, 4, 2, 0.3},   {8, 8, 32, 32, 8, 4, 1, 0.7},
                  {8, 8, 32, 16, 4, 4, 1, 0.6},  {8, 8, 16, 16, 4, 4, 1, 0.6},  {8, 8, 16, 16, 4, 4, 2, 0.6},
                  {8, 8, 4, 16, 2, 2, 2, 0.3},   {16, 8, 16, 16, 4, 2, 1, 0.6}, {16, 8, 8, 8, 2, 2, 2, 0.4},
                  {16, 8, 4, 8, 2, 2, 2, 0.4}};

/* Elements that one copy may take: the view is contiguous along `along`, of `extent` elements. */
static int factor_vector(const mfi_view *view, const mfi_problem *p, int along, int64_t extent)
{
    int64_t size = (int64_t)mf_dtype_size(view->dtype), vector = mfi_max64(16 / size, 1);
    if (view->strides[along] != 1)
        return 1;
    for (int d = 0; d < p->ndim; d++)
        while (d != along && vector > 1 && view->strides[d] % vector)
            vector /= 2;
    while (vector > 1 && (extent % vector || view->alignment < vector * size))
        vector /= 2;
    return (int)vector;
}

/* Copies of one element need it aligned as the instruction wants it. */
static bool aligned(const mfi_view *view)
{
    return view->alignment >= (int)mf_dtype_size(view->dtype);
}

/* In the time that one multiprocessor at its peak takes for an element: every wave is done whole. */
static double tiles_cost(size_t i, const mfi_problem *p, const mfi_caps *caps)
{
    const mfi_matmul *mm = &p->u.matmul;
    int64_t batch = mfi_problem_points(p) / mfi_max64(mm->m * mm->n, 1);
    int64_t count = batch * mfi_ceil_div(mm->m, tiles[i].m) * mfi_ceil_div(mm->n, tiles[i].n);
    return (double)mfi_ceil_div(count, mfi_max64(caps->multiprocessors, 1)) * tiles[i].m * tiles[i].n / tiles[i].share;
}

static void use_tiles(mfi_shape *l, size_t i, const mfi_problem *p)
{
    const mfi_matmul *mm = &p->u.matmul;
    int rows = p->ndim - 2, columns = p->ndim - 1;
    l->skeleton = MFI_SK_GEMM_TILES;
    l->tile_m = tiles[i].m;
    l->tile_n = tiles[i].n;
    l->tile_k = tiles[i].k;
    l->share = tiles[i].share;
    l->vector = mfi_shape_vector(p);
    l->a_rows = mm->a.strides[columns] == 1 || mm->a.strides[rows] != 1;
    l->b_rows = mm->b.strides[columns] == 1 || mm->b.strides[rows] != 1;
    l->a_vector = factor_vector(&mm->a, p, l->a_rows ? columns : rows, l->a_rows ? mm->k : mm->m);
    l->b_vector = factor_vector(&mm->b, p, l->b_rows ? columns : rows, l->b_rows ? mm->n : mm->k);
}

/* The batch dim along which both factors are contiguous, where neither is along its rows or columns; -1: none. */
static int lane_dim(const mfi_problem *p)
{
    const mfi_matmul *mm = &p->u.matmul;
    const int64_t *a = mm->a.strides, *b = mm->b.strides;
    int rows = p->ndim - 2, columns = p->ndim - 1, found = -1;
    bool along = (mm->m > 1 && a[rows] == 1) || (mm->k > 1 && (a[columns] == 1 || b[rows] == 1)) ||
                 (mm->n > 1 && b[columns] == 1);
    for (int d = 0; d < rows && !along; d++)
        if (a[d] == 1 && (b[d] == 1 || b[d] == 0) && p->shape[d] >= 8)
            found = d;
    return found;
}

/* Every multiprocessor does whole blocks; blocks read their rows and columns from the second-level cache. */
double mfi_lanes_us(const mfi_shape *l, const mfi_problem *p, const mfi_caps *caps)
{
    const double cache_bytes_a_us = 4e6, start_us = 1.5, busy_threads = 256; /* on one H200 */
    const mfi_matmul *mm = &p->u.matmul;
    double blocks = (double)mfi_shape_grid(l, p, 0), k = (double)mm->k, size = (double)mf_dtype_size(mm->a.dtype);
    double each = (double)mfi_ceil_div((int64_t)blocks, mfi_max64(caps->multiprocessors, 1));
    double flops = 2.0 * l->lanes * l->tile_m * l->tile_n * k * (mm->acc >= MFI_C64 ? 4 : 1) *
                   (mm->acc == MFI_F64 || mm->acc == MFI_C128 ? 2 : 1);
    double few = each * l->threads < busy_threads ? busy_threads / (each * l->threads) : 1;
    double math = each * flops * (1 + 0.3 * (few - 1)) / (l->share * caps->flops_per_us / caps->multiprocessors);
    double fetch = blocks * k * (l->tile_m + l->tile_n) * l->lanes * size / cache_bytes_a_us;
    double memory = (double)mfi_problem_bytes(p) / (0.9 * caps->bytes_per_us);
    double most = fetch > math ? fetch : math;
    return (most > memory ? most : memory) + start_us;
}

/* False: tile i is for other accumulators. */
static bool lane_shape(mfi_shape *l, const mfi_problem *p, int dim, int i)
{
    if ((int)mfi_ctype_size(p->u.matmul.acc) != lane_tiles[i].size)
        return false;
    l->skeleton = MFI_SK_GEMM_LANES;
    l->tile_dim = dim;
    l->lanes = lane_tiles[i].lanes;
    l->tile_m = lane_tiles[i].m;
    l->tile_n = lane_tiles[i].n;
    l->own_m = lane_tiles[i].own_m;
    l->own_n = lane_tiles[i].own_n;
    l->parts = lane_tiles[i].parts;
    l->threads = l->lanes * (l->tile_m / l->own_m) * (l->tile_n / l->own_n) * l->parts;
    l->tile_k = 1;
    l->share = lane_tiles[i].share;
    return true;
}

/* The tile of that rank by estimate. */
static bool use_lanes(mfi_shape *l, const mfi_problem *p, const mfi_caps *caps, int dim, int rank)
{
    bool taken[MFI_COUNT(lane_tiles)] = {false};
    for (int r = 0; r <= rank; r++) {
        int best = -1;
        double least = 0;
        for (int i = 0; i < (int)MFI_COUNT(lane_tiles); i++) {
            if (taken[i] || !lane_shape(l, p, dim, i))
                continue;
            double us = mfi_lanes_us(l, p, caps);
            if (best < 0 || us < least) {
                best = i;
                least = us;
            }
        }
        if (best < 0)
            return false;
        taken[best] = true;
        (void)lane_shape(l, p, dim, best);
    }
    return true;
}

bool mfi_shape_choose_gemm(mfi_shape *l, const mfi_problem *p, const mfi_caps *caps, int rank)
{
    const mfi_matmul *mm = &p->u.matmul;
    double floor = -1;
    l->skeleton = MFI_SK_GEMM;
    l->tile_m = l->tile_n = 64;
    l->tile_k = 16;
    l->share = 0.3;
    if (lane_dim(p) >= 0)
        return use_lanes(l, p, caps, lane_dim(p), rank);
    if (mm->a.dtype != mm->b.dtype || mm->acc != mfi_compute_type(mm->a.dtype) || !aligned(&mm->a) || !aligned(&mm->b))
        return rank == 0;
    for (int r = 0; r <= rank; r++) {
        double least = -1;
        for (size_t i = 0; i < MFI_COUNT(tiles); i++) {
            double cost = tiles[i].dtype == mm->a.dtype ? tiles_cost(i, p, caps) : -1;
            if (cost > floor && (least < 0 || cost < least)) {
                least = cost;
                use_tiles(l, i, p);
            }
        }
        if (least < 0)
            return r == 0 && rank == 0;
        floor = least;
    }
    return true;
}

static void lanes_config(mfi_text *out, const mfi_problem *p, const mfi_shape *l, const char *member)
{
    mfi_text_add(out, "mf::gemm_lanes_config<%s, %d, %d, %d, %d, %d, %d>%s", mfi_emit_ctype(p->u.matmul.acc), l->lanes,
                 l->tile_m, l->tile_n, l->own_m, l->own_n, l->parts, member);
}

void mfi_emit_gemm_shared(mfi_text *out, const mfi_problem *p, const mfi_shape *l)
{
    if (l->skeleton == MFI_SK_GEMM)
        mfi_text_add(out, "sizeof(mf::gemm_simple_shared<%s>)", mfi_emit_ctype(p->u.matmul.acc));
    else if (l->skeleton == MFI_SK_GEMM_TILES)
        mfi_text_add(out, "mf::gemm_tiles_config<%s, %d, %d, %d, %d, %s, %s>::BYTES",
                     mfi_emit_storage(p->u.matmul.a.dtype), l->tile_m, l->tile_n, l->tile_k, l->threads,
                     word(l->a_rows), word(l->b_rows));
    else if (l->skeleton == MFI_SK_GEMM_LANES)
        lanes_config(out, p, l, "::BYTES");
}

void mfi_emit_gemm_call(mfi_text *out, const mfi_problem *p, const mfi_shape *l, const char *block, const char *shared)
{
    const mfi_matmul *mm = &p->u.matmul;
    if (l->skeleton == MFI_SK_GEMM)
        mfi_text_add(out, "mf::gemm_simple<chain, %s, %s, %s, %d, %s, %s, %d, %d>(a, %s, %s)",
                     mfi_emit_storage(mm->a.dtype), mfi_emit_storage(mm->b.dtype), mfi_emit_ctype(mm->acc), p->ndim,
                     word(mm->a.strides[p->ndim - 1] == 1), word(mm->b.strides[p->ndim - 2] == 1),
                     mfi_view_vector_alignment(&mm->a, p, 1), mfi_view_vector_alignment(&mm->b, p, 1), block, shared);
    else if (l->skeleton == MFI_SK_GEMM_SMALL)
        mfi_text_add(out, "mf::gemm_small<chain, %s, %s, %s, %d, %d, %d, %d>(a, %s)", mfi_emit_storage(mm->a.dtype),
                     mfi_emit_storage(mm->b.dtype), mfi_emit_ctype(mm->acc), p->ndim, l->own_m, l->own_n, l->threads,
                     block);
    else if (l->skeleton == MFI_SK_GEMM_LANES) {
        mfi_text_add(out, "mf::gemm_lanes<chain, ");
        lanes_config(out, p, l, "");
        mfi_text_add(out, ", %s, %s, %d, %d, %d, %d>(a, %s, %s)", mfi_emit_storage(mm->a.dtype),
                     mfi_emit_storage(mm->b.dtype), p->ndim, l->tile_dim, mfi_view_vector_alignment(&mm->a, p, 1),
                     mfi_view_vector_alignment(&mm->b, p, 1), block, shared);
    } else
        mfi_text_add(out, "mf::gemm_tiles<chain, %s, %d, %d, %d, %d, %d, %s, %s, %d, %d, %d>(a, %s, %s)",
                     mfi_emit_storage(mm->a.dtype), p->ndim, l->tile_m, l->tile_n, l->tile_k, l->threads,
                     word(l->a_rows), word(l->b_rows), l->a_vector, l->b_vector, l->vector, block, shared);
}
