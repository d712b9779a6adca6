/* Vectors of decompositions are compared but for their signs or phases, which those of one decomposition have in common. */
#include <criterion/criterion.h>
#include <math.h>

#include "nodes.h"
#include "tune_data.h"

typedef struct fixture {
    mf_graph *graph;
    double u[6], v[4], got_u[6], got_v[4];
    mf_tensor want_u, want_v;
} fixture;

static mf_tensor matrix(double *data, int64_t rows, int64_t cols, mf_dtype dtype)
{
    return (mf_tensor){.data = data, .dtype = dtype, .ndim = 2, .shape = {rows, cols}, .strides = {cols, 1}};
}

/* U (3, 2) and Vh (2, 2) of an SVD as outputs 0 and 1; what was got is what is wanted. */
static void begin(fixture *f)
{
    cr_assert_eq(mf_graph_new(&f->graph), MF_OK);
    mf_node a = mf_graph_input(f->graph, MF_F64, 2, (int64_t[]){3, 2});
    mf_node svd = mf_graph_svd(f->graph, a, 0);
    mf_graph_output(f->graph, mf_graph_result(f->graph, svd, 2));
    mf_graph_output(f->graph, mf_graph_result(f->graph, svd, 3));
    for (int i = 0; i < 6; i++)
        f->got_u[i] = f->u[i] = 0.25 * i - 0.6;
    for (int i = 0; i < 4; i++)
        f->got_v[i] = f->v[i] = 1.5 - 0.7 * i;
    f->want_u = matrix(f->u, 3, 2, MF_F64);
    f->want_v = matrix(f->v, 2, 2, MF_F64);
}

static double turned(fixture *f)
{
    mfi_tune_turns turns = {.factor = -1};
    double worst = 0;
    cr_assert_eq(mfi_tune_turn(&turns, f->graph, 0, &f->want_u, (char *)f->got_u), MF_OK);
    cr_assert_eq(mfi_tune_turn(&turns, f->graph, 1, &f->want_v, (char *)f->got_v), MF_OK);
    mfi_tune_turns_free(&turns);
    mf_graph_free(f->graph);
    for (int i = 0; i < 6; i++)
        worst = fmax(worst, fabs(f->u[i] - f->got_u[i]));
    for (int i = 0; i < 4; i++)
        worst = fmax(worst, fabs(f->v[i] - f->got_v[i]));
    return worst;
}

Test(tune_phase, signs_that_belong_together_do_not_count)
{
    fixture f;
    begin(&f);
    for (int i = 0; i < 3; i++)
        f.got_u[2 * i + 1] = -f.got_u[2 * i + 1];
    f.got_v[2] = -f.got_v[2];
    f.got_v[3] = -f.got_v[3];
    cr_expect_lt(turned(&f), 1e-15);
}

Test(tune_phase, signs_that_do_not_fit_are_an_error)
{
    fixture f;
    begin(&f);
    for (int i = 0; i < 3; i++)
        f.got_u[2 * i] = -f.got_u[2 * i];
    cr_expect_gt(turned(&f), 1);
}

Test(tune_phase, another_vector_stays_wrong)
{
    fixture f;
    begin(&f);
    f.got_u[0] += 0.5;
    cr_expect_gt(turned(&f), 0.3);
}

Test(tune_phase, complex_vectors_turn_by_any_angle)
{
    mf_graph *g;
    mfi_tune_turns turns = {.factor = -1};
    double q[8], r[8], got_q[8], got_r[8];
    const double c[2] = {cos(0.3), cos(2.0)}, s[2] = {sin(0.3), sin(2.0)};
    cr_assert_eq(mf_graph_new(&g), MF_OK);
    mf_node qr = mf_graph_qr(g, mf_graph_input(g, MF_C128, 2, (int64_t[]){2, 2}), 0);
    mf_graph_output(g, mf_graph_result(g, qr, 2));
    mf_graph_output(g, qr);
    for (int i = 0; i < 8; i++) {
        q[i] = sin(i + 1.0);
        r[i] = cos(3.0 * i);
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            int at = 2 * (2 * i + j);
            got_q[at] = q[at] * c[j] - q[at + 1] * s[j]; /* column j by exp(i t), row j of R by exp(-i t) */
            got_q[at + 1] = q[at + 1] * c[j] + q[at] * s[j];
            got_r[at] = r[at] * c[i] + r[at + 1] * s[i];
            got_r[at + 1] = r[at + 1] * c[i] - r[at] * s[i];
        }
    mf_tensor want_r = matrix(r, 2, 2, MF_C128), want_q = matrix(q, 2, 2, MF_C128);
    cr_assert_eq(mfi_tune_turn(&turns, g, 0, &want_r, (char *)got_r), MF_OK);
    cr_assert_eq(mfi_tune_turn(&turns, g, 1, &want_q, (char *)got_q), MF_OK);
    for (int i = 0; i < 8; i++) {
        cr_expect_float_eq(got_q[i], q[i], 1e-14, "Q[%d]: %g, not %g", i, got_q[i], q[i]);
        cr_expect_float_eq(got_r[i], r[i], 1e-14, "R[%d]: %g, not %g", i, got_r[i], r[i]);
    }
    mfi_tune_turns_free(&turns);
    mf_graph_free(g);
}
