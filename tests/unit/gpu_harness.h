/* Running one provider's step on hand-made problems: memory on the host and the device, poisoned results, inputs
 * checked for changes. On a GPU the CUDA providers run; without one the same cases run on `ref`, so that they are right
 * when a GPU comes. */
#ifndef GPU_HARNESS_H
#define GPU_HARNESS_H

#include <complex.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "context_internal.h"
#include "cuda_api.h"
#include "provider.h"

enum { MAX_SLOTS = 8 };

static mf_context *context;

/* ---- memory: each slot on the host and on the device ---- */

typedef struct slot {
    mf_dtype dtype;
    int64_t count;
    void *host, *device;
} slot;

static inline double complex get(const slot *s, int64_t i)
{
    switch (s->dtype) {
    case MF_F16:
        return mfi_f16_to_f32(((uint16_t *)s->host)[i]);
    case MF_BF16:
        return mfi_bf16_to_f32(((uint16_t *)s->host)[i]);
    case MF_E4M3:
        return mfi_e4m3_to_f32(((uint8_t *)s->host)[i]);
    case MF_E5M2:
        return mfi_e5m2_to_f32(((uint8_t *)s->host)[i]);
    case MF_F32:
        return ((float *)s->host)[i];
    case MF_F64:
        return ((double *)s->host)[i];
    case MF_C64:
        return ((float complex *)s->host)[i];
    case MF_C128:
        return ((double complex *)s->host)[i];
    case MF_I8:
        return ((int8_t *)s->host)[i];
    default:
        return ((int32_t *)s->host)[i];
    }
}

static inline void put(slot *s, int64_t i, double complex z)
{
    switch (s->dtype) {
    case MF_F16:
        ((uint16_t *)s->host)[i] = mfi_f32_to_f16((float)creal(z));
        break;
    case MF_BF16:
        ((uint16_t *)s->host)[i] = mfi_f32_to_bf16((float)creal(z));
        break;
    case MF_E4M3:
        ((uint8_t *)s->host)[i] = mfi_f32_to_e4m3((float)creal(z), true);
        break;
    case MF_E5M2:
        ((uint8_t *)s->host)[i] = mfi_f32_to_e5m2((float)creal(z), true);
        break;
    case MF_F32:
        ((float *)s->host)[i] = (float)creal(z);
        break;
    case MF_F64:
        ((double *)s->host)[i] = creal(z);
        break;
    case MF_C64:
        ((float complex *)s->host)[i] = (float complex)z;
        break;
    case MF_C128:
        ((double complex *)s->host)[i] = z;
        break;
    case MF_I8:
        ((int8_t *)s->host)[i] = (int8_t)creal(z);
        break;
    default:
        ((int32_t *)s->host)[i] = (int32_t)creal(z);
    }
}

static uint64_t seed;

static inline double noise(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 40) / (double)(1 << 23) - 1;
}

static inline void make(slot *s, mf_dtype dtype, int64_t count)
{
    size_t bytes = (size_t)count * mf_dtype_size(dtype);
    *s = (slot){.dtype = dtype, .count = count, .host = calloc(1, bytes + 1)};
    for (int64_t i = 0; i < count; i++)
        put(s, i, mfi_is_complex(dtype) ? noise() + noise() * I : noise());
    cr_assert_eq(mf_context_alloc(&s->device, context, bytes + 256), MF_OK, "%s", mf_error_message(MF_E_CUDA));
}

static inline void release(slot *slots, int count)
{
    for (int i = 0; i < count; i++) {
        free(slots[i].host);
        mf_context_release(context, slots[i].device);
    }
}

static inline int64_t at(const mfi_view *v, int ndim, const int64_t *index)
{
    int64_t i = v->offset;
    for (int d = 0; d < ndim; d++)
        i += v->strides[d] * index[d];
    return i;
}

