/* Generated kernels on a GPU: random chains against an oracle that evaluates one element at a time, over layouts that
 * reach every skeleton; and every operation against the loops of the CPU, special values included. Without a GPU
 * nothing runs: test_jit.c compiles the same kinds of kernel then. */
#include <criterion/criterion.h>
#include <math.h>

#include "context_internal.h"
#include "cuda_api.h"
#include "provider.h"
#include "random_chain.h"

extern const mfi_provider mfi_provider_generated;

static mf_context *context;

static void open_gpu(void)
{
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    options.device = "cuda";
    if (mfi_cuda_device_count() == 0)
        cr_skip_test("no GPU here");
    mf_status status = mf_context_new(&context, &options);
    cr_assert_eq(status, MF_OK, "%s", mf_error_message(status));
    mfi_context_prepare(context, MFI_MAP);
}

/* ---- running a step with the world's memory on the device ---- */

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

static bool check_world(world *w, const char *what)
{
    void *slots[ORACLE_SLOTS] = {NULL};
    bool good = true;
    for (int i = 0; i < w->buffers; i++) {
        cr_assert_eq(mf_context_alloc(&slots[i], context, w->bytes[i]), MF_OK);
        cr_assert_eq(mf_context_copy(context, slots[i], w->memory[i], w->bytes[i]), MF_OK);
    }
    mf_status status = run_step(&w->p, slots);
    cr_expect_eq(status, MF_OK, "%s: %s", what, mf_error_message(status));
    for (int i = 0; i < w->buffers; i++) {
        cr_assert_eq(mf_context_copy(context, w->memory[i], slots[i], w->bytes[i]), MF_OK);
        mf_context_release(context, slots[i]);
        good &= status == MF_OK && (i >= w->p.chain.operands || same_elements(w, i, w->p.chain.operand[i].view.dtype));
    }
    cr_expect(good, "%s", what);
    return good;
}

static void random_worlds(const domain *domains, int count, int rounds, uint64_t seed)
{
    int failures = 0;
    for (int i = 0; i < rounds * count && failures < 4; i++) {
        world w;
        char *what = random_world(&w, &domains[i % count], i, seed);
        failures += !check_world(&w, what);
        mf_free(what);
        free_world(&w);
    }
    mf_context_free(context);
}

Test(gpu_generated, random_maps)
{
    static const domain domains[] = {{1, 0, {4096}},    {1, 0, {5001}},      {1, 0, {1}},          {2, 0, {70, 64}},
                                     {2, 0, {33, 129}}, {3, 0, {5, 40, 24}}, {3, 0, {2, 130, 70}}, {2, 0, {1, 7}}};
    open_gpu();
    random_worlds(domains, (int)MFI_COUNT(domains), 8, 11);
}

Test(gpu_generated, random_rows)
{
    static const domain domains[] = {{2, 1, {37, 5}},    {2, 1, {70, 64}},    {2, 1, {9, 1000}},  {2, 1, {5, 8192}},
                                     {1, 1, {777}},      {3, 1, {4, 9, 200}}, {3, 2, {6, 5, 40}}, {2, 1, {3, 0}},
                                     {2, 1, {2, 40000}}, {1, 1, {70000}}};
    open_gpu();
    random_worlds(domains, (int)MFI_COUNT(domains), 8, 12);
}

