/* Making ways ahead: what is ready is picked first, what is not wanted any more is not begun, and kernels of different keys
 * compile beside each other. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "tune_ahead.h"

static atomic_int prepared, destroyed, running, most;

static void nap(double seconds)
{
    nanosleep(&(struct timespec){(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))}, NULL);
}

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    (void)p, (void)c;
    bid->cost_us = 1;
    return true;
}

/* Way 0 takes two seconds, way 3 fails, the others take 50 ms. */
static mf_status prepare(void **state, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    (void)p, (void)c, (void)context;
    int now = atomic_fetch_add(&running, 1) + 1, before = atomic_load(&most);
    while (before < now && !atomic_compare_exchange_weak(&most, &before, now))
        ;
    atomic_fetch_add(&prepared, 1);
    nap(bid->variant == 0 ? 2.0 : 0.05);
    atomic_fetch_sub(&running, 1);
    MF_REQUIRE(bid->variant != 3, MF_E_LIBRARY, "way 3 is never right");
    *state = mfi_alloc(1);
    return MF_OK;
}

static void destroy(void *state)
{
    atomic_fetch_add(&destroyed, 1);
    mf_free(state);
}

static mf_status kernel(void *state, int index, mf_kernel_info *out)
{
    (void)state, (void)index, (void)out;
    return MF_E_INVALID;
}

static const mfi_provider compiling = {
    .name = "compiling", .query = query, .prepare = prepare, .destroy = destroy, .kernel = kernel};
static const mfi_provider library = {.name = "library", .query = query, .prepare = prepare, .destroy = destroy};
static const mfi_problem problem;
static const mfi_caps caps;

static void fill(mfi_way *way, int count, const mfi_provider *provider)
{
    for (int i = 0; i < count; i++)
        way[i] = (mfi_way){.provider = provider, .variant = i};
}

Test(tune_ahead, what_is_ready_comes_first)
{
    enum { COUNT = 8 };
    mfi_way way[COUNT];
    bool seen[COUNT] = {false};
    fill(way, COUNT, &compiling);
    mfi_ahead *a = mfi_ahead_begin(&problem, &caps, NULL, way, COUNT, 3);
    for (int k = 0; k < COUNT; k++) {
        int i = mfi_ahead_pick(a, 10);
        cr_assert(i >= 0 && !seen[i], "pick %d is %d", k, i);
        cr_assert(k == COUNT - 1 || i > 0, "the slow one was picked as number %d", k);
        seen[i] = way[i].offered = true;
        cr_assert_eq(mfi_ahead_left(a), COUNT - 1 - k);
    }
    cr_assert_eq(mfi_ahead_pick(a, 10), -1);
    mfi_ahead_end(a);
    cr_assert_eq(atomic_load(&prepared), COUNT);
    cr_assert_eq(atomic_load(&destroyed), COUNT - 1, "all but the one that failed");
    cr_assert(atomic_load(&most) >= 2, "nothing was made beside something else");
}

Test(tune_ahead, a_pick_waits_no_longer_than_told_and_the_end_begins_no_more)
{
    enum { COUNT = 100 };
    mfi_way way[COUNT];
    fill(way, COUNT, &compiling);
    mfi_ahead *a = mfi_ahead_begin(&problem, &caps, NULL, way, COUNT, 1);
    cr_assert_eq(mfi_ahead_pick(a, 0.05), -1, "way 0 takes 2 s");
    cr_assert_eq(mfi_ahead_left(a), COUNT);
    mfi_ahead_end(a);
    cr_assert_leq(atomic_load(&prepared), 2);
    cr_assert_eq(atomic_load(&prepared), atomic_load(&destroyed));
}

Test(tune_ahead, libraries_and_no_threads_wait_for_nothing)
{
    mfi_way way[3];
    fill(way, 3, &library);
    for (int threads = 0; threads < 2; threads++) {
        way[0].provider = threads ? &library : &compiling;
        mfi_ahead *a = mfi_ahead_begin(&problem, &caps, NULL, way, 3, threads);
        cr_assert_eq(mfi_ahead_pick(a, 0), 0);
        mfi_ahead_end(a);
    }
    mfi_ahead *none = mfi_ahead_begin(&problem, &caps, NULL, way, 0, 4);
    cr_assert_eq(mfi_ahead_pick(none, 0), -1);
    mfi_ahead_end(none);
    cr_assert_eq(atomic_load(&prepared), 0);
}
