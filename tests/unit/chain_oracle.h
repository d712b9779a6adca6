/* An oracle for CPU chains: any chain, one element at a time, straight from the definitions in chain.h; and a generator
 * of random problems whose values are small integers, so that every order of summation gives the same bits. What
 * operations compute is taken from the loops (golden values check those): this is about everything around them. */
#ifndef CHAIN_ORACLE_H
#define CHAIN_ORACLE_H

#include <complex.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu_program.h"

#define ORACLE_SLOTS 12
#define ORACLE_MARGIN 64 /* elements around each buffer, which must not change */

typedef union scalar {
    int32_t i32;
    int64_t i64;
    float f32;
    double f64;
    float _Complex c64;
    double _Complex c128;
    unsigned char bytes[16];
} scalar;

typedef struct oracle {
    const mfi_problem *p;
    void *const *slots;
    const char *acc;
    int64_t at[MF_MAX_DIMS];
    bool known[MFI_MAX_INSTR]; /* reductions of the current row */
    scalar value[MFI_MAX_INSTR];
} oracle;

static inline double complex as_number(scalar v, mfi_ctype c)
{
    switch (c) {
    case MFI_I32:
        return v.i32;
    case MFI_I64:
        return (double)v.i64;
    case MFI_F32:
        return v.f32;
    case MFI_F64:
        return v.f64;
    case MFI_C64:
        return v.c64;
    default:
        return v.c128;
    }
}

static inline scalar from_number(double complex z, mfi_ctype c)
{
    scalar v = {0};
    if (c == MFI_I32)
        v.i32 = (int32_t)creal(z);
    else if (c == MFI_I64)
        v.i64 = (int64_t)creal(z);
    else if (c == MFI_F32)
        v.f32 = (float)creal(z);
    else if (c == MFI_F64)
        v.f64 = creal(z);
    else if (c == MFI_C64)
        v.c64 = (float complex)z;
    else
        v.c128 = z;
    return v;
}

/* An element in memory, as a number. */
static inline double complex read_element(const char *p, mf_dtype d)
{
    scalar v = {0};
    memcpy(&v, p, mf_dtype_size(d));
    switch (d) {
    case MF_BOOL:
        return v.bytes[0] != 0;
    case MF_F16:
        return mfi_f16_to_f32((uint16_t)v.i32);
    case MF_BF16:
        return mfi_bf16_to_f32((uint16_t)v.i32);
    case MF_E4M3:
        return mfi_e4m3_to_f32(v.bytes[0]);
    case MF_I8:
        return (int8_t)v.bytes[0];
    case MF_E5M2:
        return mfi_e5m2_to_f32(v.bytes[0]);
    default:
        return as_number(v, mfi_compute_type(d));
    }
}

static inline void write_element(char *p, mf_dtype d, double complex z, bool saturate)
{
    scalar v = {0};
    float f = (float)creal(z);
    bool clamp = saturate && f == f && d != MF_F32;
    if (d == MF_BOOL)
        v.bytes[0] = z != 0;
    else if (d == MF_F16)
        v.i32 = mfi_f32_to_f16(clamp ? (f > 65504 ? 65504 : f < -65504 ? -65504 : f) : f);
    else if (d == MF_BF16)
        v.i32 = mfi_f32_to_bf16(f);
    else if (d == MF_E4M3)
        v.i32 = mfi_f32_to_e4m3(f, saturate);
    else if (d == MF_I8)
        v.i32 = z != z ? 0 : (int32_t)fmax(-128, fmin(127, creal(z)));
    else if (d == MF_E5M2)
        v.i32 = mfi_f32_to_e5m2(f, saturate);
    else
        v = from_number(z, mfi_compute_type(d));
    memcpy(p, &v, mf_dtype_size(d));
}

