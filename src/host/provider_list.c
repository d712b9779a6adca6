/* The providers, best first where estimates tie; the reference is last. */
#include "provider.h"

extern const mfi_provider mfi_provider_cublaslt, mfi_provider_cufft, mfi_provider_cusolver, mfi_provider_generated,
    mfi_provider_fft_generated, mfi_provider_gemm_generated, mfi_provider_gemm_skinny, mfi_provider_solve_generated,
    mfi_provider_together;
extern const mfi_provider mfi_provider_blas, mfi_provider_fftw, mfi_provider_lanes, mfi_provider_lapack,
    mfi_provider_ref;

const mfi_provider *const mfi_providers[] = {
    &mfi_provider_cublaslt,       &mfi_provider_cufft,
    &mfi_provider_cusolver,       &mfi_provider_gemm_skinny,
    &mfi_provider_gemm_generated, &mfi_provider_solve_generated,
    &mfi_provider_together,       &mfi_provider_generated,
    &mfi_provider_fft_generated,  &mfi_provider_blas,
    &mfi_provider_fftw,           &mfi_provider_lanes,
    &mfi_provider_lapack,         &mfi_provider_ref,
};
const int mfi_provider_count = (int)MFI_COUNT(mfi_providers);
