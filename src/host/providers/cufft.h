/* An FFT step in cuFFT's terms. Shared by the cufft*.c files only; needs no CUDA header. */
#ifndef MFI_CUFFT_H
#define MFI_CUFFT_H

#include "cuda_pass.h"

#define MFI_CUFFT_RANK 3
#define MFI_CUFFT_STAGES (MF_MAX_DIMS / MFI_CUFFT_RANK)

typedef enum mfi_cufft_buffer { MFI_CUFFT_IN, MFI_CUFFT_WORK_IN, MFI_CUFFT_WORK_OUT, MFI_CUFFT_OUT } mfi_cufft_buffer;

/* Memory of one side: element (i0, i1, i2) of signal b lies at b * dist + ((i0 * embed[1] + i1) * embed[2] + i2) *
 * stride. */
typedef struct mfi_cufft_side {
    mfi_cufft_buffer buffer;
    int64_t embed[MFI_CUFFT_RANK], stride, dist;
    int64_t loop_stride[MF_MAX_DIMS];
} mfi_cufft_side;

/* One cuFFT plan, executed `calls` times along the looped batch dims. */
typedef struct mfi_cufft_stage {
    mf_fft_kind kind;
    int rank, loops;
    int64_t n[MFI_CUFFT_RANK], batch, calls;
    int64_t loop_shape[MF_MAX_DIMS];
    mfi_cufft_side in, out;
} mfi_cufft_stage;

typedef struct mfi_cufft_spec {
    bool copy_in, copy_out; /* through workspace, converted to what cuFFT reads and from what it writes */
    bool hermitian;         /* C2R over several axes: a kernel makes the planes Hermitian; over one, the copy does */
    bool scale_out;         /* neither copy is there to scale: one more pass over the result */
    bool f64;
    double scale[2];
    const mfi_view *in, *out;
    mf_dtype in_dtype, out_dtype; /* of cuFFT's own input and output */
    int batch_dims, stages;
    int64_t in_shape[MF_MAX_DIMS], in_extent[MF_MAX_DIMS]; /* per domain dim; -1: not cut */
    mfi_view work_in, work_out;                            /* contiguous */
    size_t in_bytes, out_bytes;                            /* of those, 0 without */
    mfi_cufft_stage stage[MFI_CUFFT_STAGES];
} mfi_cufft_spec;

bool mfi_cufft_describe(mfi_cufft_spec *out, const mfi_problem *p, mfi_bid *bid);

/* cufft_run.c */
mf_status mfi_cufft_prepare(void **state, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid);
mf_status mfi_cufft_run(void *state, const mfi_run *run);
void mfi_cufft_destroy(void *state);
mf_status mfi_cufft_kernel(void *state, int index, mf_kernel_info *out);

#endif
