/* A walk: a strided view with its dims in some order, merged where they lie in one line, read by ranges of the linear
 * index over that order. */
#ifndef MFI_CPU_VIEW_H
#define MFI_CPU_VIEW_H

#include "chain.h"

typedef struct mfi_walk {
    int ndim, size, alignment; /* bytes of an element; what loops need its address to divide by */
    int16_t slot;
    bool padded;                                     /* some extent is set: elements beyond it read as 0 */
    int64_t offset;                                  /* bytes */
    int64_t shape[MF_MAX_DIMS], stride[MF_MAX_DIMS]; /* strides in bytes */
    int64_t extent[MF_MAX_DIMS];
} mfi_walk;

/* dims[0..count): the domain dims, in order. extent: NULL or as in mfi_operand. */
void mfi_walk_init(mfi_walk *walk, const mfi_view *view, const int64_t *extent, const int64_t *shape, const int *dims,
                   int count);
/* Where element `index` is, if all of [index, index + n) exist and lie `*stride` bytes apart; else NULL. */
char *mfi_walk_line(const mfi_walk *walk, void *const *slots, int64_t index, int64_t n, int64_t *stride);
/* Copy elements [index, index + n) to contiguous memory, and from it (which takes no extents). */
void mfi_walk_gather(const mfi_walk *walk, void *const *slots, int64_t index, int64_t n, void *dst);
void mfi_walk_scatter(const mfi_walk *walk, void *const *slots, int64_t index, int64_t n, const void *src);

/* n elements of `size` bytes, `stride` bytes apart, from or to contiguous memory; addresses need no alignment. */
void mfi_gather_line(void *dst, const char *src, int64_t stride, int64_t n, int size);
void mfi_scatter_line(char *dst, int64_t stride, const void *src, int64_t n, int size);

#endif
