/* One problem: planned, tuned, verified and timed. */
#define _POSIX_C_SOURCE 200809L
#include "bench_measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_data.h"

enum { WAYS = 2, MOST_ROUNDS = 99, REFERENCE_LIMIT = 300000000 };

typedef struct way { /* a plan for the problem */
    const char *name;
    mf_plan *plan;
    double error;
    int count; /* samples */
    double samples[MOST_ROUNDS];
    double us, low, high, host;
} way;

typedef struct bench {
    const bench_problem *problem;
    const bench_options *options;
    void *host[MAX_ARRAYS], *device[MAX_ARRAYS], *want;
    mf_tensor tensors[MAX_ARRAYS];
    way ways[WAYS];
    int count, unfused; /* unfused: by which the result was verified */
    char *tuning, *profile;
    char failure[600];
} bench;

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int on_gpu(const bench *b)
{
    return mf_context_device(b->options->context, NULL) == MF_CUDA;
}

static int failed(bench *b, const char *what, mf_status status)
{
    if (status)
        snprintf(b->failure, sizeof b->failure, "%s: %s: %s", what, mf_status_name(status), mf_error_message(status));
    return status != MF_OK;
}

/* ---- arrays ---- */

static mf_status make_arrays(bench *b)
{
    const bench_problem *p = b->problem;
    int index = 0;
    mf_device_kind kind = mf_context_device(b->options->context, &index);
    for (int i = 0; i < p->count; i++) {
        const bench_array *a = &p->arrays[i];
        b->host[i] = malloc(array_bytes(a) + 1);
        if (!b->host[i])
            return MF_E_MEMORY;
        mf_status status = i + 1 < p->count ? data_fill(b->options->cpu, a, b->host[i], 1 + (uint64_t)i) : MF_OK;
        if (!status && kind != MF_CPU)
            status = mf_context_alloc(&b->device[i], b->options->context, array_bytes(a));
        if (!status && kind != MF_CPU && i + 1 < p->count)
            status = mf_context_copy(b->options->context, b->device[i], b->host[i], array_bytes(a));
        if (!status)
            status = data_tensor(&b->tensors[i], a, kind == MF_CPU ? b->host[i] : b->device[i]);
        if (status)
            return status;
        b->tensors[i].device = kind;
        b->tensors[i].device_index = index;
    }
    b->want = malloc(array_bytes(&p->arrays[p->count - 1]) + 1);
    return b->want ? MF_OK : MF_E_MEMORY;
}

static void free_arrays(bench *b)
{
    for (int i = 0; i < b->problem->count; i++) {
        free(b->host[i]);
        if (b->device[i])
            mf_context_release(b->options->context, b->device[i]);
    }
    free(b->want);
}

/* An estimate of the multiplications of the problem's product or factorisation. */
static double work(const bench_problem *p)
{
    const bench_array *a = &p->arrays[0];
    double count = (double)array_elements(a);
    if (p->product)
        return count * (double)p->arrays[p->count - 1].shape[p->arrays[p->count - 1].ndim - 1];
    return p->solver ? count * (double)a->shape[a->ndim - 1] : 20 * count;
}

/* What is right: by the reference provider, step by step; where that would take minutes, by the CPU's libraries. */
static mf_status reference(bench *b)
{
    const bench_problem *p = b->problem;
    mf_plan *plan = NULL;
    mf_plan_options options = MF_PLAN_OPTIONS_INIT;
    mf_tensor tensors[MAX_ARRAYS];
    options.flags = MF_PLAN_NO_FUSION;
    options.tune = MF_TUNE_OFF;
    b->unfused = work(p) > REFERENCE_LIMIT;
    options.providers = b->unfused ? NULL : "ref";
    mf_status status = mf_plan_new(&plan, b->options->cpu, p->graph, &options);
    for (int i = 0; i < p->count && !status; i++)
        status = data_tensor(&tensors[i], &p->arrays[i], i + 1 < p->count ? b->host[i] : b->want);
    if (!status)
        status = mf_plan_run(plan, tensors, p->count, NULL);
    mf_plan_free(plan);
    return status;
}

