/* Tuning with a provider among the candidates that is wrong, crashes, hangs, fails, and is slow; and one way of which is
 * right and fast. This file's list of providers stands in for the library's. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tune_data.h"

extern const mfi_provider mfi_provider_ref;

enum { SLOW, WRONG, NOT_A_NUMBER, CRASHES, HANGS, FAILS, FAST, STEADY, ROW, QUICK, WAYS };
static const int hostile_ways[] = {SLOW, WRONG, NOT_A_NUMBER, CRASHES, HANGS, FAILS, FAST};
static const int *offered = hostile_ways; /* variant -> way */
static int ways = (int)MFI_COUNT(hostile_ways);

typedef struct hostile {
    int way;
    const mfi_problem *problem;
} hostile;

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    MF_REFUSE_UNLESS(!c->cuda && p->anchor == MFI_MAP && p->nreduce == 0 && p->ndim == 1, NOT_ANCHOR, "maps only");
    bid->cost_us = 0.01;
    bid->launches = 1;
    strcpy(bid->kernel, "hostile");
    return true;
}

static int variants(const mfi_problem *p, const mfi_caps *c)
{
    (void)p, (void)c;
    return ways;
}

static mf_status prepare(void **out, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    (void)c, (void)context;
    static const char *const names[WAYS] = {"slow",  "wrong", "nan",    "crashes", "hangs",
                                            "fails", "fast",  "steady", "row",     "quick"};
    MF_REQUIRE(bid->variant < ways, MF_E_UNSUPPORTED, "no such way");
    int way = offered[bid->variant];
    MF_REQUIRE(way != FAILS, MF_E_LIBRARY, "it does not feel like it");
    hostile *h = mfi_alloc(sizeof *h);
    *h = (hostile){way, p};
    strcpy(bid->identity, names[way]);
    *out = h;
    return MF_OK;
}

/* The tuner's clock; from `fake_us` on it shows what small kernels took. ROW is the fastest of many in a row; the first
 * after a look at the clock takes longer than any. */
static double fake_us;
static bool looked;

double mfi_tune_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    looked = true;
    return fake_us > 0 ? fake_us : 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void take_time(int way)
{
    fake_us += way == STEADY ? 12 : way == QUICK ? 8 : looked ? 60 : 3;
    looked = false;
}

static mf_status run(void *state, const mfi_run *run)
{
    const hostile *h = state;
    const float *x = run->slots[0];
    float *y = run->slots[1];
    for (int64_t i = 0; i < h->problem->shape[0]; i++)
        y[i] = x[i] + 1.0f;
    if (h->way == WRONG)
        y[7] += 100.0f;
    if (h->way == NOT_A_NUMBER)
        y[7] = 0.0f / (x[7] - x[7]);
    if (h->way == CRASHES)
        raise(SIGSEGV);
    while (h->way == HANGS)
        pause();
    if (h->way >= STEADY)
        take_time(h->way);
    if (h->way == SLOW)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return MF_OK;
}

static const mfi_provider mfi_provider_hostile = {"hostile", query, prepare, run, mf_free, NULL, NULL, variants};
const mfi_provider *const mfi_providers[] = {&mfi_provider_hostile, &mfi_provider_ref};
const int mfi_provider_count = 2;

static char directory[64];

