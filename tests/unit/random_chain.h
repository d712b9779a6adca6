/* Random chains over given domains, for kernels: values are small integers, so that every order of summation gives the
 * same bits. */
#ifndef RANDOM_CHAIN_H
#define RANDOM_CHAIN_H

#include "chain_oracle.h"

/* What is known of an operand whose buffer begins at a multiple of 16 bytes. */
static inline int alignment_of(const mfi_view *view)
{
    int64_t bytes = view->offset * (int64_t)mf_dtype_size(view->dtype);
    int alignment = 16;
    while (bytes % alignment)
        alignment /= 2;
    return alignment;
}

static void know_alignments(world *w)
{
    for (int o = 0; o < w->p.chain.operands; o++)
        w->p.chain.operand[o].view.alignment = alignment_of(&w->p.chain.operand[o].view);
}

static bool same_elements(const world *w, int slot, mf_dtype d)
{
    size_t size = mf_dtype_size(d);
    for (size_t at = 0; at < w->bytes[slot]; at += size) {
        double complex x = read_element(w->memory[slot] + at, d), y = read_element(w->copy[slot] + at, d);
        bool both_nan = creal(x) != creal(x) && creal(y) != creal(y);
        if (x != y && !both_nan) {
            fprintf(stderr, "slot %d, element %zu: %g%+gi, should be %g%+gi\n", slot, at / size, creal(x), cimag(x),
                    creal(y), cimag(y));
            return false;
        }
    }
    return true;
}

static const mf_dtype dtypes_of[MFI_CTYPE_COUNT][5] = {
    {MF_I32, MF_BOOL, MF_I32, MF_BOOL, MF_I32},  {MF_I64, MF_I64, MF_I64, MF_I64, MF_I64},
    {MF_F32, MF_F16, MF_BF16, MF_E4M3, MF_BF16}, {MF_F64, MF_F64, MF_F64, MF_F64, MF_F64},
    {MF_C64, MF_C64, MF_C64, MF_C64, MF_C64},    {MF_C128, MF_C128, MF_C128, MF_C128, MF_C128},
};

static int16_t value_of(world *w, mfi_ctype c)
{
    for (int tries = 0; tries < 20; tries++) {
        int v = (int)pick(w, w->p.chain.count);
        if (type_of(w, v) == c)
            return (int16_t)v;
    }
    return 0;
}

static void random_operation(world *w, mfi_ctype c)
{
    static const mf_op binary[] = {MF_OP_ADD, MF_OP_SUBTRACT, MF_OP_MAXIMUM, MF_OP_MINIMUM};
    int16_t a = value_of(w, c), b = value_of(w, c);
    int64_t kind = pick(w, 5);
    if (kind == 0) {
        int16_t less = emit_apply(w, c >= MFI_C64 ? MF_OP_NOT_EQUAL : MF_OP_LESS, MFI_I32, a, b, -1);
        emit_apply(w, MF_OP_WHERE, c, less, b, a);
    } else if (kind == 1) {
        emit_cast(w, a, dtypes_of[c][pick(w, 5)], pick(w, 2));
    } else {
        emit_apply(w, binary[pick(w, c >= MFI_C64 ? 2 : 4)], c, a, b, -1);
    }
}

static void random_reduction(world *w, mfi_ctype c)
{
    static const mf_reduce_op ops[] = {MF_SUM, MF_SUM, MF_ANY, MF_ALL, MF_MAX, MF_MIN};
    int16_t r = emit_reduce(w, ops[pick(w, c >= MFI_C64 ? 2 : 6)], value_of(w, c));
    if (type_of(w, r) != c) {
        emit_cast(w, r, mfi_ctype_dtype(c), false);
    } else if (c < MFI_C64) { /* keep the numbers small */
        int16_t ten = emit(
            w, (mfi_instr){.kind = MFI_CONST, .ctype = (uint8_t)c, .re = 10, .operand = -1, .a = -1, .b = -1, .c = -1});
        int16_t minus = emit_apply(w, MF_OP_NEGATIVE, c, ten, -1, -1);
        emit_apply(w, MF_OP_CLIP, c, r, minus, ten);
    }
}

static bool moves_along_rows(const world *w, int v)
{
    const mfi_instr *in = &w->p.chain.instr[v];
    if (in->kind == MFI_REDUCE || in->kind == MFI_CONST)
        return false;
    if (in->kind == MFI_LOAD || in->kind == MFI_INDEX)
        return true;
    return moves_along_rows(w, in->a) || (in->b >= 0 && moves_along_rows(w, in->b)) ||
           (in->c >= 0 && moves_along_rows(w, in->c));
}

