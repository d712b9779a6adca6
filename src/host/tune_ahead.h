/* Compiling the kernels of candidates ahead, on several threads, while the first of them are already tried. */
#ifndef MFI_TUNE_AHEAD_H
#define MFI_TUNE_AHEAD_H

#include "provider.h"

/* One way to run a step. */
typedef struct mfi_way {
    const mfi_provider *provider;
    int variant;
    bool offered; /* the caller's: it is not picked again */
} mfi_way;

typedef struct mfi_ahead mfi_ahead;

/* Get ready what of `way` has kernels to compile, in its order; a context keeps them. `problem`, `caps` and `way` stay until the
 * end. threads: 0 compiles nothing ahead, so that every way can be picked at once. NULL: no memory. */
mfi_ahead *mfi_ahead_begin(const mfi_problem *problem, const mfi_caps *caps, mf_context *context, const mfi_way *way,
                           int count, int threads);
/* The first way that is not offered yet and can be tried now; waits for one up to so many seconds. -1: there is none. */
int mfi_ahead_pick(mfi_ahead *a, double seconds);
int mfi_ahead_left(const mfi_ahead *a); /* not offered yet */
/* Begins no more, waits for what has begun, frees. NULL is fine. */
void mfi_ahead_end(mfi_ahead *a);

#endif
