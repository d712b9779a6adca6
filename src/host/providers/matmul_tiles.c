/* The tiling with the least estimated time: rounds of tiles over the threads, each tile its arithmetic, the packing of its
 * factors, which neighbours repeat, and one more pass over its result. */
#include "matmul_tiles.h"

/* One core, in units a nanosecond; their ratios matter, not their values. */
static const double flops_a_ns = 80, packed_bytes_a_ns = 6, passed_bytes_a_ns = 8, tile_ns = 2000, wake_ns = 6000;

enum { MOST_CUTS = 64, ROW_STEP = 16, COLUMN_STEP = 64 };

static int64_t part(int64_t whole, int64_t cuts, int64_t step)
{
    return mfi_min64(mfi_ceil_div(mfi_ceil_div(whole, cuts), step) * step, whole);
}

static mfi_tiles cut(const mfi_tile_limits *l, int64_t down, int64_t across)
{
    int64_t row_step = l->unit >= ROW_STEP ? l->unit : mfi_ceil_div(ROW_STEP, l->unit) * l->unit;
    mfi_tiles t = {.rows = part(l->m, down, row_step), .cols = part(l->n, across, COLUMN_STEP)};
    t.down = mfi_ceil_div(l->m, t.rows);
    t.across = mfi_ceil_div(l->n, t.cols);
    return t;
}

static double nanoseconds(const mfi_tile_limits *l, const mfi_tiles *t)
{
    double rows = (double)t->rows, cols = (double)t->cols, k = (double)l->k, size = (double)l->size;
    double tile = rows * cols * k * (double)l->flops / flops_a_ns + (rows + cols) * k * size / packed_bytes_a_ns +
                  rows * cols * size / passed_bytes_a_ns + tile_ns;
    int64_t tiles = t->down * t->across * l->batch;
    return (double)mfi_ceil_div(tiles, l->threads) * tile + (tiles > 1 ? wake_ns : 0);
}

/* The cheapest that costs more than `floor`: tilings of one cost are much alike. *least: what it costs, < 0: none. */
static mfi_tiles cheapest_above(const mfi_tile_limits *l, double floor, double *least)
{
    mfi_tiles best = cut(l, 1, 1);
    *least = -1;
    for (int64_t down = 1; down <= mfi_min64(MOST_CUTS, l->m); down++)
        for (int64_t across = 1; across <= (l->columns ? MOST_CUTS : 1); across++) {
            mfi_tiles t = cut(l, down, across);
            bool fits = !l->bytes || t.rows * t.cols * l->size <= l->bytes;
            double ns = nanoseconds(l, &t);
            if (fits && ns > floor && (*least < 0 || ns < *least)) {
                best = t;
                *least = ns;
            }
        }
    return best;
}

bool mfi_choose_tiles(mfi_tiles *out, const mfi_tile_limits *limits, int rank)
{
    double least = -1;
    *out = cheapest_above(limits, 0, &least);
    for (int i = 0; i < rank; i++) {
        *out = cheapest_above(limits, 1.02 * least, &least);
        if (least < 0)
            return false;
    }
    if (least < 0) /* none fits: the smallest there is */
        *out = cut(limits, mfi_min64(MOST_CUTS, limits->m), limits->columns ? MOST_CUTS : 1);
    return true;
}
