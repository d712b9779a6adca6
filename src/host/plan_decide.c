/* Decide: ask every provider for each step, join and cut steps where that pays, choose, prepare. */
#include "context_internal.h"
#include "nodes.h"
#include "plan_internal.h"
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

/* ---- bids ---- */

static const double MORE_THAN_ANY = 1e300;

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

bool mfi_plan_bids(const mf_plan *plan, const mfi_problem *p, const mfi_provider *provider, double *cost_us)
{
    mfi_bid bid = {0};
    bool made = allowed(plan->providers, provider) && provider->query(p, plan->caps, &bid);
    *cost_us = made ? bid.cost_us : MORE_THAN_ANY;
    return made;
}

static double cost(const offers *o)
{
    return o->best < 0 ? MORE_THAN_ANY : o->bid[o->best].cost_us;
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
    double cost_us = plan->choice.grouping == MFI_GROUP_APART ? MORE_THAN_ANY : cost(&whole);
    if (plan->choice.grouping == MFI_GROUP_TOGETHER && whole.best >= 0)
        return MF_OK;
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
mf_status mfi_plan_step_cost(double *cost_us, const mf_plan *plan, const mfi_problem *p)
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
    double first = 0, second = 0;
    MF_TRY(mfi_pair(&pair, s, index));
    if (!pair)
        return MF_OK;
    if (plan->choice.grouping == MFI_GROUP_APART) {
        mfi_problem_free(pair);
        return MF_OK;
    }
    ask(&together, plan, pair);
    mf_status status = mfi_plan_step_cost(&first, plan, s->step[index]);
    if (status == MF_OK)
        status = mfi_plan_step_cost(&second, plan, s->step[index + 1]);
    bool cheaper = cost(&together) <= 1.001 * (first + second); /* arithmetic alone costs the same */
    *joined = status == MF_OK && together.best >= 0 && (cheaper || plan->choice.grouping == MFI_GROUP_TOGETHER);
    if (*joined)
        mfi_schedule_join(s, index, pair);
    else
        mfi_problem_free(pair);
    return status;
}

/* Solve in the step that factors where that pays. */
static mf_status join_solve(mf_plan *plan, int index)
{
    mfi_schedule *s = plan->schedule;
    mfi_problem *pair;
    offers together, factor, solve;
    int reader;
    if (plan->choice.grouping == MFI_GROUP_APART)
        return MF_OK;
    MF_TRY(mfi_pair_solve(&pair, &reader, s, index));
    if (!pair)
        return MF_OK;
    ask(&together, plan, pair);
    ask(&factor, plan, s->step[index]);
    ask(&solve, plan, s->step[reader]);
    bool pays = cost(&together) <= cost(&factor) + cost(&solve) || plan->choice.grouping == MFI_GROUP_TOGETHER;
    if (together.best >= 0 && pays)
        return mfi_schedule_join_solve(s, index, reader, pair);
    mfi_problem_free(pair);
    return MF_OK;
}

/* Let step `index` do what step `other` does as well, as the problem `both`, where that pays. Takes `both`. */
static mf_status absorb(bool *joined, mf_plan *plan, int index, int other, mfi_problem *both)
{
    mfi_schedule *s = plan->schedule;
    offers together;
    double own = 0, others = 0;
    ask(&together, plan, both);
    mf_status status = mfi_plan_step_cost(&own, plan, s->step[index]);
    if (status == MF_OK)
        status = mfi_plan_step_cost(&others, plan, s->step[other]);
    bool pays = cost(&together) <= own + others || plan->choice.grouping == MFI_GROUP_TOGETHER;
    *joined = status == MF_OK && together.best >= 0 && pays;
    if (*joined)
        mfi_schedule_absorb(s, index, other, both);
    else
        mfi_problem_free(both);
    return status;
}

/* Let product `index` give what another step reduces beside it, where that pays. */
static mf_status join_beside(bool *joined, mf_plan *plan, int index)
{
    mfi_schedule *s = plan->schedule;
    *joined = false;
    for (int r = 0; r < s->steps && s->step[index]->anchor == MFI_MATMUL && !*joined; r++) {
        mfi_problem *both = NULL;
        if (r != index)
            MF_TRY(mfi_beside(&both, s, index, r));
        if (both)
            MF_TRY(absorb(joined, plan, index, r, both));
    }
    return MF_OK;
}

