/* Graph building: NumPy's shapes and dtypes, and what bad input is told. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "nodes.h"
#include "schedule.h"

static mf_graph *g;

static void setup(void)
{
    cr_assert_eq(mf_graph_new(&g), MF_OK);
}

static void teardown(void)
{
    mf_graph_free(g);
}

TestSuite(graph, .init = setup, .fini = teardown);

static mf_node input(mf_dtype dtype, int ndim, int64_t a, int64_t b, int64_t c)
{
    return mf_graph_input(g, dtype, ndim, (int64_t[]){a, b, c});
}

static void expect(mf_node x, mf_dtype dtype, int ndim, int64_t a, int64_t b, int64_t c)
{
    const int64_t want[] = {a, b, c};
    int64_t shape[MF_MAX_DIMS];
    mf_dtype have;
    int n;
    cr_assert_eq(mf_graph_describe(g, x, &have, &n, shape), MF_OK, "%s", mf_error_message(g->error));
    cr_expect_eq(have, dtype, "%s, wanted %s", mf_dtype_name(have), mf_dtype_name(dtype));
    cr_expect_eq(n, ndim);
    for (int d = 0; d < ndim; d++)
        cr_expect_eq(shape[d], want[d], "axis %d: %lld, wanted %lld", d, (long long)shape[d], (long long)want[d]);
}

static void expect_error(mf_status status, const char *part)
{
    cr_expect_eq(mf_graph_error(g), status, "%s", mf_status_name(mf_graph_error(g)));
    cr_expect(strstr(mf_error_message(status), part), "\"%s\" lacks \"%s\"", mf_error_message(status), part);
}

Test(graph, broadcasts_and_promotes)
{
    mf_node a = input(MF_F32, 2, 4, 1, 0), b = input(MF_BF16, 3, 2, 1, 5);
    expect(mf_graph_add(g, a, b), MF_F32, 3, 2, 4, 5);
    expect(mf_graph_less(g, a, b), MF_BOOL, 3, 2, 4, 5);
    mf_node h = input(MF_F16, 1, 5, 0, 0);
    expect(mf_graph_multiply(g, h, b), MF_F32, 3, 2, 1, 5);
    expect(mf_graph_multiply(g, h, mf_graph_number(g, MF_WEAK_FLOAT, 2.5, 0)), MF_F16, 1, 5, 0, 0);
    expect(mf_graph_multiply(g, h, mf_graph_number(g, MF_WEAK_COMPLEX, 0, 1)), MF_C64, 1, 5, 0, 0);
    mf_node i = input(MF_I32, 1, 5, 0, 0);
    expect(mf_graph_multiply(g, i, mf_graph_number(g, MF_WEAK_INT, 3, 0)), MF_I32, 1, 5, 0, 0);
    expect(mf_graph_multiply(g, i, mf_graph_number(g, MF_WEAK_FLOAT, 3, 0)), MF_F64, 1, 5, 0, 0);
    expect(mf_graph_exp(g, i), MF_F64, 1, 5, 0, 0);
    expect(mf_graph_add(g, i, a), MF_F64, 2, 4, 5, 0);
    mf_node c = input(MF_C64, 1, 5, 0, 0);
    expect(mf_graph_absolute(g, c), MF_F32, 1, 5, 0, 0);
    expect(mf_graph_where(g, input(MF_BOOL, 1, 5, 0, 0), h, mf_graph_number(g, MF_WEAK_INT, 0, 0)), MF_F16, 1, 5, 0, 0);
    mf_node q = input(MF_E4M3, 1, 5, 0, 0), byte = input(MF_I8, 1, 5, 0, 0);
    expect(mf_graph_add(g, q, q), MF_F32, 1, 5, 0, 0);
    expect(mf_graph_add(g, byte, mf_graph_number(g, MF_WEAK_INT, 1, 0)), MF_I32, 1, 5, 0, 0);
    expect(mf_graph_negative(g, byte), MF_I32, 1, 5, 0, 0);
}

/* NumPy's table for the dtypes that both have. */
Test(graph, promotion_is_symmetric_and_idempotent)
{
    for (int a = 0; a < MF_DTYPE_COUNT; a++)
        for (int b = 0; b < MF_DTYPE_COUNT; b++) {
            mf_dtype p = mf_dtype_promote((mf_dtype)a, (mf_dtype)b);
            cr_expect_eq(p, mf_dtype_promote((mf_dtype)b, (mf_dtype)a));
            if (mfi_dtype_kind(p) != MFI_KIND_S)
                cr_expect_eq(mf_dtype_promote(p, (mf_dtype)a), p, "%s with %s", mf_dtype_name(p),
                             mf_dtype_name((mf_dtype)a));
        }
    cr_expect_eq(mf_dtype_promote(MF_I32, MF_F16), MF_F64);
    cr_expect_eq(mf_dtype_promote(MF_I64, MF_C64), MF_C128);
    cr_expect_eq(mf_dtype_promote(MF_BOOL, MF_BF16), MF_BF16);
    cr_expect_eq(mf_dtype_promote(MF_F16, MF_BF16), MF_F32);
    cr_expect_eq(mf_dtype_promote(MF_E5M2, MF_F16), MF_F16);
    cr_expect_eq(mf_dtype_promote(MF_I8, MF_BOOL), MF_I32);
    cr_expect_eq(mf_dtype_promote(MF_I8, MF_F32), MF_F64);
}

