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
    int64_t tiles = t->down * t->across;
    return (double)mfi_ceil_div(tiles, l->threads) * tile + (tiles > 1 ? wake_ns : 0);
}

mfi_tiles mfi_choose_tiles(const mfi_tile_limits *limits)
{
    mfi_tiles best = cut(limits, 1, 1);
    double least = -1;
    for (int64_t down = 1; down <= mfi_min64(MOST_CUTS, limits->m); down++)
        for (int64_t across = 1; across <= (limits->columns ? MOST_CUTS : 1); across++) {
            mfi_tiles t = cut(limits, down, across);
            bool fits = !limits->bytes || t.rows * t.cols * limits->size <= limits->bytes;
            double ns = nanoseconds(limits, &t);
            if (least < 0 ? true : fits && ns < least) {
                best = t;
                least = fits ? ns : -1;
            }
        }
    return best;
}
