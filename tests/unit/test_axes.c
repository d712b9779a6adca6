/* Transforms of several axes done axis by axis: the graph that this makes gives the same results. */
#include <criterion/criterion.h>
#include <math.h>

#include "schedule.h"

enum { NONE, LOWEST, TWO_SLICES, BACKWARDS };

typedef struct transform_case {
    mf_fft_kind kind;
    mf_fft_norm norm;
    int ndim, count;
    int64_t shape[4];
    int axes[3];
    int64_t n[3];
    int read; /* how the result is read */
} transform_case;

static mf_context *cpu;

static void setup(void)
{
    mf_context_options o = MF_CONTEXT_OPTIONS_INIT;
    o.device = "cpu";
    cr_assert_eq(mf_context_new(&cpu, &o), MF_OK);
}

static void teardown(void)
{
    mf_context_free(cpu);
}

TestSuite(axes, .init = setup, .fini = teardown);

static mf_node part_of(mf_graph *g, mf_node x, int axis, int64_t from, int64_t keep, int64_t step)
{
    int64_t start[MF_MAX_DIMS] = {0}, length[MF_MAX_DIMS], steps[MF_MAX_DIMS];
    const mfi_node *n = &g->node[x.id];
    for (int d = 0; d < n->ndim; d++) {
        length[d] = n->shape[d];
        steps[d] = 1;
    }
    start[axis] = from;
    length[axis] = keep;
    steps[axis] = step;
    return mf_graph_slice(g, x, start, length, steps);
}

static mf_graph *graph_of(const transform_case *c)
{
    mf_graph *g;
    cr_assert_eq(mf_graph_new(&g), MF_OK);
    mf_node x = mf_graph_input(g, c->kind == MF_RFFT ? MF_F64 : MF_C128, c->ndim, c->shape);
    mf_node y = mf_graph_fft(g, c->kind, x, c->count, c->axes, c->n, c->norm);
    const int first = c->axes[0], last = c->axes[c->count - 1];
    if (c->read == NONE) {
        mf_graph_output(g, y);
    } else if (c->read == LOWEST) {
        mf_graph_output(g, mf_graph_absolute(g, part_of(g, part_of(g, y, last, 0, 3, 1), first, 0, 2, 1)));
    } else if (c->read == TWO_SLICES) {
        mf_graph_output(g, mf_graph_square(g, part_of(g, y, last, 1, 2, 1)));
        mf_graph_output(g, mf_graph_square(g, part_of(g, y, last, 0, 3, 2)));
    } else {
        mf_graph_output(g, mf_graph_square(g, part_of(g, y, last, 3, 4, -1)));
    }
    cr_assert_eq(mf_graph_error(g), MF_OK, "%s", mf_error_message(mf_graph_error(g)));
    return g;
}

static size_t bytes_of(const mfi_node *n)
{
    size_t bytes = mf_dtype_size(n->dtype);
    for (int d = 0; d < n->ndim; d++)
        bytes *= (size_t)n->shape[d];
    return bytes;
}

/* All outputs, one after the other. */
static double *results(const mf_graph *g, double *input, size_t *count)
{
    mf_plan *plan;
    mf_tensor t[4];
    size_t bytes = 0;
    for (int o = 0; o < g->outputs; o++)
        bytes += bytes_of(&g->node[g->output[o]]);
    char *data = malloc(bytes), *at = data;
    mf_tensor_init(&t[0], input, g->node[0].dtype, g->node[0].ndim, g->node[0].shape);
    for (int o = 0; o < g->outputs; o++) {
        const mfi_node *n = &g->node[g->output[o]];
        mf_tensor_init(&t[o + 1], at, n->dtype, n->ndim, n->shape);
        at += bytes_of(n);
    }
    mf_status status = mf_plan_new(&plan, cpu, (mf_graph *)(uintptr_t)g, NULL);
    cr_assert_eq(status, MF_OK, "%s", mf_error_message(status));
    cr_assert_eq(mf_plan_run(plan, t, g->outputs + 1, NULL), MF_OK);
    mf_plan_free(plan);
    *count = bytes / sizeof(double);
    return (double *)(void *)data;
}

static int64_t transformed(const mf_graph *g, int *nodes)
{
    int64_t points = 0;
    for (int i = *nodes = 0; i < g->count; i++)
        if (g->node[i].kind == MFI_N_FFT) {
            cr_expect(*nodes == 0 || g->node[i].u.fft.count == 1);
            ++*nodes;
            points += (int64_t)bytes_of(&g->node[i]);
        }
    return points;
}

