/* Random arrays, the expected results, and timing. */
#define _GNU_SOURCE
#include "tune_data.h"
#include "cuda_api.h"
#include "nodes.h"
#include "schedule.h"

#include <math.h>
#include <stdio.h>

enum { BLOCK = 1 << 20, PAD = 512, COMPARED = 1 << 24, CHUNK = 1 << 16 };
static const double reference_flops = 3e8; /* the reference provider's, a few tenths of a second */
static const size_t cpu_last_cache = (size_t)64 << 20;

/* ---- elements on the host ---- */

void mfi_tune_store(mf_dtype dtype, char *at, double value)
{
    switch (dtype) {
    case MF_F64:
    case MF_C128:
        memcpy(at, &value, sizeof value);
        break;
    case MF_F16:
        memcpy(at, &(uint16_t){mfi_f32_to_f16((float)value)}, 2);
        break;
    case MF_BF16:
        memcpy(at, &(uint16_t){mfi_f32_to_bf16((float)value)}, 2);
        break;
    case MF_E4M3:
        *(uint8_t *)at = mfi_f32_to_e4m3((float)value, true);
        break;
    case MF_E5M2:
        *(uint8_t *)at = mfi_f32_to_e5m2((float)value, true);
        break;
    case MF_I64:
        memcpy(at, &(int64_t){(int64_t)value}, 8);
        break;
    case MF_I32:
        memcpy(at, &(int32_t){(int32_t)value}, 4);
        break;
    case MF_I8:
        *(int8_t *)at = (int8_t)value;
        break;
    case MF_F32:
    case MF_C64:
        memcpy(at, &(float){(float)value}, 4);
        break;
    default: /* bool */
        *(uint8_t *)at = (uint8_t)value;
        break;
    }
}

double mfi_tune_load(mf_dtype dtype, const char *at)
{
    uint16_t half;
    float f;
    double d;
    int64_t i64;
    int32_t i32;
    switch (dtype) {
    case MF_F64:
    case MF_C128:
        return memcpy(&d, at, sizeof d), d;
    case MF_F16:
        return memcpy(&half, at, 2), (double)mfi_f16_to_f32(half);
    case MF_BF16:
        return memcpy(&half, at, 2), (double)mfi_bf16_to_f32(half);
    case MF_E4M3:
        return (double)mfi_e4m3_to_f32(*(const uint8_t *)at);
    case MF_E5M2:
        return (double)mfi_e5m2_to_f32(*(const uint8_t *)at);
    case MF_I64:
        return memcpy(&i64, at, 8), (double)i64;
    case MF_I32:
        return memcpy(&i32, at, 4), (double)i32;
    case MF_I8:
        return (double)*(const int8_t *)at;
    case MF_F32:
    case MF_C64:
        return memcpy(&f, at, 4), (double)f;
    default:
        return (double)*(const uint8_t *)at;
    }
}

static int parts(mf_dtype dtype)
{
    return mfi_is_complex(dtype) ? 2 : 1;
}

double mfi_tune_epsilon(mf_dtype dtype)
{
    switch (dtype) {
    case MF_F64:
    case MF_C128:
        return 0x1p-53;
    case MF_F32:
    case MF_C64:
        return 0x1p-24;
    case MF_F16:
        return 0x1p-11;
    case MF_BF16:
        return 0x1p-8;
    case MF_E4M3:
        return 0x1p-4;
    case MF_E5M2:
        return 0x1p-3;
    default:
        return 0;
    }
}

/* ---- memory of a tensor ---- */

/* Elements below and above element 0, inclusive. */
static void reach(const mf_tensor *t, int64_t *below, int64_t *above)
{
    *below = *above = 0;
    for (int d = 0; d < t->ndim; d++) {
        int64_t far = t->shape[d] ? t->strides[d] * (t->shape[d] - 1) : 0;
        *below -= far < 0 ? far : 0;
        *above += far > 0 ? far : 0;
    }
}

static size_t bytes_of(const mf_tensor *t)
{
    int64_t below, above;
    reach(t, &below, &above);
    return (size_t)(below + above + 1) * mf_dtype_size(t->dtype);
}

/* Address of element 0 in a block of bytes_of + PAD bytes, aligned no better than was planned for. */
static void *place(const mf_tensor *t, void *memory)
{
    int64_t below, above;
    int alignment = mfi_pointer_alignment(t->data);
    reach(t, &below, &above);
    uintptr_t at = ((uintptr_t)memory + 255) / 256 * 256;
    uintptr_t first = at + (uintptr_t)below * mf_dtype_size(t->dtype);
    uintptr_t wanted = first / 16 * 16 + (uintptr_t)(alignment % 16);
    return (void *)(wanted < first ? wanted + 16 : wanted);
}

