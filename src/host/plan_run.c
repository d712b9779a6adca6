/* Run: check what is bound, find scratch memory, submit the steps. */
#include "plan_internal.h"
#include "cuda_api.h"
#include "nodes.h"
#include "schedule.h"

#include <stdlib.h>

int mfi_pointer_alignment(const void *data)
{
    int alignment = 16;
    while (alignment > 1 && (uintptr_t)data % (uintptr_t)alignment)
        alignment /= 2;
    return alignment;
}

/* ---- scratch ---- */

static mf_status new_scratch(mf_plan *plan, mfi_scratch **out)
{
    mfi_scratch *s = mfi_calloc(1, sizeof *s);
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    mf_status status = mf_context_alloc(&s->memory, plan->context, plan->workspace + 256);
    if (status != MF_OK) {
        mf_free(s);
        return mfi_prefix(status, "a run of this plan needs %zu bytes of workspace: ", plan->workspace);
    }
    s->aligned = (void *)mfi_align_up((size_t)(uintptr_t)s->memory, 256);
    pthread_mutex_init(&s->submit, NULL);
    s->next = plan->scratch;
    plan->scratch = s;
    *out = s;
    return MF_OK;
}

/* CPU: any idle block. GPU: the stream's block. The caller gives it back with put_scratch. */
static mf_status get_scratch(mf_plan *plan, void *stream, mfi_scratch **out)
{
    mf_status status = MF_OK;
    *out = NULL;
    if (!plan->workspace)
        return MF_OK;
    pthread_mutex_lock(&plan->lock);
    mfi_scratch *s = plan->scratch;
    while (s && (plan->caps->cuda ? s->stream != stream : s->busy))
        s = s->next;
    if (!s && plan->caps->cuda && mfi_cuda_capturing(stream))
        status = mfi_fail(MF_E_STATE,
                          "this plan needs %zu bytes of workspace, which cannot be allocated while the stream "
                          "is being captured; run the plan once on this stream before capturing",
                          plan->workspace);
    else if (!s)
        status = new_scratch(plan, &s);
    if (status == MF_OK) {
        s->stream = stream;
        s->busy = true;
        *out = s;
    }
    pthread_mutex_unlock(&plan->lock);
    if (status == MF_OK && plan->caps->cuda)
        pthread_mutex_lock(&s->submit);
    return status;
}

static void put_scratch(mf_plan *plan, mfi_scratch *s)
{
    if (!s)
        return;
    if (plan->caps->cuda)
        pthread_mutex_unlock(&s->submit);
    pthread_mutex_lock(&plan->lock);
    s->busy = false;
    pthread_mutex_unlock(&plan->lock);
}

void mfi_plan_free_scratch(mf_plan *plan)
{
    while (plan->scratch) {
        mfi_scratch *s = plan->scratch;
        plan->scratch = s->next;
        mf_context_release(plan->context, s->memory);
        pthread_mutex_destroy(&s->submit);
        mf_free(s);
    }
}

/* ---- checking ---- */

static void name_of(const mf_plan *plan, int i, char out[32])
{
    bool input = i < plan->inputs;
    int n = input ? i : i - plan->inputs;
    mfi_text text = {0};
    mfi_text_add(&text, "%s %d", input ? "input" : "output", n);
    strncpy(out, text.data ? text.data : "argument", 31);
    out[31] = 0;
    mfi_text_free(&text);
}