static mf_status verify(bench *b, way *w)
{
    int last = b->problem->count - 1;
    const bench_array *result = &b->problem->arrays[last];
    memset(b->host[last], 0xff, array_bytes(result)); /* NaN, for whoever writes nothing */
    mf_status status = MF_OK;
    if (b->device[last])
        status = mf_context_copy(b->options->context, b->device[last], b->host[last], array_bytes(result));
    if (!status)
        status = mf_plan_run(w->plan, b->tensors, last + 1, NULL);
    if (!status)
        status = mf_context_synchronize(b->options->context);
    if (!status && b->device[last])
        status = mf_context_copy(b->options->context, b->host[last], b->device[last], array_bytes(result));
    return status ? status : data_error(&w->error, b->options->cpu, result, b->host[last], b->want);
}

/* ---- plans ---- */

static mf_status plan_tuned(bench *b, mf_plan *plan)
{
    mf_tune_options options = MF_TUNE_OPTIONS_INIT;
    bench_text source = {0};
    mf_status status = mf_plan_tuning(&b->tuning, plan);
    if (status)
        return status;
    json_copy(&source, b->tuning, "source");
    options.seconds = b->options->tune;
    if (strcmp(source.data, "\"default\"") == 0) {
        status = mf_plan_tune(plan, &options);
        mf_free(b->tuning);
        b->tuning = NULL;
        status = status ? status : mf_plan_tuning(&b->tuning, plan);
    }
    text_clear(&source);
    return status;
}

static int add_way(bench *b, const char *name, mf_tune_policy policy)
{
    way *w = &b->ways[b->count];
    mf_plan_options options = MF_PLAN_OPTIONS_INIT;
    options.tune = policy;
    options.bindings = b->tensors;
    options.binding_count = b->problem->count;
    w->name = name;
    if (failed(b, name, mf_plan_new(&w->plan, b->options->context, b->problem->graph, &options)))
        return 1;
    b->count++;
    if (policy == MF_TUNE_CACHED && b->options->tune > 0 && failed(b, "tuning", plan_tuned(b, w->plan)))
        return 1;
    if (failed(b, name, verify(b, w)))
        return 1;
    if (w->error <= data_allowed(b->problem))
        return 0;
    snprintf(b->failure, sizeof b->failure, "%s is wrong: its error is %.1e, %.0e is allowed", name, w->error,
             data_allowed(b->problem));
    return 1;
}

/* ---- time ---- */

static double runs_us(bench *b, way *w, int runs)
{
    double start = bench_now();
    for (int i = 0; i < runs; i++)
        if (failed(b, w->name, mf_plan_run(w->plan, b->tensors, b->problem->count, NULL)))
            return -1;
    return 1e6 * (bench_now() - start) / runs;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median, and a 95 % confidence interval from order statistics. */
static void summarise(way *w)
{
    qsort(w->samples, (size_t)w->count, sizeof(double), by_value);
    int below = (int)(w->count / 2.0 - 0.98 * sqrt(w->count));
    below = below < 0 ? 0 : below;
    w->us = (w->samples[(w->count - 1) / 2] + w->samples[w->count / 2]) / 2;
    w->low = w->samples[below];
    w->high = w->samples[w->count - 1 - below];
}

/* Plans take turns; a sample is of as many runs as take 2 ms. */
static int sample_cpu(bench *b)
{
    int runs[WAYS] = {0};
    for (int i = 0; i < b->count; i++) {
        double us = runs_us(b, &b->ways[i], 1);
        if (us < 0)
            return 1;
        runs[i] = us < 2 ? 1000 : us > 2000 ? 1 : (int)(2000 / us);
    }
    for (int round = 0; round < b->options->rounds; round++)
        for (int i = 0; i < b->count; i++) {
            way *w = &b->ways[i];
            double us = runs_us(b, w, runs[i]);
            if (us < 0)
                return 1;
            w->samples[w->count++] = us;
        }
    return 0;
}

/* The device's own time, as the profile measures it by events over rotated arrays; and the host's, submitting. */
static int sample_gpu(bench *b)
{
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < b->count; i++) {
            way *w = &b->ways[i];
            char *profile = NULL;
            if (failed(b, "profile", mf_plan_profile(&profile, w->plan, 0.1)))
                return 1;
            w->samples[w->count++] = json_number(profile, "us", 0);
            mf_free(profile);
            mf_context_synchronize(b->options->context);
            double host = runs_us(b, w, 50);
            mf_context_synchronize(b->options->context);
            w->host = round ? fmin(w->host, host) : host;
        }
    return 0;
}