static uint64_t random_bits(uint64_t *state) /* Marsaglia's xorshift64 */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Numbers in [-1, 1); integers from 0 to 7. */
static void fill(mf_dtype dtype, char *out, int64_t count, uint64_t seed)
{
    size_t size = mf_dtype_size(dtype), part = size / (size_t)parts(dtype);
    int64_t own = mfi_min64(count, BLOCK) * parts(dtype);
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (int64_t i = 0; i < own; i++) {
        uint64_t bits = random_bits(&state);
        double value = dtype == MF_BOOL        ? (double)(bits >> 63)
                       : mfi_is_integer(dtype) ? (double)(bits >> 61)
                                               : (double)(int64_t)bits * 0x1p-63;
        mfi_tune_store(dtype, out + (size_t)i * part, value);
    }
    size_t first = (size_t)own * part, all = (size_t)count * size;
    for (size_t at = first; at < all; at += first)
        memcpy(out + at, out, at + first < all ? first : all - at);
}

int64_t mfi_tune_matrix(const mf_tensor *t, int64_t number)
{
    int64_t offset = 0;
    for (int d = t->ndim - 3; d >= 0; d--) {
        offset += number % t->shape[d] * t->strides[d];
        number /= t->shape[d];
    }
    return offset;
}

/* Solvers get matrices that can be solved with: symmetric, with a large diagonal. */
static void make_definite(const mf_tensor *t)
{
    int64_t n = t->ndim < 2 ? 0 : t->shape[t->ndim - 1];
    if (n < 1 || t->shape[t->ndim - 2] != n || mfi_is_integer(t->dtype))
        return;
    int64_t row = t->strides[t->ndim - 2], col = t->strides[t->ndim - 1], batch = mf_tensor_elements(t) / (n * n);
    size_t size = mf_dtype_size(t->dtype);
    for (int64_t b = 0; b < batch; b++) {
        char *matrix = (char *)t->data + mfi_tune_matrix(t, b) * (int64_t)size;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) {
                char *low = matrix + (i * row + j * col) * (int64_t)size;
                for (int k = 1; k < parts(t->dtype); k++)
                    mfi_tune_store(t->dtype, low + k * (int)(size / 2), 0);
                if (i == j)
                    mfi_tune_store(t->dtype, low, (double)n + 1);
                memcpy(matrix + (j * row + i * col) * (int64_t)size, low, size);
            }
    }
}

static bool solves(const mf_graph *g)
{
    bool found = false;
    for (int i = 0; i < g->count; i++)
        found |= g->node[i].kind == MFI_N_SOLVE || g->node[i].kind == MFI_N_FACTOR;
    return found;
}

/* ---- what results must be ---- */

static double flops_of(const mf_plan *plan)
{
    double flops = 0;
    for (int i = 0; i < plan->steps; i++)
        flops += mfi_problem_flops(plan->step[i].problem);
    return flops;
}

/* One call an operation on the CPU: by the reference where that takes no time to speak of. */
static mf_status expect(mfi_tune_data *d, const mf_plan *plan, mf_tensor *host)
{
    mf_context *cpu = NULL;
    mf_plan *unfused = NULL;
    bool small = flops_of(plan) < reference_flops;
    const mf_context_options on_cpu = {sizeof on_cpu, "cpu", plan->caps->cuda ? 0 : plan->caps->threads};
    mf_status status = mf_context_new(&cpu, &on_cpu);
    mf_plan_options o = MF_PLAN_OPTIONS_INIT;
    o.flags = plan->flags | MF_PLAN_NO_FUSION;
    o.providers = small ? "ref" : NULL;
    o.bindings = host;
    o.binding_count = d->bindings;
    o.tune = MF_TUNE_OFF;
    if (status == MF_OK)
        status = mf_plan_new(&unfused, cpu, plan->graph, &o);
    if (status == MF_OK)
        status = mf_plan_run(unfused, host, d->bindings, NULL);
    snprintf(d->reference, sizeof d->reference, "unfused on the CPU%s", small ? ", provider ref" : "");
    mf_plan_free(unfused);
    mf_context_free(cpu);
    return status == MF_OK ? status : mfi_prefix(status, "the reference for tuning failed: ");
}

