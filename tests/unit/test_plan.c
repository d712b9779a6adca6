/* Planning on the CPU: how graphs are cut into steps, that the answers are right, and what a run refuses. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "nodes.h"
#include "plan_internal.h"
#include "schedule.h"

static mf_context *ctx;
static mf_graph *g;

static void setup(void)
{
    mf_context_options o = MF_CONTEXT_OPTIONS_INIT;
    o.device = "cpu";
    cr_assert_eq(mf_context_new(&ctx, &o), MF_OK, "%s", mf_error_message(MF_E_INTERNAL));
    cr_assert_eq(mf_graph_new(&g), MF_OK);
}

static void teardown(void)
{
    mf_graph_free(g);
    mf_context_free(ctx);
}

TestSuite(plan, .init = setup, .fini = teardown);

static mf_node in2(mf_dtype dtype, int64_t a, int64_t b)
{
    return mf_graph_input(g, dtype, 2, (int64_t[]){a, b});
}

static mf_node in1(mf_dtype dtype, int64_t a)
{
    return mf_graph_input(g, dtype, 1, (int64_t[]){a});
}

static mf_plan *make(int flags)
{
    mf_plan *p;
    mf_plan_options o = MF_PLAN_OPTIONS_INIT;
    o.flags = flags;
    mf_status status = mf_plan_new(&p, ctx, g, &o);
    cr_assert_eq(status, MF_OK, "%s: %s", mf_status_name(status), mf_error_message(status));
    return p;
}

static void fill(float *x, int64_t n, unsigned seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

/* Bind fresh contiguous f32 arrays with random inputs and poisoned outputs. */
static mf_tensor *bind(const mf_plan *p)
{
    mf_tensor *t = calloc((size_t)p->bindings, sizeof *t);
    for (int i = 0; i < p->bindings; i++) {
        t[i] = p->binding[i];
        int64_t n = mf_tensor_elements(&t[i]);
        t[i].data = aligned_alloc(64, mfi_align_up((size_t)(n ? n : 1) * mf_dtype_size(t[i].dtype), 64));
        cr_assert_eq(t[i].dtype, MF_F32);
        fill(t[i].data, n, 7u + (unsigned)i);
        for (int64_t k = 0; i >= p->inputs && k < n; k++)
            ((float *)t[i].data)[k] = NAN;
    }
    return t;
}

static void unbind(const mf_plan *p, mf_tensor *t)
{
    for (int i = 0; i < p->bindings; i++)
        free(t[i].data);
    free(t);
}

static void run(mf_plan *p, const mf_tensor *t)
{
    mf_status status = mf_plan_run(p, t, p->bindings, NULL);
    cr_assert_eq(status, MF_OK, "%s: %s", mf_status_name(status), mf_error_message(status));
}

static float *data(const mf_tensor *t, int i)
{
    return t[i].data;
}

static void expect_steps(const mf_plan *p, int steps)
{
    char *text;
    cr_assert_eq(mf_plan_explain(&text, p, 0), MF_OK);
    cr_expect_eq(p->steps, steps, "%d steps, wanted %d:\n%s", p->steps, steps, text);
    mf_free(text);
}

Test(plan, linear_gelu_is_one_step)
{
    enum { M = 65, K = 70, N = 33 };
    mf_node x = in2(MF_F32, M, K), w = in2(MF_F32, K, N), b = in1(MF_F32, N), r = in2(MF_F32, M, N);
    mf_node y = mf_graph_add(g, mf_graph_gelu(g, mf_graph_add(g, mf_graph_matmul(g, x, w), b)), r);
    mf_graph_output(g, y);
    mf_plan *p = make(0);
    expect_steps(p, 1);
    mf_tensor *t = bind(p);
    run(p, t);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double acc = data(t, 2)[j];
            for (int k = 0; k < K; k++)
                acc += (double)data(t, 0)[i * K + k] * data(t, 1)[k * N + j];
            double want =
                0.5 * acc * (1 + tanh(0.7978845608028654 * (acc + 0.044715 * acc * acc * acc))) + data(t, 3)[i * N + j];
            cr_assert_float_eq(data(t, 4)[i * N + j], want, 2e-5, "(%d, %d)", i, j);
        }
    unbind(p, t);
    mf_plan_free(p);
}