static inline char *element_at(const oracle *o, const mfi_operand *operand)
{
    int64_t offset = operand->view.offset;
    for (int d = 0; d < o->p->ndim; d++)
        offset += o->at[d] * operand->view.strides[d];
    return (char *)o->slots[operand->view.slot] + offset * (int64_t)mf_dtype_size(operand->view.dtype);
}

static inline scalar evaluate(oracle *o, int i);

/* Step `at` through dims [from, ndim); false past the last. */
static inline bool step_dims(oracle *o, int from, int to)
{
    for (int d = to - 1; d >= from; d--) {
        if (++o->at[d] < o->p->shape[d])
            return true;
        o->at[d] = 0;
    }
    return false;
}

static inline scalar evaluate_reduce(oracle *o, int i)
{
    const mfi_instr *in = &o->p->chain.instr[i];
    int first = o->p->ndim - o->p->nreduce;
    int64_t saved[MF_MAX_DIMS], n = 1;
    mfi_ctype type = (mfi_ctype)o->p->chain.instr[in->a].ctype;
    double complex sum = in->reduce == MF_PROD || in->reduce == MF_ALL ? 1 : 0;
    if (in->reduce == MF_MAX || in->reduce == MF_MIN)
        sum = in->reduce == MF_MAX ? -1e300 : 1e300;
    if (o->known[i])
        return o->value[i];
    memcpy(saved, o->at, sizeof saved);
    for (int d = first; d < o->p->ndim; d++) {
        o->at[d] = 0;
        n *= o->p->shape[d];
    }
    if (n)
        do {
            double complex x = as_number(evaluate(o, in->a), type);
            switch (in->reduce) {
            case MF_SUM:
                sum += x;
                break;
            case MF_PROD:
                sum = creal(sum) * creal(x); /* never complex; keeps the sign of zero */
                break;
            case MF_MAX:
                sum = creal(x) > creal(sum) ? x : sum;
                break;
            case MF_MIN:
                sum = creal(x) < creal(sum) ? x : sum;
                break;
            case MF_ANY:
                sum = sum != 0 || x != 0;
                break;
            default:
                sum = sum != 0 && x != 0;
            }
        } while (step_dims(o, first, o->p->ndim));
    memcpy(o->at, saved, sizeof saved);
    o->known[i] = true;
    return o->value[i] = from_number(sum, (mfi_ctype)in->ctype);
}

static inline scalar evaluate_load(const oracle *o, const mfi_instr *in)
{
    const mfi_operand *operand = &o->p->chain.operand[in->operand];
    for (int d = 0; d < o->p->ndim; d++)
        if (operand->extent[d] >= 0 && o->at[d] >= operand->extent[d])
            return (scalar){0};
    return from_number(read_element(element_at(o, operand), operand->view.dtype), (mfi_ctype)in->ctype);
}

static inline scalar evaluate(oracle *o, int i)
{
    const mfi_instr *in = &o->p->chain.instr[i];
    scalar out = {0};
    if (in->kind == MFI_ACC) {
        int64_t linear = 0;
        for (int d = 0; d < o->p->ndim; d++)
            linear = linear * o->p->shape[d] + o->at[d];
        memcpy(&out, o->acc + linear * (int64_t)mfi_ctype_size((mfi_ctype)in->ctype),
               mfi_ctype_size((mfi_ctype)in->ctype));
    } else if (in->kind == MFI_LOAD) {
        return evaluate_load(o, in);
    } else if (in->kind == MFI_CONST) {
        return from_number(in->re + in->im * I, (mfi_ctype)in->ctype);
    } else if (in->kind == MFI_INDEX) {
        out.i64 = o->at[in->axis];
    } else if (in->kind == MFI_CAST) {
        char raw[16];
        write_element(raw, (mf_dtype)in->dtype, as_number(evaluate(o, in->a), (mfi_ctype)in->from), in->saturate);
        return from_number(read_element(raw, (mf_dtype)in->dtype), (mfi_ctype)in->ctype);
    } else if (in->kind == MFI_REDUCE) {
        return evaluate_reduce(o, i);
    } else {
        scalar a = evaluate(o, in->a), b = in->b < 0 ? a : evaluate(o, in->b), c = in->c < 0 ? b : evaluate(o, in->c);
        int last = 0;
        while (mfi_loops_at(last + 1))
            last++;
        mfi_loops_at(last)->apply[in->from][in->op](1, 0, &out, &a, &b, &c);
    }
    return out;
}