/* The offset of the element `step` further on, last axis fastest. */
static void advance(const mf_tensor *t, int64_t step, int64_t *index, int64_t *offset)
{
    for (int d = t->ndim - 1; d >= 0 && step; d--) {
        int64_t at = index[d] + step;
        step = at < t->shape[d] ? 0 : at / t->shape[d];
        at -= step * t->shape[d];
        *offset += (at - index[d]) * t->strides[d];
        index[d] = at;
    }
}

/* Squares of the difference and of the expected values, over every `step`th element: a sum for each CHUNK of them, so that the
 * result does not depend on who adds which. */
typedef struct comparison {
    const mf_tensor *want;
    const char *got;
    int64_t count, step;
    double (*sum)[2]; /* the difference's: infinite where one is NaN or infinite and the other is not the same */
} comparison;

static void compare_chunk(const comparison *c, int64_t chunk)
{
    const mf_tensor *want = c->want;
    int64_t index[MF_MAX_DIMS] = {0}, offset = 0, begin = chunk * CHUNK * c->step;
    int64_t end = mfi_min64(begin + CHUNK * c->step, c->count);
    int64_t size = (int64_t)mf_dtype_size(want->dtype), part = size / parts(want->dtype);
    double difference = 0, whole = 0;
    advance(want, begin, index, &offset);
    for (int64_t i = begin; i < end; i += c->step, advance(want, c->step, index, &offset)) {
        for (int k = 0; k < parts(want->dtype); k++) {
            double w = mfi_tune_load(want->dtype, (const char *)want->data + offset * size + k * part);
            double g = mfi_tune_load(want->dtype, c->got + offset * size + k * part);
            if (isnan(w) != isnan(g) || (isinf(w) && w != g)) {
                difference = INFINITY;
            } else if (isfinite(w)) {
                difference += (g - w) * (g - w);
                whole += w * w;
            }
        }
    }
    c->sum[chunk][0] = difference;
    c->sum[chunk][1] = whole;
}

static void compare_chunks(void *context, int64_t begin, int64_t end)
{
    for (int64_t chunk = begin; chunk < end; chunk++)
        compare_chunk(context, chunk);
}

static mf_status relative_error(double *out, const mf_tensor *want, const char *got)
{
    int64_t count = mf_tensor_elements(want), step = count / COMPARED | 1;
    int64_t chunks = mfi_ceil_div(mfi_ceil_div(count, step), CHUNK);
    comparison c = {want, got, count, step, mfi_calloc((size_t)chunks, sizeof *c.sum)};
    double difference = 0, whole = 0;
    if (!c.sum)
        return MFI_NO_MEMORY((size_t)chunks * sizeof *c.sum);
    mfi_parallel_for(chunks, 1, 0, compare_chunks, &c);
    for (int64_t k = 0; k < chunks; k++) {
        difference += c.sum[k][0];
        whole += c.sum[k][1];
    }
    mf_free(c.sum);
    *out = difference == 0 ? 0 : whole > 0 ? sqrt(difference / whole) : INFINITY;
    return MF_OK;
}

mf_status mfi_tune_error(double *out, const mfi_tune_data *d)
{
    mfi_tune_turns turns = {.factor = -1};
    mf_status status = MF_OK;
    *out = 0;
    for (int i = d->inputs; i < d->bindings && status == MF_OK; i++) {
        const mf_tensor *t = &d->tensor[0][i];
        int64_t below, above;
        if (mf_tensor_elements(t) == 0)
            continue;
        reach(t, &below, &above);
        int64_t size = (int64_t)mf_dtype_size(t->dtype);
        char *first = d->host + below * size;
        status = mf_context_copy(d->context, d->host, (char *)t->data - below * size, bytes_of(t));
        if (status == MF_OK)
            status = mfi_tune_turn(&turns, d->graph, i - d->inputs, &d->expected[i], first);
        double error = 0;
        if (status == MF_OK)
            status = relative_error(&error, &d->expected[i], first);
        *out = error > *out ? error : *out;
    }
    mfi_tune_turns_free(&turns);
    return status;
}

/* ---- making and freeing ---- */

static size_t set_bytes(const mf_plan *plan)
{
    size_t bytes = 0;
    for (int i = 0; i < plan->bindings; i++)
        bytes += bytes_of(&plan->binding[i]);
    return bytes ? bytes : 1;
}