/* Let product `index` make another product that it alone reads, where that pays. */
static mf_status join_products(bool *joined, mf_plan *plan, int index)
{
    mfi_problem *pair;
    int maker;
    *joined = false;
    if (!plan->caps->cuda || plan->choice.grouping == MFI_GROUP_APART)
        return MF_OK;
    MF_TRY(mfi_pair_matmul(&pair, &maker, plan->schedule, index, plan->flags & MF_PLAN_MATCH_UNFUSED));
    return pair ? absorb(joined, plan, index, maker, pair) : MF_OK;
}

/* Let product `index` go on with rows of its result that another step reduces, where that pays. */
static mf_status join_rows(bool *joined, mf_plan *plan, int index)
{
    mfi_problem *pair;
    int reader;
    MF_TRY(mfi_pair_rows(&pair, &reader, plan->schedule, index));
    *joined = false;
    return pair ? absorb(joined, plan, index, reader, pair) : MF_OK;
}

/* What the CPU's providers refuse is not tried there; nor are results that were to be rounded before they are reduced. */
static mf_status join_all_beside(mf_plan *plan)
{
    bool wanted =
        plan->caps->cuda && plan->choice.grouping != MFI_GROUP_APART && !(plan->flags & MF_PLAN_MATCH_UNFUSED);
    for (int i = 0; i < plan->schedule->steps && wanted;) {
        bool joined; /* an earlier step may be gone */
        MF_TRY(join_beside(&joined, plan, i));
        if (!joined)
            MF_TRY(join_rows(&joined, plan, i));
        i = joined ? 0 : i + 1;
    }
    return MF_OK;
}

/* The map that makes what transform `index` reads, for it alone; -1: none. */
static int maker_of(const mfi_schedule *s, int index)
{
    int slot = s->step[index]->u.fft.in.slot;
    for (int i = 0; i < s->steps; i++) {
        const mfi_view *store = s->step[i]->anchor == MFI_MAP ? mfi_only_store(s->step[i]) : NULL;
        if (store && store->slot == slot && mf_dtype_size(store->dtype) >= 4)
            return mfi_is_private(s, slot) ? i : -1;
    }
    return -1;
}

/* A library's transform does not scale: where that would be a pass of its own, the map before it does. */
static void scale_before(mf_plan *plan, int index)
{
    mfi_problem *p = plan->schedule->step[index];
    double scale = p->u.fft.scale;
    offers with, without;
    int maker = p->anchor == MFI_FFT && scale != 1 ? maker_of(plan->schedule, index) : -1;
    if (maker < 0)
        return;
    ask(&with, plan, p);
    p->u.fft.scale = 1;
    ask(&without, plan, p);
    if (cost(&without) >= cost(&with) || !mfi_scale_stored(plan->schedule->step[maker], scale))
        p->u.fft.scale = scale;
}

/* Let step `index` store only what others read of its result, or what a map makes of that, where that pays. */
static mf_status narrow_step(mf_plan *plan, int index)
{
    mfi_problem *p = plan->schedule->step[index];
    int64_t *terms = &p->shape[p->ndim - 1], all = *terms, read = mfi_terms_read(plan->schedule, index);
    offers whole, part;
    mfi_problem *both = NULL;
    bool joined;
    if (read >= all)
        return MF_OK;
    ask(&whole, plan, p);
    *terms = read;
    ask(&part, plan, p);
    if (cost(&part) >= cost(&whole))
        *terms = all;
    else if (plan->choice.grouping != MFI_GROUP_APART)
        MF_TRY(mfi_narrow_with(&both, plan->schedule, index));
    return both ? absorb(&joined, plan, index, index + 1, both) : MF_OK;
}

