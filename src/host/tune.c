/* mf_plan_tune: groupings of the graph against each other, then the ways to run each step, then the winner against the
 * default once more. */
#include "cuda_api.h"
#include "race.h"
#include "schedule.h"
#include "tune_ahead.h"
#include "tune_probe.h"

#include <math.h>
#include <stdio.h>

enum { CANDIDATES = 128, WAYS = 256, PROBE_S = 10, STEP_BIDS_WITHIN = 25, LEAST_ROUNDS = 8, SHORT_US = 20 };

/* One candidate, as it is reported. */
typedef struct entry {
    int step; /* from 1; 0: all */
    mfi_choice choice;
    mf_plan *plan;
    mfi_probe probe;
    mfi_standing standing[2]; /* of runs in a row; of runs alone */
    int samples, runs;
    bool won, raced[2];
    struct entry *next;
} entry;

typedef struct tuner {
    const mf_tune_options *options;
    mf_plan *plan; /* what is tuned */
    mfi_tune_data *data;
    mfi_tune_key key;
    entry *entries, **end;
    entry *field[CANDIDATES]; /* in the race that is on; [0] is to be beaten */
    mfi_runner runner[CANDIDATES];
    int runners;
    double started, allowed, default_us, best_us;
    bool apart;       /* a child process can run plans */
    bool stop;        /* the user said so, or time is up */
    bool hung;        /* the device is held by a candidate */
    double race_from; /* when there is to be enough tried */
    int races;        /* still to come, this one included */
} tuner;

static double now(void)
{
    return 1e-6 * mfi_tune_now_us();
}

/* ---- progress ---- */

static void report(tuner *t, const char *stage, int step, const char *candidate, int done, int count)
{
    int alive = 0;
    for (int i = 0; i < t->runners; i++)
        alive += !t->runner[i].out;
    double elapsed = now() - t->started, left = t->options->seconds - elapsed;
    const mf_tune_event event = {stage, step,    t->plan->steps, candidate,     done,      count,
                                 alive, elapsed, fmax(left, 0),  t->default_us, t->best_us};
    if (t->options->progress && t->options->progress(&event, t->options->user))
        t->stop = true;
    t->stop |= left <= 0;
}

static void name_of(const mfi_choice *choice, int step, char *out, size_t bytes)
{
    mfi_text text = {0};
    if (step > 0 && step <= choice->steps) {
        const mfi_step_choice *s = &choice->step[step - 1];
        mfi_text_add(&text, "%s/%d/%s", s->provider ? s->provider->name : "-", s->variant, s->identity);
    } else {
        mfi_choice_text(choice, &text);
    }
    snprintf(out, bytes, "%s", text.data ? text.data : "");
    mfi_text_free(&text);
}

/* ---- candidates ---- */

/* What `plan` does, in full. */
static mfi_choice choice_of(const mf_plan *plan)
{
    mfi_choice c = {.grouping = plan->choice.grouping, .steps = plan->steps};
    for (int i = 0; i < plan->steps && i < MFI_MAX_CHOICES; i++) {
        const mfi_step *s = &plan->step[i];
        c.step[i] = (mfi_step_choice){.provider = s->provider, .variant = s->bid.variant};
        memcpy(c.step[i].identity, s->bid.identity, sizeof c.step[i].identity);
    }
    return c;
}

static entry *add_entry(tuner *t, int step, const mfi_choice *choice)
{
    entry *e = mfi_calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->step = step;
    e->choice = *choice;
    *t->end = e;
    t->end = &e->next;
    return e;
}

static void enter(tuner *t, entry *e)
{
    t->field[t->runners] = e;
    memset(&t->runner[t->runners], 0, sizeof *t->runner);
    t->runners++;
}