static mf_status check_tensor(const mf_plan *plan, int i, const mf_tensor *t)
{
    const mf_tensor *want = &plan->binding[i];
    char name[32];
    if (t->dtype != want->dtype) {
        name_of(plan, i, name);
        const char *given = mf_dtype_name(t->dtype);
        return mfi_fail(MF_E_TYPE, "%s is %s; the plan was made for %s", name, given ? given : "of no known dtype",
                        mf_dtype_name(want->dtype));
    }
    if (t->ndim < 0 || t->ndim > MF_MAX_DIMS) {
        name_of(plan, i, name);
        return mfi_fail(MF_E_SHAPE, "%s has %d dimensions; a tensor has 0 to %d", name, (int)t->ndim, MF_MAX_DIMS);
    }
    bool same = t->ndim == want->ndim;
    for (int d = 0; same && d < t->ndim; d++)
        same = t->shape[d] == want->shape[d];
    if (!same) {
        char given[160], wanted[160];
        name_of(plan, i, name);
        mfi_shape_text(t->shape, t->ndim, given);
        mfi_shape_text(want->shape, want->ndim, wanted);
        return mfi_fail(MF_E_SHAPE, "%s has shape %s; the plan was made for %s", name, given, wanted);
    }
    int index;
    mf_device_kind kind = mf_context_device(plan->context, &index);
    if (t->device != kind || (kind == MF_CUDA && t->device_index != index)) {
        name_of(plan, i, name);
        return mfi_fail(MF_E_DEVICE, "%s lies on %s:%d; the plan runs on %s:%d; move it there, or plan for its device",
                        name, t->device == MF_CUDA ? "cuda" : "cpu", (int)t->device_index,
                        kind == MF_CUDA ? "cuda" : "cpu", index);
    }
    if (!t->data && mf_tensor_elements(t) > 0) {
        name_of(plan, i, name);
        return mfi_fail(MF_E_INVALID, "%s has no memory (data is NULL)", name);
    }
    return MF_OK;
}

/* Do strides and alignment fit what was planned? */
static bool same_layout(const mf_plan *plan, const mf_tensor *tensors)
{
    for (int i = 0; i < plan->bindings; i++) {
        const mf_tensor *t = &tensors[i], *want = &plan->binding[i];
        for (int d = 0; d < t->ndim; d++)
            if (t->strides[d] != want->strides[d] && t->shape[d] > 1)
                return false;
        if (plan->caps->cuda && mfi_pointer_alignment(t->data) < mfi_pointer_alignment(want->data))
            return false;
    }
    return true;
}

typedef struct range {
    uintptr_t first, last; /* bytes, inclusive; first > last: empty */
} range;

static range range_of(const mf_tensor *t)
{
    intptr_t lo = 0, hi = 0, size = (intptr_t)mf_dtype_size(t->dtype);
    for (int d = 0; d < t->ndim; d++) {
        intptr_t reach = (intptr_t)(t->strides[d] * (t->shape[d] - 1)) * size;
        if (t->shape[d] == 0)
            return (range){1, 0};
        lo += reach < 0 ? reach : 0;
        hi += reach > 0 ? reach : 0;
    }
    return (range){(uintptr_t)((intptr_t)t->data + lo), (uintptr_t)((intptr_t)t->data + hi + size - 1)};
}

static uintptr_t gcd(uintptr_t a, uintptr_t b)
{
    while (b) {
        uintptr_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Views whose ranges meet may still interleave: elements lie at multiples of the strides' common divisor from each
 * base. */
static bool overlap(const mf_tensor *a, const mf_tensor *b)
{
    range x = range_of(a), y = range_of(b);
    if (x.first > x.last || y.first > y.last || x.last < y.first || y.last < x.first)
        return false;
    uintptr_t step = 0, size_a = mf_dtype_size(a->dtype), size_b = mf_dtype_size(b->dtype);
    for (int d = 0; d < a->ndim; d++)
        step = a->shape[d] > 1 ? gcd(step, (uintptr_t)llabs(a->strides[d]) * size_a) : step;
    for (int d = 0; d < b->ndim; d++)
        step = b->shape[d] > 1 ? gcd(step, (uintptr_t)llabs(b->strides[d]) * size_b) : step;
    if (!step)
        return true;
    uintptr_t ahead = ((uintptr_t)b->data % step + step - (uintptr_t)a->data % step) % step;
    return ahead < size_a || step - ahead < size_b;
}

static bool same_view(const mf_tensor *a, const mf_tensor *b)
{
    if (a->data != b->data || a->dtype != b->dtype || a->ndim != b->ndim)
        return false;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d] || (a->strides[d] != b->strides[d] && a->shape[d] > 1))
            return false;
    return true;
}