static void random_chain(world *w, bool reduces)
{
    mfi_ctype c = pick(w, 3) ? MFI_F32 : (mfi_ctype)pick(w, MFI_CTYPE_COUNT);
    for (int64_t loads = 1 + pick(w, 3); loads; loads--)
        emit_load(w, dtypes_of[c][pick(w, 5)], pick(w, 3) ? 0 : (unsigned)pick(w, 8));
    for (int64_t n = 1 + pick(w, 5); n; n--) {
        if (reduces && (n == 1 || pick(w, 3) == 0))
            random_reduction(w, c);
        else
            random_operation(w, c);
    }
    for (int64_t n = 1 + pick(w, 2); n; n--) {
        int v = n == 1 ? w->p.chain.count - 1 : (int)pick(w, w->p.chain.count);
        if (w->p.chain.instr[v].kind == MFI_STORE)
            v = 0;
        mfi_ctype t = type_of(w, v);
        bool row = reduces && !moves_along_rows(w, v) && pick(w, 4);
        emit_store(w, v, pick(w, 2) ? w->p.chain.operand[0].view.dtype : dtypes_of[t][pick(w, 5)],
                   row ? row_mask(w) : 0);
        if (c >= MFI_C64 && t < MFI_C64)
            w->p.chain.operand[w->p.chain.operands - 1].view.dtype = mfi_ctype_dtype(t);
    }
}

typedef struct domain {
    int ndim, nreduce;
    int64_t shape[3];
} domain;

/* Chain number i over one of the domains, the oracle's answer in its copies. Caller frees the text. */
static inline char *random_world(world *w, const domain *d, int i, uint64_t seed)
{
    *w = (world){.random = seed + (uint64_t)i * 977};
    w->p.ndim = d->ndim;
    w->p.nreduce = d->nreduce;
    memcpy(w->p.shape, d->shape, sizeof d->shape);
    random_chain(w, d->nreduce > 0);
    know_alignments(w);
    mfi_text t = {0};
    mfi_problem_text(&w->p, &t);
    mfi_text_add(&t, ", case %d: ", i);
    mfi_chain_text(&w->p, &t);
    oracle_run(&w->p, (void *const *)w->copy, NULL);
    return mfi_text_take(&t);
}

/* ---- matrix products ---- */

/* Cases 0 to 7: odd sizes at odd places. From 8 on: whole vectors, padded rows, several tiles, every layout; no k; products
 * whose elements lie beside each other. */
enum { NO_K = 26, PRODUCT_CASES = 32 };

typedef struct product_case {
    mf_dtype dtype;
    int64_t m, n, k;
    bool a_columns, b_columns, backwards, padded;
    int64_t products; /* 2 where it is 0; else they lie beside each other */
} product_case;

static void new_buffer(world *w, mfi_view *v, int64_t elements)
{
    size_t size = mf_dtype_size(v->dtype);
    v->slot = (int16_t)w->buffers++;
    w->bytes[v->slot] = (size_t)elements * size;
    w->memory[v->slot] = malloc(w->bytes[v->slot]);
    w->copy[v->slot] = malloc(w->bytes[v->slot]);
    for (int64_t i = 0; i < elements; i++)
        fill_element(w, w->memory[v->slot] + (size_t)i * size, v->dtype);
    memcpy(w->copy[v->slot], w->memory[v->slot], w->bytes[v->slot]);
}

/* A factor over (products, rows, columns), products innermost. */
static mfi_view factor_beside(world *w, const product_case *c, int64_t rows, int64_t columns)
{
    mfi_view v = {.dtype = c->dtype, .alignment = 16, .strides = {1, columns * c->products, c->products}};
    new_buffer(w, &v, rows * columns * c->products);
    return v;
}

/* A factor over (2, rows, columns) in a new buffer: by rows or by columns. Padding is NaN. */
static mfi_view product_factor(world *w, const product_case *c, int64_t rows, int64_t columns, bool by_columns)
{
    if (c->products)
        return factor_beside(w, c, rows, columns);
    int64_t size = (int64_t)mf_dtype_size(c->dtype), ld = (by_columns ? rows : columns) + (c->padded ? 16 : 0);
    int64_t lines = by_columns ? columns : rows, first = c->padded ? 0 : 3;
    mfi_view v = {.slot = (int16_t)w->buffers, .dtype = c->dtype, .alignment = c->padded ? 16 : (int)size};
    v.offset = first;
    v.strides[0] = lines * ld;
    v.strides[1] = by_columns ? 1 : ld;
    v.strides[2] = by_columns ? ld : 1;
    w->bytes[v.slot] = (size_t)((2 * lines * ld + first + 1) * size);
    w->memory[v.slot] = malloc(w->bytes[v.slot]);
    w->copy[v.slot] = malloc(w->bytes[v.slot]);
    memset(w->memory[v.slot], 0xff, w->bytes[v.slot]);
    for (int64_t i = 0; i < 2 * lines * ld; i++)
        if (i % ld < (by_columns ? rows : columns))
            fill_element(w, w->memory[v.slot] + (first + i) * size, c->dtype);
    memcpy(w->copy[v.slot], w->memory[v.slot], w->bytes[v.slot]);
    if (c->backwards && columns) {
        v.offset += (columns - 1) * v.strides[2];
        v.strides[2] = -v.strides[2];
    }
    w->buffers++;
    return v;
}