/* Try the candidate; keep its plan if it is right. */
static void try_entry(tuner *t, entry *e)
{
    char name[256];
    name_of(&e->choice, 0, name, sizeof name);
    const mf_plan *like = t->plan;
    if (t->data->caps->cuda) {
        if (mfi_tune_attempt(&t->key, name)) {
            e->probe.verdict = MFI_CRASHED;
            snprintf(e->probe.detail, sizeof e->probe.detail, "it ended the process twice before; see mathfuse cache");
            return;
        }
    } else if (t->apart) {
        mfi_tune_try_apart(&e->probe, t->data, like, &e->choice, t->allowed, PROBE_S);
        if (e->probe.verdict != MFI_RIGHT)
            return;
    }
    mfi_tune_try(&e->probe, &e->plan, t->data, like, &e->choice, t->allowed, PROBE_S);
    if (e->probe.verdict == MFI_HUNG) {
        t->hung = t->stop = true;
        mfi_tune_give_up(&t->key, name);
        return;
    }
    if (t->data->caps->cuda)
        mfi_tune_attempted(&t->key, name);
    if (e->plan)
        e->choice = choice_of(e->plan); /* with the identities it now has */
}

static void release_entry(entry *e)
{
    if (e->plan && e->probe.verdict != MFI_HUNG)
        mfi_plan_release(e->plan);
    e->plan = NULL;
}

static bool same_steps(const mf_plan *a, const mf_plan *b)
{
    mfi_text x = {0}, y = {0};
    mfi_plan_title(a, &x);
    mfi_plan_title(b, &y);
    bool same = x.data && y.data && !strcmp(x.data, y.data);
    mfi_text_free(&x);
    mfi_text_free(&y);
    return same;
}

/* The same steps run in the same ways, whatever led to them? */
static bool same_plan(const entry *a, const entry *b)
{
    bool same = a->choice.steps == b->choice.steps && same_steps(a->plan, b->plan);
    for (int k = 0; same && k < a->choice.steps && k < MFI_MAX_CHOICES; k++) {
        const mfi_step_choice *x = &a->choice.step[k], *y = &b->choice.step[k];
        same = x->provider == y->provider && !strcmp(x->identity, y->identity) &&
               (x->identity[0] || x->variant == y->variant);
    }
    return same;
}

static bool known(const tuner *t, const entry *e)
{
    bool found = false;
    for (int i = 0; i < t->runners; i++)
        found |= same_plan(t->field[i], e);
    return found;
}

typedef enum offered { GO_ON, NO_SUCH_WAY, ENOUGH } offered;

/* Try `choice` and let it race. ENOUGH: out of room, or time to race. */
static offered offer(tuner *t, int step, const mfi_choice *choice, int done, int count)
{
    char name[160];
    name_of(choice, step, name, sizeof name);
    report(t, "prepare", step, name, done, count);
    if (t->stop || t->runners == CANDIDATES || now() > t->race_from)
        return ENOUGH;
    entry **end = t->end, *e = add_entry(t, step, choice);
    if (!e)
        return ENOUGH;
    try_entry(t, e);
    if (e->probe.verdict == MFI_FAILED && e->probe.status == MF_E_INVALID) { /* nothing to report */
        *end = NULL;
        t->end = end;
        mf_free(e);
        return NO_SUCH_WAY;
    }
    mfi_log(MFI_LOG_TUNE, "step %d: %s: %s", step, name, e->plan ? "right" : e->probe.detail);
    if (e->plan && known(t, e)) {
        release_entry(e);
        e->probe.verdict = MFI_UNTRIED;
        snprintf(e->probe.detail, sizeof e->probe.detail, "the same as one before it");
    }
    if (e->plan && e->probe.verdict == MFI_RIGHT)
        enter(t, e);
    return t->stop ? ENOUGH : GO_ON;
}

/* Most of the time goes to racing: a share of what is left, for `races` to come, to preparing. */
static void share_time(tuner *t, int races)
{
    double left = t->options->seconds - (now() - t->started);
    t->race_from = now() + 0.6 * left / races;
    t->races = races;
}

/* ---- racing ---- */

static void note_standings(tuner *t, bool alone)
{
    for (int i = 0; i < t->runners; i++) {
        t->field[i]->standing[alone] = mfi_runner_standing(&t->runner[i]);
        t->field[i]->raced[alone] = true;
        t->field[i]->samples += t->runner[i].count;
    }
}

