/* Plans shared by equal graphs: a context's table from a hash of graph, options and layouts to plan. */
#include "context_internal.h"
#include "nodes.h"
#include "plan_internal.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Plans leave beyond CAPACITY; and beyond the limit of bytes kept by them, but for the last ALWAYS_KEPT. */
enum { CAPACITY = 1024, ALWAYS_KEPT = 16 };

typedef struct entry {
    XXH128_hash_t key;
    uint64_t used;
    size_t held;
    mf_plan *plan;
} entry;

/* A plan that a thread is making, on its stack. Who wants the same one waits: planning twice costs more. */
typedef struct making {
    XXH128_hash_t key;
    struct making *next;
} making;

struct mfi_plan_cache {
    pthread_mutex_t lock;
    pthread_cond_t made; /* or could not be */
    making *making;
    uint64_t clock;
    int count;
    size_t held;
    entry entry[CAPACITY];
};

mf_status mfi_plan_cache_new(struct mfi_plan_cache **out)
{
    *out = mfi_calloc(1, sizeof **out);
    if (!*out)
        return MFI_NO_MEMORY(sizeof **out);
    pthread_mutex_init(&(*out)->lock, NULL);
    pthread_cond_init(&(*out)->made, NULL);
    return MF_OK;
}

void mfi_plan_cache_free(struct mfi_plan_cache *cache)
{
    if (!cache)
        return;
    for (int i = 0; i < cache->count; i++)
        mfi_plan_release(cache->entry[i].plan);
    pthread_cond_destroy(&cache->made);
    pthread_mutex_destroy(&cache->lock);
    mf_free(cache);
}

static void feed(XXH3_state_t *h, const void *data, size_t bytes)
{
    XXH3_128bits_update(h, data, bytes);
}

static void feed_int(XXH3_state_t *h, int64_t value)
{
    feed(h, &value, sizeof value);
}

/* Fields one by one: structs have padding. */
static void feed_node(XXH3_state_t *h, const mfi_node *n)
{
    feed_int(h, n->kind | n->dtype << 8 | n->ndim << 16 | n->sources << 24);
    feed(h, n->shape, (size_t)n->ndim * sizeof *n->shape);
    feed(h, n->src, (size_t)n->sources * sizeof *n->src);
    switch (n->kind) {
    case MFI_N_INPUT:
        feed_int(h, n->u.input);
        break;
    case MFI_N_CONST:
        feed(h, &n->u.constant.re, sizeof(double));
        feed(h, &n->u.constant.im, sizeof(double));
        feed_int(h, n->u.constant.weak);
        break;
    case MFI_N_ARANGE:
        break;
    case MFI_N_APPLY:
        feed_int(h, n->u.op);
        feed_int(h, n->operand_dtype);
        break;
    case MFI_N_CAST:
        feed_int(h, n->u.cast.saturate);
        break;
    case MFI_N_REDUCE:
        feed_int(h, n->u.reduce.op | (int)n->u.reduce.keepdims << 8);
        feed_int(h, n->u.reduce.axes);
        break;
    case MFI_N_MATMUL:
        feed_int(h, n->u.compute);
        break;
    case MFI_N_FFT:
        feed_int(h, n->u.fft.kind | n->u.fft.norm << 8 | n->u.fft.count << 16);
        feed(h, n->u.fft.axes, (size_t)n->u.fft.count * sizeof *n->u.fft.axes);
        feed(h, n->u.fft.n, (size_t)n->u.fft.count * sizeof *n->u.fft.n);
        break;
    case MFI_N_SOLVE:
        feed_int(h, n->u.solve.solver | n->u.solve.flags << 8 | (int)n->u.solve.vector << 16);
        break;
    case MFI_N_FACTOR:
        feed_int(h, n->u.factor.kind | n->u.factor.flags << 8 | (int)n->u.factor.vector << 24);
        feed(h, &n->u.factor.rcond, sizeof(double));
        break;
    case MFI_N_RESULT:
        feed_int(h, n->u.result);
        break;
    case MFI_N_VIEW:
        feed_int(h, n->u.view.kind);
        for (int d = 0; d < n->ndim; d++) {
            feed_int(h, n->u.view.kind == MFI_V_PERMUTE ? n->u.view.permutation[d] : 0);
            feed_int(h, n->u.view.kind == MFI_V_SLICE ? n->u.view.start[d] : 0);
            feed_int(h, n->u.view.kind == MFI_V_SLICE ? n->u.view.step[d] : 0);
        }
        break;
    }
}

static void feed_options(XXH3_state_t *h, const mf_graph *g, int flags, const char *providers)
{
    for (int i = 0; i < g->count; i++)
        feed_node(h, &g->node[i]);
    feed(h, g->output, (size_t)g->outputs * sizeof *g->output);
    feed_int(h, g->count);
    feed_int(h, flags);
    if (providers)
        feed(h, providers, strlen(providers));
}

