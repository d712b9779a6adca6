/* A problem from a line of text, as a graph. */
#include "bench_problem.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZES = 6 };

typedef struct reader {
    bench_problem *p;
    const char *at;
    mf_dtype dtype;
    int batches, sizes;
    int64_t batch[MAX_SIZES], size[MAX_SIZES];
} reader;

static int fail(reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int fail(reader *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(r->p->message, sizeof r->p->message, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < sizeof r->p->message)
        snprintf(r->p->message + length, sizeof r->p->message - (size_t)length, "\n  %s\n  %*s^", r->p->text,
                 (int)(r->at - r->p->text), "");
    return 1;
}

static int word(reader *r, char *out, size_t room)
{
    size_t length = 0;
    while (isalnum((unsigned char)r->at[length]) || r->at[length] == '_')
        length++;
    if (length == 0 || length >= room)
        return fail(r, "a word is expected here");
    memcpy(out, r->at, length);
    out[length] = 0;
    r->at += length;
    return 0;
}

static int take(reader *r, char c)
{
    if (*r->at != c)
        return fail(r, "'%c' is expected here", c);
    r->at++;
    return 0;
}

/* a*b* in front: batch dimensions; cxd behind. */
static int sizes(reader *r)
{
    for (;;) {
        char *end;
        long long n = strtoll(r->at, &end, 10);
        if (end == r->at || n < 0)
            return fail(r, "a number is expected here");
        if (r->batches + r->sizes == MAX_SIZES)
            return fail(r, "there are at most %d sizes", MAX_SIZES);
        if (*end == '*' && r->sizes)
            return fail(r, "batches, with *, come in front of sizes, with x");
        if (*end == '*')
            r->batch[r->batches++] = n;
        else
            r->size[r->sizes++] = n;
        r->at = end;
        if (*end != '*' && *end != 'x')
            return 0;
        r->at++;
    }
}

static mf_node array(reader *r, bench_role role, mf_dtype dtype, int batches, int ndim, const int64_t *shape)
{
    bench_problem *p = r->p;
    if (p->count + 1 >= MAX_ARRAYS)
        return MF_NODE_NONE; /* the graph's error is told */
    bench_array *a = &p->arrays[p->count++];
    *a = (bench_array){.role = role, .dtype = dtype, .ndim = batches + ndim};
    memcpy(a->shape, r->batch, sizeof(int64_t) * (size_t)batches);
    memcpy(a->shape + batches, shape, sizeof(int64_t) * (size_t)ndim);
    return mf_graph_input(p->graph, dtype, a->ndim, a->shape);
}

/* An array for what follows: of the result's last `ndim` axes. */
static mf_node beside(reader *r, mf_node y, int whole)
{
    bench_problem *p = r->p;
    mf_dtype dtype = MF_F32;
    int ndim = 0;
    int64_t shape[MF_MAX_DIMS] = {0};
    mf_graph_describe(p->graph, y, &dtype, &ndim, shape);
    int batches = r->batches;
    r->batches = 0;
    mf_node x = whole ? array(r, PLAIN, dtype, 0, ndim, shape) : array(r, PLAIN, dtype, 0, ndim > 0, shape + ndim - 1);
    r->batches = batches;
    return x;
}

static mf_node number(mf_graph *g, double value)
{
    return mf_graph_number(g, MF_WEAK_FLOAT, value, 0);
}

static mf_node last(mf_graph *g, mf_reduce_op op, mf_node x, int keep)
{
    return mf_graph_reduce(g, op, x, 1, (int[]){-1}, keep);
}

static mf_node transform(mf_graph *g, mf_fft_kind kind, mf_node x, int axes)
{
    int axis[MAX_SIZES];
    int64_t n[MAX_SIZES];
    for (int i = 0; i < axes; i++) {
        axis[i] = i - axes;
        n[i] = -1;
    }
    return mf_graph_fft(g, kind, x, axes, axis, n, MF_NORM_BACKWARD);
}

static int fft_kind(const char *name)
{
    static const char *const names[] = {"fft", "ifft", "rfft", "irfft"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, names[i]))
            return i;
    return -1;
}

static mf_node norm(mf_graph *g, const char *name, mf_node x)
{
    if (!strcmp(name, "rms_norm")) {
        mf_node mean = last(g, MF_MEAN, mf_graph_square(g, x), 1);
        return mf_graph_multiply(g, x, mf_graph_rsqrt(g, mf_graph_add(g, mean, number(g, 1e-6))));
    }
    if (!strcmp(name, "layer_norm")) {
        mf_node d = mf_graph_subtract(g, x, last(g, MF_MEAN, x, 1));
        mf_node variance = last(g, MF_MEAN, mf_graph_square(g, d), 1);
        return mf_graph_multiply(g, d, mf_graph_rsqrt(g, mf_graph_add(g, variance, number(g, 1e-5))));
    }
    mf_node d = mf_graph_subtract(g, x, last(g, MF_MAX, x, 1));
    mf_node e = mf_graph_exp(g, d);
    mf_node sum = last(g, MF_SUM, e, 1);
    if (!strcmp(name, "softmax"))
        return mf_graph_divide(g, e, sum);
    return strcmp(name, "log_softmax") ? MF_NODE_NONE : mf_graph_subtract(g, d, mf_graph_log(g, sum));
}

