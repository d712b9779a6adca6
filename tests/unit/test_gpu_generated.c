/* Generated kernels on a GPU: random chains against an oracle that evaluates one element at a time, over layouts that
 * reach every skeleton; and every operation against the loops of the CPU, special values included. Without a GPU
 * nothing runs: test_jit.c compiles the same kinds of kernel then. */
#include <criterion/criterion.h>
#include <math.h>

#include "chain_oracle.h"
#include "context_internal.h"
#include "cuda_api.h"
#include "provider.h"

extern const mfi_provider mfi_provider_generated;

static mf_context *context;

static bool open_gpu(void)
{
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    options.device = "cuda";
    if (mfi_cuda_device_count() == 0) {
        fprintf(stderr, "no GPU here: nothing is run\n");
        return false;
    }
    mf_status status = mf_context_new(&context, &options);
    cr_assert_eq(status, MF_OK, "%s", mf_error_message(status));
    mfi_context_prepare(context, MFI_MAP);
    return true;
}

/* ---- running a step with the world's memory on the device ---- */

static int alignment_of(const mfi_view *view)
{
    int64_t bytes = view->offset * (int64_t)mf_dtype_size(view->dtype);
    int alignment = 16;
    while (bytes % alignment)
        alignment /= 2;
    return alignment;
}