/* Let what step `index` reads lie along its axis, where that pays. */
static void lay_step(mf_plan *plan, int index)
{
    mfi_laid l;
    offers read[2], stored[2];
    if (!plan->caps->cuda || !mfi_lay_along(&l, plan->schedule, index))
        return;
    for (int i = 0; i < 2; i++) {
        mfi_lay(&l);
        ask(&read[i], plan, plan->schedule->step[index]);
        ask(&stored[i], plan, plan->schedule->step[l.writer]);
    }
    if (cost(&read[0]) + cost(&stored[0]) < cost(&read[1]) + cost(&stored[1]))
        mfi_lay(&l);
}

/* Of a step whose kernel could not be made: one that others can run, too, or two in place of what was joined. */
static mf_status retreat(bool *retry, mf_plan *plan, int index)
{
    mfi_problem *p = plan->schedule->step[index];
    bool beside = (p->anchor == MFI_MATMUL && p->chain.phases) || p->anchor == MFI_MATMUL_PAIR;
    bool together = p->anchor == MFI_TOGETHER;
    *retry = mfi_fft_is_narrow(p) || p->anchor == MFI_FFT_PAIR || beside || together;
    if (mfi_fft_is_narrow(p)) {
        MF_TRY(mfi_widen(plan->schedule, index));
    } else if (together) {
        int parts = p->u.together.parts;
        MF_TRY(mfi_schedule_part_together(plan->schedule, index));
        for (int k = parts - 1; k >= 0; k--)
            MF_TRY(cut_step(plan, index + k));
    } else if (beside) {
        MF_TRY(mfi_schedule_part_beside(plan->schedule, index));
        MF_TRY(cut_step(plan, index));
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

/* Prepare the way that was chosen for this step. */
static mf_status prepare_chosen(mf_plan *plan, mfi_step *step, const mfi_step_choice *choice, offers *o)
{
    int i = 0;
    while (i < mfi_provider_count && mfi_providers[i] != choice->provider)
        i++;
    MF_REQUIRE(i < mfi_provider_count && o->made[i], MF_E_UNSUPPORTED, "%s does not run this step: %s",
               choice->provider->name, i < mfi_provider_count ? o->bid[i].detail : "it is not there");
    step->bid = o->bid[i];
    step->bid.variant = choice->variant;
    MF_TRY(mfi_providers[i]->prepare(&step->state, step->problem, plan->caps, plan->context, &step->bid));
    step->provider = mfi_providers[i];
    o->made[i] = false;
    MF_REQUIRE(!choice->identity[0] || !strcmp(choice->identity, step->bid.identity), MF_E_UNSUPPORTED,
               "way %d of %s is now \"%s\", it was \"%s\"", choice->variant, choice->provider->name, step->bid.identity,
               choice->identity);
    return MF_OK;
}

static void refuse_dearer(mfi_step *step, const offers *o, bool chosen)
{
    for (int i = 0; i < mfi_provider_count; i++)
        if (o->made[i]) {
            char detail[160];
            snprintf(detail, sizeof detail,
                     chosen ? "estimated %.1f us; tuning chose otherwise" : "estimated %.1f us against %.1f us",
                     o->bid[i].cost_us, step->bid.cost_us);
            refuse(step, mfi_providers[i], MFI_R_COST, detail);
        }
}

/* Prepare the cheapest willing provider; one that fails to prepare has refused after all. */
static mf_status prepare_step(mf_plan *plan, mfi_step *step)
{
    const mfi_choice *choice = &plan->choice;
    int index = (int)(step - plan->step);
    offers o;
    ask(&o, plan, step->problem);
    for (int i = 0; i < mfi_provider_count; i++)
        if (!o.made[i])
            refuse(step, mfi_providers[i], o.bid[i].reason, o.bid[i].detail);
    if (index < choice->steps && choice->step[index].provider) {
        MF_TRY(prepare_chosen(plan, step, &choice->step[index], &o));
        refuse_dearer(step, &o, true);
        return MF_OK;
    }
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
    refuse_dearer(step, &o, false);
    return MF_OK;
}

/* ---- all steps ---- */

static void total_up(mf_plan *plan)
{
    size_t library = 0;
    for (int i = 0; i < plan->steps; i++) {
        const mfi_bid *b = &plan->step[i].bid;
        plan->launches += b->launches;
        plan->bytes += b->bytes;
        library = b->workspace > library ? b->workspace : library;
    }
    plan->temporaries = mfi_place_temporaries(plan->schedule);
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

/* The schedule, with its steps joined and cut. */
static mf_status arrange(mf_plan *plan, int flags)
{
    MF_TRY(mfi_schedule_new(&plan->schedule, plan->graph, plan->binding, flags));
    bool fuse = !(flags & MF_PLAN_NO_FUSION);
    for (int i = 0; i < plan->schedule->steps && fuse;) {
        bool joined; /* then it may join the next, too */
        MF_TRY(pair_steps(&joined, plan, i));
        i += !joined;
    }
    for (int i = 0; i < plan->schedule->steps && fuse; i++)
        MF_TRY(join_solve(plan, i));
    if (fuse)
        MF_TRY(mfi_plan_join_together(plan));
    for (int i = 0; i < plan->schedule->steps && fuse;) {
        bool joined; /* then an earlier step is gone */
        MF_TRY(join_products(&joined, plan, i));
        i += !joined;
    }
    if (fuse)
        MF_TRY(join_all_beside(plan));
    for (int i = 0; i < plan->schedule->steps && fuse; i++)
        MF_TRY(cut_step(plan, i));
    for (int i = 0; i < plan->schedule->steps && fuse; i++)
        MF_TRY(narrow_step(plan, i));
    for (int i = 0; i < plan->schedule->steps && fuse; i++)
        lay_step(plan, i);
    for (int i = 0; i < plan->schedule->steps && fuse; i++)
        scale_before(plan, i);
    return MF_OK;
}

static double estimate(const mf_plan *plan)
{
    double all = 0;
    for (int i = 0; i < plan->schedule->steps; i++) {
        offers o;
        ask(&o, plan, plan->schedule->step[i]);
        all += cost(&o);
    }
    return all;
}

/* Transforms of several axes axis by axis, where that is estimated to be clearly faster. */
static mf_status try_axes_apart(mf_plan *plan)
{
    mfi_schedule *together = plan->schedule;
    double before = estimate(plan);
    plan->schedule = NULL;
    mf_status status = arrange(plan, plan->flags | MFI_AXES_APART);
    if (status == MF_OK && estimate(plan) < 0.9 * before) {
        mfi_schedule_free(together);
        return MF_OK;
    }
    mfi_schedule_free(plan->schedule);
    plan->schedule = together;
    return status == MF_E_MEMORY ? status : MF_OK;
}

mf_status mfi_plan_decide(mf_plan *plan)
{
    MF_TRY(mfi_context_make_current(plan->context));
    MF_TRY(arrange(plan, plan->flags));
    if (plan->caps->cuda && !(plan->flags & MF_PLAN_NO_FUSION) && mfi_has_axes(plan->graph))
        MF_TRY(try_axes_apart(plan));
    for (int i = 0; i < plan->schedule->steps; i++) {
        MF_TRY(add_step(plan));
        mf_status status = prepare_step(plan, &plan->step[i]);
        if (status == MF_OK)
            continue;
        bool retry = false;
        if (status != MF_E_MEMORY && !plan->choice.steps)
            MF_TRY(retreat(&retry, plan, i));
        if (!retry)
            return status;
        plan->steps = i--;
    }
    MF_REQUIRE(!plan->choice.steps || plan->choice.steps == plan->steps, MF_E_UNSUPPORTED,
               "the choice is for %d steps, the plan has %d", plan->choice.steps, plan->steps);
    total_up(plan);
    mfi_plan_find_in_place(plan);
    return MF_OK;
}

void mfi_plan_undecide(mf_plan *plan)
{
    for (int i = 0; i < plan->steps; i++)
        if (plan->step[i].provider)
            plan->step[i].provider->destroy(plan->step[i].state);
    mfi_schedule_free(plan->schedule);
    mf_free(plan->step);
    plan->schedule = NULL;
    plan->step = NULL;
    plan->steps = plan->launches = 0;
    plan->bytes = 0;
}
