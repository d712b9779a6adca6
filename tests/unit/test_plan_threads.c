/* Plans made by several threads at once: equal graphs share one, different ones are made beside each other. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "mathfuse/mathfuse.h"

enum { THREADS = 8, KINDS = 6, SIZES = 4, GRAPHS = KINDS * SIZES };

typedef struct planner {
    mf_context *context;
    int first; /* each thread begins elsewhere */
    mf_plan *plan[GRAPHS];
    mf_status status[GRAPHS];
} planner;

static mf_node body(mf_graph *g, int kind, mf_node x, int64_t n)
{
    switch (kind) {
    case 0:
        return mf_graph_add(g, mf_graph_tanh(g, x), x);
    case 1:
        return mf_graph_reduce(g, MF_SUM, mf_graph_exp(g, x), 1, (int[]){-1}, 0);
    case 2:
        return mf_graph_relu(g, mf_graph_matmul(g, x, x));
    case 3:
        return mf_graph_fft(g, MF_FFT, mf_graph_cast(g, x, MF_C64, 0), 1, (int[]){-1}, &n, MF_NORM_BACKWARD);
    case 4:
        return mf_graph_solve(g, x, x);
    default: /* refused: the matrix is not square */
        return mf_graph_inv(g,
                            mf_graph_slice(g, x, (int64_t[]){0, 0, 0}, (int64_t[]){3, n, n - 1}, (int64_t[]){1, 1, 1}));
    }
}

static void *plan_all(void *argument)
{
    planner *p = argument;
    for (int k = 0; k < GRAPHS; k++) {
        int i = (k + p->first) % GRAPHS;
        int64_t n = 8 + i / KINDS;
        mf_graph *g;
        p->status[i] = mf_graph_new(&g);
        if (p->status[i] != MF_OK)
            continue;
        mf_graph_output(g, body(g, i % KINDS, mf_graph_input(g, MF_F32, 3, (int64_t[]){3, n, n}), n));
        p->status[i] = mf_plan_cached(&p->plan[i], p->context, g, NULL);
        mf_graph_free(g);
    }
    return NULL;
}

static void plan_at_once(const char *device)
{
    static planner planners[THREADS];
    pthread_t thread[THREADS];
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    mf_context *context;
    options.device = device;
    cr_assert_eq(mf_context_new(&context, &options), MF_OK);
    for (int t = 0; t < THREADS; t++) {
        planners[t] = (planner){.context = context, .first = t * GRAPHS / THREADS};
        cr_assert_eq(pthread_create(&thread[t], NULL, plan_all, &planners[t]), 0);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    for (int i = 0; i < GRAPHS; i++)
        for (int t = 0; t < THREADS; t++) {
            bool refused = i % KINDS == KINDS - 1;
            cr_expect_eq(planners[t].status[i] != MF_OK, refused, "%s, graph %d: status %d", device, i,
                         (int)planners[t].status[i]);
            cr_expect_eq(planners[t].plan[i], planners[0].plan[i], "%s, graph %d: not the same plan", device, i);
            mf_plan_free(planners[t].plan[i]);
        }
    mf_context_free(context);
}

Test(plan_threads, cpu)
{
    plan_at_once("cpu");
}

Test(plan_threads, kernels_for_a_gpu)
{
    void *code;
    size_t bytes;
    mf_status status = mf_compile(&code, &bytes, MF_CUBIN, "sm_90a", "probe", "");
    mf_free(code);
    if (status == MF_OK)
        plan_at_once("sm_90a");
    else
        fprintf(stderr, "skipped: %s\n", mf_error_message(status));
}
