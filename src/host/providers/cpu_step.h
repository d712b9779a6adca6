/* What the CPU's providers share: batch addressing, which rows a chain needs at once, running a chain on a block. */
#ifndef MFI_CPU_STEP_H
#define MFI_CPU_STEP_H

#include "fusion.h"

#include <stdatomic.h>

/* The first error of a parallel loop. */
typedef struct mfi_first_error {
    atomic_int status;
} mfi_first_error;
static inline void mfi_note(mfi_first_error *e, mf_status status)
{
    int none = MF_OK;
    if (status != MF_OK)
        atomic_compare_exchange_strong(&e->status, &none, (int)status);
}
/* Its status; the message is set on the calling thread, as workers have their own. */
mf_status mfi_noted(mfi_first_error *e, const char *what);

/* The leading `dims` dims of a view as few dims as its strides allow. */
typedef struct mfi_batch {
    int dims;
    int64_t shape[MF_MAX_DIMS], strides[MF_MAX_DIMS];
} mfi_batch;
mfi_batch mfi_batch_of(const mfi_view *view, int dims, const int64_t *shape);
int64_t mfi_batch_offset(const mfi_batch *batch, int64_t index);
/* How many items from `index` on lie one stride apart. */
int64_t mfi_batch_run(const mfi_batch *batch, int64_t index);

int64_t mfi_product(const int64_t *values, int count);

static inline void *mfi_at(const mfi_view *view, void *const *slots, int64_t more)
{
    return (char *)slots[view->slot] + (view->offset + more) * (int64_t)mf_dtype_size(view->dtype);
}

/* Domain points that a chain must see together: `granule` of the anchor, or more if its reductions span more. */
int64_t mfi_chain_unit(const mfi_problem *p, int64_t granule);
/* Evaluate the chain on domain points [begin, end), both multiples of the unit, with the anchor's results in `data`. */
void mfi_chain_points(const mfi_problem *p, const mfi_cpu_chain *chain, void *const *slots, int64_t begin, int64_t end,
                      const void *data, int64_t base);
/* The same on the process's threads. */
void mfi_chain_points_all(const mfi_problem *p, const mfi_cpu_chain *chain, void *const *slots, int64_t begin,
                          int64_t end, const void *data, int64_t base, int threads);

/* mfi_pack on the process's threads, split along the view's first dim. */
void mfi_pack_all(void *dst, mfi_ctype ctype, const mfi_view *view, void *const *slots, int ndim, const int64_t *shape,
                  int threads);

#endif