/* softmax and rms_norm read their input once: one step with two and one reductions. */
Test(plan, softmax_is_one_step)
{
    enum { M = 40, N = 77 };
    mf_node x = in2(MF_F32, M, N);
    mf_node e = mf_graph_exp(g, mf_graph_subtract(g, x, mf_graph_reduce(g, MF_MAX, x, 1, (int[]){1}, 1)));
    mf_graph_output(g, mf_graph_divide(g, e, mf_graph_reduce(g, MF_SUM, e, 1, (int[]){1}, 1)));
    mf_plan *p = make(0);
    expect_steps(p, 1);
    mf_tensor *t = bind(p);
    run(p, t);
    for (int i = 0; i < M; i++) {
        double sum = 0;
        for (int j = 0; j < N; j++)
            sum += exp(data(t, 0)[i * N + j]);
        for (int j = 0; j < N; j++)
            cr_assert_float_eq(data(t, 1)[i * N + j], exp(data(t, 0)[i * N + j]) / sum, 1e-6);
    }
    unbind(p, t);
    mf_plan_free(p);
}

/* Without keepdims the row value has fewer axes; times a vector over rows it stays a row value. */
Test(plan, row_values_join_their_reduction)
{
    enum { M = 200, N = 31 };
    mf_node x = in2(MF_F32, M, N), s = in1(MF_F32, M);
    mf_node sum = mf_graph_reduce(g, MF_SUM, x, 1, (int[]){1}, 0);
    mf_graph_output(g, mf_graph_multiply(g, mf_graph_sqrt(g, mf_graph_absolute(g, sum)), s));
    mf_plan *p = make(0);
    expect_steps(p, 1);
    mf_tensor *t = bind(p);
    run(p, t);
    for (int i = 0; i < M; i++) {
        double sum = 0;
        for (int j = 0; j < N; j++)
            sum += data(t, 0)[i * N + j];
        cr_assert_float_eq(data(t, 2)[i], sqrt(fabs(sum)) * data(t, 1)[i], 1e-5);
    }
    unbind(p, t);
    mf_plan_free(p);
}

Test(plan, sum_over_rows_of_a_computed_value)
{
    enum { M = 300, N = 45 };
    mf_node x = in2(MF_F32, M, N);
    mf_graph_output(g, mf_graph_reduce(g, MF_SUM, mf_graph_square(g, x), 1, (int[]){0}, 0));
    mf_plan *p = make(0);
    expect_steps(p, 1);
    mf_tensor *t = bind(p);
    run(p, t);
    for (int j = 0; j < N; j++) {
        double sum = 0;
        for (int i = 0; i < M; i++)
            sum += (double)data(t, 0)[i * N + j] * data(t, 0)[i * N + j];
        cr_assert_float_eq(data(t, 1)[j], sum, 1e-4);
    }
    unbind(p, t);
    mf_plan_free(p);
}

/* A value and its transpose cannot meet in one step: the transpose has to be read from memory. */
Test(plan, transpose_of_a_computed_value_goes_through_memory)
{
    enum { N = 50 };
    mf_node x = in2(MF_F32, N, N);
    mf_node y = mf_graph_exp(g, x);
    mf_graph_output(g, mf_graph_add(g, y, mf_graph_transpose(g, y, (int[]){1, 0})));
    mf_plan *p = make(0);
    expect_steps(p, 2);
    mf_tensor *t = bind(p);
    run(p, t);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            cr_assert_float_eq(data(t, 1)[i * N + j], exp(data(t, 0)[i * N + j]) + exp(data(t, 0)[j * N + i]), 1e-5);
    unbind(p, t);
    mf_plan_free(p);
}

