/* Random arrays for problems, and how far a result is from what it should be. */
#include "bench_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double uniform(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15U; /* splitmix64 */
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return ((double)((z ^ (z >> 31)) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(uniform(state)));
    return radius * cos(6.283185307179586 * uniform(state));
}

static int is_complex(mf_dtype dtype)
{
    return mf_dtype_to_real(dtype) != dtype;
}

/* Of each matrix its Hermitian part, with 2 sqrt(n) added to the diagonal. */
static void make_definite(double *x, int64_t matrices, int64_t n, int parts)
{
    for (int64_t m = 0; m < matrices; m++, x += n * n * parts)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) {
                double *a = x + (i * n + j) * parts, *b = x + (j * n + i) * parts;
                a[0] = b[0] = (a[0] + b[0]) / 2 + (i == j ? 2 * sqrt((double)n) : 0);
                if (parts == 2) {
                    a[1] = (a[1] - b[1]) / 2;
                    b[1] = -a[1];
                }
            }
}

static void shape_values(double *x, const bench_array *array, int64_t count, int parts)
{
    int64_t last = array->ndim ? array->shape[array->ndim - 1] : 1;
    if (array->role == WEIGHT)
        for (int64_t i = 0; i < count * parts; i++)
            x[i] /= sqrt((double)array->shape[array->ndim - 2]);
    if (array->role == DEFINITE)
        make_definite(x, last ? count / (last * last) : 0, last, parts);
    if (array->role == REAL_ENDS && parts == 2 && count)
        x[1] = x[2 * count - 1] = 0;
}

mf_status data_tensor(mf_tensor *out, const bench_array *array, void *data)
{
    return mf_tensor_init(out, data, array->dtype, array->ndim, array->shape);
}

/* Round between dtypes, by a plan of one cast. */
static mf_status cast(mf_context *cpu, const bench_array *from, const void *source, mf_dtype dtype, void *target)
{
    mf_graph *g = NULL;
    mf_plan *plan = NULL;
    mf_plan_options options = MF_PLAN_OPTIONS_INIT;
    options.tune = MF_TUNE_OFF;
    mf_status status = mf_graph_new(&g);
    if (status)
        return status;
    mf_graph_output(g, mf_graph_cast(g, mf_graph_input(g, from->dtype, from->ndim, from->shape), dtype, 0));
    status = mf_plan_new(&plan, cpu, g, &options);
    mf_tensor tensors[2];
    bench_array to = *from;
    to.dtype = dtype;
    if (!status)
        status = data_tensor(&tensors[0], from, (void *)source);
    if (!status)
        status = data_tensor(&tensors[1], &to, target);
    if (!status)
        status = mf_plan_run(plan, tensors, 2, NULL);
    mf_plan_free(plan);
    mf_graph_free(g);
    return status;
}

mf_status data_fill(mf_context *cpu, const bench_array *array, void *host, uint64_t seed)
{
    int parts = is_complex(array->dtype) ? 2 : 1;
    int64_t count = array_elements(array);
    bench_array wide = *array;
    wide.dtype = parts == 2 ? MF_C128 : MF_F64;
    double *x = calloc((size_t)(count * parts) + 1, sizeof(double));
    if (!x)
        return MF_E_MEMORY;
    for (int64_t i = 0; i < count * parts; i++)
        x[i] = normal(&seed);
    shape_values(x, array, count, parts);
    mf_status status = cast(cpu, &wide, x, array->dtype, host);
    free(x);
    return status;
}

static double largest_error(const double *got, const double *want, int64_t count, int parts)
{
    double worst = 0, scale = 0;
    for (int64_t i = 0; i < count * parts; i += parts) {
        int nan = 0, other = 0;
        double difference = 0, size = 0;
        for (int p = 0; p < parts; p++) {
            nan |= isnan(want[i + p]);
            other |= isnan(got[i + p]);
            difference = hypot(difference, got[i + p] - want[i + p]);
            size = hypot(size, want[i + p]);
        }
        if (nan != other)
            return INFINITY;
        if (!nan) {
            worst = fmax(worst, difference);
            scale = fmax(scale, size);
        }
    }
    return scale > 0 ? worst / scale : worst;
}

mf_status data_error(double *out, mf_context *cpu, const bench_array *array, const void *got, const void *want)
{
    int parts = is_complex(array->dtype) ? 2 : 1;
    int64_t count = array_elements(array);
    mf_dtype wide = parts == 2 ? MF_C128 : MF_F64;
    double *values[2] = {0};
    mf_status status = MF_OK;
    for (int i = 0; i < 2 && !status; i++) {
        values[i] = malloc((size_t)(count * parts) * sizeof(double) + 1);
        status = values[i] ? cast(cpu, array, i ? want : got, wide, values[i]) : MF_E_MEMORY;
    }
    if (!status)
        *out = largest_error(values[0], values[1], count, parts);
    free(values[0]);
    free(values[1]);
    return status;
}

double data_allowed(const bench_problem *problem)
{
    static const struct {
        mf_dtype dtype;
        double digits;
    } table[] = {{MF_F64, 1e-11}, {MF_C128, 1e-11}, {MF_F32, 2e-4},  {MF_C64, 2e-4},
                 {MF_F16, 1e-2},  {MF_BF16, 3e-2},  {MF_E4M3, 0.13}, {MF_E5M2, 0.25}};
    double most = 0;
    for (int i = 0; i < problem->count; i++)
        for (size_t t = 0; t < sizeof table / sizeof *table; t++)
            if (table[t].dtype == problem->arrays[i].dtype)
                most = fmax(most, table[t].digits);
    return most * (problem->solver ? 10 : 1);
}
