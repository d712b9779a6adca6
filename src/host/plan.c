/* Decide: ask every provider for each step, cut chains that none can fuse, choose, prepare. */
#include "plan_internal.h"
#include "context_internal.h"
#include "cuda_api.h"
#include "nodes.h"
#include "schedule.h"

#include <stdio.h>

/* ---- which providers may be used ---- */

static bool named(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ", ");
        if (n == length && !strncmp(p, name, n))
            return true;
        p += n + (p[n] != 0);
    }
    return false;
}

static bool allowed(const char *list, const mfi_provider *provider)
{
    if (!list)
        return true;
    return list[0] == '-' ? !named(list + 1, provider->name) : named(list, provider->name);
}

mf_status mfi_plan_check_options(const mf_plan_options *o)
{
    MF_REQUIRE(o->size == sizeof *o, MF_E_INVALID,
               "mf_plan_options.size is %zu; set it with MF_PLAN_OPTIONS_INIT (%zu)", o->size, sizeof *o);
    MF_REQUIRE(!(o->flags & ~(MF_PLAN_MATCH_UNFUSED | MF_PLAN_NO_FUSION)), MF_E_INVALID,
               "mf_plan_options.flags 0x%x has unknown bits", (unsigned)o->flags);
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

/* ---- bids ---- */

typedef struct offers {
    mfi_bid bid[MFI_MAX_PROVIDERS];
    bool made[MFI_MAX_PROVIDERS];
    int best; /* -1: all refused */
} offers;

static void choose(offers *o)
{
    o->best = -1;
    for (int i = 0; i < mfi_provider_count; i++)
        if (o->made[i] && (o->best < 0 || o->bid[i].cost_us < o->bid[o->best].cost_us))
            o->best = i;
}

static void ask(offers *o, const mf_plan *plan, const mfi_problem *p)
{
    mfi_context_prepare(plan->context, p->anchor);
    for (int i = 0; i < mfi_provider_count; i++) {
        memset(&o->bid[i], 0, sizeof o->bid[i]);
        if (!allowed(plan->providers, mfi_providers[i]))
            o->made[i] = mfi_refuse(&o->bid[i], MFI_R_EXCLUDED, "by the option providers=\"%s\"", plan->providers);
        else
            o->made[i] = mfi_providers[i]->query(p, plan->caps, &o->bid[i]);
    }
    choose(o);
}

static double cost(const offers *o)
{
    return o->best < 0 ? 1e300 : o->bid[o->best].cost_us;
}

/* The cut that is estimated to be cheaper than *cost_us, running `p` whole; -1 if none is. Updates *cost_us. */
static mf_status best_cut(int *cut, const mf_plan *plan, const mfi_problem *p, double *cost_us)
{
    *cut = -1;
    for (int at = 0; at < p->chain.count; at++) {
        if (!mfi_can_split(p, at))
            continue;
        mfi_problem *head = mfi_alloc(sizeof *head), *rest;
        if (!head)
            return MFI_NO_MEMORY(sizeof *head);
        *head = *p;
        mf_status status = mfi_split(&rest, head, at, 0, mfi_split_dtype(p, at));
        if (status == MF_OK) {
            offers first, second;
            ask(&first, plan, head);
            ask(&second, plan, rest);
            if (cost(&first) + cost(&second) < *cost_us) {
                *cost_us = cost(&first) + cost(&second);
                *cut = at;
            }
            mf_free(rest);
        }
        mf_free(head);
        MF_TRY(status);
    }
    return MF_OK;
}

static bool single_store(const mfi_problem *p)
{
    int stores = 0;
    for (int i = 0; i < p->chain.count; i++)
        stores += p->chain.instr[i].kind == MFI_STORE;
    return stores == 1;
}

/* Cut step `index` of the schedule where that pays. */
static mf_status cut_step(mf_plan *plan, int index)
{
    mfi_schedule *s = plan->schedule;
    mfi_problem *p = s->step[index], *rest;
    offers whole;
    int at;
    if (p->anchor != MFI_MATMUL && p->anchor != MFI_FFT)
        return MF_OK;
    ask(&whole, plan, p);
    double cost_us = cost(&whole);
    MF_TRY(best_cut(&at, plan, p, &cost_us));
    if (at < 0)
        return MF_OK;
    mf_dtype dtype = mfi_split_dtype(p, at);
    /* A narrow crossing means that only relu follows: the result's own memory serves, in place. */
    bool in_place = dtype != mfi_ctype_dtype((mfi_ctype)p->chain.instr[at].ctype) && single_store(p);
    int slot = in_place ? -1 : mfi_schedule_temp(s, dtype, p->ndim, p->shape);
    MF_REQUIRE(in_place || slot >= 0, MF_E_MEMORY, "out of memory for the plan's buffers");
    MF_TRY(mfi_split(&rest, p, at, slot, dtype));
    return mfi_schedule_insert(s, index + 1, rest);
}

/* What step `p` is estimated to cost, in one or cut in two. */
static mf_status step_cost(double *cost_us, const mf_plan *plan, const mfi_problem *p)
{
    offers whole;
    int cut;
    ask(&whole, plan, p);
    *cost_us = cost(&whole);
    return best_cut(&cut, plan, p, cost_us);
}

/* Make steps `index` and index + 1 one where that pays. */
static mf_status pair_steps(bool *joined, mf_plan *plan, int index)
{
    *joined = false;
    mfi_schedule *s = plan->schedule;
    mfi_problem *pair;
    offers together;
    double first, second;
    MF_TRY(mfi_pair(&pair, s, index));
    if (!pair)
        return MF_OK;
    ask(&together, plan, pair);
    mf_status status = step_cost(&first, plan, s->step[index]);
    if (status == MF_OK)
        status = step_cost(&second, plan, s->step[index + 1]);
    *joined = status == MF_OK && cost(&together) <= 1.001 * (first + second); /* arithmetic alone costs the same */
    if (*joined)
        mfi_schedule_join(s, index, pair);
    else
        mfi_problem_free(pair);
    return status;
}

/* Let step `index` store only what others read of its result, where that pays. */
static void narrow_step(mf_plan *plan, int index)
{
    mfi_problem *p = plan->schedule->step[index];
    int64_t *terms = &p->shape[p->ndim - 1], all = *terms, read = mfi_terms_read(plan->schedule, index);
    offers whole, part;
    if (read >= all)
        return;
    ask(&whole, plan, p);
    *terms = read;
    ask(&part, plan, p);
    if (cost(&part) >= cost(&whole))
        *terms = all;
}

/* Of a step whose kernel could not be made: one that others can run, too, or two in place of a pair. */
static mf_status retreat(bool *retry, mf_plan *plan, int index)
{
    mfi_problem *p = plan->schedule->step[index];
    *retry = mfi_fft_is_narrow(p) || p->anchor == MFI_FFT_PAIR;
    if (mfi_fft_is_narrow(p)) {
        p->shape[p->ndim - 1] = mfi_fft_terms(&p->u.fft);
    } else if (*retry) {
        MF_TRY(mfi_schedule_part(plan->schedule, index));
        for (int k = 0; k < 2; k++)
            MF_TRY(cut_step(plan, index + 1 - k));
    }
    return MF_OK;
}

/* ---- preparing ---- */

static void refuse(mfi_step *step, const mfi_provider *provider, mfi_reason reason, const char *detail)
{
    mfi_refusal *r = &step->refusal[step->refusals++];
    *r = (mfi_refusal){.provider = provider, .reason = reason};
    snprintf(r->detail, sizeof r->detail, "%s", detail);
}

static mf_status nobody(const mf_plan *plan, const mfi_step *step)
{
    mfi_text text = {0};
    bool listed = plan->providers && plan->providers[0] != '-';
    mfi_reason obvious = listed ? MFI_R_EXCLUDED : MFI_R_WRONG_TARGET;
    mfi_problem_text(step->problem, &text);
    mfi_text_add(&text, ": no provider can run this step:");
    for (int i = 0; i < step->refusals; i++)
        if (step->refusal[i].reason != obvious)
            mfi_text_add(&text, " %s: %s (%s);", step->refusal[i].provider->name,
                         mfi_reason_text(step->refusal[i].reason), step->refusal[i].detail);
    mf_status status = mfi_fail(MF_E_UNSUPPORTED, "%s", text.data ? text.data : "no provider can run a step");
    mfi_text_free(&text);
    return status;
}

/* Prepare the cheapest willing provider; one that fails to prepare has refused after all. */
static mf_status prepare_step(mf_plan *plan, mfi_step *step)
{
    offers o;
    ask(&o, plan, step->problem);
    for (int i = 0; i < mfi_provider_count; i++)
        if (!o.made[i])
            refuse(step, mfi_providers[i], o.bid[i].reason, o.bid[i].detail);
    mf_status status = MF_E_UNSUPPORTED;
    while (o.best >= 0) {
        int i = o.best;
        step->bid = o.bid[i];
        status = mfi_providers[i]->prepare(&step->state, step->problem, plan->caps, plan->context, &step->bid);
        o.made[i] = false;
        choose(&o);
        if (status == MF_OK) {
            step->provider = mfi_providers[i];
            break;
        }
        if (status == MF_E_MEMORY)
            return status;
        refuse(step, mfi_providers[i], MFI_R_NOT_ANCHOR, mf_error_message(status));
        if (o.best < 0)
            return status == MF_E_UNSUPPORTED ? nobody(plan, step) : mfi_prefix(status, "%s: ", mfi_providers[i]->name);
    }
    if (!step->provider)
        return nobody(plan, step);
    for (int i = 0; i < mfi_provider_count; i++)
        if (o.made[i]) {
            char detail[160];
            snprintf(detail, sizeof detail, "estimated %.1f us against %.1f us", o.bid[i].cost_us, step->bid.cost_us);
            refuse(step, mfi_providers[i], MFI_R_COST, detail);
        }
    return MF_OK;
}

/* ---- memory of temporaries ---- */

static void touch(mfi_schedule *s, const mfi_view *view, int step)
{
    if (view->slot < s->inputs + s->outputs)
        return;
    mfi_buffer *b = &s->buffer[view->slot];
    b->first = b->first < 0 ? step : b->first;
    b->last = step;
}

/* What is read for a transform's input; the head's store never reaches memory. */
static void touch_head(mfi_schedule *s, const mfi_problem *head, int step)
{
    if (head->anchor == MFI_FFT)
        touch(s, &head->u.fft.in, step);
    else if (head->anchor == MFI_FFT_PAIR)
        touch_head(s, head->head, step);
    for (int i = 0; i < head->chain.count; i++)
        if (head->chain.instr[i].kind == MFI_LOAD)
            touch(s, &head->chain.operand[head->chain.instr[i].operand].view, step);
}

static void touch_step(mfi_schedule *s, const mfi_problem *p, int step)
{
    for (int k = 0; k < p->chain.operands; k++)
        touch(s, &p->chain.operand[k].view, step);
    if (p->anchor == MFI_MATMUL) {
        touch(s, &p->u.matmul.a, step);
        touch(s, &p->u.matmul.b, step);
    } else if (p->anchor == MFI_FFT) {
        touch(s, &p->u.fft.in, step);
    } else if (p->anchor == MFI_FFT_PAIR) {
        touch_head(s, p->head, step);
    } else if (p->anchor == MFI_SOLVE) {
        const mfi_view *views[] = {&p->u.solve.a, &p->u.solve.b, &p->u.solve.x, &p->u.solve.info};
        for (size_t k = 0; k < MFI_COUNT(views); k++)
            if (views[k]->slot >= 0)
                touch(s, views[k], step);
    } else if (p->anchor == MFI_FACTOR) {
        const mfi_factor *f = &p->u.factor;
        for (int k = 0; k < MFI_FACTOR_INPUTS + MFI_FACTOR_RESULTS; k++) {
            const mfi_factor_operand *o = k < MFI_FACTOR_INPUTS ? &f->in[k] : &f->out[k - MFI_FACTOR_INPUTS];
            if (o->view.slot >= 0)
                touch(s, &o->view, step);
        }
    }
}

static void touch_all(mfi_schedule *s)
{
    for (int i = 0; i < s->buffers; i++)
        s->buffer[i].first = s->buffer[i].last = -1;
    for (int i = 0; i < s->steps; i++)
        touch_step(s, s->step[i], i);
}

static size_t buffer_bytes(const mfi_buffer *b)
{
    size_t bytes = mf_dtype_size(b->dtype);
    for (int d = 0; d < b->ndim; d++)
        bytes *= (size_t)b->shape[d];
    return mfi_align_up(bytes ? bytes : 1, 256);
}

/* First fit: each temporary goes to the lowest offset free during its life. */
static size_t place_temporaries(mfi_schedule *s)
{
    size_t total = 0;
    touch_all(s);
    for (int i = s->inputs + s->outputs; i < s->buffers; i++) {
        mfi_buffer *b = &s->buffer[i];
        if (b->first < 0) /* between the halves of a pair */
            continue;
        size_t bytes = buffer_bytes(b), at = 0;
        for (bool moved = true; moved;) {
            moved = false;
            for (int j = s->inputs + s->outputs; j < i; j++) {
                const mfi_buffer *o = &s->buffer[j];
                bool together = o->first <= b->last && b->first <= o->last;
                if (together && at < o->offset + buffer_bytes(o) && o->offset < at + bytes) {
                    at = o->offset + buffer_bytes(o);
                    moved = true;
                }
            }
        }
        b->offset = at;
        if (at + bytes > total)
            total = at + bytes;
    }
    return total;
}

/* ---- in place ---- */

/* An output may be an input's own memory if one plain map reads each element only where it writes it. */
static void find_in_place(mf_plan *plan)
{
    const mfi_schedule *s = plan->schedule;
    const mfi_problem *p = s->steps == 1 ? s->step[0] : NULL;
    for (int i = 0; i < plan->inputs; i++) {
        plan->in_place[i] = p && p->anchor == MFI_MAP && !p->nreduce;
        for (int a = 0; plan->in_place[i] && a < p->chain.operands; a++)
            for (int b = 0; b < p->chain.operands; b++) {
                const mfi_view *load = &p->chain.operand[a].view, *store = &p->chain.operand[b].view;
                if (load->slot != i || store->slot < plan->inputs)
                    continue;
                bool same = load->offset == store->offset && load->dtype == store->dtype;
                for (int d = 0; d < p->ndim; d++)
                    same &= load->strides[d] == store->strides[d] || p->shape[d] == 1;
                plan->in_place[i] &= same;
            }
    }
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

static void total_up(mf_plan *plan)
{
    size_t library = 0;
    for (int i = 0; i < plan->steps; i++) {
        const mfi_bid *b = &plan->step[i].bid;
        plan->launches += b->launches;
        plan->bytes += b->bytes;
        library = b->workspace > library ? b->workspace : library;
    }
    plan->temporaries = place_temporaries(plan->schedule);
    plan->workspace = plan->temporaries + mfi_align_up(library, 256);
}

/* Room for the schedule's next step. */
static mf_status add_step(mf_plan *plan)
{
    size_t bytes = (size_t)(plan->steps + 1) * sizeof *plan->step;
    mfi_step *grown = mfi_realloc(plan->step, bytes);
    if (!grown)
        return MFI_NO_MEMORY(bytes);
    plan->step = grown;
    memset(&grown[plan->steps], 0, sizeof *grown);
    grown[plan->steps].problem = plan->schedule->step[plan->steps];
    plan->steps++;
    return MF_OK;
}

static mf_status decide(mf_plan *plan, const mf_plan_options *o)
{
    MF_TRY(mfi_context_make_current(plan->context));
    MF_TRY(default_bindings(plan, o));
    MF_TRY(mfi_schedule_new(&plan->schedule, plan->graph, plan->binding, o->flags));
    bool fuse = !(o->flags & MF_PLAN_NO_FUSION);
    for (int i = 0; i < plan->schedule->steps && fuse;) {
        bool joined; /* then it may join the next, too */
        MF_TRY(pair_steps(&joined, plan, i));
        i += !joined;
    }
    for (int i = 0; i < plan->schedule->steps && fuse; i++)
        MF_TRY(cut_step(plan, i));
    for (int i = 0; i < plan->schedule->steps && fuse; i++)
        narrow_step(plan, i);
    for (int i = 0; i < plan->schedule->steps; i++) {
        MF_TRY(add_step(plan));
        mf_status status = prepare_step(plan, &plan->step[i]);
        if (status == MF_OK)
            continue;
        bool retry = false;
        if (status != MF_E_MEMORY)
            MF_TRY(retreat(&retry, plan, i));
        if (!retry)
            return status;
        plan->steps = i--;
    }
    total_up(plan);
    find_in_place(plan);
    return MF_OK;
}

mf_status mfi_plan_make(mf_plan **out, mf_context *context, const mf_graph *graph, const mf_plan_options *o)
{
    MF_TRY(mf_graph_error(graph));
    MF_REQUIRE(graph->outputs > 0, MF_E_INVALID, "the graph has no output; call mf_graph_output");
    mf_plan *plan = mfi_calloc(1, sizeof *plan);
    if (!plan)
        return MFI_NO_MEMORY(sizeof *plan);
    atomic_init(&plan->references, 1);
    pthread_mutex_init(&plan->lock, NULL);
    plan->context = context;
    plan->caps = mfi_context_caps(context);
    plan->flags = o->flags;
    plan->providers = o->providers && o->providers[0] ? mfi_strdup(o->providers) : NULL;
    mf_status status = mfi_graph_copy(&plan->graph, graph);
    if (status == MF_OK)
        status = decide(plan, o);
    if (status != MF_OK) {
        mfi_plan_release(plan);
        return status;
    }
    for (int i = 0; mfi_log_on(MFI_LOG_PLAN) && i < plan->steps; i++) {
        mfi_text text = {0};
        mfi_problem_text(plan->step[i].problem, &text);
        mfi_log(MFI_LOG_PLAN, "step %d of %d: %s: %s %s", i + 1, plan->steps, text.data ? text.data : "",
                plan->step[i].provider->name, plan->step[i].bid.kernel);
        mfi_text_free(&text);
    }
    *out = plan;
    return MF_OK;
}

mf_status mf_plan_new(mf_plan **out, mf_context *context, const mf_graph *graph, const mf_plan_options *options)
{
    const mf_plan_options defaults = MF_PLAN_OPTIONS_INIT;
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
    mfi_plan_free_scratch(plan);
    for (int i = 0; i < plan->steps; i++)
        if (plan->step[i].provider)
            plan->step[i].provider->destroy(plan->step[i].state);
    mfi_schedule_free(plan->schedule);
    mf_graph_free(plan->graph);
    mf_free(plan->step);
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
