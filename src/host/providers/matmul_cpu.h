/* MATMUL steps on the CPU: batches, packing, panels and the chain, over an engine that multiplies matrices. */
#ifndef MFI_MATMUL_CPU_H
#define MFI_MATMUL_CPU_H

#include "cpu_step.h"
#include "matmul_tiles.h"

/* c = a b; strides in elements. k = 0 gives zeros; c is never read. */
typedef struct mfi_gemm {
    mfi_ctype type;
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t am, ak, bk, bn, cm, cn;
} mfi_gemm;

typedef struct mfi_gemm_engine {
    const char *name;
    bool threaded; /* multiplies on threads of its own */
    void (*multiply)(const void *engine, const mfi_gemm *g);
    /* Threaded: have it work on the calling thread alone, whichever that is, until `share`. False: it cannot. */
    bool (*alone)(const void *engine);
    void (*share)(const void *engine);
    /* The upper triangle of c where b is the transpose of a; NULL: it has no shorter way. */
    void (*symmetric)(const void *engine, const mfi_gemm *g);
} mfi_gemm_engine;

/* How a problem will be cut up; depends on the problem and the number of threads only. */
typedef struct mfi_matmul_layout {
    int batch_dims; /* those that remain after merging batches into m */
    int64_t batch, m, n, k;
    int64_t am, ak, bk, bn;
    mfi_ctype type;
    bool loops;                           /* so small that plain loops beat a library call */
    bool items;                           /* threads share the batch; otherwise they share each product */
    bool a_direct, b_direct;              /* no packing */
    const mfi_operand *direct, *in_place; /* the store that products are written to: final, or before the chain */
    int64_t cm, cn;
    int64_t panel;   /* rows, or items of the batch, at a time */
    int64_t square;  /* edge of square tiles where b is the transpose of a: half of them are needed; or 0 */
    mfi_tiles tiles; /* instead of panels, where a library works alone on each of our threads */
    size_t a_bytes, b_bytes, c_bytes; /* of the packing buffers and of a panel of the product */
    size_t workspace;
} mfi_matmul_layout;
/* rank: of the tiling, among the best by estimate; false: there is none of that rank. */
bool mfi_matmul_plan(mfi_matmul_layout *l, const mfi_problem *p, bool loops, int threads, int rank);

mf_status mfi_matmul_cpu_new(void **state, const mfi_problem *p, const mfi_gemm_engine *engine, const void *self,
                             bool loops, int threads, int rank);
mf_status mfi_matmul_cpu_run(void *state, const mfi_run *run);
void mfi_matmul_cpu_free(void *state);

/* A library with row and leading-dimension addressing can take a rows x cols matrix with these strides. */
bool mfi_has_leading_dim(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride);

/* Plain loops (ref_gemm.c). They need bn == 1 and cn == 1. */
extern const mfi_gemm_engine mfi_loops_gemm;
/* Products of truth values in i32, 0 or 1, by bits (bits_gemm.c). It needs bn == 1 and cn == 1. */
extern const mfi_gemm_engine mfi_bits_gemm;

#endif