/* A product that is returned transposed is stored transposed. */
Test(plan, reordered_outputs_cost_no_copy)
{
    enum { M = 10, K = 12, N = 14 };
    mf_node x = in2(MF_F32, M, K), w = in2(MF_F32, K, N);
    mf_node y = mf_graph_reshape(g, mf_graph_tanh(g, mf_graph_matmul(g, x, w)), 3, (int64_t[]){M, 1, N});
    mf_graph_output(g, mf_graph_transpose(g, y, (int[]){2, 1, 0}));
    mf_plan *p = make(0);
    expect_steps(p, 1);
    mf_tensor *t = bind(p);
    run(p, t);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double acc = 0;
            for (int k = 0; k < K; k++)
                acc += (double)data(t, 0)[i * K + k] * data(t, 1)[k * N + j];
            cr_assert_float_eq(data(t, 2)[j * M + i], tanh(acc), 1e-5);
        }
    unbind(p, t);
    mf_plan_free(p);
}

/* silu(x@w1) * (x@w2): two products, the gate in the second's epilogue. */
Test(plan, gated_products_are_two_steps)
{
    enum { M = 20, K = 30, N = 40 };
    mf_node x = in2(MF_F32, M, K), w1 = in2(MF_F32, K, N), w2 = in2(MF_F32, K, N);
    mf_graph_output(g, mf_graph_multiply(g, mf_graph_silu(g, mf_graph_matmul(g, x, w1)), mf_graph_matmul(g, x, w2)));
    mf_plan *p = make(0);
    expect_steps(p, 2);
    mf_tensor *t = bind(p);
    run(p, t);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double a = 0, b = 0;
            for (int k = 0; k < K; k++) {
                a += (double)data(t, 0)[i * K + k] * data(t, 1)[k * N + j];
                b += (double)data(t, 0)[i * K + k] * data(t, 2)[k * N + j];
            }
            cr_assert_float_eq(data(t, 3)[i * N + j], a / (1 + exp(-a)) * b, 2e-5);
        }
    unbind(p, t);
    mf_plan_free(p);
}

/* One value both stored and used on: one step with two outputs. */
Test(plan, several_outputs)
{
    mf_node x = in2(MF_F32, 8, 9);
    mf_node y = mf_graph_tanh(g, x), z = mf_graph_add(g, y, x);
    mf_graph_output(g, y);
    mf_graph_output(g, z);
    mf_graph_output(g, y);
    mf_graph_output(g, x);
    mf_plan *p = make(0);
    mf_tensor *t = bind(p);
    run(p, t);
    for (int i = 0; i < 72; i++) {
        float v = data(t, 0)[i];
        cr_assert_float_eq(data(t, 1)[i], tanhf(v), 1e-6);
        cr_assert_float_eq(data(t, 2)[i], tanhf(v) + v, 1e-6);
        cr_assert_eq(data(t, 3)[i], data(t, 1)[i]);
        cr_assert_eq(data(t, 4)[i], v);
    }
    unbind(p, t);
    mf_plan_free(p);
}

/* A small vector that is computed for a large map is recomputed inside it. */
Test(plan, small_maps_are_absorbed)
{
    mf_node x = in2(MF_F32, 64, 16), s = in1(MF_F32, 16);
    mf_graph_output(g, mf_graph_multiply(g, x, mf_graph_exp(g, s)));
    mf_plan *p = make(0);
    expect_steps(p, 1);
    mf_tensor *t = bind(p);
    run(p, t);
    for (int i = 0; i < 64 * 16; i++)
        cr_assert_float_eq(data(t, 2)[i], data(t, 0)[i] * expf(data(t, 1)[i % 16]), 1e-5);
    unbind(p, t);
    mf_plan_free(p);
}