static mf_status run_step(const mfi_problem *p, void *const *slots)
{
    const mfi_caps *caps = mfi_context_caps(context);
    mfi_bid bid = {0};
    void *state = NULL, *workspace = NULL;
    if (!mfi_provider_generated.query(p, caps, &bid))
        return mfi_fail(MF_E_UNSUPPORTED, "refused: %s (%s)", mfi_reason_name(bid.reason), bid.detail);
    MF_TRY(mfi_provider_generated.prepare(&state, p, caps, context, &bid));
    mf_status status = mf_context_alloc(&workspace, context, bid.workspace + 1);
    mfi_run r = {slots, workspace, NULL, context};
    if (status == MF_OK)
        status = mfi_provider_generated.run(state, &r);
    if (status == MF_OK)
        status = mf_context_synchronize(context);
    mf_context_release(context, workspace);
    mfi_provider_generated.destroy(state);
    return status;
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

static bool check_world(world *w, const char *what)
{
    void *slots[ORACLE_SLOTS] = {NULL};
    bool good = true;
    for (int o = 0; o < w->p.chain.operands; o++)
        w->p.chain.operand[o].view.alignment = alignment_of(&w->p.chain.operand[o].view);
    for (int i = 0; i < w->buffers; i++) {
        cr_assert_eq(mf_context_alloc(&slots[i], context, w->bytes[i]), MF_OK);
        cr_assert_eq(mf_context_copy(context, slots[i], w->memory[i], w->bytes[i]), MF_OK);
    }
    mf_status status = run_step(&w->p, slots);
    cr_expect_eq(status, MF_OK, "%s: %s", what, mf_error_message(status));
    for (int i = 0; i < w->buffers; i++) {
        cr_assert_eq(mf_context_copy(context, w->memory[i], slots[i], w->bytes[i]), MF_OK);
        mf_context_release(context, slots[i]);
        good &= status == MF_OK && same_elements(w, i, w->p.chain.operand[i].view.dtype);
    }
    cr_expect(good, "%s", what);
    return good;
}

/* ---- random chains ---- */

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

static void random_worlds(const domain *domains, int count, int rounds, uint64_t seed)
{
    int failures = 0;
    for (int i = 0; i < rounds * count && failures < 4; i++) {
        const domain *d = &domains[i % count];
        world w = {.random = seed + (uint64_t)i * 977};
        w.p.ndim = d->ndim;
        w.p.nreduce = d->nreduce;
        memcpy(w.p.shape, d->shape, sizeof d->shape);
        random_chain(&w, d->nreduce > 0);
        mfi_text t = {0};
        mfi_problem_text(&w.p, &t);
        mfi_text_add(&t, ", case %d: ", i);
        mfi_chain_text(&w.p, &t);
        oracle_run(&w.p, (void *const *)w.copy, NULL);
        failures += !check_world(&w, t.data);
        mfi_text_free(&t);
        free_world(&w);
    }
    mf_context_free(context);
}

Test(gpu_generated, random_maps)
{
    static const domain domains[] = {{1, 0, {4096}},    {1, 0, {5001}},      {1, 0, {1}},          {2, 0, {70, 64}},
                                     {2, 0, {33, 129}}, {3, 0, {5, 40, 24}}, {3, 0, {2, 130, 70}}, {2, 0, {1, 7}}};
    if (open_gpu())
        random_worlds(domains, (int)MFI_COUNT(domains), 8, 11);
}

Test(gpu_generated, random_rows)
{
    static const domain domains[] = {{2, 1, {37, 5}},    {2, 1, {70, 64}},    {2, 1, {9, 1000}},  {2, 1, {5, 8192}},
                                     {1, 1, {777}},      {3, 1, {4, 9, 200}}, {3, 2, {6, 5, 40}}, {2, 1, {3, 0}},
                                     {2, 1, {2, 40000}}, {1, 1, {70000}}};
    if (open_gpu())
        random_worlds(domains, (int)MFI_COUNT(domains), 8, 12);
}

/* ---- every operation ---- */

static const double specials[] = {0,     -0.0,   1,     -1,    0.5,   -0.5,     2,         -2,   3,     -3,
                                  1e-30, -1e-30, 1e30,  -1e30, 1e-42, 0.3,      -0.7,      10,   -10,   20,
                                  -20,   88,     -88,   100,   -100,  7.25,     -7.25,     1e-3, -1e-3, 0.99,
                                  -0.99, 1.01,   -1.01, 5.5,   -5.5,  INFINITY, -INFINITY, NAN};
enum { SPECIALS = sizeof specials / sizeof *specials };

static bool near(double x, double y, double relative, double smallest)
{
    if (x != x || y != y || x == y)
        return (x != x && y != y) || x == y;
    return fabs(x - y) <= relative * fmax(fabs(x), fabs(y)) + smallest;
}

static void check_operation(mf_op op, mfi_ctype c)
{
    int arity = mf_op_arity(op), n = arity == 1 ? SPECIALS : SPECIALS * SPECIALS;
    mf_dtype d = mfi_ctype_dtype(c);
    bool is_complex = c >= MFI_C64, integer = c <= MFI_I64;
    world w = {.p = {.ndim = 1, .shape = {n}}};
    for (int i = 0; i < arity; i++) {
        int slot = w.p.chain.operands;
        emit_load(&w, op == MF_OP_WHERE && i == 0 ? MF_BOOL : d, 0);
        mfi_operand *o = &w.p.chain.operand[slot];
        o->view.strides[0] = 1;
        o->view.offset = 0;
        o->extent[0] = -1;
        free(w.memory[slot]);
        free(w.copy[slot]);
        size_t size = mf_dtype_size(o->view.dtype);
        w.bytes[slot] = (size_t)n * size;
        w.memory[slot] = calloc((size_t)n, size);
        w.copy[slot] = calloc((size_t)n, size);
        for (int k = 0; k < n; k++) {
            int at = i == 0 ? k % SPECIALS : i == 1 ? k / SPECIALS : k * 7 % SPECIALS;
            double v = specials[at];
            if (integer)
                v = fabs(v) < 1e6 ? trunc(v) : v > 0 ? 40 : v < 0 ? -40 : 0;
            double complex z = is_complex && fabs(v) < 50 ? v + I * specials[(at + 5) % 35] : v;
            write_element(w.memory[slot] + (size_t)k * size, o->view.dtype, z, false);
        }
        memcpy(w.copy[slot], w.memory[slot], w.bytes[slot]);
    }
    static const char *const rules[] = {
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) #rule,
#include "mathfuse/def/op.def"
#undef MF_OP
    };
    mfi_ctype result = !strcmp(rules[op], "BOOL")                 ? MFI_I32
                       : is_complex && !strcmp(rules[op], "REAL") ? (c == MFI_C64 ? MFI_F32 : MFI_F64)
                                                                  : c;
    int v = emit_apply(&w, op, result, 0, arity > 1 ? 1 : -1, arity > 2 ? 2 : -1);
    emit_store(&w, v, mfi_ctype_dtype(result), 0);
    int out = w.p.chain.operands - 1;
    w.p.chain.operand[out].view.strides[0] = 1;
    oracle_run(&w.p, (void *const *)w.copy, NULL);
    void *slots[ORACLE_SLOTS] = {NULL};
    for (int i = 0; i < w.buffers; i++) {
        cr_assert_eq(mf_context_alloc(&slots[i], context, w.bytes[i]), MF_OK);
        cr_assert_eq(mf_context_copy(context, slots[i], w.memory[i], w.bytes[i]), MF_OK);
    }
    mf_status status = run_step(&w.p, slots);
    cr_expect_eq(status, MF_OK, "%s: %s", mf_op_name(op), mf_error_message(status));
    cr_assert_eq(mf_context_copy(context, w.memory[out], slots[out], w.bytes[out]), MF_OK);
    size_t size = mf_dtype_size(mfi_ctype_dtype(result));
    bool single = c == MFI_F32 || c == MFI_C64;
    double relative = single ? 2e-6 : 1e-13, smallest = single ? 1e-40 : 1e-310;
    if (op == MF_OP_GELU || op == MF_OP_GELU_ERF) /* far down the tail the rounding of the exponent shows */
        smallest = single ? 1e-13 : 1e-30;
    for (int k = 0, bad = 0; k < n && bad < 3 && status == MF_OK; k++) {
        size_t at = (size_t)(w.p.chain.operand[out].view.offset + k) * size;
        double complex x = read_element(w.memory[out] + at, mfi_ctype_dtype(result));
        double complex y = read_element(w.copy[out] + at, mfi_ctype_dtype(result));
        double scale = is_complex ? relative * cabs(y) : 0;                   /* a part may cancel against the other */
        bool odd = is_complex && !(isfinite(creal(y)) && isfinite(cimag(y))); /* which part is infinite varies */
        bool good = odd || (near(creal(x), creal(y), relative, smallest + scale) &&
                            near(cimag(x), cimag(y), relative, smallest + scale));
        bad += !good;
        double complex a = read_element(w.memory[0] + (size_t)k * mf_dtype_size(w.p.chain.operand[0].view.dtype),
                                        w.p.chain.operand[0].view.dtype);
        cr_expect(good, "%s %s(%g%+gi, …)[%d] is %.9g%+.9gi, the CPU has %.9g%+.9gi", mfi_ctype_name(c), mf_op_name(op),
                  creal(a), cimag(a), k, creal(x), cimag(x), creal(y), cimag(y));
    }
    for (int i = 0; i < w.buffers; i++)
        mf_context_release(context, slots[i]);
    free_world(&w);
}

static void check_operations(mfi_ctype c)
{
    if (!open_gpu())
        return;
    for (int op = 0; op < MF_OP_COUNT; op++)
        if (mfi_op_defined((mf_op)op, c))
            check_operation((mf_op)op, c);
    mf_context_free(context);
}

Test(gpu_generated, operations_f32)
{
    check_operations(MFI_F32);
}

Test(gpu_generated, operations_f64)
{
    check_operations(MFI_F64);
}

Test(gpu_generated, operations_integers)
{
    check_operations(MFI_I32);
    check_operations(MFI_I64);
}

Test(gpu_generated, operations_complex)
{
    check_operations(MFI_C64);
    check_operations(MFI_C128);
}
