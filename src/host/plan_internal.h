/* The insides of a plan, shared by plan.c (decides), plan_run.c (runs) and explain.c (tells). */
#ifndef MFI_PLAN_INTERNAL_H
#define MFI_PLAN_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "choice.h"
#include "tune_db.h"

struct mfi_schedule;

#define MFI_MAX_PROVIDERS 16
#define MFI_ANY_OUTPUT (-1)

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
    mf_tune_policy tune;
    char *providers;
    struct mfi_schedule *schedule; /* owns the problems */
    int steps, bindings, inputs, launches;
    mfi_step *step;
    mf_tensor *binding; /* what was planned for: inputs, outputs */
    int *in_place;      /* [input]: the slot that may be this very view, MFI_ANY_OUTPUT, or 0 for none */
    int64_t bytes;
    size_t temporaries, workspace; /* workspace includes the temporaries */
    pthread_mutex_t lock;          /* guards the two lists below */
    mfi_scratch *scratch;
    struct mf_plan *variants; /* the same graph for other strides or alignments */
    struct mf_plan *next;
    mfi_choice choice;               /* what was asked for, steps 0: nothing; grouping also of a plan by estimates */
    char *tuning;                    /* JSON of mf_plan_tuning; NULL: nothing is known */
    _Atomic(struct mf_plan *) tuned; /* runs in this one's place; its `next` are older ones, which may still run */
};

/* The plan that runs: this one, or what tuning made of it. */
static inline mf_plan *mfi_plan_current(const mf_plan *plan)
{
    mf_plan *tuned = atomic_load_explicit(&((mf_plan *)plan)->tuned, memory_order_acquire);
    return tuned ? tuned : (mf_plan *)plan;
}

void mfi_plan_retain(mf_plan *plan);
void mfi_plan_release(mf_plan *plan); /* without the handle's hold on the context */
/* mf_plan_new without taking hold of the context. */
mf_status mfi_plan_make(mf_plan **out, mf_context *context, const mf_graph *graph, const mf_plan_options *options);
/* The same with this choice, whatever was tuned. */
mf_status mfi_plan_make_chosen(mf_plan **out, mf_context *context, const mf_graph *graph,
                               const mf_plan_options *options, const mfi_choice *choice);
/* Options that make `plan` again, bindings included; they borrow from it. */
mf_plan_options mfi_plan_options_of(const mf_plan *plan);
/* plan_decide.c: steps for plan->binding and plan->choice; and back. */
mf_status mfi_plan_decide(mf_plan *plan);
void mfi_plan_undecide(mf_plan *plan);
bool mfi_plan_bids(const mf_plan *plan, const mfi_problem *p, const mfi_provider *provider, double *cost_us);
/* What step `p` is estimated to cost, in one or cut in two. */
mf_status mfi_plan_step_cost(double *cost_us, const mf_plan *plan, const mfi_problem *p);
/* plan_together.c */
mf_status mfi_plan_join_together(mf_plan *plan);
/* plan_memory.c: offsets of the temporaries, their sum; outputs that may be an input; how many bytes a number of plans may keep,
 * of the host or of the device. */
size_t mfi_plan_memory_limit(const mfi_caps *caps);
size_t mfi_place_temporaries(struct mfi_schedule *s);
void mfi_plan_find_in_place(mf_plan *plan);
/* plan_run.c: step `index` or, with -1, all steps on these tensors. */
mf_status mfi_plan_submit(mf_plan *plan, int index, const mf_tensor *tensors, void *stream, void *scratch);
/* plan_cache.c: hash of graph, layouts and options as hexadecimal text; forget the cached plans of that graph. */
void mfi_plan_hash(const mf_plan *plan, char out[40]);
/* tune_plan.c: what the database says for this plan; false: nothing. The policy, with the environment's in the place of
 * MF_TUNE_DEFAULT. */
mf_status mfi_tune_key_of(mfi_tune_key *out, const mf_plan *plan);
bool mfi_tune_look_up(mf_plan *plan, mfi_choice *out);
char *mfi_tuning_json(const mfi_tune_key *key, const mfi_tune_record *record, const char *source);
void mfi_plan_title(const mf_plan *plan, mfi_text *out); /* its steps in words */
mf_status mfi_tune_policy(mf_tune_policy *out, mf_tune_policy asked);
mf_status mfi_plan_check_options(const mf_plan_options *options);
int mfi_pointer_alignment(const void *data); /* power of two, at most 16 */
void mfi_plan_free_scratch(mf_plan *plan);

#endif
