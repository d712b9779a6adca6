/* Hand-made steps for tests of the CPU's providers: arrays with guarded, oddly laid out memory, and running a problem.
 */
#ifndef CPU_PROBLEM_H
#define CPU_PROBLEM_H

#include <complex.h>
#include <criterion/criterion.h>
#include <math.h>

#include "context_internal.h"
#include "fusion.h"

extern const mfi_provider mfi_provider_blas, mfi_provider_fftw, mfi_provider_lanes, mfi_provider_lapack,
    mfi_provider_ref;

typedef double complex number;

static uint32_t test_state = 1;
static inline int draw(int below)
{
    test_state = test_state * 1664525u + 1013904223u;
    return (int)((test_state >> 8) % (unsigned)below);
}
static inline double draw_value(void)
{
    return (draw(20001) - 10000) / 10000.0;
}

/* An array in a buffer of its own; whatever it does not cover holds 0xa5. */
typedef struct array {
    mfi_view view;
    int ndim;
    int64_t shape[MF_MAX_DIMS], count, bytes;
    unsigned char *memory, *before; /* before: a copy of it all, made by keep() */
} array;

enum { PLAIN, ODD }; /* row-major; or reordered axes, gaps and negative strides */

static inline array array_new(int slot, mf_dtype dtype, int ndim, const int64_t *shape, int layout)
{
    array a = {.ndim = ndim, .count = 1};
    int order[MF_MAX_DIMS] = {0};
    int64_t stride = layout == ODD ? 1 + draw(2) : 1, low = 0, high = 0;
    for (int d = 0; d < ndim; d++)
        order[d] = ndim - 1 - d;
    for (int d = ndim - 1; layout == ODD && d > 0; d--) {
        int other = draw(d + 1), swap = order[d];
        order[d] = order[other];
        order[other] = swap;
    }
    for (int i = 0; i < ndim; i++) {
        int d = order[i];
        bool negative = layout == ODD && draw(3) == 0;
        a.shape[d] = shape[d];
        a.count *= shape[d];
        a.view.strides[d] = negative ? -stride : stride;
        int64_t reach = (mfi_max64(shape[d], 1) - 1) * a.view.strides[d];
        low += negative ? reach : 0;
        high += negative ? 0 : reach;
        stride *= mfi_max64(shape[d], 1) + (layout == ODD ? draw(3) : 0);
    }
    a.view.slot = (int16_t)slot;
    a.view.dtype = dtype;
    a.view.alignment = (int32_t)mf_dtype_size(dtype);
    a.view.offset = 3 - low;
    a.bytes = (high - low + 7) * (int64_t)mf_dtype_size(dtype);
    a.memory = mfi_alloc_aligned((size_t)a.bytes);
    memset(a.memory, 0xa5, (size_t)a.bytes);
    return a;
}

static inline void array_free(array *a)
{
    mfi_free_aligned(a->memory);
    mf_free(a->before);
}

static inline void keep(array *a)
{
    a->before = mfi_alloc((size_t)a->bytes);
    memcpy(a->before, a->memory, (size_t)a->bytes);
}

static inline void *array_at(const array *a, int64_t index)
{
    int64_t at = a->view.offset;
    for (int d = a->ndim - 1; d >= 0; d--) {
        at += index % a->shape[d] * a->view.strides[d];
        index /= a->shape[d];
    }
    return a->memory + at * (int64_t)mf_dtype_size(a->view.dtype);
}

static inline void set_at(array *a, int64_t index, number v)
{
    void *p = array_at(a, index);
    switch (a->view.dtype) {
    case MF_F16:
        *(uint16_t *)p = mfi_f32_to_f16((float)creal(v));
        break;
    case MF_BF16:
        *(uint16_t *)p = mfi_f32_to_bf16((float)creal(v));
        break;
    case MF_E4M3:
        *(uint8_t *)p = mfi_f32_to_e4m3((float)creal(v), false);
        break;
    case MF_I8:
        *(int8_t *)p = (int8_t)creal(v);
        break;
    case MF_F32:
        *(float *)p = (float)creal(v);
        break;
    case MF_F64:
        *(double *)p = creal(v);
        break;
    case MF_C64:
        ((float *)p)[0] = (float)creal(v), ((float *)p)[1] = (float)cimag(v);
        break;
    case MF_C128:
        ((double *)p)[0] = creal(v), ((double *)p)[1] = cimag(v);
        break;
    case MF_I64:
        *(int64_t *)p = (int64_t)creal(v);
        break;
    default:
        *(int32_t *)p = (int32_t)creal(v);
    }
}

