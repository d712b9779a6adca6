/* The insides of a plan, shared by plan.c (decides), plan_run.c (runs) and explain.c (tells). */
#ifndef MFI_PLAN_INTERNAL_H
#define MFI_PLAN_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "provider.h"

struct mfi_schedule;

#define MFI_MAX_PROVIDERS 16

typedef struct mfi_refusal {
    const mfi_provider *provider;
    mfi_reason reason;
    char detail[160];
} mfi_refusal;

typedef struct mfi_step {
    const mfi_problem *problem;
    const mfi_provider *provider;
    void *state;
    mfi_bid bid;
    int refusals;
    mfi_refusal refusal[MFI_MAX_PROVIDERS];
} mfi_step;

/* Scratch memory of one run at a time. On a GPU it belongs to a stream, whose order keeps runs apart. */
typedef struct mfi_scratch {
    void *memory, *aligned;
    void *stream;
    bool busy;
    pthread_mutex_t submit; /* GPU: steps of one run are submitted together */
    struct mfi_scratch *next;
} mfi_scratch;

struct mf_plan {
    atomic_int references;
    mf_context *context;
    const mfi_caps *caps;
    mf_graph *graph; /* for plans of other layouts */
    int flags;
    char *providers;
    struct mfi_schedule *schedule; /* owns the problems */
    int steps, bindings, inputs, launches;
    mfi_step *step;
    mf_tensor *binding; /* what was planned for: inputs, outputs */
    bool *in_place;     /* [input]: an output may be this very view */
    int64_t bytes;
    size_t temporaries, workspace; /* workspace includes the temporaries */
    pthread_mutex_t lock;          /* guards the two lists below */
    mfi_scratch *scratch;
    struct mf_plan *variants; /* the same graph for other strides or alignments */
    struct mf_plan *next;
};

void mfi_plan_retain(mf_plan *plan);
void mfi_plan_release(mf_plan *plan); /* without the handle's hold on the context */
/* mf_plan_new without taking hold of the context. */
mf_status mfi_plan_make(mf_plan **out, mf_context *context, const mf_graph *graph, const mf_plan_options *options);
mf_status mfi_plan_check_options(const mf_plan_options *options);
int mfi_pointer_alignment(const void *data); /* power of two, at most 16 */
void mfi_plan_free_scratch(mf_plan *plan);

#endif
