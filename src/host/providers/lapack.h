/* Parts of the LAPACK provider: lapack.c has SOLVE, lapack_factor.c FACTOR, lapack_calls.c its calls. */
#ifndef MFI_LAPACK_H
#define MFI_LAPACK_H

#include "factor_cpu.h"

/* A routine by its name without the letter of the type, from BLAS or LAPACK; *out NULL if neither has it. */
mf_status mfi_lapack_symbol(void **out, const mfi_caps *c, mfi_ctype type, const char *routine);

bool mfi_lapack_factor_query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid);
mf_status mfi_lapack_factor_prepare(void **state, const mfi_problem *p, const mfi_caps *c);
mf_status mfi_lapack_factor_run(void *state, const mfi_run *run);
void mfi_lapack_factor_destroy(void *state);

/* ---- between lapack_factor.c and lapack_calls.c ---- */

enum { MFI_LAPACK_ROUTINES = 2 };

typedef struct mfi_lapack_factor {
    const mfi_problem *p; /* first in the states of both kinds of step */
    mfi_factor_views views;
    void *routine[MFI_LAPACK_ROUTINES];
    int threads;
    int lwork, lrwork, liwork; /* elements */
    size_t bytes;
} mfi_lapack_factor;

/* A thread's memory: column-major matrices in the step's type. */
typedef struct mfi_lapack_memory {
    char *a, *b, *u, *v, *work;
    char *s, *rwork; /* of the real type */
    int *pivots, *iwork;
} mfi_lapack_memory;

typedef struct mfi_lapack_item {
    const mfi_lapack_factor *s;
    const mfi_factor *f;
    void *const *slots;
    int64_t item;
    mfi_lapack_memory w;
} mfi_lapack_item;

/* The names of the routines of a kind; NULL where one is not needed. */
const char *mfi_lapack_routine(const mfi_factor *f, int index);
/* How much scratch the routines want: lwork, lrwork, liwork. `w` is not read. */
void mfi_lapack_sizes(mfi_lapack_factor *s);
/* Factor one item whose operands are in w.a and w.b, and store the results. Returns info. */
int mfi_lapack_call(const mfi_lapack_item *c);

#endif
