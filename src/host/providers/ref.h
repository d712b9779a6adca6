/* Parts of the reference provider: one file per anchor. Others use its loops where a library would be slower. */
#ifndef MFI_REF_H
#define MFI_REF_H

#include "cpu_step.h"
#include "factor_cpu.h"
#include "fft_cpu.h"
#include "solve_cpu.h"

extern const mfi_fft_engine mfi_ref_fft_engine;

mf_status mfi_ref_solve_new(void **state, const mfi_problem *p, int threads);
mf_status mfi_ref_solve_run(void *state, const mfi_run *run);
void mfi_ref_solve_free(void *state);
/* One matrix of the batch on the calling thread. */
mf_status mfi_ref_solve_item(void *state, void *const *slots, int64_t item);

mf_status mfi_ref_factor_new(void **state, const mfi_problem *p, int threads);
mf_status mfi_ref_factor_run(void *state, const mfi_run *run);
void mfi_ref_factor_free(void *state);

#endif
