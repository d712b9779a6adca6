/* Chains of small batched steps as one kernel, run on the CPU through emulate.h, against the same graph on the CPU. */
#define _GNU_SOURCE
#include <math.h>

#include "context_internal.h"
#include "emulated_kernel.h"
#include "plan_internal.h"
#include "schedule.h"

enum { MAX_BINDINGS = 6 };

typedef struct chain_case {
    const char *name;
    mf_node (*build)(mf_graph *g, const struct chain_case *c);
    mf_dtype dtype;
    int64_t batch, m, n, nrhs;
    int parts; /* of the one step */
    double most;
} chain_case;

static mf_node matrix(mf_graph *g, const chain_case *c, int64_t rows, int64_t columns)
{
    return mf_graph_input(g, c->dtype, 3, (int64_t[]){c->batch, rows, columns});
}

static mf_node transposed(mf_graph *g, mf_node x)
{
    return mf_graph_transpose(g, x, (int[]){0, 2, 1});
}

/* A^T A + C, for C that makes it definite. */
static mf_node gram(mf_graph *g, const chain_case *c, mf_node a)
{
    mf_node shift = mf_graph_input(g, c->dtype, 2, (int64_t[]){c->n, c->n});
    return mf_graph_add(g, mf_graph_matmul(g, transposed(g, a), a), shift);
}

static mf_node ridge(mf_graph *g, const chain_case *c)
{
    mf_node a = matrix(g, c, c->m, c->n), b = matrix(g, c, c->m, c->nrhs);
    mf_node right = mf_graph_matmul(g, transposed(g, a), b), left = gram(g, c, a);
    return mf_graph_cho_solve(g, mf_graph_cholesky(g, left, 0), right, 0);
}

static mf_node normal_equations(mf_graph *g, const chain_case *c)
{
    mf_node a = matrix(g, c, c->m, c->n), b = matrix(g, c, c->m, c->nrhs);
    mf_node right = mf_graph_matmul(g, transposed(g, a), b), left = gram(g, c, a);
    return mf_graph_tanh(g, mf_graph_solve(g, left, right));
}

/* (x - mu)^T S^-1 (x - mu) */
static mf_node mahalanobis(mf_graph *g, const chain_case *c)
{
    mf_node x = mf_graph_input(g, c->dtype, 2, (int64_t[]){c->batch, c->n});
    mf_node mu = mf_graph_input(g, c->dtype, 1, (int64_t[]){c->n}), a = matrix(g, c, c->m, c->n);
    mf_node d = mf_graph_subtract(g, x, mu), s = gram(g, c, a);
    mf_node column = mf_graph_reshape(g, d, 3, (int64_t[]){c->batch, c->n, 1});
    mf_node y = mf_graph_reshape(g, mf_graph_solve(g, s, column), 2, (int64_t[]){c->batch, c->n});
    return mf_graph_reduce(g, MF_SUM, mf_graph_multiply(g, d, y), 1, (int[]){1}, 0);
}

/* K - B^T (A^T A + C)^-1 B, as a Gaussian process' posterior covariance. */
static mf_node posterior(mf_graph *g, const chain_case *c)
{
    mf_node a = matrix(g, c, c->m, c->n), b = matrix(g, c, c->n, c->nrhs), k = matrix(g, c, c->nrhs, c->nrhs);
    mf_node l = mf_graph_cholesky(g, gram(g, c, a), 0), v = mf_graph_solve_triangular(g, l, b, 0);
    return mf_graph_subtract(g, k, mf_graph_matmul(g, transposed(g, v), v));
}

/* The right-hand sides are a product with one matrix for all, which is a product of 2-D arrays. */
static mf_node projected(mf_graph *g, const chain_case *c)
{
    mf_node a = matrix(g, c, c->m, c->n), b = matrix(g, c, c->n, c->m);
    mf_node w = mf_graph_input(g, c->dtype, 2, (int64_t[]){c->m, c->nrhs}), left = gram(g, c, a);
    return mf_graph_cho_solve(g, mf_graph_cholesky(g, left, 0), mf_graph_matmul(g, b, w), 0);
}

static double random_number(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (double)(*seed >> 8) / (1 << 23) - 1;
}

static void fill(mf_tensor *t, uint32_t *seed)
{
    int64_t count = mf_tensor_elements(t);
    bool shift = t->ndim == 2 && t->shape[0] == t->shape[1];
    t->data = mfi_alloc_aligned((size_t)count * mf_dtype_size(t->dtype));
    cr_assert(t->data);
    for (int64_t i = 0; i < count; i++) {
        double x = shift ? (i % (t->shape[1] + 1) == 0 ? 3 : 0) : random_number(seed);
        if (t->dtype == MF_F32)
            ((float *)t->data)[i] = (float)x;
        else
            ((double *)t->data)[i] = x;
    }
}

static double at(const mf_tensor *t, int64_t i)
{
    return t->dtype == MF_F32 ? ((const float *)t->data)[i] : ((const double *)t->data)[i];
}

