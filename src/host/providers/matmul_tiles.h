/* Tiles of a product: how threads share one multiplication when each calls a library that then works alone. */
#ifndef MFI_MATMUL_TILES_H
#define MFI_MATMUL_TILES_H

#include "core.h"

typedef struct mfi_tiles {
    int64_t rows, cols;   /* of a tile; those at the edges are smaller */
    int64_t down, across; /* numbers of tiles */
} mfi_tiles;

/* What bounds the choice for an m x n x k product of elements of `size` bytes with `flops` operations per multiply-add. */
typedef struct mfi_tile_limits {
    int64_t m, n, k;
    int64_t size, flops;
    int64_t unit;  /* tiles have multiples of so many rows */
    bool columns;  /* columns may be split */
    int64_t bytes; /* that a tile may have; 0: any number */
    int64_t batch; /* products whose tiles threads share together */
    int threads;
} mfi_tile_limits;
/* The tiling of that rank by estimate, 0: the best; false: there are not so many. */
bool mfi_choose_tiles(mfi_tiles *out, const mfi_tile_limits *limits, int rank);

#endif