Test(graph, reduces)
{
    mf_node x = input(MF_I32, 3, 2, 3, 4);
    expect(mf_graph_reduce(g, MF_SUM, x, 1, (int[]){-1}, 0), MF_I64, 2, 2, 3, 0);
    expect(mf_graph_reduce(g, MF_SUM, x, 0, NULL, 0), MF_I64, 0, 0, 0, 0);
    expect(mf_graph_reduce(g, MF_MEAN, x, 2, (int[]){0, 2}, 1), MF_F64, 3, 1, 3, 1);
    expect(mf_graph_reduce(g, MF_ANY, x, 1, (int[]){0}, 0), MF_BOOL, 2, 3, 4, 0);
    mf_graph_reduce(g, MF_SUM, x, 2, (int[]){1, 1}, 0);
    expect_error(MF_E_INVALID, "named twice");
}

Test(graph, multiplies_matrices_as_numpy)
{
    mf_node a = input(MF_F32, 3, 7, 2, 3), v = input(MF_F32, 1, 3, 0, 0), b = input(MF_F32, 2, 3, 5, 0);
    expect(mf_graph_matmul(g, a, b), MF_F32, 3, 7, 2, 5);
    expect(mf_graph_matmul(g, a, v), MF_F32, 2, 7, 2, 0);
    expect(mf_graph_matmul(g, v, b), MF_F32, 1, 5, 0, 0);
    expect(mf_graph_matmul(g, v, v), MF_F32, 0, 0, 0, 0);
    expect(mf_graph_matmul(g, a, input(MF_F64, 2, 3, 0, 0)), MF_F64, 3, 7, 2, 0);
    mf_graph_matmul(g, b, b);
    expect_error(MF_E_SHAPE, "(3, 5)");
}

Test(graph, transforms_as_numpy)
{
    mf_node x = input(MF_F32, 2, 6, 10, 0);
    expect(mf_graph_fft(g, MF_RFFT, x, 1, (int[]){-1}, NULL, MF_NORM_BACKWARD), MF_C64, 2, 6, 6, 0);
    expect(mf_graph_fft(g, MF_IRFFT, x, 2, (int[]){0, 1}, (int64_t[]){4, 7}, MF_NORM_ORTHO), MF_F32, 2, 4, 7, 0);
    expect(mf_graph_fft(g, MF_IRFFT, x, 1, (int[]){0}, NULL, MF_NORM_BACKWARD), MF_F32, 2, 10, 10, 0);
    expect(mf_graph_fft(g, MF_FFT, input(MF_I32, 1, 8, 0, 0), 1, (int[]){0}, NULL, MF_NORM_BACKWARD), MF_C128, 1, 8, 0,
           0);
    mf_graph_fft(g, MF_FFT, x, 1, (int[]){1}, (int64_t[]){0}, MF_NORM_BACKWARD);
    expect_error(MF_E_INVALID, "length 0");
}

Test(graph, refuses_complex_input_to_rfft)
{
    mf_graph_fft(g, MF_RFFT, input(MF_C64, 1, 8, 0, 0), 1, (int[]){0}, NULL, MF_NORM_BACKWARD);
    expect_error(MF_E_TYPE, "real input");
}

Test(graph, solvers_have_numpy_shapes)
{
    mf_node a = input(MF_F16, 3, 4, 3, 3), b = input(MF_F32, 2, 3, 2, 0), v = input(MF_F32, 1, 3, 0, 0);
    mf_node x = mf_graph_solve(g, a, b);
    expect(x, MF_F32, 3, 4, 3, 2);
    expect(mf_graph_result(g, x, 1), MF_I32, 1, 4, 0, 0);
    expect(mf_graph_solve(g, a, v), MF_F32, 2, 4, 3, 0);
    mf_node l = mf_graph_cholesky(g, input(MF_I32, 2, 3, 3, 0), 0);
    expect(l, MF_F64, 2, 3, 3, 0);
    expect(mf_graph_result(g, l, 1), MF_I32, 0, 0, 0, 0);
    mf_graph_cholesky(g, b, 0);
    expect_error(MF_E_SHAPE, "last two axes must be equal");
}

Test(graph, views)
{
    mf_node x = input(MF_F32, 3, 2, 3, 4);
    expect(mf_graph_transpose(g, x, (int[]){2, 0, 1}), MF_F32, 3, 4, 2, 3);
    expect(mf_graph_reshape(g, x, 2, (int64_t[]){-1, 4}), MF_F32, 2, 6, 4, 0);
    expect(mf_graph_slice(g, x, (int64_t[]){1, 2, 0}, (int64_t[]){1, 3, 2}, (int64_t[]){1, -1, 3}), MF_F32, 3, 1, 3, 2);
    mf_graph_slice(g, x, (int64_t[]){0, 0, 0}, (int64_t[]){2, 3, 3}, (int64_t[]){1, 1, 2});
    expect_error(MF_E_INVALID, "axis 2 has 4 elements");
}