static int is_norm(const char *name)
{
    return !strcmp(name, "softmax") || !strcmp(name, "log_softmax") || !strcmp(name, "rms_norm") ||
           !strcmp(name, "layer_norm");
}

static int reduction(const char *name)
{
    return !strcmp(name, "sum") ? MF_SUM : !strcmp(name, "mean") ? MF_MEAN : !strcmp(name, "max") ? MF_MAX : -1;
}

static int count(reader *r, int wanted, const char *form)
{
    return r->sizes == wanted ? 0 : fail(r, "%s is expected here, %d sizes; these are %d", form, wanted, r->sizes);
}

static int product(reader *r, mf_node *y)
{
    mf_graph *g = r->p->graph;
    if (count(r, 3, "m x n x k"))
        return 1;
    int64_t m = r->size[0], n = r->size[1], k = r->size[2];
    int gated = !strcmp(r->p->kind, "swiglu");
    mf_node x = array(r, PLAIN, r->dtype, r->batches, 2, (int64_t[]){m, k});
    mf_node w = array(r, WEIGHT, r->dtype, gated ? 0 : r->batches, 2, (int64_t[]){k, n});
    *y = mf_graph_matmul(g, x, w);
    if (gated) {
        mf_node up = array(r, WEIGHT, r->dtype, 0, 2, (int64_t[]){k, n});
        *y = mf_graph_multiply(g, mf_graph_silu(g, *y), mf_graph_matmul(g, x, up));
    }
    r->p->product = 1;
    return 0;
}

static int convolution(reader *r, mf_node *y)
{
    mf_graph *g = r->p->graph;
    if (count(r, 2, "n x taps"))
        return 1;
    int64_t n = r->size[0] + r->size[1] - 1;
    int is_complex = mf_dtype_to_real(r->dtype) != r->dtype;
    mf_node x = array(r, PLAIN, r->dtype, r->batches, 1, r->size), k = array(r, PLAIN, r->dtype, 0, 1, r->size + 1);
    mf_fft_kind there = is_complex ? MF_FFT : MF_RFFT, back = is_complex ? MF_IFFT : MF_IRFFT;
    mf_node a = mf_graph_fft(g, there, x, 1, (int[]){-1}, &n, MF_NORM_BACKWARD);
    mf_node b = mf_graph_fft(g, there, k, 1, (int[]){-1}, &n, MF_NORM_BACKWARD);
    *y = mf_graph_fft(g, back, mf_graph_multiply(g, a, b), 1, (int[]){-1}, &n, MF_NORM_BACKWARD);
    return 0;
}

static int solver(reader *r, mf_node *y)
{
    mf_graph *g = r->p->graph;
    const char *kind = r->p->kind;
    int solves = !strcmp(kind, "solve") || !strcmp(kind, "solve_pos");
    if (count(r, solves ? 2 : 1, solves ? "n x right-hand sides" : "n"))
        return 1;
    mf_node a = array(r, DEFINITE, r->dtype, r->batches, 2, (int64_t[]){r->size[0], r->size[0]});
    r->p->solver = 1;
    if (solves) {
        mf_node b = array(r, PLAIN, r->dtype, r->batches, 2, r->size);
        *y = strcmp(kind, "solve") ? mf_graph_cho_solve(g, mf_graph_cholesky(g, a, 0), b, 0) : mf_graph_solve(g, a, b);
    } else if (!strcmp(kind, "cholesky"))
        *y = mf_graph_cholesky(g, a, 0);
    else if (!strcmp(kind, "inv"))
        *y = mf_graph_inv(g, a);
    else if (!strcmp(kind, "eigvalsh"))
        *y = mf_graph_eigh(g, a, 0);
    else
        *y = mf_graph_svd(g, a, 0);
    return 0;
}

/* The problem itself, before what follows. */
static int leading(reader *r, mf_node *y)
{
    static const char *const solvers[] = {"solve", "solve_pos", "cholesky", "inv", "eigvalsh", "svdvals"};
    mf_graph *g = r->p->graph;
    const char *kind = r->p->kind;
    if (!strcmp(kind, "matmul") || !strcmp(kind, "swiglu"))
        return product(r, y);
    if (!strcmp(kind, "conv"))
        return convolution(r, y);
    for (size_t i = 0; i < sizeof solvers / sizeof *solvers; i++)
        if (!strcmp(kind, solvers[i]))
            return solver(r, y);
    mf_node x = array(r, PLAIN, r->dtype, r->batches, r->sizes, r->size);
    if (fft_kind(kind) >= 0)
        *y = transform(g, (mf_fft_kind)fft_kind(kind), x, r->sizes);
    else if (is_norm(kind))
        *y = norm(g, kind, x);
    else if (reduction(kind) >= 0)
        *y = last(g, (mf_reduce_op)reduction(kind), x, 0);
    else
        *y = x;
    return 0;
}

