/* One prepared step run by many threads on streams of their own, and captured into a CUDA graph: the same bits as
 * alone. Without a GPU the reference runs, from as many threads. */
#include "gpu_harness.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loader.h"

extern const mfi_provider mfi_provider_cublaslt, mfi_provider_cufft, mfi_provider_cusolver, mfi_provider_ref;

enum { THREADS = 8, ROUNDS = 20, SLOTS = 4 };

/* ---- the driver's streams and graphs, which the library itself does not need ---- */

static struct {
    int (*create)(void **stream, unsigned flags);
    int (*destroy)(void *stream);
    int (*synchronize)(void *stream);
    int (*begin)(void *stream, int mode);
    int (*end)(void *stream, void **graph);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*launch)(void *exec, void *stream);
} driver;

static void load_driver(void)
{
    static const char *const names[] = {
        "cuStreamCreate",     "cuStreamDestroy_v2",          "cuStreamSynchronize", "cuStreamBeginCapture_v2",
        "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch"};
    void *symbols[MFI_COUNT(names)];
    for (size_t i = 0; i < MFI_COUNT(names); i++)
        symbols[i] = mfi_library_symbol(MFI_LIB_CUDA, names[i]);
    memcpy(&driver, symbols, sizeof driver);
}

/* ---- three steps ---- */

static int16_t append_store(mfi_problem *p, mfi_ctype t, int slot_index, mf_dtype dtype, const int64_t *strides)
{
    int16_t acc = append(p, MFI_ACC, t, -1, -1, -1);
    return operand(p, MFI_STORE, t, slot_index, dtype, strides, acc);
}

static mfi_problem gemm_problem(void)
{
    enum { M = 96, N = 128, K = 64 };
    mfi_problem p = {.anchor = MFI_MATMUL, .ndim = 2, .shape = {M, N}};
    p.u.matmul = (mfi_matmul){.m = M, .n = N, .k = K, .acc = MFI_F32};
    p.u.matmul.a = (mfi_view){.slot = 0, .dtype = MF_F32, .alignment = 16, .strides = {K, 1}};
    p.u.matmul.b = (mfi_view){.slot = 1, .dtype = MF_F32, .alignment = 16, .strides = {N, 1}};
    const int64_t full[] = {N, 1}, vector[] = {0, 1};
    int acc = append(&p, MFI_ACC, MFI_F32, -1, -1, -1);
    int bias = operand(&p, MFI_LOAD, MFI_F32, 2, MF_F32, vector, -1);
    int sum = append(&p, MFI_APPLY, MFI_F32, MF_OP_ADD, acc, bias);
    operand(&p, MFI_STORE, MFI_F32, 3, MF_F32, full, sum);
    return p;
}

static mfi_problem fft_problem(void)
{
    enum { BATCH = 64, LENGTH = 126, BINS = LENGTH / 2 + 1 };
    mfi_problem p = {.anchor = MFI_FFT, .ndim = 2, .shape = {BATCH, LENGTH}};
    p.u.fft = (mfi_fft){.kind = MF_IRFFT, .naxes = 1, .n = {LENGTH}, .in_shape = {BINS}, .in_extent = {BINS}};
    p.u.fft.scale = 1.0 / LENGTH;
    p.u.fft.in = (mfi_view){.slot = 0, .dtype = MF_C64, .alignment = 16, .strides = {BINS, 1}};
    append_store(&p, MFI_F32, 3, MF_F32, (int64_t[]){LENGTH, 1});
    return p;
}

static mfi_problem solve_problem(void)
{
    enum { BATCH = 5, ORDER = 24 };
    mfi_problem p = {.anchor = MFI_SOLVE, .ndim = 1, .shape = {BATCH}};
    mfi_view matrix = {.dtype = MF_F64, .alignment = 16, .strides = {ORDER * ORDER, ORDER, 1}};
    p.u.solve = (mfi_solve){.solver = MFI_LU_SOLVE, .n = ORDER, .nrhs = ORDER, .ctype = MFI_F64};
    p.u.solve.a = p.u.solve.b = p.u.solve.x = matrix;
    p.u.solve.b.slot = 1;
    p.u.solve.x.slot = 3;
    p.u.solve.info.slot = -1;
    return p;
}

static const struct {
    const char *name;
    mfi_problem (*problem)(void);
    const mfi_provider *provider;
    struct {
        mf_dtype dtype;
        int64_t count;
    } slots[SLOTS];
    bool captures;
} steps[] = {
    {"matmul",
     gemm_problem,
     &mfi_provider_cublaslt,
     {{MF_F32, 6144}, {MF_F32, 8192}, {MF_F32, 128}, {MF_F32, 12288}},
     true},
    {"fft", fft_problem, &mfi_provider_cufft, {{MF_C64, 4096}, {MF_F32, 1}, {MF_F32, 1}, {MF_F32, 8064}}, true},
    {"solve",
     solve_problem,
     &mfi_provider_cusolver,
     {{MF_F64, 2880}, {MF_F64, 2880}, {MF_F32, 1}, {MF_F64, 2880}},
     false},
};

typedef struct worker {
    const mfi_provider *provider;
    void *state, *workspace, *stream, *addresses[SLOTS], *want;
    slot slots[SLOTS];
    bool gpu;
    int wrong;
} worker;