/* Do steps along two axes lead to one element? The first such are the strides over their common divisor. */
static bool axes_meet(const mf_tensor *t, int d, int e)
{
    uint64_t a = (uint64_t)llabs(t->strides[d]), b = (uint64_t)llabs(t->strides[e]);
    uint64_t m = (uint64_t)t->shape[d], n = (uint64_t)t->shape[e];
    if (m < 2 || n < 2 || a == 0 || b == 0 || a / n >= b || b / m >= a)
        return false;
    uint64_t common = gcd(a, b);
    return b / common < m && a / common < n;
}

/* An output's elements lie apart. */
static mf_status check_output(const mf_plan *plan, const mf_tensor *tensors, int o)
{
    const mf_tensor *t = &tensors[o];
    char name[32];
    for (int d = 0; d < t->ndim; d++) {
        if (t->strides[d] == 0 && t->shape[d] > 1) {
            name_of(plan, o, name);
            return mfi_fail(MF_E_LAYOUT, "%s repeats its elements (stride 0 along axis %d); an output must not", name,
                            d);
        }
        for (int e = 0; e < d; e++)
            if (axes_meet(t, d, e)) {
                name_of(plan, o, name);
                return mfi_fail(
                    MF_E_LAYOUT,
                    "%s has elements on top of each other (strides %lld and %lld along axes %d and %d); an output must "
                    "not",
                    name, (long long)t->strides[e], (long long)t->strides[d], e, d);
            }
    }
    return MF_OK;
}

static mf_status check_aliases(const mf_plan *plan, const mf_tensor *tensors)
{
    for (int o = plan->inputs; o < plan->bindings; o++)
        for (int i = 0; i < o; i++) {
            if (!overlap(&tensors[o], &tensors[i]))
                continue;
            int allowed = i < plan->inputs ? plan->in_place[i] : 0;
            if ((allowed == o || allowed == MFI_ANY_OUTPUT) && same_view(&tensors[o], &tensors[i]))
                continue;
            char name[32], other[32];
            name_of(plan, o, name);
            name_of(plan, i, other);
            return mfi_fail(
                MF_E_ALIAS,
                "%s overlaps %s in memory; only an elementwise plan, or a solver on the CPU, may write over its input, "
                "and only over the very same view; pass separate memory",
                name, other);
        }
    for (int o = plan->inputs; o < plan->bindings; o++)
        MF_TRY(check_output(plan, tensors, o));
    return MF_OK;
}

/* ---- other layouts ---- */

enum { VARIANTS_KEPT = 16 };

/* The last ones leave, the least recently used, and those beyond what plans may keep. A run that still uses one has a hold on
 * it. */
static void drop_variants(mf_plan *plan)
{
    mf_plan **at = &plan->variants;
    size_t held = 0;
    for (int i = 0; i < VARIANTS_KEPT && *at; i++, at = &(*at)->next) {
        held += mf_plan_memory(*at);
        if (i && held > mfi_plan_memory_limit(plan->caps))
            break;
    }
    while (*at) {
        mf_plan *last = *at;
        *at = last->next;
        mfi_plan_release(last);
    }
}

static mf_plan *take_variant(mf_plan *plan, const mf_tensor *tensors)
{
    for (mf_plan **at = &plan->variants, *v; (v = *at); at = &v->next)
        if (same_layout(v, tensors)) {
            *at = v->next;
            return v;
        }
    return NULL;
}

/* The plan for these layouts; the caller releases it. */
static mf_status variant_for(mf_plan **out, mf_plan *plan, const mf_tensor *tensors, void *stream)
{
    mf_status status = MF_OK;
    pthread_mutex_lock(&plan->lock);
    mf_plan *v = take_variant(plan, tensors);
    if (!v && plan->caps->cuda && mfi_cuda_capturing(stream)) {
        status =
            mfi_fail(MF_E_STATE, "the tensors' strides or alignment differ from those planned for, and nothing can be "
                                 "planned while the stream is being captured; run once before capturing");
    } else if (!v) {
        mf_plan_options o = mfi_plan_options_of(plan);
        o.bindings = tensors;
        o.tune = o.tune == MF_TUNE_OFF ? MF_TUNE_OFF : MF_TUNE_CACHED; /* nothing is measured in the middle of a run */
        status = mfi_plan_make(&v, plan->context, plan->graph, &o);
    }
    if (status == MF_OK) {
        v->next = plan->variants;
        plan->variants = v;
        mfi_plan_retain(v);
        drop_variants(plan);
    }
    pthread_mutex_unlock(&plan->lock);
    *out = v;
    return status;
}