/* Rounds in which each takes its turn, with runs in a row or alone. The index of the winner; 0 if the first stays. */
static int race_once(tuner *t, int index, bool alone)
{
    double begun = now(), left = t->options->seconds - (begun - t->started);
    for (int round = 0; round < MFI_MAX_SAMPLES && !t->stop && !mfi_race_decided(t->runner, t->runners); round++) {
        if (round >= LEAST_ROUNDS && now() - begun > left / t->races)
            break;
        for (int i = 0; i < t->runners; i++) {
            double us = 0;
            int turn = (i + round) % t->runners; /* nobody always follows the same one */
            if (t->runner[turn].out)
                continue;
            mf_status status = (alone ? mfi_tune_time_alone : mfi_tune_time)(&us, t->data, t->field[turn]->plan, index,
                                                                             &t->field[turn]->runs);
            if (status == MF_OK) {
                mfi_runner_add(&t->runner[turn], us);
                continue;
            }
            t->runner[turn].out = true;
            t->field[turn]->probe.verdict = MFI_FAILED;
            snprintf(t->field[turn]->probe.detail, sizeof t->field[turn]->probe.detail, "%s", mf_error_message(status));
        }
        mfi_race_drop(t->runner, t->runners);
        int leader = mfi_race_leader(t->runner, t->runners);
        char name[160] = "";
        if (leader >= 0)
            name_of(&t->field[leader]->choice, index + 1, name, sizeof name);
        if (!alone && (index < 0 || t->plan->steps == 1)) {
            t->default_us = mfi_runner_standing(&t->runner[0]).median;
            t->best_us = leader >= 0 ? mfi_runner_standing(&t->runner[leader]).median : t->default_us;
        }
        report(t, "race", index + 1, name, round + 1, MFI_MAX_SAMPLES);
    }
    note_standings(t, alone);
    return mfi_race_winner(t->runner, t->runners);
}

/* Only the first and those faster than it stay, at the start of another race. */
static void keep_faster(tuner *t)
{
    int kept = 0;
    for (int i = 0; i < t->runners; i++) {
        entry *e = t->field[i];
        if (i == 0 || (e->probe.verdict == MFI_RIGHT && e->standing[0].median < t->field[0]->standing[0].median))
            t->field[kept++] = e;
        else
            release_entry(e);
        e->runs = 0;
    }
    t->runners = kept;
    memset(t->runner, 0, (size_t)kept * sizeof *t->runner);
}

/* The index of the winner; 0 if the first stays. What is short must also be faster when it is called once between other
 * work: then its code and its arguments come from memory. */
static int race(tuner *t, int index)
{
    int winner = race_once(t, index, false);
    if (winner && t->field[winner]->standing[0].median < SHORT_US) {
        keep_faster(t);
        winner = race_once(t, index, true);
    }
    t->field[winner]->won = true;
    return winner;
}

/* Start a race with what is to be beaten. */
static mf_status begin(tuner *t, int step, const mfi_choice *choice)
{
    entry *e = add_entry(t, step, choice);
    if (!e)
        return MFI_NO_MEMORY(sizeof *e);
    t->runners = 0;
    mfi_tune_try(&e->probe, &e->plan, t->data, t->plan, choice, t->allowed, PROBE_S);
    MF_REQUIRE(e->plan && e->probe.verdict == MFI_RIGHT, MF_E_STATE,
               "the plan as it is cannot be tuned: %s (compared with an %s)", e->probe.detail, t->data->reference);
    e->choice = choice_of(e->plan);
    enter(t, e);
    return MF_OK;
}

static void end(tuner *t)
{
    for (int i = 0; i < t->runners; i++)
        release_entry(t->field[i]);
    t->runners = 0;
}

/* ---- the three parts ---- */

static mf_status tune_grouping(tuner *t, mfi_choice *best)
{
    bool fusible = !(t->plan->flags & MF_PLAN_NO_FUSION);
    MF_TRY(begin(t, 0, best));
    share_time(t, 3);
    for (int g = MFI_GROUP_APART; g < MFI_GROUPINGS && fusible; g++) {
        const mfi_choice choice = {.grouping = (mfi_grouping)g};
        if (offer(t, 0, &choice, g - 1, MFI_GROUPINGS - 1) == ENOUGH)
            break;
    }
    if (t->runners > 1)
        *best = t->field[race(t, -1)]->choice;
    end(t);
    return MF_OK;
}