static way *fastest(bench *b)
{
    way *best = &b->ways[0];
    for (int i = 1; i < b->count; i++)
        best = b->ways[i].us < best->us ? &b->ways[i] : best;
    return best;
}

static int measure(bench *b)
{
    if (failed(b, "arrays", make_arrays(b)) || failed(b, "the reference", reference(b)))
        return 1;
    if (add_way(b, "mathfuse", b->options->tune > 0 ? MF_TUNE_OFF : MF_TUNE_CACHED))
        return 1;
    if (b->options->tune > 0 && add_way(b, "mathfuse, tuned", MF_TUNE_CACHED))
        return 1;
    if (on_gpu(b) ? sample_gpu(b) : sample_cpu(b))
        return 1;
    for (int i = 0; i < b->count; i++)
        summarise(&b->ways[i]);
    return failed(b, "profile", mf_plan_profile(&b->profile, fastest(b)->plan, 0.2));
}

/* ---- ceilings ---- */

/* GFLOP/s of a square product of this dtype, measured once; 0 where there is none. */
static double matmul_rate(const bench_options *options, mf_dtype dtype)
{
    static double known[MF_DTYPE_COUNT];
    static char measured[MF_DTYPE_COUNT];
    if (measured[dtype])
        return known[dtype];
    measured[dtype] = 1;
    int gpu = mf_context_device(options->context, NULL) == MF_CUDA;
    int64_t n = !gpu ? 1024 : mf_dtype_size(dtype) <= 2 ? 8192 : 4096;
    mf_graph *g = NULL;
    mf_plan *plan = NULL;
    char *profile = NULL;
    if (mf_graph_new(&g))
        return 0;
    mf_node a = mf_graph_input(g, dtype, 2, (int64_t[]){n, n}), b = mf_graph_input(g, dtype, 2, (int64_t[]){n, n});
    mf_graph_output(g, mf_graph_matmul(g, a, b));
    if (!mf_plan_new(&plan, options->context, g, NULL) && !mf_plan_profile(&profile, plan, 0.3))
        known[dtype] = 1e-3 * json_sum(profile, "flops") / json_number(profile, "us", INFINITY);
    mf_free(profile);
    mf_plan_free(plan);
    mf_graph_free(g);
    return known[dtype];
}

double measure_call_us(mf_context *context)
{
    enum { RUNS = 2000 };
    mf_graph *g = NULL;
    mf_plan *plan = NULL;
    mf_tensor t[2];
    void *x = NULL, *y = NULL;
    double us = -1;
    int64_t one = 1;
    int index = 0;
    if (mf_graph_new(&g))
        return -1;
    mf_graph_output(g, mf_graph_negative(g, mf_graph_input(g, MF_F32, 1, &one)));
    int ready = !mf_plan_new(&plan, context, g, NULL) && !mf_context_alloc(&x, context, 4) &&
                !mf_context_alloc(&y, context, 4) && !mf_tensor_init(&t[0], x, MF_F32, 1, &one) &&
                !mf_tensor_init(&t[1], y, MF_F32, 1, &one);
    for (int i = 0; i < 2 && ready; i++) {
        t[i].device = mf_context_device(context, &index);
        t[i].device_index = index;
    }
    ready = ready && !mf_context_copy(context, x, &(float){1}, 4);
    for (int batch = 0; batch < 5 && ready; batch++) {
        double start = bench_now();
        for (int i = 0; i < RUNS && ready; i++)
            ready = !mf_plan_run(plan, t, 2, NULL);
        double each = 1e6 * (bench_now() - start) / RUNS;
        us = batch && us < each ? us : each;
        ready = ready && !mf_context_synchronize(context);
    }
    if (x)
        mf_context_release(context, x);
    if (y)
        mf_context_release(context, y);
    mf_plan_free(plan);
    mf_graph_free(g);
    return ready ? us : -1;
}

/* ---- rows ---- */