Test(graph, names_operand_that_does_not_broadcast)
{
    mf_graph_add(g, input(MF_F32, 2, 4, 5, 0), input(MF_F32, 2, 4, 6, 0));
    expect_error(MF_E_SHAPE, "(4, 6)");
}

Test(graph, latches_the_first_error)
{
    mf_node x = input(MF_C64, 1, 4, 0, 0);
    mf_node bad = mf_graph_maximum(g, x, x);
    cr_expect_eq(bad.id, -1);
    mf_graph_matmul(g, bad, bad);
    expect_error(MF_E_TYPE, "maximum is not defined for c64");
}

Test(graph, refuses_foreign_nodes)
{
    mf_graph_add(g, (mf_node){5}, (mf_node){6});
    expect_error(MF_E_INVALID, "is not a node of this graph");
}

Test(graph, reshape_resolves_strides_or_asks_for_a_copy)
{
    mf_node x = input(MF_F32, 2, 6, 4, 0);
    mf_node t = mf_graph_transpose(g, x, (int[]){1, 0});
    mf_node flat = mf_graph_reshape(g, t, 1, (int64_t[]){24});
    mf_node split = mf_graph_reshape(g, t, 3, (int64_t[]){4, 2, 3});
    int64_t strides[MF_MAX_DIMS], offset;
    const int64_t base[] = {4, 1};
    cr_expect(!mfi_view_resolve(g, flat.id, base, &offset, strides));
    cr_assert(mfi_view_resolve(g, split.id, base, &offset, strides));
    cr_expect_eq(strides[0], 1);
    cr_expect_eq(strides[1], 12);
    cr_expect_eq(strides[2], 4);
}

static void refused(mf_node x, mf_status status, const char *part)
{
    cr_expect_eq(x.id, -1);
    expect_error(status, part);
    teardown();
    setup();
}

Test(graph, says_which_argument_is_null)
{
    refused(mf_graph_input(g, MF_F32, 2, NULL), MF_E_INVALID, "shape is NULL");
    refused(mf_graph_op(g, MF_OP_ADD, 2, NULL), MF_E_INVALID, "operands is NULL");
    refused(mf_graph_fft(g, MF_FFT, input(MF_C64, 1, 4, 0, 0), 1, NULL, NULL, MF_NORM_ORTHO), MF_E_INVALID,
            "axes is NULL");
    refused(mf_graph_transpose(g, input(MF_F32, 2, 4, 5, 0), NULL), MF_E_INVALID, "permutation is NULL");
    refused(mf_graph_reshape(g, input(MF_F32, 2, 4, 5, 0), 1, NULL), MF_E_INVALID, "shape is NULL");
    refused(mf_graph_broadcast(g, input(MF_F32, 2, 4, 5, 0), 3, NULL), MF_E_INVALID, "shape is NULL");
    refused(mf_graph_slice(g, input(MF_F32, 1, 4, 0, 0), (int64_t[]){0}, NULL, NULL), MF_E_INVALID, "length is NULL");
    refused(mf_graph_reduce(g, MF_SUM, input(MF_F32, 1, 4, 0, 0), 1, NULL, 0), MF_E_INVALID, "axes is NULL");
    cr_expect_eq(mf_graph_new(NULL), MF_E_INVALID);
    cr_expect_eq(mf_context_new(NULL, NULL), MF_E_INVALID);
    cr_expect_eq(mf_plan_new(NULL, NULL, g, NULL), MF_E_INVALID);
    cr_expect_eq(mf_tensor_init(NULL, NULL, MF_F32, 0, NULL), MF_E_INVALID);
    mf_node none = mf_graph_input(NULL, MF_F32, 0, NULL);
    cr_expect_eq(mf_graph_add(NULL, none, none).id, -1);
    cr_expect_eq(mf_graph_output(NULL, none), MF_E_INVALID);
}

Test(graph, refuses_numbers_that_name_nothing)
{
    mf_node x = input(MF_C64, 1, 4, 0, 0);
    refused(mf_graph_fft(g, (mf_fft_kind)7, x, 1, (int[]){0}, NULL, MF_NORM_ORTHO), MF_E_INVALID, "kind 7");
    x = input(MF_C64, 1, 4, 0, 0);
    refused(mf_graph_fft(g, MF_FFT, x, 1, (int[]){0}, NULL, (mf_fft_norm)3), MF_E_INVALID, "norm 3");
    x = input(MF_F32, 1, 4, 0, 0);
    refused(mf_graph_reduce(g, MF_SUM, x, -1, (int[]){0}, 0), MF_E_INVALID, "-1 axes");
    x = input(MF_F32, 1, 4, 0, 0);
    int64_t start = 0, length = 3, step = INT64_MAX;
    refused(mf_graph_slice(g, x, &start, &length, &step), MF_E_INVALID, "reaches outside");
}
