/* FFT steps on the CPU: batches, axes, packing, padding, scaling and the chain, over an engine that transforms lines.
 */
#ifndef MFI_FFT_CPU_H
#define MFI_FFT_CPU_H

#include "cpu_step.h"
#include "fft_ref.h"

/* Transforms of `count` lines of one length and geometry. */
typedef struct mfi_line_geometry {
    mf_fft_kind kind;
    int64_t n;
    bool f64, in_place;
    int64_t in_stride, in_dist, out_stride, out_dist;
    int64_t count; /* lines of most calls; others have fewer */
} mfi_line_geometry;

typedef struct mfi_fft_engine {
    const char *name;
    bool keeps_c2r_input;
    mf_status (*plan)(void **out, const mfi_line_geometry *geometry);
    size_t (*scratch)(const void *plan);                                             /* bytes for one thread */
    mf_status (*run)(void *plan, void *in, void *out, int64_t count, void *scratch); /* thread-safe */
    void (*free)(void *plan);
} mfi_fft_engine;

mf_status mfi_fft_cpu_new(void **state, const mfi_problem *p, const mfi_fft_engine *engine, int threads);
mf_status mfi_fft_cpu_run(void *state, const mfi_run *run);
void mfi_fft_cpu_free(void *state);

#endif