static void each_way(bench_text *row, const bench *b, const char *name, const char *what)
{
    text_add(row, ", \"%s\": {", name);
    for (int i = 0; i < b->count; i++) {
        const way *w = &b->ways[i];
        text_add(row, "%s\"%s\": ", i ? ", " : "", w->name);
        if (!strcmp(what, "interval"))
            text_add(row, "[%.4f, %.4f]", w->low, w->high);
        else if (!strcmp(what, "error"))
            text_add(row, "%.3e", w->error);
        else
            text_add(row, "%.4f", what[0] == 'h' ? w->host : w->us);
    }
    text_add(row, "}");
}

static void tuning_json(bench_text *row, const char *tuning)
{
    static const char *const keys[] = {"source", "winner", "default", "winner_us", "default_us", "seconds"};
    text_add(row, ", \"tuning\": {");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        text_add(row, "%s\"%s\": ", i ? ", " : "", keys[i]);
        json_copy(row, tuning, keys[i]);
    }
    text_add(row, "}");
}

static void roofline_json(bench_text *row, bench *b)
{
    double bytes = json_number(b->profile, "bytes", 0), flops = json_sum(b->profile, "flops"), us = fastest(b)->us;
    double copy = json_number(b->profile, "copy_gb_s", 0), least = 0;
    for (int i = 0; i < b->problem->count; i++)
        least += (double)array_bytes(&b->problem->arrays[i]);
    text_add(row, ", \"io_bytes\": %.0f, \"bytes\": %.0f, \"flops\": %.0f, \"bound_us\": %.4f, \"copy_gb_s\": %.2f",
             least, bytes, flops, json_sum(b->profile, "bound_us"), copy);
    text_add(row, ", \"host_us\": %.4f, \"launches\": %d", json_number(b->profile, "host_us", 0),
             mf_plan_launches(fastest(b)->plan));
    if (copy > 0)
        text_add(row, ", \"copy_percent\": %.2f", 0.1 * bytes / us / copy);
    double rate = b->problem->product ? matmul_rate(b->options, b->problem->arrays[0].dtype) : 0;
    if (rate > 0)
        text_add(row, ", \"matmul_gflop_s\": %.1f, \"matmul_percent\": %.2f", rate, 0.1 * flops / us / rate);
}

static void write_row(bench_text *row, bench_text *lines, bench *b, int wrong)
{
    text_add(row, "{\"problem\": ");
    text_string(row, b->problem->text);
    text_add(row, ", \"device\": \"%s\"", b->options->device);
    text_add(lines, "%s\n", b->problem->text);
    if (wrong) {
        text_add(row, ", \"failed\": ");
        text_string(row, b->failure);
        text_add(row, "}");
        text_add(lines, "    FAILED: %s\n", b->failure);
        return;
    }
    each_way(row, b, "us", "us");
    each_way(row, b, "interval", "interval");
    each_way(row, b, "error", "error");
    if (on_gpu(b))
        each_way(row, b, "host", "host");
    text_add(row, ", \"skipped\": {}, \"reference\": {}, \"verified_by\": \"%s\"",
             b->unfused ? "libraries, unfused" : "ref");
    roofline_json(row, b);
    if (b->tuning)
        tuning_json(row, b->tuning);
    text_add(row, "}");
    for (int i = 0; i < b->count; i++)
        text_add(lines, "    %12.2f us  (%.2f to %.2f)  %s; error %.1e\n", b->ways[i].us, b->ways[i].low,
                 b->ways[i].high, b->ways[i].name, b->ways[i].error);
}

int measure_row(bench_text *row, bench_text *lines, const bench_problem *problem, const bench_options *options)
{
    bench *b = calloc(1, sizeof *b);
    if (!b) {
        fputs("mathfuse-bench: out of memory\n", stderr);
        exit(EXIT_FAILURE);
    }
    b->problem = problem;
    b->options = options;
    int wrong = measure(b);
    write_row(row, lines, b, wrong);
    for (int i = 0; i < WAYS; i++)
        mf_plan_free(b->ways[i].plan);
    mf_free(b->tuning);
    mf_free(b->profile);
    free_arrays(b);
    free(b);
    return wrong;
}
