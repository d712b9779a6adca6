/* The threads that compile candidates ahead; all that they share is under one lock. */
#define _GNU_SOURCE
#include "tune_ahead.h"

#include <pthread.h>
#include <time.h>

enum { MAX_THREADS = 32 };

struct mfi_ahead {
    const mfi_problem *problem;
    const mfi_caps *caps;
    mf_context *context;
    const mfi_way *way;
    int count, next, threads;
    bool stop;
    bool *made; /* or there is nothing to compile */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread[MAX_THREADS];
};

/* Only the kernels stay. What goes wrong is met again, and told, when the way is tried. */
static void make(const mfi_ahead *a, const mfi_way *way)
{
    void *state = NULL;
    mfi_bid bid = {0};
    if (!way->provider->query(a->problem, a->caps, &bid))
        return;
    bid.variant = way->variant;
    if (way->provider->prepare(&state, a->problem, a->caps, a->context, &bid) == MF_OK && way->provider->destroy)
        way->provider->destroy(state);
}

/* The next way to be made, or -1. Called with the lock held. */
static int claim(mfi_ahead *a)
{
    while (!a->stop && a->next < a->count) {
        int i = a->next++;
        if (!a->made[i])
            return i;
    }
    return -1;
}

static void *work(void *argument)
{
    mfi_ahead *a = argument;
    pthread_mutex_lock(&a->lock);
    for (int i = claim(a); i >= 0; i = claim(a)) {
        pthread_mutex_unlock(&a->lock);
        make(a, &a->way[i]);
        pthread_mutex_lock(&a->lock);
        a->made[i] = true;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

mfi_ahead *mfi_ahead_begin(const mfi_problem *problem, const mfi_caps *caps, mf_context *context, const mfi_way *way,
                           int count, int threads)
{
    mfi_ahead *a = mfi_calloc(1, sizeof *a);
    if (!a)
        return NULL;
    *a = (mfi_ahead){.problem = problem, .caps = caps, .context = context, .way = way, .count = count};
    a->made = mfi_calloc((size_t)mfi_max64(count, 1), sizeof *a->made);
    if (!a->made) {
        mf_free(a);
        return NULL;
    }
    int compiled = 0;
    for (int i = 0; i < count; i++) {
        a->made[i] = threads < 1 || !way[i].provider->kernel;
        compiled += !a->made[i];
    }
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    int wanted = (int)mfi_min64(mfi_min64(threads, MAX_THREADS), compiled);
    while (a->threads < wanted && !pthread_create(&a->thread[a->threads], NULL, work, a))
        a->threads++;
    for (int i = 0; i < count && !a->threads; i++)
        a->made[i] = true; /* no thread: each is compiled when it is tried */
    return a;
}

static int first_of(const mfi_ahead *a, bool made)
{
    int i = 0;
    while (i < a->count && (a->way[i].offered || (made && !a->made[i])))
        i++;
    return i < a->count ? i : -1;
}

int mfi_ahead_pick(mfi_ahead *a, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t ns = until.tv_nsec + (int64_t)(1e9 * (seconds > 0 ? seconds : 0));
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&a->lock);
    int found = first_of(a, true);
    while (found < 0 && first_of(a, false) >= 0 && !pthread_cond_timedwait(&a->changed, &a->lock, &until))
        found = first_of(a, true);
    pthread_mutex_unlock(&a->lock);
    return found;
}

int mfi_ahead_left(const mfi_ahead *a)
{
    int left = 0;
    for (int i = 0; i < a->count; i++)
        left += !a->way[i].offered;
    return left;
}

void mfi_ahead_end(mfi_ahead *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->threads; i++)
        pthread_join(a->thread[i], NULL);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    mf_free(a->made);
    mf_free(a);
}
