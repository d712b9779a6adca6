/* The compiled form of a CPU chain, between cpu_compile.c (schedules, assigns buffers) and cpu_run.c (executes).
 *
 * Values have a class: uniform (one for the whole domain), row (one per row of a reduction) or element. Uniform values
 * are computed once a run, row values once per group of rows, element values block by block in the first phase that needs
 * them; later phases find them kept if a group's fit in cache, and else compute them again.
 *
 * A group of rows is run in one of three layouts:
 *   LONG     one row; row values are scalars to the element loops.
 *   SHORT    several whole rows fill a block; row values are scalars to the loops over each row, or repeated into it.
 *   COLUMN   memory is contiguous along the last row dim, not along the row: a block holds `width` neighbouring rows
 * times a few reduction indices, rows varying fastest, and row values have the width of the block. The order in which a
 * row's elements are summed depends on the layout, so on the problem, and on nothing else: not on the rows of the
 * group, the range of a call or the number of threads. */
#ifndef MFI_CPU_PROGRAM_H
#define MFI_CPU_PROGRAM_H

#include "cpu_loops.h"
#include "cpu_view.h"
#include "fusion.h"

#define MFI_MAX_REDUCES 16
#define MFI_MAX_PHASES 8
#define MFI_MAX_VALUES (2 * MFI_MAX_INSTR) /* the instructions', then their repetitions into blocks */

typedef enum mfi_uop_kind {
    MFI_U_LOAD,
    MFI_U_ACC,
    MFI_U_CONST,
    MFI_U_INDEX,
    MFI_U_APPLY,
    MFI_U_CAST,
    MFI_U_KEPT,   /* element value of an earlier phase */
    MFI_U_REPEAT, /* row value → block */
    MFI_U_FOLD,   /* element value → accumulators of reduction `reduce` */
    MFI_U_FINISH, /* accumulators → row value */
    MFI_U_STORE,
} mfi_uop_kind;

typedef struct mfi_uop {
    uint8_t kind, size;   /* of an element of dst; STORE and FOLD: of a */
    bool native;          /* LOAD, STORE: memory holds the compute type itself */
    bool copy;            /* LOAD: memory may be overwritten before the value is used */
    int16_t dst, a, b, c; /* values */
    int16_t walk, reduce; /* indices */
    int16_t direct;       /* APPLY: walk to write to at once, -1 */
    uint8_t by_row;       /* APPLY: operands, one bit each, that have a value for each row of the block */
    uint8_t operand_size[3];
    int32_t buffer; /* offset of dst's memory in its arena */
    int32_t keep;   /* 0, or offset in the element arena of a whole group's values, which later phases read */
    mfi_apply_loop *apply;
    mfi_convert_loop *convert, *widen; /* LOAD: convert; STORE: convert; CAST: convert, then widen (or NULL) */
    double re, im;
    uint8_t ctype;         /* CONST, INDEX */
    int64_t inner, extent; /* INDEX: (i / inner) % extent */
} mfi_uop;

typedef struct mfi_list {
    int first, count;
} mfi_list;

typedef struct mfi_cpu_reduce {
    mf_reduce_op op;
    mfi_ctype ctype, narrow; /* what is reduced, column accumulators */
    bool wide;               /* a floating sum or product: narrow accumulators are folded often */
    int phase;
    mfi_fold_loop *fold, *fold_narrow;
    mfi_column_loop *column;
    int32_t narrow_buffer; /* in the thread's arena */
} mfi_cpu_reduce;

typedef enum mfi_layout { MFI_LAYOUT_MAP, MFI_LAYOUT_LONG, MFI_LAYOUT_SHORT, MFI_LAYOUT_COLUMN } mfi_layout;

struct mfi_cpu_chain {
    mfi_layout layout;
    bool element_stores; /* the last phase has something to do */
    int phases, reduces, uops, walks;
    int64_t rows, row_length; /* row_length: product of the reduced dims; MAP: rows counts points, row_length is 1 */
    int64_t scale;            /* what a range given to mfi_cpu_chain_run is multiplied by to count in rows */
    int64_t
        strip_row; /* MAP: length of the last dim if an operand is transposed, so that strips of columns reuse its lines; else 0 */
    int64_t last_rows;     /* COLUMN: extent of the last row dim */
    bool plain_columns;    /* COLUMN: rows so short that the narrow accumulators are the results */
    int64_t chunk, chunks; /* reduction indices per partial result, and partial results per row */
    int block, group;      /* elements of a block, most rows of a group */
    /* arenas, in bytes */
    int32_t element_bytes; /* the thread's: element buffers, then fill, raw, narrow accumulators, kept values */
    int32_t fill, raw;
    int32_t row_bytes; /* the group's: uniform and row values */
    mfi_list uniform, row[MFI_MAX_PHASES + 1], element[MFI_MAX_PHASES + 1], row_stores;
    mfi_cpu_reduce reduce[MFI_MAX_REDUCES];
    mfi_walk *walk;
    mfi_uop *uop;
};

#define MFI_CPU_SCRATCH (256 * 1024) /* bytes that a thread's arenas may take together */
#define MFI_CPU_KEPT (128 * 1024)    /* of them, for kept values */

/* mfi_cpu_chain_new with the loops of one instruction set. */
mf_status mfi_cpu_chain_new_isa(mfi_cpu_chain **out, const mfi_problem *p, const mfi_loops *loops);

/* Of n neighbours each. */
void mfi_acc_init(mfi_acc *acc, int n, const mfi_cpu_reduce *r);
void mfi_acc_merge(mfi_acc *acc, const mfi_acc *other, const mfi_cpu_reduce *r);
void mfi_acc_finish(const mfi_acc *acc, int n, const mfi_cpu_reduce *r, void *dst);
void mfi_narrow_init(void *narrow, int n, const mfi_cpu_reduce *r);

#endif