/* Run the whole problem; slots are read and written. */
static inline void oracle_run(const mfi_problem *p, void *const *slots, const void *acc)
{
    oracle o = {.p = p, .slots = slots, .acc = acc};
    int rows = p->ndim - p->nreduce;
    for (int d = 0; d < rows; d++)
        if (p->shape[d] == 0)
            return;
    do {
        memset(o.known, 0, sizeof o.known);
        for (int i = 0; i < p->chain.count; i++) {
            const mfi_instr *in = &p->chain.instr[i];
            if (in->kind != MFI_STORE)
                continue;
            const mfi_operand *operand = &p->chain.operand[in->operand];
            int64_t moves = 0, n = 1;
            for (int d = rows; d < p->ndim; d++) {
                o.at[d] = 0;
                moves |= operand->view.strides[d];
                n *= p->shape[d];
            }
            for (bool more = n > 0 || !moves; more; more = moves && step_dims(&o, rows, p->ndim))
                write_element(element_at(&o, operand), operand->view.dtype,
                              as_number(evaluate(&o, in->a), (mfi_ctype)p->chain.instr[in->a].ctype), in->saturate);
        }
        for (int d = rows; d < p->ndim; d++)
            o.at[d] = 0;
    } while (step_dims(&o, 0, rows));
}

/* ---- building problems ---- */

typedef struct world {
    mfi_problem p;
    char *memory[ORACLE_SLOTS], *copy[ORACLE_SLOTS]; /* the executor's and the oracle's */
    size_t bytes[ORACLE_SLOTS];
    int buffers;
    char *acc;
    uint64_t random;
} world;

static inline int64_t pick(world *w, int64_t n) /* in [0, n) */
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((w->random >> 33) % (uint64_t)n);
}

static inline void fill_element(world *w, char *p, mf_dtype d)
{
    double re = (double)(pick(w, 7) - 3), im = (double)(pick(w, 5) - 2);
    write_element(p, d, re + im * I, false);
}

/* A view of a new buffer over the domain. Dims whose bit is in `still` get stride 0. An output has no two equal
 * addresses. */
static inline int16_t new_operand(world *w, mf_dtype dtype, unsigned still, bool output)
{
    mfi_problem *p = &w->p;
    mfi_operand *o = &p->chain.operand[p->chain.operands];
    int64_t size = (int64_t)mf_dtype_size(dtype), step = 1 + (pick(w, 3) == 0 ? pick(w, 3) : 0), low = 0, high = 0;
    int order[MF_MAX_DIMS];
    memset(o, 0, sizeof *o);
    for (int d = 0; d < MF_MAX_DIMS; d++)
        o->extent[d] = -1, order[d] = d;
    for (int d = p->ndim - 1; d > 0 && pick(w, 2); d--) {
        int e = (int)pick(w, d + 1), t = order[d];
        order[d] = order[e], order[e] = t;
    }
    for (int k = p->ndim - 1; k >= 0; k--) {
        int d = order[k];
        if (still >> d & 1)
            continue;
        if (!output && pick(w, 12) == 0 && p->shape[d] > 1)
            o->extent[d] = pick(w, p->shape[d]);
        o->view.strides[d] = pick(w, 5) == 0 ? -step : step;
        int64_t reach = o->view.strides[d] * (p->shape[d] - 1);
        *(reach < 0 ? &low : &high) += p->shape[d] ? reach : 0;
        step *= mfi_max64(p->shape[d], 1);
        step += pick(w, 4) == 0 ? pick(w, 3) : 0;
    }
    o->view.slot = (int16_t)w->buffers;
    o->view.dtype = dtype;
    o->view.alignment = (int32_t)size;
    o->view.offset = ORACLE_MARGIN - low;
    w->bytes[w->buffers] = (size_t)((high - low + 1 + 2 * ORACLE_MARGIN) * size);
    w->memory[w->buffers] = malloc(w->bytes[w->buffers]);
    w->copy[w->buffers] = malloc(w->bytes[w->buffers]);
    for (size_t at = 0; at < w->bytes[w->buffers]; at += (size_t)size)
        fill_element(w, w->memory[w->buffers] + at, dtype);
    memcpy(w->copy[w->buffers], w->memory[w->buffers], w->bytes[w->buffers]);
    w->buffers++;
    return (int16_t)p->chain.operands++;
}

