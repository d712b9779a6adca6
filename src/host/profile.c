/* mf_plan_profile: each step's time beside what its bytes and its arithmetic take at least. */
#include "cuda_api.h"
#include "schedule.h"
#include "tune_data.h"

#include <stdlib.h>

enum { SAMPLES = 15, COPY_BYTES = 1 << 28 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of several samples of step `index`, -1: all. */
static mf_status median(double *us, mfi_tune_data *d, mf_plan *plan, int index, double seconds)
{
    double sample[SAMPLES], end = mfi_tune_now_us() + 1e6 * seconds;
    int runs = 0, count = 0;
    while (count < SAMPLES && (count < 3 || mfi_tune_now_us() < end))
        MF_TRY(mfi_tune_time(&sample[count++], d, plan, index, &runs));
    qsort(sample, (size_t)count, sizeof *sample, ascending);
    *us = sample[count / 2];
    return MF_OK;
}

typedef struct copying {
    char *to;
    const char *from;
} copying;

static void copy_piece(void *context, int64_t begin, int64_t end)
{
    const copying *c = context;
    memcpy(c->to + begin, c->from + begin, (size_t)(end - begin));
}

static mf_status copy_once(const mf_plan *plan, void *to, const void *from, double *us)
{
    double begin = mfi_tune_now_us();
    if (plan->caps->cuda) {
        MF_TRY(mfi_cuda_copy_async(to, from, COPY_BYTES, NULL));
        MF_TRY(mf_context_synchronize(plan->context));
    } else {
        copying c = {to, from};
        mfi_parallel_for(COPY_BYTES, 1 << 20, plan->caps->threads, copy_piece, &c);
    }
    *us = mfi_tune_now_us() - begin;
    return MF_OK;
}

/* Bytes read and written a microsecond by the best of several large copies. */
static mf_status copy_rate(double *bytes_per_us, const mf_plan *plan)
{
    void *memory = NULL;
    double best = 0, us;
    MF_TRY(mf_context_alloc(&memory, plan->context, (size_t)2 * COPY_BYTES));
    mf_status status = MF_OK;
    for (int i = 0; i < 5 && status == MF_OK; i++) {
        status = copy_once(plan, memory, (char *)memory + COPY_BYTES, &us);
        best = i && (best == 0 || us < best) ? us : best;
    }
    mf_context_release(plan->context, memory);
    *bytes_per_us = best > 0 ? 2.0 * COPY_BYTES / best : plan->caps->bytes_per_us;
    return status;
}

static double arithmetic_rate(const mfi_problem *p, const mfi_caps *c)
{
    bool tensor = (p->anchor == MFI_MATMUL || p->anchor == MFI_MATMUL_PAIR) && mf_dtype_size(p->u.matmul.a.dtype) <= 2;
    return tensor ? c->tensor_flops_per_us : c->flops_per_us;
}

static void step_json(mfi_text *t, const mf_plan *plan, int index, double us, double bytes_per_us)
{
    const mfi_step *s = &plan->step[index];
    mfi_text problem = {0};
    mfi_problem_text(s->problem, &problem);
    double flops = mfi_problem_flops(s->problem), memory = (double)s->bid.bytes / bytes_per_us,
           arithmetic = flops / arithmetic_rate(s->problem, plan->caps),
           bound = memory > arithmetic ? memory : arithmetic;
    mfi_text_add(t, "%s{\"problem\": ", index ? ", " : "");
    mfi_text_json(t, problem.data ? problem.data : "");
    mfi_text_add(t, ", \"provider\": \"%s\", \"kernel\": ", s->provider->name);
    mfi_text_json(t, s->bid.kernel);
    mfi_text_add(
        t,
        ", \"us\": %.4f, \"bytes\": %lld, \"flops\": %.0f, \"gb_s\": %.3f, \"gflop_s\": %.3f, \"bound_us\": %.4f, "
        "\"bound\": \"%s\", \"percent\": %.2f}",
        us, (long long)s->bid.bytes, flops, 1e-3 * (double)s->bid.bytes / us, 1e-3 * flops / us, bound,
        memory > arithmetic ? "memory" : "arithmetic", 100 * bound / us);
    mfi_text_free(&problem);
}

static mf_status host_time(double *us, mfi_tune_data *d, mf_plan *plan)
{
    enum { CALLS = 20 };
    bool hung;
    MF_TRY(mfi_tune_run(d, plan, 0, 60, &hung));
    double begin = mfi_tune_now_us();
    for (int i = 0; i < CALLS; i++)
        MF_TRY(mfi_tune_submit(d, plan, -1, i % d->sets));
    *us = (mfi_tune_now_us() - begin) / CALLS;
    return mf_context_synchronize(plan->context);
}

static mf_status profile(mfi_text *t, mf_plan *plan, mfi_tune_data *d, double seconds)
{
    double whole, host, rate, each = seconds / (plan->steps + 1), bound = 0;
    MF_TRY(copy_rate(&rate, plan));
    MF_TRY(median(&whole, d, plan, -1, each));
    MF_TRY(host_time(&host, d, plan));
    for (int i = 0; i < plan->steps; i++) {
        const mfi_step *s = &plan->step[i];
        double memory = (double)s->bid.bytes / rate,
               arithmetic = mfi_problem_flops(s->problem) / arithmetic_rate(s->problem, plan->caps);
        bound += memory > arithmetic ? memory : arithmetic;
    }
    mfi_text_add(
        t,
        "{\"target\": \"%s\", \"us\": %.4f, \"host_us\": %.4f, \"bytes\": %lld, \"copy_gb_s\": %.2f, \"percent\": "
        "%.2f, \"steps\": [",
        plan->caps->arch, whole, host, (long long)plan->bytes, 1e-3 * rate, 100 * bound / whole);
    for (int i = 0; i < plan->steps; i++) {
        double us = whole;
        if (plan->steps > 1)
            MF_TRY(median(&us, d, plan, i, each));
        step_json(t, plan, i, us, rate);
    }
    mfi_text_add(t, "]}");
    return MF_OK;
}

mf_status mf_plan_profile(char **out, mf_plan *plan, double seconds)
{
    mfi_tune_data *d = NULL;
    mfi_text text = {0};
    *out = NULL;
    MF_REQUIRE(plan && seconds >= 0, MF_E_INVALID, "mf_plan_profile: %s",
               plan ? "seconds are negative" : "plan is NULL");
    plan = mfi_plan_current(plan);
    MF_REQUIRE(plan->caps->present, MF_E_STATE,
               "this plan was made for %s, which is not on this machine: nothing can be measured", plan->caps->arch);
    MF_REQUIRE(!plan->caps->cuda || !mfi_cuda_capturing(NULL), MF_E_STATE,
               "a stream is being captured; profile before");
    MF_TRY(mfi_context_make_current(plan->context));
    mf_status status = mfi_tune_data_new(&d, plan, NULL, false);
    if (status == MF_OK)
        status = profile(&text, plan, d, seconds > 0 ? seconds : 1);
    mfi_tune_data_free(d);
    *out = status == MF_OK ? mfi_text_take(&text) : NULL;
    mfi_text_free(&text);
    return status != MF_OK ? status : *out ? MF_OK : MFI_NO_MEMORY(1);
}
