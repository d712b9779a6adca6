/* Plans: options, what is bound, making and freeing one. */
#include "plan_internal.h"
#include "context_internal.h"
#include "cuda_api.h"
#include "nodes.h"
#include "schedule.h"

#include <stdio.h>

mf_status mfi_plan_check_options(const mf_plan_options *o)
{
    MF_REQUIRE(o->size == sizeof *o, MF_E_INVALID,
               "mf_plan_options.size is %zu; set it with MF_PLAN_OPTIONS_INIT (%zu)", o->size, sizeof *o);
    MF_REQUIRE(!(o->flags & ~(MF_PLAN_MATCH_UNFUSED | MF_PLAN_NO_FUSION)), MF_E_INVALID,
               "mf_plan_options.flags 0x%x has unknown bits", (unsigned)o->flags);
    MF_REQUIRE(o->tune >= MF_TUNE_DEFAULT && o->tune <= MF_TUNE_REQUIRE, MF_E_INVALID,
               "mf_plan_options.tune is %d; it is one of MF_TUNE_*", (int)o->tune);
    for (const char *p = o->providers ? o->providers + (o->providers[0] == '-') : ""; *p;) {
        size_t n = strcspn(p, ", ");
        bool known = n == 0;
        for (int i = 0; i < mfi_provider_count; i++)
            known |= strlen(mfi_providers[i]->name) == n && !strncmp(mfi_providers[i]->name, p, n);
        MF_REQUIRE(known, MF_E_INVALID, "no provider is called \"%.*s\"; see mf_plan_explain for their names", (int)n,
                   p);
        p += n + (p[n] != 0);
    }
    return MF_OK;
}

/* ---- a plan ---- */

static mf_status default_bindings(mf_plan *plan, const mf_plan_options *o)
{
    const mf_graph *g = plan->graph;
    plan->inputs = g->inputs;
    plan->bindings = g->inputs + g->outputs;
    plan->binding = mfi_calloc((size_t)plan->bindings, sizeof *plan->binding);
    plan->in_place = mfi_calloc((size_t)plan->bindings, sizeof *plan->in_place);
    if (!plan->binding || !plan->in_place)
        return MFI_NO_MEMORY((size_t)plan->bindings * sizeof *plan->binding);
    for (int i = 0; i < g->count; i++)
        if (g->node[i].kind == MFI_N_INPUT)
            MF_TRY(mf_tensor_init(&plan->binding[g->node[i].u.input], NULL, g->node[i].dtype, g->node[i].ndim,
                                  g->node[i].shape));
    for (int k = 0; k < g->outputs; k++) {
        const mfi_node *n = &g->node[g->output[k]];
        MF_TRY(mf_tensor_init(&plan->binding[g->inputs + k], NULL, n->dtype, n->ndim, n->shape));
    }
    MF_REQUIRE(!o->bindings || o->binding_count == g->inputs || o->binding_count == plan->bindings, MF_E_INVALID,
               "mf_plan_options.binding_count is %d; it is the number of inputs (%d) or of inputs and outputs (%d)",
               o->binding_count, g->inputs, plan->bindings);
    for (int i = 0; o->bindings && i < o->binding_count; i++) {
        const mf_tensor *t = &o->bindings[i];
        bool same = t->dtype == plan->binding[i].dtype && t->ndim == plan->binding[i].ndim;
        for (int d = 0; same && d < t->ndim; d++)
            same = t->shape[d] == plan->binding[i].shape[d];
        MF_REQUIRE(same, MF_E_SHAPE, "binding %d differs in dtype or shape from the graph's %s %d", i,
                   i < g->inputs ? "input" : "output", i < g->inputs ? i : i - g->inputs);
        plan->binding[i] = *t;
    }
    return MF_OK;
}

static mf_status blank(mf_plan **out, mf_context *context, const mf_graph *graph, const mf_plan_options *o)
{
    MF_TRY(mf_graph_error(graph));
    MF_REQUIRE(graph->outputs > 0, MF_E_INVALID, "the graph has no output; call mf_graph_output");
    mf_plan *plan = mfi_calloc(1, sizeof *plan);
    if (!plan)
        return MFI_NO_MEMORY(sizeof *plan);
    atomic_init(&plan->references, 1);
    atomic_init(&plan->tuned, NULL);
    pthread_mutex_init(&plan->lock, NULL);
    plan->context = context;
    plan->caps = mfi_context_caps(context);
    plan->flags = o->flags;
    plan->providers = o->providers && o->providers[0] ? mfi_strdup(o->providers) : NULL;
    mf_status status = mfi_graph_copy(&plan->graph, graph);
    if (status == MF_OK)
        status = default_bindings(plan, o);
    if (status == MF_OK)
        status = mfi_tune_policy(&plan->tune, o->tune);
    if (status != MF_OK) {
        mfi_plan_release(plan);
        return status;
    }
    *out = plan;
    return MF_OK;
}