static inline int16_t emit(world *w, mfi_instr in)
{
    w->p.chain.instr[w->p.chain.count] = in;
    return (int16_t)w->p.chain.count++;
}

static inline mfi_ctype type_of(const world *w, int v)
{
    return (mfi_ctype)w->p.chain.instr[v].ctype;
}

static inline int16_t emit_load(world *w, mf_dtype dtype, unsigned still)
{
    int16_t operand = new_operand(w, dtype, still, false);
    return emit(w, (mfi_instr){.kind = MFI_LOAD,
                               .ctype = (uint8_t)mfi_compute_type(dtype),
                               .operand = operand,
                               .a = -1,
                               .b = -1,
                               .c = -1});
}

static inline int16_t emit_apply(world *w, mf_op op, mfi_ctype result, int a, int b, int c)
{
    int typed = op == MF_OP_WHERE ? b : a;
    return emit(w, (mfi_instr){.kind = MFI_APPLY,
                               .ctype = (uint8_t)result,
                               .from = (uint8_t)type_of(w, typed),
                               .op = (int16_t)op,
                               .operand = -1,
                               .a = (int16_t)a,
                               .b = (int16_t)b,
                               .c = (int16_t)c});
}

static inline int16_t emit_cast(world *w, int a, mf_dtype dtype, bool saturate)
{
    return emit(w, (mfi_instr){.kind = MFI_CAST,
                               .ctype = (uint8_t)mfi_compute_type(dtype),
                               .from = (uint8_t)type_of(w, a),
                               .dtype = (uint8_t)dtype,
                               .saturate = saturate,
                               .operand = -1,
                               .a = (int16_t)a,
                               .b = -1,
                               .c = -1});
}

static inline int16_t emit_reduce(world *w, mf_reduce_op op, int a)
{
    bool logical = op == MF_ANY || op == MF_ALL;
    return emit(w, (mfi_instr){.kind = MFI_REDUCE,
                               .ctype = (uint8_t)(logical ? MFI_I32 : type_of(w, a)),
                               .reduce = (uint8_t)op,
                               .from = (uint8_t)type_of(w, a),
                               .operand = -1,
                               .a = (int16_t)a,
                               .b = -1,
                               .c = -1});
}

static inline void emit_store(world *w, int a, mf_dtype dtype, unsigned still)
{
    int16_t operand = new_operand(w, dtype, still, true);
    emit(w, (mfi_instr){.kind = MFI_STORE,
                        .ctype = (uint8_t)type_of(w, a),
                        .operand = operand,
                        .a = (int16_t)a,
                        .b = -1,
                        .c = -1,
                        .saturate = pick(w, 2) != 0});
}

static inline unsigned row_mask(const world *w) /* the reduced dims */
{
    return ((1u << w->p.nreduce) - 1) << (w->p.ndim - w->p.nreduce);
}

static inline void free_world(world *w)
{
    for (int i = 0; i < w->buffers; i++) {
        free(w->memory[i]);
        free(w->copy[i]);
    }
    free(w->acc);
}

#endif
