/* FACTOR steps on the CPU: a batch item's operands as column-major matrices, and back. */
#ifndef MFI_FACTOR_CPU_H
#define MFI_FACTOR_CPU_H

#include "solve_cpu.h"

typedef struct mfi_factor_views {
    mfi_solve_view in[MFI_FACTOR_INPUTS], out[MFI_FACTOR_RESULTS];
} mfi_factor_views;
void mfi_factor_views_init(mfi_factor_views *views, const mfi_problem *p);

static inline bool mfi_factor_wants(const mfi_factor *f, int result)
{
    return f->out[result].view.slot >= 0;
}

/* dst[i * drs + j * dcs] = src[i * srs + j * scs] over rows x cols elements of `size` bytes (4, 8 or 16). */
void mfi_copy_matrix(void *dst, int64_t drs, int64_t dcs, const void *src, int64_t srs, int64_t scs, int64_t rows,
                     int64_t cols, size_t size);

/* Input `index` of an item, column-major with `ld` rows between columns, converted to `type`. */
void mfi_factor_get(const mfi_factor *f, const mfi_factor_views *views, void *const *slots, int64_t item, int index,
                    void *dst, int64_t ld, mfi_ctype type);
/* Result `index` of an item from column-major `src`, whose type is the result's; nothing if it is not wanted. */
void mfi_factor_put(const mfi_factor *f, const mfi_factor_views *views, void *const *slots, int64_t item, int index,
                    const void *src, int64_t ld);
/* A failed matrix: NaN everywhere; pivots that exchange nothing, rank and sign 0. */
void mfi_factor_put_failed(const mfi_factor *f, const mfi_factor_views *views, void *const *slots, int64_t item);

/* Whether column-major data has NaN or infinity in the part that kind and flags read. */
bool mfi_factor_finite(const mfi_factor *f, const void *a, int64_t rows, int64_t cols, mfi_ctype type);

/* fn(context, item, memory) for each item of the batch, with `bytes` of 64-byte aligned memory for each thread. Large
 * matrices come one by one: the library, or the loops in it, have the threads then. */
typedef mf_status mfi_factor_item(const void *context, void *const *slots, int64_t item, char *memory);
mf_status mfi_factor_run(const mfi_problem *p, mfi_factor_item *fn, const void *context, void *const *slots,
                         size_t bytes, int threads, const char *what);

#endif