Test(gpu_generated, matrix_products)
{
    open_gpu();
    for (int i = 0; i < PRODUCT_CASES; i++) {
        world w;
        random_product(&w, i);
        check_world(&w, mf_dtype_name(w.p.u.matmul.a.dtype));
        free_world(&w);
    }
    mf_context_free(context);
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

/* Value k of operand i: every pair of the special values, with others beside them. */
static double complex special(int i, int k, mfi_ctype c)
{
    double v = specials[i == 0 ? k % SPECIALS : i == 1 ? k / SPECIALS % SPECIALS : k * 7 % SPECIALS];
    if (c <= MFI_I64)
        return fabs(v) < 1e6 ? trunc(v) : v > 0 ? 40 : v < 0 ? -40 : 0;
    return c >= MFI_C64 && fabs(v) < 50 ? v + I * specials[(k + 5) % 35] : v;
}

static void special_operand(world *w, int i, mf_dtype dtype, mfi_ctype c)
{
    int64_t n = w->p.shape[0];
    size_t size = mf_dtype_size(dtype);
    emit_load(w, dtype, 0);
    mfi_operand *o = &w->p.chain.operand[i];
    o->view.strides[0] = 1;
    o->view.offset = 0;
    o->extent[0] = -1;
    free(w->memory[i]);
    free(w->copy[i]);
    w->bytes[i] = (size_t)n * size;
    w->memory[i] = calloc((size_t)n, size);
    w->copy[i] = calloc((size_t)n, size);
    for (int k = 0; k < n; k++)
        write_element(w->memory[i] + (size_t)k * size, dtype, special(i, k, c), false);
    memcpy(w->copy[i], w->memory[i], w->bytes[i]);
}

static mfi_ctype result_of(mf_op op, mfi_ctype c)
{
    static const char *const rules[] = {
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) #rule,
#include "mathfuse/def/op.def"
#undef MF_OP
    };
    if (!strcmp(rules[op], "BOOL"))
        return MFI_I32;
    return c >= MFI_C64 && !strcmp(rules[op], "REAL") ? (c == MFI_C64 ? MFI_F32 : MFI_F64) : c;
}

static void compare_results(const world *w, mf_op op, mfi_ctype c, int out)
{
    const mfi_view *view = &w->p.chain.operand[out].view;
    size_t size = mf_dtype_size(view->dtype), first = (size_t)view->offset * size;
    bool single = c == MFI_F32 || c == MFI_C64, is_complex = c >= MFI_C64;
    double relative = single ? 2e-6 : 1e-13, smallest = single ? 1e-40 : 1e-310;
    if (op == MF_OP_GELU || op == MF_OP_GELU_ERF ||
        op == MF_OP_GELU_GRAD) /* far down the tail the rounding of the exponent shows */
        smallest = single ? 1e-13 : 1e-30;
    for (int k = 0, bad = 0; k < w->p.shape[0] && bad < 3; k++) {
        double complex x = read_element(w->memory[out] + first + (size_t)k * size, view->dtype);
        double complex y = read_element(w->copy[out] + first + (size_t)k * size, view->dtype);
        double scale = is_complex ? relative * cabs(y) : 0;                   /* a part may cancel against the other */
        bool odd = is_complex && !(isfinite(creal(y)) && isfinite(cimag(y))); /* which part is infinite varies */
        bool good = odd || (near(creal(x), creal(y), relative, smallest + scale) &&
                            near(cimag(x), cimag(y), relative, smallest + scale));
        double complex a = special(0, k, c), b = special(1, k, c);
        bad += !good;
        cr_expect(good, "%s %s(%g%+gi, %g%+gi) is %.9g%+.9gi, the CPU has %.9g%+.9gi", mfi_ctype_name(c),
                  mf_op_name(op), creal(a), cimag(a), creal(b), cimag(b), creal(x), cimag(x), creal(y), cimag(y));
    }
}

static void check_operation(mf_op op, mfi_ctype c)
{
    int arity = mf_op_arity(op);
    world w = {.p = {.ndim = 1, .shape = {arity == 1 ? SPECIALS : SPECIALS * SPECIALS}}};
    for (int i = 0; i < arity; i++)
        special_operand(&w, i, op == MF_OP_WHERE && i == 0 ? MF_BOOL : mfi_ctype_dtype(c), c);
    mfi_ctype result = result_of(op, c);
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
    if (status == MF_OK)
        compare_results(&w, op, c, out);
    for (int i = 0; i < w.buffers; i++)
        mf_context_release(context, slots[i]);
    free_world(&w);
}

static void check_operations(mfi_ctype c)
{
    open_gpu();
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