static product_case product_case_of(int i)
{
    static const mf_dtype dtypes[] = {MF_F32, MF_F16, MF_BF16, MF_E4M3, MF_F64, MF_I32, MF_C64, MF_C128};
    static const mf_dtype tiled[] = {MF_BF16, MF_F32, MF_F64, MF_C128, MF_C64, MF_F16};
    if (i < 8)
        return (product_case){dtypes[i], 70, 65, i == 4 ? 1 : 19, i & 1, i & 4, i & 2, false, 0};
    static const product_case beside[] = {{.dtype = MF_F32, .m = 9, .n = 7, .k = 11, .products = 40},
                                          {.dtype = MF_C64, .m = 5, .n = 6, .k = 19, .products = 16},
                                          {.dtype = MF_BF16, .m = 37, .n = 3, .k = 8, .products = 9},
                                          {.dtype = MF_C128, .m = 1, .n = 1, .k = 5, .products = 70},
                                          {.dtype = MF_C64, .m = 20, .n = 17, .k = 4, .products = 32}};
    if (i > NO_K)
        return beside[i - NO_K - 1];
    if (i == NO_K)
        return (product_case){MF_BF16, 72, 64, 0, false, false, false, true, 0};
    bool small = i >= 24; /* two more dtypes, one layout each */
    return (product_case){tiled[small ? 4 + i % 2 : (i - 8) / 4], 248, 104, 40, i & 1, i & 2, false, true, 0};
}

static double complex product_element(const world *w, const mfi_view *v, int64_t batch, int64_t row, int64_t column)
{
    int64_t i = v->offset + batch * v->strides[0] + row * v->strides[1] + column * v->strides[2];
    return read_element(w->copy[v->slot] + i * (int64_t)mf_dtype_size(v->dtype), v->dtype);
}

/* max(a b, bias) in a batch, its answer in the copies. */
static void random_product_of(world *w, product_case of, uint64_t seed)
{
    const int64_t m = of.m, n = of.n, k = of.k, batch = of.products ? of.products : 2;
    mf_dtype d = of.dtype;
    mfi_ctype c = mfi_compute_type(d);
    *w = (world){.random = seed};
    w->p = (mfi_problem){.anchor = MFI_MATMUL, .ndim = 3, .shape = {batch, m, n}};
    emit(w, (mfi_instr){.kind = MFI_ACC, .ctype = (uint8_t)c, .operand = -1, .a = -1, .b = -1, .c = -1});
    int16_t bias = emit_load(w, d, 3);
    emit_store(w, emit_apply(w, c >= MFI_C64 ? MF_OP_ADD : MF_OP_MAXIMUM, c, 0, bias, -1), mfi_ctype_dtype(c), 0);
    know_alignments(w);
    w->p.u.matmul = (mfi_matmul){.m = m, .n = n, .k = k, .acc = c};
    mfi_view a = w->p.u.matmul.a = product_factor(w, &of, m, k, of.a_columns);
    mfi_view b = w->p.u.matmul.b = product_factor(w, &of, k, n, of.b_columns);
    size_t size = mfi_ctype_size(c);
    w->acc = malloc((size_t)(batch * m * n) * size);
    for (int64_t at = 0; at < batch * m * n; at++) {
        double complex sum = 0;
        for (int64_t j = 0; j < k; j++)
            sum += product_element(w, &a, at / n / m, at / n % m, j) * product_element(w, &b, at / n / m, j, at % n);
        scalar v = from_number(sum, c);
        memcpy(w->acc + (size_t)at * size, &v, size);
    }
    oracle_run(&w->p, (void *const *)w->copy, w->acc);
}

/* Product number i. */
static inline void random_product(world *w, int i)
{
    random_product_of(w, product_case_of(i), 5 + (uint64_t)i);
}

#endif