/* z needs y through a second product: joining z to y's group would close a cycle. */
Test(plan, no_cycles)
{
    enum { N = 24 };
    mf_node x = in2(MF_F32, N, N), w = in2(MF_F32, N, N);
    mf_node y = mf_graph_exp(g, x), q = mf_graph_matmul(g, y, w), z = mf_graph_add(g, y, q);
    mf_graph_output(g, z);
    mf_plan *p = make(0);
    mf_tensor *t = bind(p);
    run(p, t);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double acc = exp(data(t, 0)[i * N + j]);
            for (int k = 0; k < N; k++)
                acc += exp(data(t, 0)[i * N + k]) * data(t, 1)[k * N + j];
            cr_assert_float_eq(data(t, 2)[i * N + j], acc, 1e-4);
        }
    unbind(p, t);
    mf_plan_free(p);
}

Test(plan, nothing_is_fused_when_asked)
{
    mf_node x = in2(MF_F32, 5, 6);
    mf_graph_output(g, mf_graph_exp(g, mf_graph_tanh(g, mf_graph_square(g, x))));
    mf_plan *p = make(MF_PLAN_NO_FUSION);
    expect_steps(p, 3);
    mf_tensor *t = bind(p);
    run(p, t);
    for (int i = 0; i < 30; i++)
        cr_assert_float_eq(data(t, 1)[i], expf(tanhf(data(t, 0)[i] * data(t, 0)[i])), 1e-6);
    unbind(p, t);
    mf_plan_free(p);
}

Test(plan, empty_inner_dimension_runs_the_epilogue)
{
    mf_node x = in2(MF_F32, 3, 0), w = in2(MF_F32, 0, 4), b = in1(MF_F32, 4);
    mf_graph_output(g, mf_graph_add(g, mf_graph_matmul(g, x, w), b));
    mf_plan *p = make(0);
    mf_tensor *t = bind(p);
    run(p, t);
    for (int i = 0; i < 12; i++)
        cr_assert_eq(data(t, 3)[i], data(t, 2)[i % 4]);
    unbind(p, t);
    mf_plan_free(p);
}

Test(plan, other_strides_are_planned_for_once)
{
    mf_node x = in2(MF_F32, 6, 7);
    mf_graph_output(g, mf_graph_exp(g, x));
    mf_plan *p = make(0);
    mf_tensor *t = bind(p);
    float *wide = malloc(sizeof(float) * 6 * 14);
    fill(wide, 6 * 14, 3);
    t[0].strides[0] = -14;
    t[0].strides[1] = 2;
    float *old = t[0].data;
    t[0].data = wide + 5 * 14;
    run(p, t);
    run(p, t);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 7; j++)
            cr_assert_float_eq(data(t, 1)[i * 7 + j], expf(wide[(5 - i) * 14 + 2 * j]), 1e-5);
    cr_expect(p->variants && !p->variants->next);
    t[0].data = old;
    unbind(p, t);
    free(wide);
    mf_plan_free(p);
}

static void refused(mf_plan *p, const mf_tensor *t, int count, mf_status want, const char *part)
{
    mf_status status = mf_plan_run(p, t, count, NULL);
    cr_expect_eq(status, want, "%s", mf_status_name(status));
    cr_expect(strstr(mf_error_message(status), part), "\"%s\" lacks \"%s\"", mf_error_message(status), part);
}

