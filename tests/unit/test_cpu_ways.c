/* Short ways of the CPU, compared with what they shorten: truth values by bits, a matrix by its own transpose, small LU factors and
 * inverses side by side, tall columns. In C, so that sanitizers see them. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mathfuse/mathfuse.h"

static mf_context *context;

static void open_context(void)
{
    cr_assert_eq(mf_context_new(&context, &(mf_context_options){sizeof(mf_context_options), "cpu", 0}), MF_OK);
}

static void close_context(void)
{
    mf_context_free(context);
}

TestSuite(cpu_ways, .init = open_context, .fini = close_context);

static double draw(void)
{
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / (1 << 23) - 1;
}

/* Output `x` of the graph for the inputs in `data`, by these providers; the graph is freed. */
static void *result(mf_graph *g, mf_node x, const mf_tensor *in, int inputs, const char *providers)
{
    mf_plan *plan;
    mf_plan_options options = MF_PLAN_OPTIONS_INIT;
    mf_tensor t[4];
    mf_dtype type;
    int ndim;
    int64_t shape[MF_MAX_DIMS];
    options.providers = providers;
    mf_graph_output(g, x);
    cr_assert_eq(mf_graph_describe(g, x, &type, &ndim, shape), MF_OK);
    cr_assert_eq(mf_plan_new(&plan, context, g, &options), MF_OK, "%s", mf_error_message(MF_E_INVALID));
    memcpy(t, in, sizeof *in * (size_t)inputs);
    mf_tensor_init(&t[inputs], NULL, type, ndim, shape);
    t[inputs].data = malloc((size_t)mf_tensor_elements(&t[inputs]) * mf_dtype_size(type));
    cr_assert(t[inputs].data);
    cr_assert_eq(mf_plan_run(plan, t, inputs + 1, NULL), MF_OK);
    mf_plan_free(plan);
    mf_graph_free(g);
    return t[inputs].data;
}

static mf_graph *new_graph(void)
{
    mf_graph *g;
    cr_assert_eq(mf_graph_new(&g), MF_OK);
    return g;
}

Test(cpu_ways, truth_values)
{
    const int64_t sizes[][3] = {{1, 1, 1}, {5, 63, 64}, {9, 513, 65}, {70, 600, 513}};
    for (int c = 0; c < 4; c++) {
        const int64_t m = sizes[c][0], k = sizes[c][1], n = sizes[c][2];
        uint8_t *a = malloc((size_t)(m * k)), *b = malloc((size_t)(k * n));
        for (int64_t i = 0; i < m * k; i++)
            a[i] = draw() > 0.9;
        for (int64_t i = 0; i < k * n; i++)
            b[i] = draw() > 0.9;
        mf_tensor t[2];
        mf_tensor_init(&t[0], a, MF_BOOL, 2, (int64_t[]){m, k});
        mf_tensor_init(&t[1], b, MF_BOOL, 2, (int64_t[]){k, n});
        mf_graph *g = new_graph();
        mf_node x = mf_graph_input(g, MF_BOOL, 2, t[0].shape), y = mf_graph_input(g, MF_BOOL, 2, t[1].shape);
        uint8_t *got = result(g, mf_graph_matmul(g, x, y), t, 2, NULL);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                uint8_t want = 0;
                for (int64_t l = 0; l < k; l++)
                    want |= a[i * k + l] & b[l * n + j];
                cr_assert_eq(got[i * n + j], want, "(%d, %d) of case %d", (int)i, (int)j, c);
            }
        free(got);
        free(a);
        free(b);
    }
}

/* What `build` makes of one f64 input, by all providers and by the reference alone. */
static void compare(mf_node (*build)(mf_graph *, mf_node), mf_dtype dtype, int ndim, const int64_t *shape, double limit)
{
    mf_tensor t;
    mf_tensor_init(&t, NULL, dtype, ndim, shape);
    int64_t reals = mf_tensor_elements(&t) * (dtype == MF_C128 ? 2 : 1);
    double *data = malloc((size_t)reals * sizeof *data), *results[2], most = 0, size = 1;
    t.data = data;
    for (int64_t i = 0; i < reals; i++)
        data[i] = draw();
    int64_t count = 0;
    for (int way = 0; way < 2; way++) {
        mf_graph *g = new_graph();
        mf_node x = build(g, mf_graph_input(g, dtype, ndim, shape));
        mf_dtype type;
        int dims;
        int64_t extents[MF_MAX_DIMS];
        mf_graph_describe(g, x, &type, &dims, extents);
        count = mf_dtype_size(type) / sizeof(double);
        for (int d = 0; d < dims; d++)
            count *= extents[d];
        results[way] = result(g, x, &t, 1, way ? "ref" : NULL);
    }
    for (int64_t i = 0; i < count; i++) {
        most = fmax(most, fabs(results[0][i] - results[1][i]));
        size = fmax(size, fabs(results[1][i]));
    }
    cr_expect(most <= limit * size, "off by %g of %g", most, size);
    free(results[0]);
    free(results[1]);
    free(data);
}

static mf_node gram(mf_graph *g, mf_node x)
{
    return mf_graph_matmul(g, mf_graph_transpose(g, x, (int[]){1, 0}), x);
}

static mf_node gram_and_more(mf_graph *g, mf_node x)
{
    return mf_graph_sin(g, gram(g, x));
}

static mf_node inverse(mf_graph *g, mf_node x)
{
    return mf_graph_inv(g, x);
}

static mf_node factors(mf_graph *g, mf_node x)
{
    return mf_graph_lu_factor(g, x);
}

static mf_node columns(mf_graph *g, mf_node x)
{
    return mf_graph_fft(g, MF_FFT, x, 1, (int[]){0}, NULL, MF_NORM_BACKWARD);
}

static mf_node middle(mf_graph *g, mf_node x)
{
    return mf_graph_reduce(g, MF_SUM, x, 1, (int[]){1}, 0);
}

Test(cpu_ways, agree_with_the_reference)
{
    for (int64_t n = 63; n <= 200; n += 17) {
        compare(gram, MF_F64, 2, (int64_t[]){90, n}, 1e-13);
        compare(gram_and_more, MF_F64, 2, (int64_t[]){90, n}, 1e-11);
    }
    for (int64_t n = 1; n <= 40; n += n < 14 ? 1 : 13) {
        compare(inverse, MF_F64, 3, (int64_t[]){11, n, n}, 1e-9);
        compare(factors, MF_F64, 3, (int64_t[]){11, n, n}, 1e-11);
    }
    compare(columns, MF_C128, 2, (int64_t[]){512, 37}, 1e-13);
    compare(columns, MF_C128, 2, (int64_t[]){1000, 16}, 1e-13);
    for (int64_t n = 1; n <= 70; n += n == 33 ? 31 : 4)
        compare(middle, MF_F64, 3, (int64_t[]){3, n, 130}, 1e-13);
}