/* ---- running ---- */

enum { STACK_SLOTS = 64 };

mf_status mfi_plan_submit(mf_plan *plan, int index, const mf_tensor *tensors, void *stream, void *const scratch)
{
    const mfi_schedule *s = plan->schedule;
    void *small[STACK_SLOTS], **slots = small;
    if (s->buffers > STACK_SLOTS && !(slots = mfi_alloc((size_t)s->buffers * sizeof *slots)))
        return MFI_NO_MEMORY((size_t)s->buffers * sizeof *slots);
    for (int i = 0; i < s->buffers; i++)
        slots[i] = i < plan->bindings ? tensors[i].data : (char *)scratch + s->buffer[i].offset;
    mfi_run run = {slots, scratch ? (char *)scratch + plan->temporaries : NULL, stream, plan->context};
    mf_status status = MF_OK;
    int first = index < 0 ? 0 : index, end = index < 0 ? plan->steps : index + 1;
    for (int i = first; i < end && status == MF_OK; i++) {
        mfi_range_begin(plan->step[i].provider->name, plan->step[i].bid.kernel);
        status = plan->step[i].provider->run(plan->step[i].state, &run);
        mfi_range_end();
        if (status != MF_OK)
            mfi_prefix(status, "step %d (%s %s): ", i + 1, plan->step[i].provider->name, plan->step[i].bid.kernel);
    }
    if (slots != small)
        mf_free(slots);
    return status;
}

/* On tensors of the layouts that the plan was made for. */
static mf_status run_bound(mf_plan *plan, const mf_tensor *tensors, void *stream)
{
    mfi_scratch *scratch;
    MF_TRY(get_scratch(plan, stream, &scratch));
    mf_status status = mfi_plan_submit(plan, -1, tensors, stream, scratch ? scratch->aligned : NULL);
    put_scratch(plan, scratch);
    if (mfi_log_on(MFI_LOG_RUN))
        mfi_log(MFI_LOG_RUN, "%d step%s, %d launch%s, first %s %s: %s", plan->steps, plan->steps == 1 ? "" : "s",
                plan->launches, plan->launches == 1 ? "" : "es", plan->steps ? plan->step[0].provider->name : "-",
                plan->steps ? plan->step[0].bid.kernel : "", mf_status_text(status));
    return status;
}

mf_status mf_plan_run(mf_plan *plan, const mf_tensor *tensors, int count, void *stream)
{
    MF_REQUIRE(plan && (tensors || count == 0), MF_E_INVALID, "mf_plan_run: %s is NULL", plan ? "tensors" : "plan");
    plan = mfi_plan_current(plan);
    MF_REQUIRE(count == plan->bindings, MF_E_INVALID, "the plan has %d inputs and %d outputs; %d tensors were bound",
               plan->inputs, plan->bindings - plan->inputs, count);
    MF_REQUIRE(plan->caps->present, MF_E_STATE,
               "this plan was made for %s, which is not on this machine: it can be explained and compiled, not run",
               plan->caps->arch);
    for (int i = 0; i < count; i++)
        MF_TRY(check_tensor(plan, i, &tensors[i]));
    MF_TRY(check_aliases(plan, tensors));
    MF_TRY(mfi_context_make_current(plan->context));
    if (same_layout(plan, tensors))
        return run_bound(plan, tensors, stream);
    mf_plan *variant;
    MF_TRY(variant_for(&variant, plan, tensors, stream));
    mf_status status = run_bound(variant, tensors, stream);
    mfi_plan_release(variant);
    return status;
}

size_t mf_plan_workspace(const mf_plan *plan)
{
    return mfi_plan_current(plan)->workspace;
}

int mf_plan_launches(const mf_plan *plan)
{
    return mfi_plan_current(plan)->launches;
}