static mf_status allocate(mfi_tune_data *d, const mf_plan *plan)
{
    for (int s = 0; s < d->sets; s++) {
        d->tensor[s] = mfi_calloc((size_t)d->bindings + 1, sizeof **d->tensor);
        if (!d->tensor[s])
            return MFI_NO_MEMORY((size_t)d->bindings * sizeof **d->tensor);
        for (int i = 0; i < d->bindings; i++) {
            mf_tensor *t = &d->tensor[s][i];
            int index;
            *t = plan->binding[i];
            MF_TRY(mf_context_alloc(&d->memory[s * d->bindings + i], d->context, bytes_of(t) + PAD));
            t->data = place(&plan->binding[i], d->memory[s * d->bindings + i]);
            t->device = mf_context_device(d->context, &index);
            t->device_index = index;
        }
    }
    return MF_OK;
}

static mf_status fill_inputs(mfi_tune_data *d, const mf_plan *plan, const mf_tensor *host)
{
    for (int i = 0; i < d->inputs; i++) {
        const mf_tensor *t = &host[i];
        int64_t below, above, size = (int64_t)mf_dtype_size(t->dtype);
        reach(t, &below, &above);
        fill(t->dtype, (char *)t->data - below * size, below + above + 1, (uint64_t)i + 1);
        if (solves(plan->graph))
            make_definite(t);
        for (int s = 0; s < d->sets; s++)
            MF_TRY(mf_context_copy(d->context, (char *)d->tensor[s][i].data - below * size,
                                   (char *)t->data - below * size, bytes_of(t)));
    }
    return MF_OK;
}

static mf_status host_side(mfi_tune_data *d, const mf_plan *plan, bool verify)
{
    size_t largest = 1;
    mf_status status = MF_OK;
    mf_tensor *host = mfi_calloc((size_t)d->bindings + 1, sizeof *host);
    void **memory = mfi_calloc((size_t)d->bindings + 1, sizeof *memory);
    if (!host || !memory) {
        status = MFI_NO_MEMORY((size_t)d->bindings * sizeof *host);
        goto out;
    }
    for (int i = 0; i < d->bindings; i++) {
        size_t bytes = bytes_of(&plan->binding[i]);
        host[i] = plan->binding[i];
        host[i].device = MF_CPU;
        host[i].device_index = 0;
        memory[i] = mfi_alloc_aligned(bytes + PAD);
        if (!memory[i]) {
            status = MFI_NO_MEMORY(bytes);
            goto out;
        }
        host[i].data = place(&plan->binding[i], memory[i]);
        largest = i >= d->inputs && bytes > largest ? bytes : largest;
    }
    d->host = mfi_alloc_aligned(largest + PAD);
    status = d->host ? MF_OK : MFI_NO_MEMORY(largest);
    if (status == MF_OK)
        status = fill_inputs(d, plan, host);
    if (status == MF_OK && verify)
        status = expect(d, plan, host);
out:
    for (int i = 0; i < d->bindings && memory; i++)
        if (i < d->inputs || status != MF_OK)
            mfi_free_aligned(memory[i]);
    if (status != MF_OK)
        mf_free(host);
    else
        d->expected = host;
    d->expected_memory = status == MF_OK ? memory : NULL;
    if (status != MF_OK)
        mf_free(memory);
    return status;
}

mf_status mfi_tune_data_new(mfi_tune_data **out, const mf_plan *plan, void *stream, bool verify)
{
    mfi_tune_data *d = mfi_calloc(1, sizeof *d);
    *out = NULL;
    if (!d)
        return MFI_NO_MEMORY(sizeof *d);
    d->context = plan->context;
    d->caps = plan->caps;
    d->stream = stream;
    d->graph = plan->graph;
    d->inputs = plan->inputs;
    d->bindings = plan->bindings;
    size_t cache = plan->caps->cuda ? plan->caps->l2_bytes : cpu_last_cache / 2;
    int64_t sets = (int64_t)(2 * cache / set_bytes(plan)) + 1;
    d->sets = (int)mfi_min64(mfi_max64(sets, 2), MFI_MAX_SETS);
    d->memory = mfi_calloc((size_t)(d->sets * d->bindings) + 1, sizeof *d->memory);
    mf_status status = d->memory ? allocate(d, plan) : MFI_NO_MEMORY(sizeof *d->memory);
    if (status == MF_OK)
        status = host_side(d, plan, verify);
    if (status == MF_OK && d->caps->cuda) {
        status = mfi_cuda_event_new(&d->begin);
        if (status == MF_OK)
            status = mfi_cuda_event_new(&d->end);
    }
    if (status != MF_OK) {
        mfi_tune_data_free(d);
        return status;
    }
    *out = d;
    return MF_OK;
}

