/* The parallel loop: every index once, nested, from several threads, and after fork. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core.h"

#define COUNT 100003

static void count_up(void *context, int64_t begin, int64_t end)
{
    atomic_int *hits = context;
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add_explicit(&hits[i], 1, memory_order_relaxed);
}

static bool all_once(int64_t count, int64_t grain, int threads)
{
    atomic_int *hits = calloc((size_t)count, sizeof *hits);
    bool good = true;
    mfi_parallel_for(count, grain, threads, count_up, hits);
    for (int64_t i = 0; i < count; i++)
        good &= hits[i] == 1;
    free(hits);
    return good;
}

Test(parallel, each_index_once)
{
    for (int threads = 0; threads < 9; threads++)
        for (int64_t grain = 0; grain < COUNT * 2; grain = grain * 7 + 1)
            cr_assert(all_once(COUNT, grain, threads), "grain %lld, %d threads", (long long)grain, threads);
    cr_assert(all_once(1, 1, 4));
    cr_assert(all_once(0, 1, 4));
}

static void piece_size(void *context, int64_t begin, int64_t end)
{
    if (end - begin < 100)
        atomic_fetch_add((atomic_int *)context, 1);
}

Test(parallel, pieces_have_at_least_the_grain)
{
    for (int64_t count = 100; count < 1000; count += 7) {
        atomic_int small = 0;
        mfi_parallel_for(count, 100, 3, piece_size, &small);
        cr_assert_eq(small, 0, "count %lld", (long long)count);
    }
}

static void nest(void *context, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        if (!all_once(100, 1, 4))
            atomic_fetch_add((atomic_int *)context, 1);
}

Test(parallel, nested_calls_finish)
{
    atomic_int failures = 0;
    mfi_parallel_for(64, 1, 4, nest, &failures);
    cr_expect_eq(failures, 0);
}

static void *caller(void *context)
{
    for (int i = 0; i < 200; i++)
        if (!all_once(500, 10, 3))
            atomic_fetch_add((atomic_int *)context, 1);
    return NULL;
}

Test(parallel, several_callers_at_once)
{
    pthread_t threads[4];
    atomic_int failures = 0;
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, caller, &failures), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(failures, 0);
}

Test(parallel, works_in_a_forked_child, .timeout = 20)
{
#if defined(__SANITIZE_THREAD__)
    cr_skip_test("ThreadSanitizer allows no threads after a fork from several");
#endif
    cr_assert(all_once(COUNT, 1, 4));
    for (int i = 0; i < 8; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(all_once(COUNT, 1, 4) && all_once(COUNT, 1, 4) ? 0 : 1);
        int status = 1;
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        cr_expect(all_once(COUNT, 1, 4));
    }
}

Test(parallel, environment_sets_the_threads)
{
    setenv("MATHFUSE_NUM_THREADS", "3", 1);
    cr_expect_eq(mfi_thread_default(), 3);
}

Test(parallel, nonsense_in_the_environment_is_passed_over)
{
    setenv("MATHFUSE_NUM_THREADS", "many", 1);
    cr_expect_geq(mfi_thread_default(), 1);
}