static void set_up(void)
{
    snprintf(directory, sizeof directory, "/tmp/mathfuse-tune-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
    setenv("MATHFUSE_CACHE_DIR", directory, 1);
    setenv("MATHFUSE_SITE_DIR", "/nonexistent", 1);
    unsetenv("MATHFUSE_TUNE");
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    cr_assert_eq(system(command), 0);
}

TestSuite(tune, .init = set_up, .fini = tear_down);

enum { N = 1000 };

static mf_plan *new_plan(mf_context *ctx, mf_tune_policy policy, mf_status expected)
{
    mf_graph *g;
    mf_plan *plan;
    cr_assert_eq(mf_graph_new(&g), MF_OK);
    mf_node x = mf_graph_input(g, MF_F32, 1, (int64_t[]){N});
    mf_graph_output(g, mf_graph_add(g, x, mf_graph_constant(g, MF_F32, 1.0, 0.0)));
    mf_plan_options o = MF_PLAN_OPTIONS_INIT;
    o.tune = policy;
    o.providers = "hostile";
    mf_status status = mf_plan_new(&plan, ctx, g, &o);
    cr_assert_eq(status, expected, "%s", mf_error_message(status));
    mf_graph_free(g);
    return plan;
}

static void expect_text(char *text, const char *wanted)
{
    cr_assert_not_null(strstr(text, wanted), "\"%s\" is not in %s", wanted, text);
}

static void expect_result(mf_plan *plan)
{
    static float x[N], y[N];
    mf_tensor t[2];
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    mf_tensor_init(&t[0], x, MF_F32, 1, (int64_t[]){N});
    mf_tensor_init(&t[1], y, MF_F32, 1, (int64_t[]){N});
    cr_assert_eq(mf_plan_run(plan, t, 2, NULL), MF_OK);
    for (int i = 0; i < N; i++)
        cr_assert_eq(y[i], (float)i + 1.0f);
}

Test(tune, only_right_ways_win, .timeout = 120)
{
    mf_context *ctx;
    char *tuning, *text;
    cr_assert_eq(mf_context_new(&ctx, NULL), MF_OK);
    mf_plan *plan = new_plan(ctx, MF_TUNE_CACHED, MF_OK);
    mf_tune_options o = MF_TUNE_OPTIONS_INIT;
    o.seconds = 60;
    mf_status status = mf_plan_tune(plan, &o);
    cr_assert_eq(status, MF_OK, "%s", mf_error_message(status));
    cr_assert_eq(mf_plan_tuning(&tuning, plan), MF_OK);
    expect_text(tuning, "\"winner\": \"by_cost; hostile/6/fast\"");
    expect_text(tuning, "\"default\": \"by_cost; hostile/0/slow\"");
    expect_text(tuning, "hostile/1/\", \"result\": \"wrong\"");
    expect_text(tuning, "hostile/2/\", \"result\": \"wrong\"");
    expect_text(tuning, "hostile/3/\", \"result\": \"crashed\"");
    expect_text(tuning, "hostile/4/\", \"result\": \"hung\"");
    expect_text(tuning, "hostile/5/\", \"result\": \"failed\"");
    expect_text(tuning, "it does not feel like it");
    expect_text(tuning, "\"source\": \"tuned\"");
    mf_free(tuning);
    cr_assert_eq(mf_plan_explain(&text, plan, 0), MF_OK);
    expect_text(text, "(tuned)");
    expect_text(text, "fast");
    mf_free(text);
    expect_result(plan);
    mf_plan_free(plan);
    mf_context_free(ctx);
}

/* The winner of tuning where the default is the first of `list`. */
static void expect_winner(const int *list, int count, const char *winner, const char *also)
{
    mf_context *ctx;
    char *tuning;
    offered = list;
    fake_us = 1;
    ways = count;
    cr_assert_eq(mf_context_new(&ctx, NULL), MF_OK);
    mf_plan *plan = new_plan(ctx, MF_TUNE_CACHED, MF_OK);
    mf_status status = mf_plan_tune(plan, NULL);
    cr_assert_eq(status, MF_OK, "%s", mf_error_message(status));
    cr_assert_eq(mf_plan_tuning(&tuning, plan), MF_OK);
    expect_text(tuning, winner);
    expect_text(tuning, also);
    mf_free(tuning);
    mf_plan_free(plan);
    mf_context_free(ctx);
}

Test(tune, short_runs_must_also_be_faster_alone, .timeout = 60)
{
    expect_winner((int[]){STEADY, ROW}, 2, "\"winner\": \"by_cost; hostile/0/steady\"", "alone_us");
    expect_winner((int[]){STEADY, ROW, QUICK}, 3, "\"winner\": \"by_cost; hostile/2/quick\"", "alone_us");
}

static mf_status quick_tune(mf_plan *plan, int (*progress)(const mf_tune_event *, void *), void *user)
{
    mf_tune_options o = MF_TUNE_OPTIONS_INIT;
    o.progress = progress;
    o.user = user;
    return mf_plan_tune(plan, &o);
}

static int stop_at_once(const mf_tune_event *event, void *user)
{
    *(int *)user += 1;
    cr_assert_not_null(event->candidate);
    return 1;
}

Test(tune, stopping_keeps_the_default, .timeout = 60)
{
    mf_context *ctx;
    char *tuning;
    int calls = 0;
    cr_assert_eq(mf_context_new(&ctx, NULL), MF_OK);
    mf_plan *plan = new_plan(ctx, MF_TUNE_CACHED, MF_OK);
    cr_assert_eq(quick_tune(plan, stop_at_once, &calls), MF_OK);
    cr_assert_geq(calls, 1);
    cr_assert_eq(mf_plan_tuning(&tuning, plan), MF_OK);
    expect_text(tuning, "\"winner\": \"by_cost; hostile/0/slow\"");
    expect_text(tuning, "\"complete\": false");
    mf_free(tuning);
    mf_plan_free(plan);
    mf_context_free(ctx);
}

/* As a record of an earlier process. */
static void keep_record(const char *winner)
{
    mf_context *ctx;
    mfi_tune_key k;
    char title[] = "t", baseline[] = "by_cost; hostile/0/slow", measured[] = "[]", *choice = mfi_strdup(winner);
    cr_assert_eq(mf_context_new(&ctx, NULL), MF_OK);
    mf_plan *plan = new_plan(ctx, MF_TUNE_OFF, MF_OK);
    cr_assert_eq(mfi_tune_key_of(&k, plan), MF_OK);
    const mfi_tune_record r = {title, choice, baseline, measured, 1, 2, 1, true};
    mfi_tune_keep(&k, &r);
    mf_free(choice);
    mf_plan_free(plan);
    mf_context_free(ctx);
}

static int identity_of(mf_plan *plan)
{
    return plan->step[0].bid.variant;
}

Test(tune, policies)
{
    mf_context *ctx;
    cr_assert_eq(mf_context_new(&ctx, NULL), MF_OK);
    cr_assert_null(new_plan(ctx, MF_TUNE_REQUIRE, MF_E_STATE));
    keep_record("by_cost; hostile/6/fast");
    const struct {
        mf_tune_policy policy;
        int variant;
    } cases[] = {{MF_TUNE_OFF, SLOW},
                 {MF_TUNE_CACHED, FAST},
                 {MF_TUNE_DEFAULT, FAST},
                 {MF_TUNE_REQUIRE, FAST},
                 {MF_TUNE_MEASURE, FAST}};
    for (size_t i = 0; i < MFI_COUNT(cases); i++) {
        mf_plan *plan = new_plan(ctx, cases[i].policy, MF_OK);
        cr_assert_eq(identity_of(plan), cases[i].variant, "policy %d", (int)cases[i].policy);
        expect_result(plan);
        mf_plan_free(plan);
    }
    setenv("MATHFUSE_TUNE", "off", 1);
    mf_plan *plan = new_plan(ctx, MF_TUNE_DEFAULT, MF_OK);
    cr_assert_eq(identity_of(plan), SLOW);
    mf_plan_free(plan);
    setenv("MATHFUSE_TUNE", "always", 1);
    cr_assert_null(new_plan(ctx, MF_TUNE_DEFAULT, MF_E_INVALID));
    mf_context_free(ctx);
}

Test(tune, records_that_do_not_hold_are_ignored)
{
    const char *const winners[] = {"by_cost; hostile/6/faster than it was", /* the way is another now */
                                   "by_cost; hostile/99/",                  /* there is no such way */
                                   "by_cost; hostile/6/fast; ref/0/",       /* of a plan with two steps */
                                   "apart; nobody/0/", "nonsense"};
    for (size_t i = 0; i < MFI_COUNT(winners); i++) {
        mf_context *ctx;
        keep_record(winners[i]);
        cr_assert_eq(mf_context_new(&ctx, NULL), MF_OK);
        mf_plan *plan = new_plan(ctx, MF_TUNE_CACHED, MF_OK);
        cr_assert_eq(identity_of(plan), SLOW, "%s", winners[i]);
        expect_result(plan);
        mf_plan_free(plan);
        cr_assert_null(new_plan(ctx, MF_TUNE_REQUIRE, MF_E_STATE));
        mf_context_free(ctx);
    }
}

Test(tune, bad_options)
{
    mf_context *ctx;
    cr_assert_eq(mf_context_new(&ctx, NULL), MF_OK);
    mf_plan *plan = new_plan(ctx, MF_TUNE_OFF, MF_OK);
    mf_tune_options o = MF_TUNE_OPTIONS_INIT;
    cr_assert_eq(mf_plan_tune(NULL, NULL), MF_E_INVALID);
    o.seconds = 0;
    cr_assert_eq(mf_plan_tune(plan, &o), MF_E_INVALID);
    o = (mf_tune_options){0};
    cr_assert_eq(mf_plan_tune(plan, &o), MF_E_INVALID);
    mf_plan_free(plan);
    const mf_context_options there = {sizeof there, "sm_90a", 0};
    mf_context_free(ctx);
    cr_assert_eq(mf_context_new(&ctx, &there), MF_OK);
    mf_context_free(ctx);
}