Test(plan, bad_tensors_are_named)
{
    mf_node x = in2(MF_F32, 4, 4), y = in2(MF_F32, 4, 4);
    mf_graph_output(g, mf_graph_matmul(g, x, y));
    mf_plan *p = make(0);
    mf_tensor *t = bind(p), bad[3];
    memcpy(bad, t, sizeof bad);
    refused(p, bad, 2, MF_E_INVALID, "2 tensors were bound");
    bad[1].dtype = MF_F64;
    refused(p, bad, 3, MF_E_TYPE, "input 1 is f64");
    memcpy(bad, t, sizeof bad);
    bad[0].shape[1] = 5;
    refused(p, bad, 3, MF_E_SHAPE, "input 0 has shape (4, 5)");
    memcpy(bad, t, sizeof bad);
    bad[2].device = MF_CUDA;
    refused(p, bad, 3, MF_E_DEVICE, "output 0 lies on cuda:0");
    memcpy(bad, t, sizeof bad);
    bad[2].data = bad[0].data;
    refused(p, bad, 3, MF_E_ALIAS, "output 0 overlaps input 0");
    memcpy(bad, t, sizeof bad);
    bad[2].strides[0] = 0;
    refused(p, bad, 3, MF_E_LAYOUT, "repeats its elements");
    bad[2].strides[0] = bad[2].strides[1];
    refused(p, bad, 3, MF_E_LAYOUT, "on top of each other");
    memcpy(bad, t, sizeof bad);
    bad[0].ndim = 99;
    refused(p, bad, 3, MF_E_SHAPE, "input 0 has 99 dimensions");
    unbind(p, t);
    mf_plan_free(p);
}

Test(plan, elementwise_may_run_in_place_and_interleaved)
{
    mf_node x = in1(MF_F32, 64);
    mf_graph_output(g, mf_graph_square(g, x));
    mf_plan *p = make(0);
    float buffer[128];
    for (int i = 0; i < 128; i++)
        buffer[i] = (float)i;
    mf_tensor t[2] = {p->binding[0], p->binding[1]};
    t[0].data = t[1].data = buffer;
    run(p, t);
    cr_expect_eq(buffer[9], 81);
    t[0].strides[0] = t[1].strides[0] = 2; /* even elements to odd ones */
    t[1].data = buffer + 1;
    run(p, t);
    cr_expect_eq(buffer[5], 16 * 16);
    t[1].data = buffer + 2;
    refused(p, t, 2, MF_E_ALIAS, "overlaps");
    mf_plan_free(p);
}

Test(plan, cached_plans_are_shared)
{
    mf_graph_output(g, mf_graph_exp(g, in2(MF_F32, 3, 3)));
    mf_plan *a, *b;
    mf_plan_options o = MF_PLAN_OPTIONS_INIT;
    cr_assert_eq(mf_plan_cached(&a, ctx, g, NULL), MF_OK);
    cr_assert_eq(mf_plan_cached(&b, ctx, g, &o), MF_OK);
    cr_expect_eq(a, b);
    mf_plan_free(b);
    o.flags = MF_PLAN_NO_FUSION;
    cr_assert_eq(mf_plan_cached(&b, ctx, g, &o), MF_OK);
    cr_expect_neq(a, b);
    mf_plan_free(b);
    mf_plan_free(a);
}

static mf_plan *cached_product(int64_t m, int64_t k)
{
    mf_graph *h;
    mf_plan *p;
    cr_assert_eq(mf_graph_new(&h), MF_OK);
    mf_node x = mf_graph_exp(h, mf_graph_input(h, MF_F32, 2, (int64_t[]){m, k}));
    mf_graph_output(h, mf_graph_matmul(h, x, mf_graph_input(h, MF_F32, 2, (int64_t[]){k, 4})));
    cr_assert_eq(mf_plan_cached(&p, ctx, h, NULL), MF_OK);
    mf_graph_free(h);
    return p;
}

/* Whether the cache still has a plan after 40 others, whose temporaries of m by m elements are kept. */
static bool still_cached_after(int64_t m)
{
    mf_plan *first = cached_product(m, m);
    cr_assert_geq(mf_plan_memory(first), (size_t)(m * m) * sizeof(float));
    for (int64_t i = 1; i <= 40; i++)
        mf_plan_free(cached_product(m, m + i));
    mf_plan *again = cached_product(m, m);
    bool same = first == again;
    mf_plan_free(first);
    mf_plan_free(again);
    return same;
}

