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

/* owns_input: it may be overwritten. */
mf_status mfi_fft_cpu_new(void **state, const mfi_problem *p, const mfi_fft_engine *engine, int threads,
                          bool owns_input);
mf_status mfi_fft_cpu_run(void *state, const mfi_run *run);
void mfi_fft_cpu_free(void *state);
/* Whether `holds` is true of the engine's plan of some axis. */
bool mfi_fft_cpu_some(const void *state, bool (*holds)(const void *plan));

/* As a part of a step, made for one thread: up to so many items of the batch at a time, with buffers of the calling thread. */
int64_t mfi_fft_cpu_block(const void *state);
void *mfi_fft_cpu_buffers(const void *state); /* NULL without memory */
void mfi_fft_cpu_release(void *buffers);
void mfi_fft_cpu_items(const void *state, void *const *slots, int64_t first, int64_t items, const void *buffers,
                       mfi_first_error *error);

/* fft_cpu_pair.c: FFT_PAIR, block by block, so that what one part makes is in cache when the next reads it. */
bool mfi_fft_pair_query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid);
mf_status mfi_fft_pair_new(void **state, const mfi_problem *p, const mfi_fft_engine *engine, int threads);
mf_status mfi_fft_pair_run(void *state, const mfi_run *run);
void mfi_fft_pair_free(void *state);

#endif
