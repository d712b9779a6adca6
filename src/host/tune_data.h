/* What tuning runs a plan on: random arrays in several copies, and what the results must be. */
#ifndef MFI_TUNE_DATA_H
#define MFI_TUNE_DATA_H

#include "plan_internal.h"

enum { MFI_MAX_SETS = 8 };

typedef struct mfi_tune_data {
    mf_context *context;
    const mfi_caps *caps;
    void *stream;
    int inputs, bindings, sets;
    mf_tensor *tensor[MFI_MAX_SETS]; /* as planned for, with memory */
    void **memory;                   /* [sets * bindings] to release */
    void *scratch[MFI_MAX_SETS];
    size_t scratch_bytes;
    const mf_graph *graph;
    mf_tensor *expected; /* [bindings]: on the host; of the outputs only */
    void **expected_memory;
    char *host;        /* room for the largest output */
    void *begin, *end; /* CUDA events */
    mf_plan *reader;   /* of what fills the caches: a GPU's; made on first use, as `rubbish` is */
    mf_tensor rubbish, sum;
    char reference[64]; /* what `expected` comes from */
} mfi_tune_data;

/* Random inputs for `plan`; if `verify`, its outputs by an unfused run on the CPU, too. */
mf_status mfi_tune_data_new(mfi_tune_data **out, const mf_plan *plan, void *stream, bool verify);
void mfi_tune_data_free(mfi_tune_data *data);

/* How far the outputs of set 0 are from what they must be: the largest relative error in the 2-norm; infinity where
 * NaNs differ. */
mf_status mfi_tune_error(double *out, const mfi_tune_data *data);
/* One real number: an element, or a part of a complex one. */
void mfi_tune_store(mf_dtype dtype, char *at, double value);
double mfi_tune_load(mf_dtype dtype, const char *at);
/* Where matrix `number` of the last two axes begins, in elements. */
int64_t mfi_tune_matrix(const mf_tensor *tensor, int64_t number);
/* tune_phase.c: of one decomposition, the factors of modulus one by which its vectors differ from those expected. */
typedef struct mfi_tune_turns {
    int factor; /* its node; -1: none yet */
    int64_t count;
    double (*value)[2];
} mfi_tune_turns;
/* Where an output has such vectors: turn those of `got`, whose element 0 is given, as `want` has them. */
mf_status mfi_tune_turn(mfi_tune_turns *turns, const mf_graph *graph, int output, const mf_tensor *want, char *got);
void mfi_tune_turns_free(mfi_tune_turns *turns);
double mfi_tune_now_us(void);            /* tune_clock.c */
double mfi_tune_epsilon(mf_dtype dtype); /* half the distance of 1 to the next number; 0 for integers */
/* Run all of `plan` on set `set`. On a GPU wait for it, `seconds` at most; *hung: it took longer. */
mf_status mfi_tune_run(mfi_tune_data *data, mf_plan *plan, int set, double seconds, bool *hung);
/* The step's launches, or all, without waiting. */
mf_status mfi_tune_submit(mfi_tune_data *data, mf_plan *plan, int index, int set);
/* Microseconds of step `index` (-1: all of them), the mean of one sample long enough to be timed; *runs remembers how many
 * that are, 0 at first. */
mf_status mfi_tune_time(double *us, mfi_tune_data *data, mf_plan *plan, int index, int *runs);
/* tune_alone.c: the same of a single run while the caches hold something else; *runs counts them. */
mf_status mfi_tune_time_alone(double *us, mfi_tune_data *data, mf_plan *plan, int index, int *runs);
void mfi_tune_free_rubbish(mfi_tune_data *data);
enum { MFI_LONGEST_S = 60 }; /* that a sample may take */
mf_status mfi_tune_ensure_scratch(mfi_tune_data *data, size_t bytes);

#endif