static void tell(const mf_plan *plan)
{
    for (int i = 0; mfi_log_on(MFI_LOG_PLAN) && i < plan->steps; i++) {
        mfi_text text = {0};
        mfi_problem_text(plan->step[i].problem, &text);
        mfi_log(MFI_LOG_PLAN, "step %d of %d: %s: %s %s", i + 1, plan->steps, text.data ? text.data : "",
                plan->step[i].provider->name, plan->step[i].bid.kernel);
        mfi_text_free(&text);
    }
}

/* By what was tuned, if that still holds; else by estimates. */
static mf_status decide(mf_plan *plan)
{
    if (plan->tune != MF_TUNE_OFF && mfi_tune_look_up(plan, &plan->choice)) {
        if (mfi_plan_decide(plan) == MF_OK)
            return MF_OK;
        mfi_log(MFI_LOG_TUNE, "a record does not hold any more and is ignored: %s", mf_error_message(MF_E_UNSUPPORTED));
        mfi_plan_undecide(plan);
        memset(&plan->choice, 0, sizeof plan->choice);
        mf_free(plan->tuning);
        plan->tuning = NULL;
    }
    MF_REQUIRE(
        plan->tune != MF_TUNE_REQUIRE, MF_E_STATE,
        "tune=\"require\" and no tuning record holds for this plan here; tune it first (mf_plan_tune, plan.tune(), "
        "mathfuse tune), or ask for \"cached\" or \"measure\"");
    MF_TRY(mfi_plan_decide(plan));
    return plan->tune == MF_TUNE_MEASURE && plan->caps->present ? mf_plan_tune(plan, NULL) : MF_OK;
}

mf_status mfi_plan_make(mf_plan **out, mf_context *context, const mf_graph *graph, const mf_plan_options *o)
{
    mf_plan *plan;
    MF_TRY(blank(&plan, context, graph, o));
    mf_status status = decide(plan);
    if (status != MF_OK) {
        mfi_plan_release(plan);
        return status;
    }
    tell(plan);
    *out = plan;
    return MF_OK;
}

mf_status mfi_plan_make_chosen(mf_plan **out, mf_context *context, const mf_graph *graph, const mf_plan_options *o,
                               const mfi_choice *choice)
{
    mf_plan *plan;
    *out = NULL;
    MF_TRY(blank(&plan, context, graph, o));
    plan->choice = *choice;
    mf_status status = mfi_plan_decide(plan);
    if (status != MF_OK) {
        mfi_plan_release(plan);
        return status;
    }
    *out = plan;
    return MF_OK;
}

mf_plan_options mfi_plan_options_of(const mf_plan *plan)
{
    mf_plan_options o = MF_PLAN_OPTIONS_INIT;
    o.flags = plan->flags;
    o.providers = plan->providers;
    o.bindings = plan->binding;
    o.binding_count = plan->bindings;
    o.tune = plan->tune;
    return o;
}

mf_status mf_plan_new(mf_plan **out, mf_context *context, const mf_graph *graph, const mf_plan_options *options)
{
    const mf_plan_options defaults = MF_PLAN_OPTIONS_INIT;
    MF_REQUIRE(out, MF_E_INVALID, "mf_plan_new: out is NULL");
    *out = NULL;
    MF_REQUIRE(context && graph, MF_E_INVALID, "mf_plan_new: %s is NULL", context ? "graph" : "context");
    options = options ? options : &defaults;
    MF_TRY(mfi_plan_check_options(options));
    MF_TRY(mfi_plan_make(out, context, graph, options));
    mfi_context_retain(context);
    return MF_OK;
}

void mfi_plan_retain(mf_plan *plan)
{
    atomic_fetch_add(&plan->references, 1);
}

void mfi_plan_release(mf_plan *plan)
{
    if (atomic_fetch_sub(&plan->references, 1) != 1)
        return;
    (void)mfi_context_make_current(plan->context);
    while (plan->variants) {
        mf_plan *v = plan->variants;
        plan->variants = v->next;
        mfi_plan_release(v);
    }
    for (mf_plan *tuned = atomic_load(&plan->tuned), *next; tuned; tuned = next) {
        next = tuned->next;
        mfi_plan_release(tuned);
    }
    mfi_plan_free_scratch(plan);
    mfi_plan_undecide(plan);
    mf_graph_free(plan->graph);
    mf_free(plan->tuning);
    mf_free(plan->binding);
    mf_free(plan->in_place);
    mf_free(plan->providers);
    pthread_mutex_destroy(&plan->lock);
    mf_free(plan);
}

void mf_plan_free(mf_plan *plan)
{
    if (!plan)
        return;
    mf_context *context = plan->context;
    mfi_plan_release(plan);
    mf_context_free(context);
}