static void free_scratch(mfi_tune_data *d)
{
    for (int s = 0; s < d->sets; s++) {
        mf_context_release(d->context, d->scratch[s]);
        d->scratch[s] = NULL;
    }
    d->scratch_bytes = 0;
}

void mfi_tune_data_free(mfi_tune_data *d)
{
    if (!d)
        return;
    mfi_cuda_event_free(d->begin);
    mfi_cuda_event_free(d->end);
    mfi_tune_free_rubbish(d);
    free_scratch(d);
    for (int i = 0; d->memory && i < d->sets * d->bindings; i++)
        mf_context_release(d->context, d->memory[i]);
    for (int s = 0; s < d->sets; s++)
        mf_free(d->tensor[s]);
    for (int i = d->inputs; d->expected_memory && i < d->bindings; i++)
        mfi_free_aligned(d->expected_memory[i]);
    mf_free(d->expected_memory);
    mf_free(d->expected);
    mf_free(d->memory);
    mfi_free_aligned(d->host);
    mf_free(d);
}

/* ---- running ---- */

mf_status mfi_tune_ensure_scratch(mfi_tune_data *d, size_t bytes)
{
    if (bytes <= d->scratch_bytes)
        return MF_OK;
    free_scratch(d);
    for (int s = 0; s < d->sets; s++)
        MF_TRY(mf_context_alloc(&d->scratch[s], d->context, bytes + 256));
    d->scratch_bytes = bytes;
    return MF_OK;
}

mf_status mfi_tune_submit(mfi_tune_data *d, mf_plan *plan, int index, int set)
{
    void *scratch = d->scratch[set] ? (void *)mfi_align_up((size_t)(uintptr_t)d->scratch[set], 256) : NULL;
    return mfi_plan_submit(plan, index, d->tensor[set], d->stream, scratch);
}

mf_status mfi_tune_run(mfi_tune_data *d, mf_plan *plan, int set, double seconds, bool *hung)
{
    bool done = true;
    *hung = false;
    MF_TRY(mfi_tune_ensure_scratch(d, plan->workspace));
    MF_TRY(mfi_tune_submit(d, plan, -1, set));
    if (!d->caps->cuda)
        return MF_OK;
    MF_TRY(mfi_cuda_event_record(d->end, d->stream));
    MF_TRY(mfi_cuda_event_wait(&done, d->end, seconds));
    *hung = !done;
    return MF_OK;
}

enum { MOST_RUNS = 1000 };

static mf_status sample(double *us, mfi_tune_data *d, mf_plan *plan, int index, int runs)
{
    bool done = true;
    double begin = mfi_tune_now_us();
    if (d->caps->cuda)
        MF_TRY(mfi_cuda_event_record(d->begin, d->stream));
    for (int r = 0; r < runs; r++)
        MF_TRY(mfi_tune_submit(d, plan, index, r % d->sets));
    if (!d->caps->cuda) {
        *us = (mfi_tune_now_us() - begin) / runs;
        return MF_OK;
    }
    MF_TRY(mfi_cuda_event_record(d->end, d->stream));
    MF_TRY(mfi_cuda_event_wait(&done, d->end, MFI_LONGEST_S));
    MF_REQUIRE(done, MF_E_STATE, "%d runs took longer than %d s", runs, MFI_LONGEST_S);
    MF_TRY(mfi_cuda_event_us(us, d->begin, d->end));
    *us /= runs;
    return MF_OK;
}

mf_status mfi_tune_time(double *us, mfi_tune_data *d, mf_plan *plan, int index, int *runs)
{
    const double wanted = d->caps->cuda ? 400 : 1000;
    MF_TRY(mfi_tune_ensure_scratch(d, plan->workspace));
    for (int s = 0; s < d->sets && plan->steps > 1 && index >= 0;
         s++) /* a step alone reads what those before it left */
        MF_TRY(mfi_tune_submit(d, plan, -1, s));
    if (!*runs) { /* twice: the first pays for what is made on first use */
        MF_TRY(sample(us, d, plan, index, 1));
        MF_TRY(sample(us, d, plan, index, 1));
        *runs = (int)mfi_min64(mfi_max64((int64_t)(wanted / (*us > 0.01 ? *us : 0.01)), 1), MOST_RUNS);
    }
    return sample(us, d, plan, index, *runs);
}