/* The ways to run a step, but the one that it has. Providers whose estimate is hopeless are not tried. */
static int ways_of(const tuner *t, int index, const mfi_choice *best, const mfi_problem *p, mfi_way *way)
{
    double least = INFINITY, us[MFI_MAX_PROVIDERS];
    const mfi_step_choice *has = &best->step[index];
    int count = 0;
    for (int i = 0; i < mfi_provider_count; i++) {
        us[i] = INFINITY;
        if (mfi_plan_bids(t->plan, p, mfi_providers[i], &us[i]))
            least = fmin(least, us[i]);
    }
    for (int i = 0; i < mfi_provider_count; i++) {
        int ways = mfi_providers[i]->variants ? mfi_providers[i]->variants(p, t->plan->caps) : 1;
        for (int v = 0; v < ways && us[i] <= STEP_BIDS_WITHIN * fmax(least, 1) && count < WAYS; v++)
            if (has->provider != mfi_providers[i] || has->variant != v)
                way[count++] = (mfi_way){.provider = mfi_providers[i], .variant = v};
    }
    return count;
}

/* The next way that is ready. While there is none, the user is asked now and then whether to go on. -1: no more. */
static int next_way(tuner *t, mfi_ahead *ahead, int index, int tried)
{
    static const double asking = 0.1;
    int i;
    while ((i = mfi_ahead_pick(ahead, asking)) < 0 && mfi_ahead_left(ahead) && now() < t->race_from && !t->stop)
        report(t, "prepare", index + 1, "(compiling)", tried, t->options->candidates);
    return i;
}

static void offer_ways(tuner *t, int index, const mfi_choice *best, mfi_ahead *ahead, mfi_way *way, int count)
{
    int i;
    for (int tried = 0; tried < t->options->candidates && (i = next_way(t, ahead, index, tried)) >= 0;) {
        mfi_choice choice = *best;
        choice.step[index] = (mfi_step_choice){.provider = way[i].provider, .variant = way[i].variant};
        way[i].offered = true;
        offered end = offer(t, index + 1, &choice, ++tried, t->options->candidates);
        if (end == ENOUGH)
            return;
        for (int k = i + 1; k < count && end == NO_SUCH_WAY; k++) /* nor are there those after it */
            way[k].offered |= way[k].provider == way[i].provider;
    }
}

static void offer_all(tuner *t, int index, const mfi_choice *best, const mfi_problem *p)
{
    const mfi_caps *caps = t->plan->caps;
    mfi_way *way = mfi_calloc(WAYS, sizeof *way);
    int count = way ? ways_of(t, index, best, p, way) : 0;
    mfi_ahead *ahead =
        mfi_ahead_begin(p, caps, t->plan->context, way, count, caps->cuda && count > 1 ? mfi_thread_default() : 0);
    if (ahead && way)
        offer_ways(t, index, best, ahead, way, count);
    mfi_ahead_end(ahead);
    mf_free(way);
}

static mf_status tune_step(tuner *t, int index, mfi_choice *best)
{
    MF_TRY(begin(t, index + 1, best));
    share_time(t, (int)mfi_max64(best->steps - index, 1));
    offer_all(t, index, best, t->field[0]->plan->step[index].problem);
    if (t->runners > 1)
        *best = t->field[race(t, index)]->choice;
    end(t);
    return MF_OK;
}