/* Query, prepare, run, fetch. `upload`: slots from there on are results, poisoned first. False: refused or failed. */
static inline bool run(const mfi_provider *provider, const mfi_problem *p, const mfi_caps *caps, slot *slots, int count,
                       int results, const char *what)
{
    mfi_bid bid = {0};
    void *state = NULL, *workspace = NULL, *addresses[MAX_SLOTS];
    bool taken = provider->query(p, caps, &bid);
    cr_expect(taken, "%s: refused: %s (%s)", what, mfi_reason_name(bid.reason), bid.detail);
    if (!taken)
        return false;
    mf_status status = provider->prepare(&state, p, caps, context, &bid);
    cr_expect_eq(status, MF_OK, "%s: prepare: %s", what, mf_error_message(status));
    if (status != MF_OK)
        return false;
    for (int i = 0; i < count; i++) {
        size_t bytes = (size_t)slots[i].count * mf_dtype_size(slots[i].dtype);
        if (i >= results)
            memset(slots[i].host, 0xff, bytes); /* NaN, and a wrong info */
        cr_assert_eq(mf_context_copy(context, slots[i].device, slots[i].host, bytes), MF_OK);
        addresses[i] = slots[i].device;
    }
    cr_assert_eq(mf_context_alloc(&workspace, context, bid.workspace + 256), MF_OK);
    mfi_run r = {addresses, bid.workspace ? workspace : NULL, NULL, context};
    status = provider->run(state, &r);
    if (status == MF_OK)
        status = mf_context_synchronize(context);
    cr_expect_eq(status, MF_OK, "%s: run: %s", what, mf_error_message(status));
    for (int i = 0; i < count && status == MF_OK; i++) {
        size_t bytes = (size_t)slots[i].count * mf_dtype_size(slots[i].dtype);
        void *before = i < results ? slots[i].host : NULL, *after = before ? malloc(bytes + 1) : slots[i].host;
        cr_assert_eq(mf_context_copy(context, after, slots[i].device, bytes), MF_OK);
        if (before) {
            cr_expect_eq(memcmp(before, after, bytes), 0, "%s: input %d was changed", what, i);
            free(after);
        }
    }
    provider->destroy(state);
    mf_context_release(context, workspace);
    return status == MF_OK;
}

/* ---- chains ---- */

static inline int16_t append(mfi_problem *p, mfi_instr_kind kind, mfi_ctype ctype, int op, int a, int b)
{
    mfi_instr in = {.kind = (uint8_t)kind, .ctype = (uint8_t)ctype, .from = (uint8_t)ctype, .op = (int16_t)op};
    in.operand = -1;
    in.a = (int16_t)a;
    in.b = (int16_t)b;
    in.c = -1;
    p->chain.instr[p->chain.count] = in;
    return (int16_t)p->chain.count++;
}

static inline int16_t operand(mfi_problem *p, mfi_instr_kind kind, mfi_ctype ctype, int slot_index, mf_dtype dtype,
                              const int64_t *strides, int a)
{
    int16_t i = append(p, kind, ctype, -1, a, -1);
    mfi_operand *o = &p->chain.operand[p->chain.operands];
    memset(o, 0, sizeof *o);
    o->view = (mfi_view){.slot = (int16_t)slot_index, .dtype = dtype, .alignment = 16};
    memcpy(o->view.strides, strides, (size_t)p->ndim * sizeof *strides);
    for (int d = 0; d < MF_MAX_DIMS; d++)
        o->extent[d] = -1;
    p->chain.instr[i].operand = (int16_t)p->chain.operands++;
    return i;
}

/* Open the GPU, or the CPU where there is none; false then. */
static inline bool open_context(mfi_anchor anchor)
{
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    bool gpu = mfi_cuda_device_count() > 0;
    options.device = gpu ? "cuda" : "cpu";
    mf_status status = mf_context_new(&context, &options);
    cr_assert_eq(status, MF_OK, "%s", mf_error_message(status));
    mfi_context_prepare(context, anchor);
    if (!gpu)
        fprintf(stderr, "no GPU here: the reference runs instead of the CUDA provider\n");
    return gpu;
}

#endif
