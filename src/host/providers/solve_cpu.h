/* SOLVE steps on the CPU: where the matrices of a batch item are, packed and unpacked where a solver needs that. */
#ifndef MFI_SOLVE_CPU_H
#define MFI_SOLVE_CPU_H

#include "cpu_step.h"

typedef struct mfi_solve_view {
    mfi_view view;
    mfi_batch batch;
    int64_t rs, cs;
} mfi_solve_view;

typedef struct mfi_solve_views {
    mfi_solve_view a, b, x, info;
} mfi_solve_views;
void mfi_solve_views_init(mfi_solve_views *views, const mfi_problem *p);

/* A matrix of a batch item in `type`: where it is if it has that type, else copied to `pack`. */
void *mfi_solve_read(const mfi_solve_view *v, void *const *slots, int64_t item, int64_t rows, int64_t cols,
                     mfi_ctype type, void *pack, int64_t *rs, int64_t *cs);
/* Where to put a result of `type`: its own memory, or `pack`, from which mfi_solve_written converts it. */
void *mfi_solve_result(const mfi_solve_view *v, void *const *slots, int64_t item, int64_t cols, mfi_ctype type,
                       void *pack, int64_t *rs, int64_t *cs);
void mfi_solve_written(const mfi_solve_view *v, void *const *slots, int64_t item, int64_t rows, int64_t cols,
                       mfi_ctype type, const void *pack);
/* Batches of these are faster several at a time: side by side they stay in the second-level cache. */
enum { MFI_SMALL_ORDER = 128, MFI_FEW_SIDES = 512 };
bool mfi_solve_is_small(const mfi_problem *p);
void mfi_solve_write_info(const mfi_solve_view *v, void *const *slots, int64_t item, int64_t info);

#endif