static void check(const transform_case *c)
{
    mf_graph *whole = graph_of(c), *apart;
    mf_tensor bound[4];
    int nodes;
    mf_tensor_init(&bound[0], NULL, whole->node[0].dtype, c->ndim, c->shape);
    for (int o = 0; o < whole->outputs; o++) {
        const mfi_node *n = &whole->node[whole->output[o]];
        mf_tensor_init(&bound[o + 1], NULL, n->dtype, n->ndim, n->shape);
    }
    cr_assert_eq(mfi_normalise(&apart, whole, bound, MFI_AXES_APART), MF_OK);
    cr_expect(mfi_has_axes(whole) && !mfi_has_axes(apart));
    int64_t points = transformed(apart, &nodes);
    cr_expect_eq(nodes, c->count);
    if (c->read == LOWEST) { /* terms that nobody reads are not computed along the axes that follow */
        transform_case all = *c;
        all.read = NONE;
        mf_graph *full = graph_of(&all), *all_apart;
        mf_tensor_init(&bound[1], NULL, full->node[full->output[0]].dtype, c->ndim, full->node[full->output[0]].shape);
        cr_assert_eq(mfi_normalise(&all_apart, full, bound, MFI_AXES_APART), MF_OK);
        cr_expect_lt(points, transformed(all_apart, &nodes));
        mf_graph_free(full);
        mf_graph_free(all_apart);
    }
    size_t inputs = bytes_of(&whole->node[0]) / sizeof(double), count, again;
    double *input = malloc(inputs * sizeof *input);
    for (size_t i = 0; i < inputs; i++)
        input[i] = sin(0.7 * (double)(i * i % 1009));
    double *want = results(whole, input, &count), *got = results(apart, input, &again), most = 0, far = 0;
    cr_assert_eq(count, again);
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs(want[i]));
        far = fmax(far, fabs(want[i] - got[i]));
    }
    cr_expect_leq(far, 1e-13 * most, "kind %d, %d axes, read %d: off by %g of %g", (int)c->kind, c->count, c->read, far,
                  most);
    free(input);
    free(want);
    free(got);
    mf_graph_free(whole);
    mf_graph_free(apart);
}

Test(axes, apart_give_the_same)
{
    static const transform_case cases[] = {
        {MF_FFT, MF_NORM_BACKWARD, 3, 2, {2, 6, 8}, {1, 2}, {6, 8}, NONE},
        {MF_FFT, MF_NORM_ORTHO, 4, 3, {2, 4, 5, 6}, {3, 1, 2}, {6, 7, 4}, LOWEST},
        {MF_IFFT, MF_NORM_BACKWARD, 3, 2, {3, 6, 8}, {2, 0}, {8, 5}, LOWEST},
        {MF_IFFT, MF_NORM_FORWARD, 2, 2, {6, 8}, {0, 1}, {6, 8}, TWO_SLICES},
        {MF_RFFT, MF_NORM_BACKWARD, 3, 2, {2, 12, 16}, {1, 2}, {12, 16}, LOWEST},
        {MF_RFFT, MF_NORM_ORTHO, 3, 3, {4, 6, 9}, {0, 1, 2}, {4, 6, 9}, TWO_SLICES},
        {MF_RFFT, MF_NORM_BACKWARD, 3, 2, {5, 4, 16}, {2, 0}, {10, 9}, BACKWARDS},
        {MF_IRFFT, MF_NORM_BACKWARD, 3, 2, {2, 4, 5}, {1, 2}, {12, 16}, NONE},
        {MF_IRFFT, MF_NORM_FORWARD, 4, 3, {2, 3, 4, 5}, {1, 2, 3}, {3, 6, 8}, LOWEST},
    };
    for (size_t i = 0; i < MFI_COUNT(cases); i++)
        check(&cases[i]);
}

Test(axes, are_left_together_otherwise)
{
    const transform_case c = {MF_FFT, MF_NORM_BACKWARD, 3, 2, {2, 6, 8}, {1, 2}, {6, 8}, NONE};
    mf_graph *whole = graph_of(&c), *clean;
    mf_tensor bound[2];
    for (int i = 0; i < 2; i++)
        mf_tensor_init(&bound[i], NULL, MF_C128, 3, c.shape);
    cr_assert_eq(mfi_normalise(&clean, whole, bound, 0), MF_OK);
    cr_expect(mfi_has_axes(clean));
    mf_graph_free(whole);
    mf_graph_free(clean);
}