/* The whole of the winner against the whole of the default. */
static mf_status confirm(tuner *t, const mfi_choice *first, mfi_choice *best)
{
    bool stopped = t->stop;
    t->races = 1;
    MF_TRY(begin(t, 0, first));
    t->stop = false; /* the two are always compared */
    entry *e = add_entry(t, 0, best);
    if (!e)
        return MFI_NO_MEMORY(sizeof *e);
    mfi_tune_try(&e->probe, &e->plan, t->data, t->plan, best, t->allowed, PROBE_S);
    if (e->plan && e->probe.verdict == MFI_RIGHT && !known(t, e))
        enter(t, e);
    else
        release_entry(e);
    const mf_tune_options *options = t->options;
    mf_tune_options brief = *options;
    brief.seconds = fmax(options->seconds, now() - t->started + 1);
    brief.progress = stopped ? NULL : options->progress;
    t->options = &brief;
    const entry *won = t->field[race(t, -1)];
    *best = won->choice;
    t->best_us = won->standing[0].median;
    t->options = options;
    end(t);
    t->stop |= stopped;
    return MF_OK;
}

/* ---- results ---- */

static const char *result_of(const entry *e)
{
    static const char *const verdicts[] = {
        [MFI_UNTRIED] = "not reached", [MFI_RIGHT] = "slower",    [MFI_WRONG] = "wrong",
        [MFI_FAILED] = "failed",       [MFI_CRASHED] = "crashed", [MFI_HUNG] = "hung"};
    bool idle = e->probe.verdict == MFI_RIGHT && !e->samples;
    return e->won ? "won" : verdicts[idle ? MFI_UNTRIED : e->probe.verdict];
}

static void add_us(mfi_text *out, const char *name, double us)
{
    if (isfinite(us))
        mfi_text_add(out, ", \"%s\": %.4f", name, us);
    else
        mfi_text_add(out, ", \"%s\": null", name);
}

static char *measured_json(const tuner *t)
{
    mfi_text out = {0};
    char name[512];
    mfi_text_add(&out, "[");
    for (const entry *e = t->entries; e; e = e->next) {
        name_of(&e->choice, e->step, name, sizeof name);
        mfi_text_add(&out, "%s{\"step\": %d, \"choice\": ", e == t->entries ? "" : ", ", e->step);
        mfi_text_json(&out, name);
        mfi_text_add(&out, ", \"result\": \"%s\"", result_of(e));
        if (e->raced[0]) {
            add_us(&out, "us", e->standing[0].median);
            add_us(&out, "low_us", e->standing[0].low);
            add_us(&out, "high_us", e->standing[0].high);
        }
        if (e->raced[1])
            add_us(&out, "alone_us", e->standing[1].median);
        mfi_text_add(&out, ", \"samples\": %d, \"detail\": ", e->samples);
        mfi_text_json(&out, e->probe.detail);
        mfi_text_add(&out, "}");
    }
    mfi_text_add(&out, "]");
    return mfi_text_take(&out);
}

/* Let the plan run the winner from now on. */
static mf_status install(tuner *t, const mfi_choice *best, const mfi_tune_record *record)
{
    mf_plan *tuned;
    mf_plan_options o = mfi_plan_options_of(t->plan);
    MF_TRY(mfi_plan_make_chosen(&tuned, t->plan->context, t->plan->graph, &o, best));
    tuned->tuning = mfi_tuning_json(&t->key, record, "tuned");
    pthread_mutex_lock(&t->plan->lock);
    tuned->next = atomic_load(&t->plan->tuned);
    atomic_store(&t->plan->tuned, tuned);
    pthread_mutex_unlock(&t->plan->lock);
    return MF_OK;
}

static mf_status conclude(tuner *t, const mfi_choice *first, const mfi_choice *best)
{
    mfi_text title = {0}, winner = {0}, baseline = {0};
    mfi_plan_title(t->plan, &title);
    mfi_choice_text(best, &winner);
    mfi_choice_text(first, &baseline);
    mfi_tune_record r = {.title = title.data,
                         .winner = winner.data,
                         .baseline = baseline.data,
                         .measured = measured_json(t),
                         .winner_us = t->best_us,
                         .default_us = t->default_us,
                         .seconds = now() - t->started,
                         .complete = !t->stop};
    mf_status status = r.title && r.winner && r.baseline && r.measured ? MF_OK : MFI_NO_MEMORY(1);
    if (status == MF_OK)
        status = install(t, best, &r);
    if (status == MF_OK)
        mfi_tune_keep(&t->key, &r);
    mfi_text_free(&title);
    mfi_text_free(&winner);
    mfi_text_free(&baseline);
    mf_free(r.measured);
    return status;
}

