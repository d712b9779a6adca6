/* The list of steps and buffers, and the passes that make it. */
#include "schedule.h"

int mfi_schedule_temp(mfi_schedule *s, mf_dtype dtype, int ndim, const int64_t *shape)
{
    mfi_buffer *grown = mfi_realloc(s->buffer, (size_t)(s->buffers + 1) * sizeof *grown);
    if (!grown)
        return -1;
    s->buffer = grown;
    mfi_buffer *b = &s->buffer[s->buffers];
    *b = (mfi_buffer){.kind = MFI_BUF_TEMP, .dtype = dtype, .ndim = ndim, .alignment = 256};
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        b->shape[d] = shape[d];
        b->strides[d] = step;
        step *= mfi_max64(1, shape[d]);
    }
    return s->buffers++;
}

mf_status mfi_schedule_insert(mfi_schedule *s, int index, mfi_problem *p)
{
    mfi_problem **grown = mfi_realloc(s->step, (size_t)(s->steps + 1) * sizeof *grown);
    if (!grown) {
        mf_free(p);
        return MFI_NO_MEMORY((size_t)(s->steps + 1) * sizeof *grown);
    }
    s->step = grown;
    memmove(s->step + index + 1, s->step + index, (size_t)(s->steps - index) * sizeof *s->step);
    s->step[index] = p;
    s->steps++;
    return MF_OK;
}

void mfi_schedule_free(mfi_schedule *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->steps; i++)
        mfi_problem_free(s->step[i]);
    mf_free(s->step);
    mf_free(s->buffer);
    mf_free(s);
}

static mf_status build(mfi_schedule *s, const mf_graph *g, const mf_tensor *bindings, int flags)
{
    mfi_partition *partition;
    s->inputs = g->inputs;
    s->outputs = g->outputs;
    s->buffers = g->inputs + g->outputs;
    s->buffer = mfi_calloc((size_t)s->buffers, sizeof *s->buffer);
    if (!s->buffer)
        return MFI_NO_MEMORY((size_t)s->buffers * sizeof *s->buffer);
    MF_TRY(mfi_partition_new(&partition, g, flags));
    mf_status status = mfi_lower(s, partition, bindings, flags);
    mfi_partition_free(partition);
    return status;
}

static mf_status attempt(mfi_schedule **out, const mf_graph *g, const mf_tensor *bindings, int flags)
{
    mfi_schedule *s = mfi_calloc(1, sizeof *s);
    mf_status status = s ? build(s, g, bindings, flags) : MFI_NO_MEMORY(sizeof *s);
    if (status != MF_OK) {
        mfi_schedule_free(s);
        return status;
    }
    *out = s;
    return MF_OK;
}

mf_status mfi_schedule_new(mfi_schedule **out, const mf_graph *g, const mf_tensor *bindings, int flags)
{
    mf_graph *clean;
    *out = NULL;
    MF_TRY(mfi_normalise(&clean, g, bindings, flags));
    mf_status status = attempt(out, clean, bindings, flags);
    if (status == MF_E_UNSUPPORTED) /* a step outgrew its limits */
        status = attempt(out, clean, bindings, flags | MF_PLAN_NO_FUSION);
    mf_graph_free(clean);
    return status;
}
