/* The process's worker threads and the parallel loop on them. One job runs at a time: a caller that finds the pool
 * busy, or that is itself inside a job, does its work alone. Workers that wake late simply find nothing left to do. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "core.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_THREADS 256
#define PIECES_PER_THREAD 4 /* uneven pieces even out */
#define SPINS 1000          /* a few microseconds; after that a thread sleeps */

typedef struct job {
    void (*fn)(void *context, int64_t begin, int64_t end);
    void *context;
    int64_t count, pieces;
    int helpers; /* workers that may join */
} job;

/* `lock` guards job, open, joined, active, workers and seen generations; owner is taken for the whole of a job. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    atomic_int owner;
    atomic_uint generation;
    atomic_int active;
    _Atomic int64_t next;
    job job;
    bool open;
    int joined, workers;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int default_threads;
static _Thread_local bool inside; /* this thread runs pieces of a job */

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int count_threads(void)
{
    const char *text = getenv("MATHFUSE_NUM_THREADS");
    if (text && *text) {
        char *end;
        long value = strtol(text, &end, 10);
        if (!*end && value >= 1)
            return value < MAX_THREADS ? (int)value : MAX_THREADS;
    }
    cpu_set_t set;
    long cores = sched_getaffinity(0, sizeof set, &set) ? sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
    return cores < 1 ? 1 : cores < MAX_THREADS ? (int)cores : MAX_THREADS;
}

int mfi_thread_default(void)
{
    int threads = atomic_load_explicit(&default_threads, memory_order_relaxed);
    if (!threads) {
        threads = count_threads();
        atomic_store_explicit(&default_threads, threads, memory_order_relaxed);
    }
    return threads;
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&pool.lock);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&pool.lock);
}

/* Only the forking thread lives on in the child: start over without workers. */
static void fork_child(void)
{
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.done, NULL);
    atomic_store(&pool.owner, 0);
    atomic_store(&pool.active, 0);
    pool.open = false;
    pool.workers = 0;
    atomic_store(&default_threads, 0);
}

static void set_up(void)
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static void run_pieces(const job *j)
{
    inside = true;
    for (;;) {
        int64_t piece = atomic_fetch_add(&pool.next, 1);
        if (piece >= j->pieces)
            break;
        /* The first count % pieces pieces are one longer; no product that could overflow. */
        int64_t base = j->count / j->pieces, longer = j->count % j->pieces;
        int64_t begin = piece * base + mfi_min64(piece, longer);
        j->fn(j->context, begin, begin + base + (piece < longer));
    }
    inside = false;
}

static void *work(void *unused)
{
    (void)unused;
    unsigned seen = 0;
    for (;;) {
        for (int i = 0; i < SPINS && atomic_load_explicit(&pool.generation, memory_order_relaxed) == seen; i++)
            pause_briefly();
        pthread_mutex_lock(&pool.lock);
        while (atomic_load(&pool.generation) == seen)
            pthread_cond_wait(&pool.wake, &pool.lock);
        seen = atomic_load(&pool.generation);
        bool join = pool.open && pool.joined < pool.job.helpers;
        job j = pool.job;
        if (join) {
            pool.joined++;
            atomic_fetch_add(&pool.active, 1);
        }
        pthread_mutex_unlock(&pool.lock);
        if (!join)
            continue;
        run_pieces(&j);
        pthread_mutex_lock(&pool.lock);
        if (atomic_fetch_sub(&pool.active, 1) == 1)
            pthread_cond_signal(&pool.done);
        pthread_mutex_unlock(&pool.lock);
    }
    return NULL;
}

/* Have at least `wanted` workers, as far as the system allows. Called with the lock held. */
static void start_workers(int wanted)
{
    pthread_attr_t attributes;
    if (pool.workers >= wanted || pthread_attr_init(&attributes))
        return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    while (pool.workers < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, work, NULL))
            break;
        pool.workers++;
    }
    pthread_attr_destroy(&attributes);
}

static void run_job(const job *j)
{
    pthread_mutex_lock(&pool.lock);
    start_workers(j->helpers);
    pool.job = *j;
    pool.joined = 0;
    pool.open = true;
    atomic_store(&pool.next, 0);
    atomic_fetch_add(&pool.generation, 1);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);

    run_pieces(j);

    for (int i = 0; i < SPINS && atomic_load_explicit(&pool.active, memory_order_relaxed); i++)
        pause_briefly();
    pthread_mutex_lock(&pool.lock);
    pool.open = false;
    while (atomic_load(&pool.active))
        pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

void mfi_parallel_for(int64_t count, int64_t grain, int threads, void (*fn)(void *context, int64_t begin, int64_t end),
                      void *context)
{
    if (count <= 0)
        return;
    threads = threads > 0 ? (threads < MAX_THREADS ? threads : MAX_THREADS) : mfi_thread_default();
    int64_t most = count / mfi_max64(grain, 1); /* rounded down: each piece has at least `grain` */
    int64_t pieces = mfi_min64(most, (int64_t)threads * PIECES_PER_THREAD);
    int helpers = (int)mfi_min64(threads - 1, pieces - 1);
    if (helpers < 1 || inside || atomic_exchange(&pool.owner, 1)) {
        fn(context, 0, count);
        return;
    }
    pthread_once(&once, set_up);
    job j = {fn, context, count, pieces, helpers};
    run_job(&j);
    atomic_store(&pool.owner, 0);
}