/* By the reference, or with steps together wherever that is estimated to pay. */
static mf_plan *plan_on(mf_context *context, const mf_graph *g, bool reference)
{
    mf_plan_options o = MF_PLAN_OPTIONS_INIT;
    const mfi_choice choice = {.grouping = reference ? MFI_GROUP_BY_COST : MFI_GROUP_TOGETHER};
    mf_plan *plan;
    o.providers = reference ? "ref" : NULL;
    cr_assert_eq(mfi_plan_make_chosen(&plan, context, g, &o, &choice), MF_OK, "%s", mf_error_message(MF_E_INTERNAL));
    return plan;
}

static void emulate(const mf_plan *plan, const mf_tensor *t, const chain_case *c, int number)
{
    const mfi_problem *p = plan->schedule->step[0];
    mfi_together_shape s;
    mfi_source source;
    mfi_bid bid = {0};
    uint64_t words[MFI_TOGETHER_PLACES + 1];
    char call[200];
    cr_assert(mfi_together_choose(&s, p, plan->caps, &bid), "%s", bid.detail);
    cr_assert_eq(mfi_emit_together(&source, p, &s, plan->caps), MF_OK);
    for (int i = 0; i < s.places; i++)
        words[i] = (uint64_t)(uintptr_t)t[s.place[i].slot].data;
    words[s.places] = (uint64_t)s.batch;
    snprintf(call, sizeof call, "return mf::emulate::launch(%s, grid, block, %zu, a);", source.name, s.shared);
    emulated_launcher launch = emulated_compile(source.text, call, number);
    cr_assert(launch, "%s: does not compile:\n%s", c->name, source.text);
    const char *error = launch(words, (int)s.blocks, s.threads);
    cr_assert(!error, "%s: %s", c->name, error);
    mf_free(source.text);
}

static void check(mf_context *gpu, mf_context *cpu, const chain_case *c, int number)
{
    mf_graph *g;
    mf_tensor t[MAX_BINDINGS];
    uint32_t seed = 7u + (uint32_t)number;
    double worst = 0;
    cr_assert_eq(mf_graph_new(&g), MF_OK);
    cr_assert_eq(mf_graph_output(g, c->build(g, c)), MF_OK, "%s: %s", c->name, mf_error_message(MF_E_INVALID));
    mf_plan *one = plan_on(gpu, g, false), *apart = plan_on(cpu, g, true);
    cr_assert_eq(one->steps, 1, "%s: %d steps", c->name, one->steps);
    cr_assert_eq(one->step[0].problem->anchor, MFI_TOGETHER, "%s", c->name);
    cr_expect_eq(one->step[0].problem->u.together.parts, c->parts, "%s: %d parts", c->name,
                 one->step[0].problem->u.together.parts);
    for (int i = 0; i < one->bindings; i++) {
        t[i] = apart->binding[i];
        fill(&t[i], &seed);
    }
    mf_tensor *result = &t[one->inputs];
    int64_t count = mf_tensor_elements(result);
    cr_assert_eq(mf_plan_run(apart, t, apart->bindings, NULL), MF_OK);
    double *want = mfi_calloc((size_t)count, sizeof *want);
    for (int64_t i = 0; i < count; i++)
        want[i] = at(result, i);
    memset(result->data, 0xff, (size_t)count * mf_dtype_size(result->dtype)); /* NaN */
    emulate(one, t, c, number);
    for (int64_t i = 0; i < count; i++) {
        double error = fabs(at(result, i) - want[i]) / (1 + fabs(want[i]));
        worst = error <= worst ? worst : error;
    }
    cr_expect(worst <= c->most, "%s: %g is off", c->name, worst);
    for (int i = 0; i < one->bindings; i++)
        mfi_free_aligned(t[i].data);
    mf_free(want);
    mfi_plan_release(one);
    mfi_plan_release(apart);
    mf_graph_free(g);
}

Test(emulated_together, chains)
{
    static const chain_case cases[] = {
        {"ridge", ridge, MF_F32, 203, 24, 16, 1, 3, 1e-4},
        {"ridge, two sides", ridge, MF_F64, 37, 10, 7, 2, 3, 1e-11},
        {"ridge, large", ridge, MF_F32, 9, 60, 48, 1, 3, 1e-3},
        {"normal equations", normal_equations, MF_F32, 50, 12, 9, 3, 4, 1e-4},
        {"normal equations in f64", normal_equations, MF_F64, 20, 30, 20, 1, 4, 1e-11},
        {"Mahalanobis", mahalanobis, MF_F32, 131, 20, 8, 1, 4, 1e-4},
        {"projected", projected, MF_F32, 45, 10, 6, 3, 3, 1e-4},
        {"posterior", posterior, MF_F64, 33, 12, 6, 5, 4, 1e-11},
    };
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    mf_context *gpu, *cpu;
    void *code;
    size_t bytes;
    mf_status status = mf_compile(&code, &bytes, MF_CUBIN, "sm_90a", "probe", "");
    mf_free(code);
    if (status != MF_OK || !emulated_begin())
        cr_skip_test("there is no NVRTC, or no C++ compiler called c++");
    options.device = "sm_90a";
    cr_assert_eq(mf_context_new(&gpu, &options), MF_OK);
    options.device = "cpu";
    cr_assert_eq(mf_context_new(&cpu, &options), MF_OK);
    for (int i = 0; i < (int)MFI_COUNT(cases); i++)
        check(gpu, cpu, &cases[i], i);
    mf_context_free(gpu);
    mf_context_free(cpu);
    emulated_end();
}