Test(plan, the_cache_lets_large_plans_go)
{
    cr_expect(still_cached_after(64));
    cr_expect_not(still_cached_after(4096));
}

static int variants_of(const mf_plan *p)
{
    int count = 0;
    for (const mf_plan *v = p->variants; v; v = v->next)
        count++;
    return count;
}

Test(plan, other_layouts_are_kept_up_to_a_number)
{
    mf_graph_output(g, mf_graph_square(g, in1(MF_F32, 8)));
    mf_plan *p = make(0);
    float in[8 * 64], out[8];
    for (int i = 0; i < 8 * 64; i++)
        in[i] = (float)i;
    mf_tensor t[2] = {p->binding[0], p->binding[1]};
    t[0].data = in;
    t[1].data = out;
    for (int round = 0; round < 2; round++)
        for (int stride = 1; stride < 64; stride++) {
            t[0].strides[0] = stride;
            run(p, t);
            cr_expect_eq(out[7], (float)(49 * stride * stride));
            cr_expect_leq(variants_of(p), 16);
        }
    const mf_plan *last = p->variants;
    t[0].strides[0] = 60;
    run(p, t);
    cr_expect_neq(p->variants, last);
    t[0].strides[0] = 63;
    run(p, t);
    cr_expect_eq(p->variants, last); /* found again */
    cr_expect_eq(variants_of(p), 16);
    mf_plan_free(p);
}

Test(plan, a_plan_outlives_its_context_handle)
{
    mf_graph_output(g, mf_graph_exp(g, in2(MF_F32, 3, 3)));
    mf_plan *p = make(0);
    mf_context_free(ctx);
    mf_tensor *t = bind(p);
    run(p, t);
    unbind(p, t);
    mf_plan_free(p);
    mf_graph_free(g);
    setup();
}

Test(plan, unknown_targets_and_providers_are_named)
{
    mf_context *c;
    mf_context_options o = MF_CONTEXT_OPTIONS_INIT;
    o.device = "tpu";
    cr_expect_eq(mf_context_new(&c, &o), MF_E_INVALID);
    cr_expect(strstr(mf_error_message(MF_E_INVALID), "sm_90a"));
    mf_graph_output(g, mf_graph_exp(g, in2(MF_F32, 3, 3)));
    mf_plan *p;
    mf_plan_options po = MF_PLAN_OPTIONS_INIT;
    po.providers = "ref,nobody";
    cr_expect_eq(mf_plan_new(&p, ctx, g, &po), MF_E_INVALID);
    cr_expect(strstr(mf_error_message(MF_E_INVALID), "nobody"));
}

/* Bf16 chains round once, at the output; MATCH_UNFUSED rounds at every node. */
Test(plan, rounding)
{
    mf_node x = in1(MF_BF16, 1);
    mf_node third = mf_graph_divide(g, x, mf_graph_number(g, MF_WEAK_FLOAT, 3, 0));
    mf_graph_output(g, mf_graph_multiply(g, third, mf_graph_number(g, MF_WEAK_FLOAT, 3, 0)));
    uint16_t one = mfi_f32_to_bf16(0.3f), result;
    for (int flags = 0; flags <= MF_PLAN_MATCH_UNFUSED; flags++) {
        mf_plan *p = make(flags);
        mf_tensor t[2] = {p->binding[0], p->binding[1]};
        t[0].data = &one;
        t[1].data = &result;
        run(p, t);
        float v = mfi_bf16_to_f32(one), once = mfi_bf16_to_f32(mfi_f32_to_bf16(v / 3 * 3));
        float twice = mfi_bf16_to_f32(mfi_f32_to_bf16(mfi_bf16_to_f32(mfi_f32_to_bf16(v / 3)) * 3));
        cr_expect_eq(mfi_bf16_to_f32(result), flags ? twice : once);
        mf_plan_free(p);
    }
}