static int known(const char *kind)
{
    static const char *const names[] = {"matmul",   "swiglu", "conv",     "solve",   "solve_pos",
                                        "cholesky", "inv",    "eigvalsh", "svdvals", "map"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(kind, names[i]))
            return 1;
    return fft_kind(kind) >= 0 || is_norm(kind) || reduction(kind) >= 0;
}

static mf_node elementwise(reader *r, const char *name, mf_node y)
{
    mf_op op;
    if (mf_op_parse(&op, strcmp(name, "abs") ? name : "absolute") || mf_op_arity(op) != 1)
        return MF_NODE_NONE;
    return mf_graph_op(r->p->graph, op, 1, &y);
}

/* One word of what follows. */
static int part(reader *r, mf_node *y)
{
    mf_graph *g = r->p->graph;
    const char *start = r->at;
    char name[32] = "";
    mf_dtype dtype;
    mf_node x = *y;
    if (word(r, name, sizeof name))
        return 1;
    if (!strcmp(name, "bias") || !strcmp(name, "residual"))
        *y = mf_graph_add(g, x, beside(r, x, name[0] == 'r'));
    else if (!strcmp(name, "mul") || !strcmp(name, "filter")) {
        *y = mf_graph_multiply(g, x, beside(r, x, name[0] == 'm'));
        if (name[0] == 'f' && !strcmp(r->p->kind, "rfft"))
            r->p->arrays[r->p->count - 1].role = REAL_ENDS;
    } else if (!strcmp(name, "scale"))
        *y = mf_graph_multiply(g, x, number(g, 0.125));
    else if (is_norm(name))
        *y = norm(g, name, x);
    else if (fft_kind(name) >= 0)
        *y = transform(g, (mf_fft_kind)fft_kind(name), x, fft_kind(r->p->kind) >= 0 ? r->sizes : 1);
    else if (!strcmp(name, "bf16") || !strcmp(name, "f16") || !strcmp(name, "f32") || !strcmp(name, "e4m3")) {
        mf_dtype_parse(&dtype, name);
        *y = mf_graph_cast(g, x, dtype, dtype == MF_E4M3 ? MF_CAST_SATURATE : 0);
    } else
        *y = elementwise(r, name, x);
    if (y->id < 0 && !mf_graph_error(g)) {
        r->at = start;
        return fail(r, "'%s' is not known to this driver; mathfuse bench knows more", name);
    }
    r->p->parts++;
    return 0;
}

static int read_all(reader *r)
{
    bench_problem *p = r->p;
    char dtype[32] = "";
    if (strchr(p->text, '('))
        return fail(r, "Python functions are for mathfuse bench; this driver has no Python");
    if (word(r, p->kind, sizeof p->kind))
        return 1;
    if (!known(p->kind)) {
        r->at = p->text;
        return fail(r, "'%s' is not a kind of problem that this driver knows; mathfuse bench knows more", p->kind);
    }
    if (take(r, ':') || word(r, dtype, sizeof dtype))
        return 1;
    if (mf_dtype_parse(&r->dtype, dtype))
        return fail(r, "a dtype is expected here: f32, f64, c64, c128, bf16, f16");
    mf_node y = MF_NODE_NONE;
    if (take(r, ':') || sizes(r) || leading(r, &y))
        return 1;
    while (*r->at)
        if (take(r, '+') || part(r, &y))
            return 1;
    mf_graph_output(p->graph, y);
    mf_status status = mf_graph_error(p->graph);
    if (status)
        return fail(r, "%s", mf_error_message(status));
    bench_array *result = &p->arrays[p->count++];
    return mf_graph_describe(p->graph, y, &result->dtype, &result->ndim, result->shape) != MF_OK;
}

int problem_parse(bench_problem *out, const char *text)
{
    *out = (bench_problem){0};
    snprintf(out->text, sizeof out->text, "%s", text);
    reader r = {.p = out, .at = out->text};
    if (strlen(text) >= sizeof out->text)
        return fail(&r, "a problem has at most %d characters", TEXT_ROOM - 1);
    if (mf_graph_new(&out->graph))
        return fail(&r, "no graph could be made");
    return read_all(&r);
}

void problem_free(bench_problem *problem)
{
    mf_graph_free(problem->graph);
    problem->graph = NULL;
}

int64_t array_elements(const bench_array *array)
{
    int64_t n = 1;
    for (int i = 0; i < array->ndim; i++)
        n *= array->shape[i];
    return n;
}

size_t array_bytes(const bench_array *array)
{
    return (size_t)array_elements(array) * mf_dtype_size(array->dtype);
}
