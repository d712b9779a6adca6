/* Decompositions from C: LAPACK and the reference agree on what does not depend on signs and order of vectors. */
#include <complex.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mathfuse/mathfuse.h"

enum { BATCH = 3, M = 7, N = 5, LARGEST = BATCH * M * M };

static mf_context *context;

static void open_context(void)
{
    cr_assert_eq(mf_context_new(&context, NULL), MF_OK);
}

static void close_context(void)
{
    mf_context_free(context);
}

TestSuite(factor, .init = open_context, .fini = close_context);

static double draw(void)
{
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / (1 << 23) - 1;
}

typedef mf_node builder(mf_graph *g, mf_node a);

static mf_node inverse(mf_graph *g, mf_node a)
{
    return mf_graph_inv(g, a);
}
static mf_node eigenvalues(mf_graph *g, mf_node a)
{
    return mf_graph_eigh(g, a, 0);
}
static mf_node singular_values(mf_graph *g, mf_node a)
{
    return mf_graph_svd(g, a, MF_FULL);
}
static mf_node projector(mf_graph *g, mf_node a) /* Q Q^T */
{
    mf_node q = mf_graph_qr(g, a, 0);
    return mf_graph_matmul(g, q, mf_graph_transpose(g, q, (int[]){0, 2, 1}));
}
static mf_node rebuilt(mf_graph *g, mf_node a) /* Q R */
{
    mf_node q = mf_graph_qr(g, a, MF_FULL);
    return mf_graph_matmul(g, q, mf_graph_result(g, q, 2));
}
static mf_node least_squares(mf_graph *g, mf_node a)
{
    return mf_graph_lstsq(g, a, a, 1e-12);
}
static mf_node factors(mf_graph *g, mf_node a)
{
    return mf_graph_lu_factor(g, a);
}
static mf_node solution(mf_graph *g, mf_node a)
{
    mf_node lu = mf_graph_lu_factor(g, a);
    return mf_graph_lu_solve(g, lu, mf_graph_result(g, lu, 2), a, MF_TRANS);
}

static void run(builder *build, mf_dtype dtype, int64_t rows, int64_t cols, const void *a, const char *providers,
                void *out)
{
    mf_graph *g;
    mf_plan *plan;
    mf_plan_options options = MF_PLAN_OPTIONS_INIT;
    mf_tensor t[2];
    int64_t shape[MF_MAX_DIMS];
    options.providers = providers;
    cr_assert_eq(mf_graph_new(&g), MF_OK);
    mf_node x = mf_graph_input(g, dtype, 3, (int64_t[]){BATCH, rows, cols}), y = build(g, x);
    mf_dtype type;
    int ndim;
    mf_graph_output(g, y);
    cr_assert_eq(mf_graph_describe(g, y, &type, &ndim, shape), MF_OK);
    mf_status status = mf_plan_new(&plan, context, g, &options);
    cr_assert_eq(status, MF_OK, "%s", mf_error_message(status));
    mf_tensor_init(&t[0], (void *)(uintptr_t)a, dtype, 3, (int64_t[]){BATCH, rows, cols});
    mf_tensor_init(&t[1], out, type, ndim, shape);
    status = mf_plan_run(plan, t, 2, NULL);
    cr_assert_eq(status, MF_OK, "%s", mf_error_message(status));
    mf_plan_free(plan);
    mf_graph_free(g);
}

static void compare(builder *build, int64_t rows, int64_t cols, int64_t results, const char *what)
{
    for (int kind = 0; kind < 2; kind++) {
        mf_dtype dtype = kind ? MF_C128 : MF_F64;
        double a[2 * LARGEST], lapack[2 * LARGEST] = {0}, ref[2 * LARGEST] = {0};
        for (int i = 0; i < 2 * LARGEST; i++)
            a[i] = draw();
        run(build, dtype, rows, cols, a, "lapack,blas,ref", lapack);
        run(build, dtype, rows, cols, a, "ref", ref);
        double most = 0, size = 0;
        for (int64_t i = 0; i < BATCH * results * (kind + 1); i++) {
            most = fmax(most, fabs(lapack[i] - ref[i]));
            size = fmax(size, fabs(ref[i]));
        }
        cr_expect(size > 0 && most <= 1e-11 * fmax(size, 1), "%s, %s: off by %g of %g", what, kind ? "c128" : "f64",
                  most, size);
    }
}

Test(factor, providers_agree)
{
    compare(inverse, N, N, (int64_t)N * N, "inv");
    compare(projector, M, N, (int64_t)M * M, "Q Q^T");
    compare(rebuilt, M, N, (int64_t)M * N, "Q R");
    compare(rebuilt, N, M, (int64_t)M * N, "Q R, wide");
    compare(least_squares, M, N, (int64_t)N * N, "lstsq");
    compare(factors, M, N, (int64_t)M * N, "lu_factor");
    compare(solution, N, N, (int64_t)N * N, "lu_solve");
}

Test(factor, values_agree)
{
    double a[LARGEST], lapack[LARGEST] = {0}, ref[LARGEST] = {0};
    builder *builders[] = {eigenvalues, singular_values};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < LARGEST; i++)
            a[i] = draw();
        run(builders[k], MF_F64, k ? M : N, N, a, "lapack,ref", lapack);
        run(builders[k], MF_F64, k ? M : N, N, a, "ref", ref);
        for (int i = 0; i < BATCH * N; i++)
            cr_expect_float_eq(lapack[i], ref[i], 1e-12, "value %d of kind %d", i, k);
    }
}

Test(factor, wrong_shapes_are_told)
{
    mf_graph *g;
    cr_assert_eq(mf_graph_new(&g), MF_OK);
    mf_node a = mf_graph_input(g, MF_F64, 2, (int64_t[]){3, 4});
    mf_graph_eigh(g, a, 0);
    cr_expect_eq(mf_graph_error(g), MF_E_SHAPE);
    cr_expect(strstr(mf_error_message(MF_E_SHAPE), "eigh"), "%s", mf_error_message(MF_E_SHAPE));
    mf_graph_free(g);
}
