/* A matmul step in cuBLASLt's terms. Shared by the cublaslt_*.c files only; needs no CUDA header. */
#ifndef MFI_CUBLASLT_H
#define MFI_CUBLASLT_H

#include "cuda_pass.h"

/* The chain as alpha * scale[0] * scale[1] * acc + beta * residual + bias, then an activation, then result_scale. `aux`
 * takes the value before the activation; DGELU multiplies by gelu's derivative at `aux`, which it reads. Operands are
 * indices into the chain; -1: none. */
typedef enum mfi_lt_activation { MFI_LT_NONE, MFI_LT_RELU, MFI_LT_GELU, MFI_LT_DGELU } mfi_lt_activation;
/* Given beside the result, into `beside`: D summed along its rows' direction, an operand summed over k, the largest
 * absolute value before result_scale. */
typedef enum mfi_lt_beside {
    MFI_LT_NOTHING,
    MFI_LT_SUM_RESULT,
    MFI_LT_SUM_LEFT,
    MFI_LT_SUM_RIGHT,
    MFI_LT_LARGEST
} mfi_lt_beside;
typedef struct mfi_lt_epilogue {
    double alpha[2], beta[2];
    int residual, bias, store, aux, beside;
    int scale[2], result_scale; /* single values in memory */
    bool outer;                 /* scale: vectors, one value for each row of left and each column of right */
    bool bias_along_m;          /* else along n */
    mfi_lt_activation activation;
    mfi_lt_beside kind; /* of beside */
} mfi_lt_epilogue;

/* A column-major matrix as cuBLASLt sees it. Looped batch strides are in elements, like the others. */
typedef struct mfi_lt_matrix {
    const mfi_view *view;
    int64_t rows, columns, ld, batch_stride;
    int64_t loop_stride[MF_MAX_DIMS];
    bool transposed;
    uint32_t alignment; /* of every address the library will see */
    bool packed;        /* view is a copy in workspace, at this offset in bytes */
    size_t workspace;
} mfi_lt_matrix;

/* An operand whose strides cuBLASLt cannot take, copied into ones that it can. */
typedef struct mfi_lt_copy {
    const mfi_view *source; /* NULL: none */
    mfi_view packed;
    int64_t shape[MF_MAX_DIMS];
    size_t bytes;
} mfi_lt_copy;

/* D is computed as it lies: row-major D as the column-major D^T = B^T A^T. left x right gives d. */
typedef struct mfi_lt_spec {
    mfi_lt_epilogue epilogue;
    mfi_lt_matrix left, right, c, d, aux; /* c.view, aux.view NULL: none */
    int64_t rows, columns, inner;
    int64_t batch; /* strided batch of one call */
    int loops;     /* outer batch dims, one call per element */
    int64_t loop_shape[MF_MAX_DIMS];
    int64_t calls;
    bool tf32, fp8, int8;
    mfi_lt_copy copy[2]; /* of left, right */
    size_t packed_bytes; /* both; cuBLASLt's workspace follows */
} mfi_lt_spec;

/* Match the chain. `row_major`: D is row-major (bias along n can be expressed), else column-major (along m).
 * False: refused, reason in bid. */
bool mfi_lt_match(mfi_lt_epilogue *out, const mfi_problem *p, bool row_major, mfi_bid *bid);
/* The spec points into itself: describe in place, do not copy. */
bool mfi_lt_describe(mfi_lt_spec *out, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid);
static inline bool mfi_lt_is_fp8(mf_dtype d)
{
    return d == MF_E4M3 || d == MF_E5M2;
}
const char *mfi_lt_epilogue_name(const mfi_lt_epilogue *e);

/* cublaslt_run.c */
mf_status mfi_lt_prepare(void **state, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid);
mf_status mfi_lt_run(void *state, const mfi_run *run);
void mfi_lt_destroy(void *state);
mf_status mfi_lt_kernel(void *state, int index, mf_kernel_info *out);
size_t mfi_lt_workspace_limit(const mfi_caps *c);

int mfi_lt_variants(const mfi_problem *p, const mfi_caps *c);

#endif
