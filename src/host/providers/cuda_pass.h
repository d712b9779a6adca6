/* Small steps inside another provider's step: strided copies with conversion, scaling, and whatever else is a MAP. They
 * run on whichever provider takes MAP steps on the target, so that no provider has copy kernels of its own. */
#ifndef MFI_CUDA_PASS_H
#define MFI_CUDA_PASS_H

#include "provider.h"

typedef struct mfi_pass mfi_pass;

/* Views of a pass use slots 0, 1, … of its own, bound by mfi_pass_run. */
mf_status mfi_pass_new(mfi_pass **out, const mfi_problem *map, const mfi_caps *c, mf_context *context);
size_t mfi_pass_workspace(const mfi_pass *pass); /* 0 for NULL */
mf_status mfi_pass_run(mfi_pass *pass, void *const *slots, void *workspace, const mfi_run *run);
void mfi_pass_free(mfi_pass *pass);
mf_status mfi_pass_kernel(mfi_pass *const *passes, int count, int index,
                          mf_kernel_info *out);         /* NULL passes are skipped */
double mfi_pass_cost(const mfi_caps *c, int64_t bytes); /* of a pass that moves so many bytes */

/* A MAP problem under construction: append instructions in order; each returns its value's number. */
void mfi_pass_begin(mfi_problem *p, int ndim, const int64_t *shape);
int mfi_pass_load(mfi_problem *p, int slot, const mfi_view *view,
                  const int64_t *extent); /* extent per dim, NULL: all */
int mfi_pass_constant(mfi_problem *p, mfi_ctype ctype, double re, double im);
int mfi_pass_index(mfi_problem *p, int axis);
int mfi_pass_apply(mfi_problem *p, mf_op op, mfi_ctype ctype, int a, int b, int c);
int mfi_pass_cast(mfi_problem *p, mfi_ctype ctype, int a); /* a itself if it has that type */
void mfi_pass_store(mfi_problem *p, int slot, const mfi_view *view, int a);

/* dst = scale * src over `shape`: slot 0 to slot 1, converted; beyond `extent` src reads as 0. */
void mfi_pass_copy(mfi_problem *p, int ndim, const int64_t *shape, const mfi_view *src, const int64_t *extent,
                   const mfi_view *dst, double re, double im);

/* A row-major view of `shape`, 256-byte aligned, for workspace. */
mfi_view mfi_pass_contiguous(mf_dtype dtype, int ndim, const int64_t *shape);

#endif
