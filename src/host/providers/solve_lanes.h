/* Dense systems side by side: lane v of every vector belongs to the v-th matrix of a group. One table of functions per
 * instruction set, all from lane_loops.c; every table gives the same bits, whatever its number of lanes. */
#ifndef MFI_SOLVE_LANES_H
#define MFI_SOLVE_LANES_H

#include "chain.h"

enum { MFI_MOST_LANES = 16 };

/* A group's matrices as vectors: element (i, j) is number i * ld + j, right-hand sides are columns n and following. */
typedef struct mfi_lane_group {
    mfi_solver solver;
    bool upper, transpose, unit; /* TRSM: the triangle of the matrix as stored, and whether its transpose is meant */
    int64_t n, nrhs, ld;
    void *m;                      /* vectors, aligned to 64 bytes */
    int32_t info[MFI_MOST_LANES]; /* LAPACK's, of each lane */
    /* LU_SOLVE. pivots: the factors are wanted, in LAPACK's form, and row exchange k of lane v at [k * MFI_MOST_LANES + v].
     * invert: right-hand sides are the identity. finite: NaN and infinity make info -1. */
    int32_t *pivots;
    bool invert, finite;
} mfi_lane_group;

/* One matrix for each lane, of one shape and one pair of strides. Lanes from `count` on repeat another and are not stored. */
typedef struct mfi_lane_matrices {
    void *data[MFI_MOST_LANES];
    int count;
    int64_t rows, cols, rs, cs;
} mfi_lane_matrices;

typedef struct mfi_lane_functions {
    int lanes;
    /* Vectors i * ld + j of `to` from element (i, j) of each matrix. */
    void (*load)(void *to, int64_t ld, const mfi_lane_matrices *from);
    void (*store)(const void *from, int64_t ld, const mfi_lane_matrices *to);
    void (*compute)(mfi_lane_group *g);
    /* The results of lanes whose info is not 0 become NaN; a factor's upper triangle becomes 0 in all lanes. */
    void (*finish)(const mfi_lane_group *g);
} mfi_lane_functions;

typedef struct mfi_lane_table {
    const char *isa;
    mfi_lane_functions f32, f64;
} mfi_lane_table;

#endif
