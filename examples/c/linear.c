/* gelu(x w + b) from C: describe it as a graph, plan it, run it, ask how it ran. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "mathfuse/mathfuse.h"

enum { ROWS = 64, IN = 32, OUT = 16 };

static mf_status fail(mf_status status)
{
    fprintf(stderr, "%s: %s\n", mf_status_name(status), mf_error_message(status));
    return status;
}

static void fill(float *x, int count, int seed)
{
    for (int i = 0; i < count; i++)
        x[i] = (float)((i * 7 + seed) % 11 - 5) / 8;
}

static double expected(const float *x, const float *w, float b, int column)
{
    double y = b;
    for (int k = 0; k < IN; k++)
        y += (double)x[k] * w[k * OUT + column];
    return 0.5 * y * (1 + tanh(0.7978845608028654 * (y + 0.044715 * y * y * y)));
}

static double worst_error(const float *x, const float *w, const float *b, const float *y)
{
    double worst = 0;
    for (int i = 0; i < ROWS * OUT; i++)
        worst = fmax(worst, fabs(y[i] - expected(x + i / OUT * IN, w, b[i % OUT], i % OUT)));
    return worst;
}

static mf_status plan_layer(mf_plan **plan, mf_context *context)
{
    mf_graph *g = NULL;
    mf_status status = mf_graph_new(&g);
    if (status)
        return status;
    mf_node x = mf_graph_input(g, MF_F32, 2, (int64_t[]){ROWS, IN});
    mf_node w = mf_graph_input(g, MF_F32, 2, (int64_t[]){IN, OUT});
    mf_node b = mf_graph_input(g, MF_F32, 1, (int64_t[]){OUT});
    mf_graph_output(g, mf_graph_gelu(g, mf_graph_add(g, mf_graph_matmul(g, x, w), b)));
    status = mf_plan_new(plan, context, g, NULL); /* reports an error of any call above */
    mf_graph_free(g);
    return status;
}

static mf_status run(mf_context *context)
{
    static float x[ROWS * IN], w[IN * OUT], b[OUT], y[ROWS * OUT];
    fill(x, ROWS * IN, 1);
    fill(w, IN * OUT, 2);
    fill(b, OUT, 3);

    mf_plan *plan = NULL;
    char *text = NULL;
    mf_status status = plan_layer(&plan, context);
    if (status)
        return status;
    mf_tensor tensors[4];
    mf_tensor_init(&tensors[0], x, MF_F32, 2, (int64_t[]){ROWS, IN});
    mf_tensor_init(&tensors[1], w, MF_F32, 2, (int64_t[]){IN, OUT});
    mf_tensor_init(&tensors[2], b, MF_F32, 1, (int64_t[]){OUT});
    mf_tensor_init(&tensors[3], y, MF_F32, 2, (int64_t[]){ROWS, OUT});
    status = mf_plan_run(plan, tensors, 4, NULL);
    if (!status)
        status = mf_plan_explain(&text, plan, 0);
    mf_plan_free(plan);
    if (status)
        return status;
    double error = worst_error(x, w, b, y);
    printf("%s\nlargest error against double: %.2e\n", text, error);
    mf_free(text);
    return error < 1e-5 ? MF_OK : MF_E_NUMERIC;
}

int main(void)
{
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    options.device = "cpu";
    mf_context *context = NULL;
    mf_status status = mf_context_new(&context, &options);
    if (!status)
        status = run(context);
    mf_context_free(context);
    return status ? (fail(status), EXIT_FAILURE) : EXIT_SUCCESS;
}
