/* A run by itself, between other work: while the caches hold something else, the kernels' code included. */
#include "cuda_api.h"
#include "tune_data.h"

enum { LINE = 64, FILLS = 3 }; /* so many keep a GPU busy until the run is queued behind them */
static const size_t cpu_bytes = (size_t)32 << 20;

static mf_status room_for(mf_tensor *t, mfi_tune_data *d, int ndim, const int64_t *shape)
{
    int index;
    MF_TRY(mf_tensor_init(t, NULL, MF_F32, ndim, shape));
    t->device = mf_context_device(d->context, &index);
    t->device_index = index;
    return mf_context_alloc(&t->data, d->context, (size_t)mf_tensor_elements(t) * sizeof(float));
}

/* A plan that adds up numbers: it reads, and leaves nothing in the caches that must be written first. */
static mf_status make_reader(mfi_tune_data *d)
{
    const int64_t count = (int64_t)(2 * d->caps->l2_bytes / sizeof(float));
    mf_graph *g;
    mf_plan_options o = MF_PLAN_OPTIONS_INIT;
    o.tune = MF_TUNE_OFF;
    if (!d->rubbish.data)
        MF_TRY(room_for(&d->rubbish, d, 1, &count));
    if (!d->sum.data)
        MF_TRY(room_for(&d->sum, d, 0, NULL));
    MF_TRY(mf_graph_new(&g));
    mf_graph_output(g, mf_graph_reduce(g, MF_SUM, mf_graph_input(g, MF_F32, 1, &count), 0, NULL, 0));
    mf_status status = mf_plan_new(&d->reader, d->context, g, &o);
    mf_graph_free(g);
    return status;
}

static mf_status fill_gpu(mfi_tune_data *d)
{
    if (!d->reader)
        MF_TRY(make_reader(d));
    for (int i = 0; i < FILLS; i++)
        MF_TRY(mf_plan_run(d->reader, (mf_tensor[]){d->rubbish, d->sum}, 2, d->stream));
    return MF_OK;
}

static mf_status fill_cpu(mfi_tune_data *d)
{
    if (!d->rubbish.data) {
        d->rubbish.data = mfi_calloc(cpu_bytes, 1);
        if (!d->rubbish.data)
            return MFI_NO_MEMORY(cpu_bytes);
        memset(d->rubbish.data, 1, cpu_bytes);
    }
    const volatile char *at = d->rubbish.data;
    for (size_t i = 0; i < cpu_bytes; i += LINE)
        (void)at[i];
    return MF_OK;
}

void mfi_tune_free_rubbish(mfi_tune_data *d)
{
    if (!d->caps->cuda) {
        mf_free(d->rubbish.data);
        return;
    }
    mf_plan_free(d->reader);
    mf_context_release(d->context, d->rubbish.data);
    mf_context_release(d->context, d->sum.data);
}

mf_status mfi_tune_time_alone(double *us, mfi_tune_data *d, mf_plan *plan, int index, int *runs)
{
    bool done = true;
    int set = (*runs)++ % d->sets;
    MF_TRY(mfi_tune_ensure_scratch(d, plan->workspace));
    if (plan->steps > 1 && index >= 0) /* a step alone reads what those before it left */
        MF_TRY(mfi_tune_submit(d, plan, -1, set));
    if (!d->caps->cuda) {
        MF_TRY(fill_cpu(d));
        double begin = mfi_tune_now_us();
        MF_TRY(mfi_tune_submit(d, plan, index, set));
        *us = mfi_tune_now_us() - begin;
        return MF_OK;
    }
    MF_TRY(fill_gpu(d));
    MF_TRY(mfi_cuda_event_record(d->begin, d->stream));
    MF_TRY(mfi_tune_submit(d, plan, index, set));
    MF_TRY(mfi_cuda_event_record(d->end, d->stream));
    MF_TRY(mfi_cuda_event_wait(&done, d->end, MFI_LONGEST_S));
    MF_REQUIRE(done, MF_E_STATE, "a run took longer than %d s", MFI_LONGEST_S);
    return mfi_cuda_event_us(us, d->begin, d->end);
}
