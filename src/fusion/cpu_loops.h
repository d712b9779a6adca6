/* Block loops of the CPU executor: one table per instruction set, all from cpu_loops.c. Blocks are contiguous and
 * aligned to their element type. A destination may be the same memory as a source. Every table gives the same bits. */
#ifndef MFI_CPU_LOOPS_H
#define MFI_CPU_LOOPS_H

#include "chain.h"

/* The state of a reduction: wide enough that the order of blocks hardly matters. Floating sums and products are in
 * v[0] and v[1] (re, im) with what rounding lost of f64 sums in v[2] and v[3]; f32 and f64 extremes in v[0]; the rest
 * in i. */
typedef union mfi_acc {
    double v[4];
    int64_t i;
} mfi_acc;

enum { MFI_SCALAR_A = 1, MFI_SCALAR_B = 2, MFI_SCALAR_C = 4 }; /* that source is one element for the whole block */
#define MFI_COLUMN_FLUSH 32 /* rows that a narrow column accumulator takes before it must be folded */

typedef void mfi_apply_loop(int n, unsigned scalar, void *dst, const void *a, const void *b, const void *c);
typedef void mfi_convert_loop(int n, void *dst, const void *src);
/* acc = acc op a[0] op … a[n-1]; any order, but the same for the same n. */
typedef void mfi_fold_loop(int n, const void *a, mfi_acc *acc);
/* Narrow accumulators, one per column: acc[j] = acc[j] op a[i * width + j] for i in [0, rows), in order. */
typedef void mfi_column_loop(int width, int rows, const void *a, void *acc);

typedef struct mfi_loops {
    const char *isa;
    mfi_apply_loop *apply[MFI_CTYPE_COUNT][MF_OP_COUNT];         /* by the operands' compute type; NULL: not defined */
    mfi_convert_loop *load[MF_DTYPE_COUNT];                      /* widen to the dtype's compute type */
    mfi_convert_loop *store[MFI_CTYPE_COUNT][MF_DTYPE_COUNT][2]; /* round; [1]: saturate */
    mfi_fold_loop *fold[MF_REDUCE_COUNT][MFI_CTYPE_COUNT];       /* by the type reduced; NULL: not defined */
    mfi_column_loop *column[MF_REDUCE_COUNT][MFI_CTYPE_COUNT];
} mfi_loops;

/* The tables this machine can run, best first; NULL past the end. */
const mfi_loops *mfi_loops_at(int index);

#endif