static void feed_tensors(XXH3_state_t *h, const mf_tensor *t, int count)
{
    feed_int(h, t ? count : -1);
    for (int i = 0; t && i < count; i++) {
        feed_int(h, t[i].ndim | t[i].dtype << 8 | mfi_pointer_alignment(t[i].data) << 16);
        feed(h, t[i].shape, (size_t)t[i].ndim * sizeof *t[i].shape);
        feed(h, t[i].strides, (size_t)t[i].ndim * sizeof *t[i].strides);
    }
}

static XXH128_hash_t hash(const mf_graph *g, const mf_plan_options *o)
{
    XXH3_state_t h;
    XXH3_128bits_reset(&h);
    feed_options(&h, g, o->flags, o->providers);
    feed_tensors(&h, o->bindings, o->binding_count);
    feed_int(&h, o->tune);
    return XXH3_128bits_digest(&h);
}

void mfi_plan_hash(const mf_plan *plan, char out[40])
{
    XXH3_state_t h;
    XXH3_128bits_reset(&h);
    feed_options(&h, plan->graph, plan->flags, plan->providers);
    feed_tensors(&h, plan->binding, plan->bindings);
    XXH128_hash_t key = XXH3_128bits_digest(&h);
    snprintf(out, 40, "%016llx%016llx", (unsigned long long)key.high64, (unsigned long long)key.low64);
}

static mf_plan *find(struct mfi_plan_cache *cache, XXH128_hash_t key)
{
    for (int i = 0; i < cache->count; i++)
        if (XXH128_isEqual(cache->entry[i].key, key)) {
            cache->entry[i].used = ++cache->clock;
            return cache->entry[i].plan;
        }
    return NULL;
}

/* The least recently used plan leaves. */
static void drop_oldest(struct mfi_plan_cache *cache)
{
    int at = 0;
    for (int i = 1; i < cache->count; i++)
        at = cache->entry[i].used < cache->entry[at].used ? i : at;
    cache->held -= cache->entry[at].held;
    mfi_plan_release(cache->entry[at].plan);
    cache->entry[at] = cache->entry[--cache->count];
}

/* Keep the plan; shapes that never repeat must not fill the memory. */
static void keep(struct mfi_plan_cache *cache, XXH128_hash_t key, mf_plan *plan)
{
    size_t held = mf_plan_memory(plan), most = mfi_plan_memory_limit(plan->caps);
    while (cache->count == CAPACITY || (cache->count >= ALWAYS_KEPT && cache->held + held > most))
        drop_oldest(cache);
    cache->held += held;
    cache->entry[cache->count++] = (entry){key, ++cache->clock, held, plan};
}

static bool being_made(const struct mfi_plan_cache *cache, XXH128_hash_t key)
{
    const making *m = cache->making;
    while (m && !XXH128_isEqual(m->key, key))
        m = m->next;
    return m != NULL;
}

/* What is kept, once nobody is making it. NULL: it is `mine` to make. With the lock held, as those below. */
static mf_plan *find_or_claim(struct mfi_plan_cache *cache, making *mine)
{
    mf_plan *plan;
    while (!(plan = find(cache, mine->key)) && being_made(cache, mine->key))
        pthread_cond_wait(&cache->made, &cache->lock);
    if (!plan) {
        mine->next = cache->making;
        cache->making = mine;
    }
    return plan;
}

/* Who waits looks again: the plan is kept, or it is theirs to make and they get their own error. */
static void settle(struct mfi_plan_cache *cache, const making *mine, mf_plan *plan)
{
    making **at = &cache->making;
    while (*at != mine)
        at = &(*at)->next;
    *at = mine->next;
    if (plan)
        keep(cache, mine->key, plan);
    pthread_cond_broadcast(&cache->made);
}

mf_status mf_plan_cached(mf_plan **out, mf_context *context, const mf_graph *graph, const mf_plan_options *options)
{
    const mf_plan_options defaults = MF_PLAN_OPTIONS_INIT;
    *out = NULL;
    MF_REQUIRE(context && graph, MF_E_INVALID, "mf_plan_cached: %s is NULL", context ? "graph" : "context");
    options = options ? options : &defaults;
    MF_TRY(mfi_plan_check_options(options));
    MF_TRY(mf_graph_error(graph));
    struct mfi_plan_cache *cache = mfi_context_plans(context);
    making mine = {.key = hash(graph, options)};
    mf_status status = MF_OK;
    pthread_mutex_lock(&cache->lock);
    mf_plan *plan = find_or_claim(cache, &mine);
    if (!plan) {
        pthread_mutex_unlock(&cache->lock);
        status = mfi_plan_make(&plan, context, graph, options);
        pthread_mutex_lock(&cache->lock);
        settle(cache, &mine, status == MF_OK ? plan : NULL);
    }
    if (status == MF_OK) {
        mfi_plan_retain(plan);
        mfi_context_retain(context);
        *out = plan;
    }
    int kept = cache->count;
    pthread_mutex_unlock(&cache->lock);
    mfi_log(MFI_LOG_CACHE, "plans: %d kept", kept);
    return status;
}