static mf_status submit(worker *w)
{
    mfi_run r = {w->addresses, w->workspace, w->stream, context};
    return w->provider->run(w->state, &r);
}

static size_t result_bytes(const worker *w)
{
    return (size_t)w->slots[3].count * mf_dtype_size(w->slots[3].dtype);
}

static void fetch(worker *w, void *to)
{
    if (w->gpu)
        driver.synchronize(w->stream);
    cr_assert_eq(mf_context_copy(context, to, w->slots[3].device, result_bytes(w)), MF_OK);
}

static void *work(void *argument)
{
    worker *w = argument;
    if (mfi_context_make_current(context) != MF_OK) {
        w->wrong++;
        return NULL;
    }
    for (int i = 0; i < ROUNDS; i++) {
        w->wrong += submit(w) != MF_OK;
        fetch(w, w->slots[3].host);
        w->wrong += memcmp(w->slots[3].host, w->want, result_bytes(w)) != 0;
    }
    return NULL;
}

static void capture(worker *w, const char *name, bool captures)
{
    void *graph = NULL, *exec = NULL;
    size_t bytes = result_bytes(w);
    cr_assert_eq(driver.begin(w->stream, 2), 0); /* relaxed */
    mf_status status = submit(w);
    driver.end(w->stream, &graph);
    if (!captures) {
        cr_expect_eq(status, MF_E_STATE, "%s: capture gave %s", name, mf_status_name(status));
        return;
    }
    cr_expect_eq(status, MF_OK, "%s: capture: %s", name, mf_error_message(status));
    cr_assert_eq(driver.instantiate(&exec, graph, 0), 0);
    memset(w->slots[3].host, 0, bytes);
    cr_assert_eq(mf_context_copy(context, w->slots[3].device, w->slots[3].host, bytes), MF_OK);
    cr_expect_eq(driver.launch(exec, w->stream), 0);
    fetch(w, w->slots[3].host);
    cr_expect_eq(memcmp(w->slots[3].host, w->want, bytes), 0, "%s: a replayed graph gave another result", name);
}

static void set_up(worker *w, int step, const mfi_provider *provider, void *state, size_t workspace, bool gpu)
{
    *w = (worker){.provider = provider, .state = state, .gpu = gpu};
    if (gpu)
        cr_assert_eq(driver.create(&w->stream, 1), 0); /* not synchronised with the default stream */
    cr_assert_eq(mf_context_alloc(&w->workspace, context, workspace + 256), MF_OK);
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &w->slots[i];
        make(s, steps[step].slots[i].dtype, steps[step].slots[i].count);
        cr_assert_eq(mf_context_copy(context, s->device, s->host, (size_t)s->count * mf_dtype_size(s->dtype)), MF_OK);
        w->addresses[i] = s->device;
    }
    w->want = malloc(result_bytes(w));
    mf_status status = submit(w);
    cr_expect_eq(status, MF_OK, "%s: %s", steps[step].name, mf_error_message(status));
    fetch(w, w->want);
}

static void shared(int step, bool gpu)
{
    worker workers[THREADS];
    pthread_t threads[THREADS];
    const mfi_provider *provider = gpu ? steps[step].provider : &mfi_provider_ref;
    mfi_problem p = steps[step].problem();
    mfi_bid bid = {0};
    void *state = NULL;
    mfi_context_prepare(context, p.anchor);
    cr_assert(provider->query(&p, mfi_context_caps(context), &bid), "%s: %s", steps[step].name, bid.detail);
    mf_status status = provider->prepare(&state, &p, mfi_context_caps(context), context, &bid);
    cr_assert_eq(status, MF_OK, "%s: %s", steps[step].name, mf_error_message(status));
    for (int i = 0; i < THREADS; i++)
        set_up(&workers[i], step, provider, state, bid.workspace, gpu);
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(workers[i].wrong, 0, "%s: thread %d: %d of %d runs went wrong", steps[step].name, i,
                     workers[i].wrong, ROUNDS);
    }
    if (gpu)
        capture(&workers[0], steps[step].name, steps[step].captures);
    for (int i = 0; i < THREADS; i++) {
        mf_context_release(context, workers[i].workspace);
        release(workers[i].slots, SLOTS);
        free(workers[i].want);
        if (gpu)
            driver.destroy(workers[i].stream);
    }
    provider->destroy(state);
}

/* CUDA does not survive a fork: the child is told so, sees no device, and does not hang. */
static void forked(void)
{
    int outcome = 0;
    pid_t child = fork();
    if (child == 0) {
        bool told = mfi_context_make_current(context) == MF_E_STATE && strstr(mf_error_message(MF_E_STATE), "fork");
        _exit(told && mfi_cuda_device_count() == 0 ? 0 : 1);
    }
    cr_assert(child > 0 && waitpid(child, &outcome, 0) == child);
    cr_expect(WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0, "the child ended with %d", outcome);
}

Test(gpu, streams)
{
    bool gpu = open_context(MFI_MATMUL);
    if (gpu)
        load_driver();
    for (size_t i = 0; i < MFI_COUNT(steps); i++)
        shared((int)i, gpu);
    if (gpu)
        forked();
    mf_context_free(context);
}