static inline number get_at(const array *a, int64_t index)
{
    const void *p = array_at(a, index);
    switch (a->view.dtype) {
    case MF_F16:
        return mfi_f16_to_f32(*(const uint16_t *)p);
    case MF_BF16:
        return mfi_bf16_to_f32(*(const uint16_t *)p);
    case MF_E4M3:
        return mfi_e4m3_to_f32(*(const uint8_t *)p);
    case MF_I8:
        return *(const int8_t *)p;
    case MF_F32:
        return *(const float *)p;
    case MF_F64:
        return *(const double *)p;
    case MF_C64:
        return ((const float *)p)[0] + I * (double)((const float *)p)[1];
    case MF_C128:
        return ((const double *)p)[0] + I * ((const double *)p)[1];
    case MF_I64:
        return (double)*(const int64_t *)p;
    default:
        return *(const int32_t *)p;
    }
}

static inline void fill_random(array *a)
{
    bool integer = mfi_is_integer(a->view.dtype), complex_kind = mfi_is_complex(a->view.dtype);
    for (int64_t i = 0; i < a->count; i++)
        set_at(a, i, integer ? draw(19) - 9 : draw_value() + (complex_kind ? I * draw_value() : 0));
}

/* All bytes that are no element's are as they were; with `inputs`, the elements too. */
static inline void check_kept(array *a, bool inputs, const char *what)
{
    for (int64_t i = 0; !inputs && i < a->count; i++) {
        size_t at = (size_t)((unsigned char *)array_at(a, i) - a->memory);
        memcpy(a->before + at, a->memory + at, mf_dtype_size(a->view.dtype));
    }
    cr_assert(!memcmp(a->before, a->memory, (size_t)a->bytes), "%s: %s", what,
              inputs ? "an input was written" : "memory outside the output was written");
}

static mf_context *test_context;

static inline void open_context(void)
{
    mf_context_options o = MF_CONTEXT_OPTIONS_INIT;
    o.device = "cpu";
    cr_assert_eq(mf_context_new(&test_context, &o), MF_OK);
    for (int anchor = 0; anchor < MFI_ANCHOR_COUNT; anchor++)
        mfi_context_prepare(test_context, (mfi_anchor)anchor);
}

static inline void close_context(void)
{
    mf_context_free(test_context);
}

/* false: refused. */
static inline bool run_problem(const mfi_provider *provider, const mfi_problem *p, void *const *slots)
{
    mfi_bid bid = {0};
    void *state = NULL;
    if (!provider->query(p, mfi_context_caps(test_context), &bid))
        return false;
    mf_status status = provider->prepare(&state, p, mfi_context_caps(test_context), test_context, &bid);
    cr_assert_eq(status, MF_OK, "%s: %s", provider->name, mf_error_message(status));
    mfi_run run = {slots, mfi_alloc_aligned(bid.workspace + 256), NULL, test_context};
    char *workspace = run.workspace;
    run.workspace = (void *)mfi_align_up((size_t)workspace, 256);
    status = provider->run(state, &run);
    cr_assert_eq(status, MF_OK, "%s: %s", provider->name, mf_error_message(status));
    provider->destroy(state);
    mfi_free_aligned(workspace);
    return true;
}

/* ---- chains ---- */

static inline mfi_instr *add_instr(mfi_chain *c, mfi_instr_kind kind, mfi_ctype type)
{
    mfi_instr *i = &c->instr[c->count++];
    *i = (mfi_instr){.kind = (uint8_t)kind, .ctype = (uint8_t)type, .from = (uint8_t)type};
    i->operand = i->a = i->b = i->c = -1;
    return i;
}

static inline int add_operand(mfi_chain *c, const mfi_view *view)
{
    mfi_operand *o = &c->operand[c->operands];
    o->view = *view;
    for (int d = 0; d < MF_MAX_DIMS; d++)
        o->extent[d] = -1;
    return c->operands++;
}

static inline void add_store(mfi_chain *c, mfi_ctype type, const mfi_view *view)
{
    int value = c->count - 1;
    mfi_instr *i = add_instr(c, MFI_STORE, type);
    i->a = (int16_t)value;
    i->operand = (int16_t)add_operand(c, view);
}

/* The last value plus an operand. */
static inline void add_plus(mfi_chain *c, mfi_ctype type, const mfi_view *view)
{
    int value = c->count - 1;
    add_instr(c, MFI_LOAD, type)->operand = (int16_t)add_operand(c, view);
    mfi_instr *i = add_instr(c, MFI_APPLY, type);
    i->op = MF_OP_ADD;
    i->a = (int16_t)value;
    i->b = (int16_t)(value + 1);
}

#endif