/* How wrong a result may be: four times as much as the default's, or a few of its last digits; the default itself, a few
 * hundredths, which is what 8-bit floats round by. */
static mf_status measure_default(tuner *t, mfi_choice *first)
{
    static const double most = 0.2, digits = 4;
    mfi_probe p;
    mf_plan *plan;
    const mfi_choice none = {0};
    double epsilon = 0;
    for (int i = t->plan->inputs; i < t->plan->bindings; i++)
        epsilon = fmax(epsilon, mfi_tune_epsilon(t->plan->binding[i].dtype));
    mfi_tune_try(&p, &plan, t->data, t->plan, &none, most, PROBE_S);
    MF_REQUIRE(plan && p.verdict == MFI_RIGHT, MF_E_STATE,
               "the plan's default cannot be tuned: %s (compared with an %s)", p.detail, t->data->reference);
    *first = choice_of(plan);
    mfi_plan_release(plan);
    t->allowed = fmax(4 * p.error, digits * epsilon);
    if (!t->data->caps->cuda) {
        mfi_tune_try_apart(&p, t->data, t->plan, &none, most, PROBE_S);
        t->apart = p.verdict == MFI_RIGHT;
        mfi_log(MFI_LOG_TUNE, "children %s",
                t->apart ? "try candidates first" : "cannot run plans here; candidates run in this process");
    }
    return MF_OK;
}

static mf_status tune(tuner *t)
{
    mfi_choice first, best;
    MF_TRY(measure_default(t, &first));
    best = first;
    mf_status status = tune_grouping(t, &best);
    for (int i = 0; i < best.steps && i < MFI_MAX_CHOICES && status == MF_OK && !t->stop; i++)
        status = tune_step(t, i, &best);
    if (status == MF_OK && !t->hung)
        status = confirm(t, &first, &best);
    MF_TRY(status);
    MF_REQUIRE(
        !t->hung, MF_E_STATE,
        "a candidate does not end and holds the device; it is recorded and will not be tried again: restart this "
        "process");
    return conclude(t, &first, &best);
}

static mf_status check(const mf_plan *plan, const mf_tune_options *o)
{
    MF_REQUIRE(plan, MF_E_INVALID, "mf_plan_tune: plan is NULL");
    MF_REQUIRE(o->size == sizeof *o, MF_E_INVALID,
               "mf_tune_options.size is %zu; set it with MF_TUNE_OPTIONS_INIT (%zu)", o->size, sizeof *o);
    MF_REQUIRE(o->seconds > 0 && o->candidates >= 1, MF_E_INVALID,
               "mf_tune_options: %g seconds and %d candidates; both are more than 0", o->seconds, o->candidates);
    MF_REQUIRE(plan->caps->present, MF_E_STATE,
               "this plan was made for %s, which is not on this machine: nothing can be measured", plan->caps->arch);
    MF_REQUIRE(!plan->caps->cuda || !mfi_cuda_capturing(o->stream), MF_E_STATE,
               "the stream is being captured; tune before capturing, or on another stream");
    return MF_OK;
}

mf_status mf_plan_tune(mf_plan *plan, const mf_tune_options *options)
{
    const mf_tune_options defaults = MF_TUNE_OPTIONS_INIT;
    options = options ? options : &defaults;
    MF_TRY(check(plan, options));
    MF_TRY(mfi_context_make_current(plan->context));
    tuner *t = mfi_calloc(1, sizeof *t);
    if (!t)
        return MFI_NO_MEMORY(sizeof *t);
    t->options = options;
    t->plan = plan;
    t->end = &t->entries;
    t->started = now();
    mf_status status = mfi_tune_key_of(&t->key, plan);
    if (status == MF_OK)
        status = mfi_tune_data_new(&t->data, plan, options->stream, true);
    if (status == MF_OK)
        status = tune(t);
    while (t->entries) {
        entry *e = t->entries;
        t->entries = e->next;
        release_entry(e);
        mf_free(e);
    }
    if (!t->hung)
        mfi_tune_data_free(t->data);
    mf_free(t);
    return status;
}
