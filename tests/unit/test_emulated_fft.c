/* Generated kernels that transform, emulated: graphs of one or two transforms with chains, against the CPU's plan. */
#define _GNU_SOURCE
#include <math.h>

#include "context_internal.h"
#include "emulated_kernel.h"
#include "loader.h"
#include "nodes.h"
#include "plan_internal.h"
#include "schedule.h"

enum { MAX_INPUTS = 3, MAX_TENSORS = MAX_INPUTS + 1 };

typedef struct setting {
    mf_context *cpu, *gpu;
    unsigned random;
} setting;

/* What a graph of these tests has: inputs, then one output. */
typedef struct problem {
    mf_graph *g;
    int inputs;
    mf_dtype dtype[MAX_TENSORS];
    int ndim[MAX_TENSORS];
    int64_t shape[MAX_TENSORS][3];
} problem;

static mf_node input(problem *p, mf_dtype dtype, int ndim, int64_t d0, int64_t d1, int64_t d2)
{
    int i = p->inputs++;
    const int64_t all[3] = {d0, d1, d2};
    p->dtype[i] = dtype;
    p->ndim[i] = ndim;
    memcpy(p->shape[i], all, sizeof all);
    return mf_graph_input(p->g, dtype, ndim, p->shape[i]);
}

static void output(problem *p, mf_node node)
{
    mf_graph_output(p->g, node);
    cr_assert_eq(mf_graph_error(p->g), MF_OK, "%s", mf_error_message(mf_graph_error(p->g)));
    const mfi_node *n = &p->g->node[p->g->output[0]];
    p->dtype[p->inputs] = n->dtype;
    p->ndim[p->inputs] = n->ndim;
    memcpy(p->shape[p->inputs], n->shape, sizeof p->shape[0]);
}

static mf_node transform(problem *p, mf_fft_kind kind, mf_node x, int axis, int64_t n)
{
    return mf_graph_fft(p->g, kind, x, 1, &axis, &n, MF_NORM_BACKWARD);
}

static int64_t count(const problem *p, int i)
{
    int64_t n = 1;
    for (int d = 0; d < p->ndim[i]; d++)
        n *= p->shape[i][d];
    return n;
}

static double draw(setting *s)
{
    s->random = s->random * 1664525u + 1013904223u;
    return (double)(s->random >> 8) / (1 << 23) - 1;
}

static void fill(setting *s, char *data, mf_dtype dtype, int64_t n)
{
    bool wide = dtype == MF_F64 || dtype == MF_C128;
    for (int64_t i = 0; i < n * (dtype == MF_C64 || dtype == MF_C128 ? 2 : 1); i++) {
        if (wide)
            ((double *)(void *)data)[i] = draw(s);
        else
            ((float *)(void *)data)[i] = (float)draw(s);
    }
}

static double distance(const char *got, const char *want, mf_dtype dtype, int64_t n)
{
    bool wide = dtype == MF_F64 || dtype == MF_C128;
    double most = 0, largest = 0;
    for (int64_t i = 0; i < n * (dtype == MF_C64 || dtype == MF_C128 ? 2 : 1); i++) {
        double x = wide ? ((const double *)(const void *)got)[i] : (double)((const float *)(const void *)got)[i];
        double y = wide ? ((const double *)(const void *)want)[i] : (double)((const float *)(const void *)want)[i];
        most = fmax(most, isnan(x) ? INFINITY : fabs(x - y));
        largest = fmax(largest, fabs(y));
    }
    return most / fmax(largest, 1e-30);
}

static void run_on_cpu(setting *s, const problem *p, char *const *data, char *want)
{
    mf_plan *plan;
    mf_tensor t[MAX_TENSORS];
    for (int i = 0; i <= p->inputs; i++)
        mf_tensor_init(&t[i], i == p->inputs ? want : data[i], p->dtype[i], p->ndim[i], p->shape[i]);
    cr_assert_eq(mf_plan_new(&plan, s->cpu, p->g, NULL), MF_OK);
    cr_assert_eq(mf_plan_run(plan, t, p->inputs + 1, NULL), MF_OK);
    mf_plan_free(plan);
}

static void set_operands(uint64_t *words, const mfi_problem *p, char *const *slots, int last_slot)
{
    for (int o = 0; o < p->chain.operands; o++)
        words[o] = p->chain.operand[o].view.slot <= last_slot ? slot_address(slots, &p->chain.operand[o].view) : 0;
}

/* The kernel that the plan's one step would launch. */
static const char *run_emulated(const mfi_problem *p, const mfi_caps *caps, char *const *slots, int last_slot,
                                int number)
{
    mfi_fft_shape shape;
    mfi_fft_words w;
    mfi_source source;
    mfi_bid bid = {0};
    char call[512];
    mfi_fft_parts parts = mfi_fft_parts_of(p);
    cr_assert(mfi_fft_shape_choose(&shape, p, caps, &bid), "%s", bid.detail);
    cr_assert_eq(mfi_fft_words_fill(&w, p, &shape), MF_OK);
    cr_assert_eq(mfi_emit_fft(&source, p, &shape), MF_OK);
    snprintf(call, sizeof call,
             "static mf::cplx<first::real> table[first::table_size + 1];\n"
             "    const char *error = mf::emulate::launch(%s_table, first::table_size / 256 + 1, 256, 0, &table[0]);\n"
             "    a.fft.table = table;\n"
             "    return error ? error : mf::emulate::launch(%s, grid, block, first::shared_bytes, a);",
             source.name, source.name);
    emulated_launcher launch = emulated_compile(source.text, call, number);
    cr_expect(launch, "does not compile:\n%s", source.text);
    mf_free(source.text);
    if (parts.before)
        set_operands(w.words.word + w.before, parts.before, slots, last_slot);
    else
        w.words.word[w.in] = slot_address(slots, parts.first ? &parts.first->u.fft.in : &p->u.fft.in);
    if (parts.first)
        set_operands(w.words.word + w.middle, parts.first, slots, last_slot);
    set_operands(w.words.word + w.last, p, slots, last_slot);
    return launch ? launch(w.words.word, (int)shape.blocks, shape.threads) : "no kernel";
}

static void check(setting *s, problem *p, bool pair, int number, const char *what)
{
    char *data[MAX_TENSORS] = {0}, *want;
    mf_plan *plan;
    bool f64 = p->dtype[p->inputs] == MF_F64 || p->dtype[p->inputs] == MF_C128;
    for (int i = 0; i <= p->inputs; i++) {
        data[i] = mfi_alloc_aligned((size_t)count(p, i) * mf_dtype_size(p->dtype[i]));
        fill(s, data[i], p->dtype[i], count(p, i));
    }
    size_t bytes = (size_t)count(p, p->inputs) * mf_dtype_size(p->dtype[p->inputs]);
    want = mfi_alloc_aligned(bytes);
    run_on_cpu(s, p, data, want);
    cr_assert_eq(mf_plan_new(&plan, s->gpu, p->g, NULL), MF_OK, "%s: %s", what, mf_error_message(MF_E_UNSUPPORTED));
    cr_assert_eq(plan->steps, 1, "%s: %d steps", what, plan->steps);
    cr_expect_str_eq(plan->step[0].provider->name, "generated_fft", "%s", what);
    cr_expect_eq(plan->step[0].problem->head != NULL, pair, "%s", what);
    const char *error = run_emulated(plan->step[0].problem, mfi_context_caps(s->gpu), data, p->inputs, number);
    cr_expect(!error, "%s: %s", what, error);
    double far = distance(data[p->inputs], want, p->dtype[p->inputs], count(p, p->inputs));
    cr_expect_leq(far, f64 ? 1e-14 : 2e-6, "%s: off by %g", what, far);
    mf_plan_free(plan);
    mf_graph_free(p->g);
    for (int i = 0; i <= p->inputs; i++)
        mfi_free_aligned(data[i]);
    mfi_free_aligned(want);
}

static bool open_setting(setting *s)
{
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    *s = (setting){.random = 1};
    if (!mfi_library_load(MFI_LIB_NVRTC)->found)
        cr_skip_test("plans for a GPU need NVRTC");
#ifndef MFI_WITH_CUDA
    cr_skip_test("built without CUDA");
#endif
    if (!emulated_begin())
        return false;
    options.device = "cpu";
    cr_assert_eq(mf_context_new(&s->cpu, &options), MF_OK);
    options.device = "sm_90a";
    cr_assert_eq(mf_context_new(&s->gpu, &options), MF_OK);
    return true;
}

static void close_setting(setting *s)
{
    emulated_end();
    mf_context_free(s->cpu);
    mf_context_free(s->gpu);
}

static void filtered(setting *s, mf_dtype dtype, int64_t batch, int64_t channels, int64_t n, int number)
{
    char what[64];
    problem p = {0};
    cr_assert_eq(mf_graph_new(&p.g), MF_OK);
    mf_node x = input(&p, dtype, 3, batch, channels, n), h = input(&p, dtype, 2, channels, n, 0);
    mf_node y = transform(&p, MF_FFT, x, 2, n);
    output(&p, transform(&p, MF_IFFT, mf_graph_multiply(p.g, y, h), 2, n));
    snprintf(what, sizeof what, "filter of %lld points, %s", (long long)n, mf_dtype_name(dtype));
    check(s, &p, true, number, what);
}

/* Lengths of each kind: a power of two of one and of several passes, other primes, a prime by Bluestein; a channel's filter. */
Test(emulated_fft, filters)
{
    setting s;
    if (!open_setting(&s))
        cr_skip_test("there is no C++ compiler called c++");
    filtered(&s, MF_C64, 3, 2, 64, 0);
    filtered(&s, MF_C64, 2, 3, 1024, 1);
    filtered(&s, MF_C64, 1, 3, 1000, 2);
    filtered(&s, MF_C64, 2, 1, 101, 3);
    filtered(&s, MF_C64, 2, 1, 8192, 4);
    filtered(&s, MF_C128, 3, 2, 360, 5);
    close_setting(&s);
}

static void real_filtered(setting *s, int64_t batch, int64_t n, int number)
{
    char what[64];
    problem p = {0};
    cr_assert_eq(mf_graph_new(&p.g), MF_OK);
    mf_node x = input(&p, MF_F32, 2, batch, n, 0), h = input(&p, MF_C64, 1, n / 2 + 1, 0, 0);
    mf_node bias = input(&p, MF_F32, 1, n, 0, 0);
    mf_node y = transform(&p, MF_IRFFT, mf_graph_multiply(p.g, transform(&p, MF_RFFT, x, 1, n), h), 1, n);
    output(&p, mf_graph_tanh(p.g, mf_graph_add(p.g, y, bias)));
    snprintf(what, sizeof what, "real filter of %lld points", (long long)n);
    check(s, &p, true, number, what);
}

Test(emulated_fft, real_filters)
{
    setting s;
    if (!open_setting(&s))
        cr_skip_test("there is no C++ compiler called c++");
    real_filtered(&s, 5, 512, 0);
    real_filtered(&s, 3, 600, 1);
    real_filtered(&s, 3, 75, 2);
    real_filtered(&s, 3, 2 * 37, 3);
    close_setting(&s);
}

/* One transform and a chain on its result; a shorter input is padded with zeros. */
static void with_chain(setting *s, mf_fft_kind kind, int64_t batch, int64_t length, int64_t n, int number)
{
    char what[64];
    problem p = {0};
    cr_assert_eq(mf_graph_new(&p.g), MF_OK);
    mf_node x = input(&p, kind == MF_RFFT ? MF_F32 : MF_C64, 2, batch, length, 0);
    mf_node y = transform(&p, kind, x, 1, n);
    if (kind == MF_IRFFT)
        output(&p, mf_graph_relu(p.g, y));
    else
        output(&p, mf_graph_square(p.g, mf_graph_absolute(p.g, y)));
    snprintf(what, sizeof what, "transform %d of %lld points", (int)kind, (long long)n);
    check(s, &p, false, number, what);
}

Test(emulated_fft, chains)
{
    setting s;
    if (!open_setting(&s))
        cr_skip_test("there is no C++ compiler called c++");
    with_chain(&s, MF_FFT, 5, 256, 256, 0);
    with_chain(&s, MF_FFT, 2, 300, 500, 1);
    with_chain(&s, MF_RFFT, 3, 1000, 2048, 2);
    with_chain(&s, MF_RFFT, 3, 63, 63, 3);
    with_chain(&s, MF_IRFFT, 3, 129, 256, 4);
    with_chain(&s, MF_IRFFT, 3, 20, 45, 5);
    with_chain(&s, MF_IRFFT, 3, 64, 1024, 6);
    with_chain(&s, MF_IRFFT, 3, 100, 4096, 7);
    with_chain(&s, MF_IRFFT, 3, 300, 2048, 8);
    close_setting(&s);
}

/* A window before, a filter between, and a chain after. */
static void windowed(setting *s, mf_fft_kind kind, int64_t batch, int64_t length, int64_t n, bool twice, int number)
{
    char what[64];
    problem p = {0};
    cr_assert_eq(mf_graph_new(&p.g), MF_OK);
    mf_node x = input(&p, kind == MF_FFT ? MF_C64 : MF_F32, 2, batch, length, 0),
            w = input(&p, MF_F32, 1, length, 0, 0);
    mf_node y = transform(&p, kind, mf_graph_multiply(p.g, x, w), 1, n);
    if (twice) {
        mf_node h = input(&p, MF_C64, 1, kind == MF_FFT ? n : n / 2 + 1, 0, 0);
        output(&p, transform(&p, kind == MF_FFT ? MF_IFFT : MF_IRFFT, mf_graph_multiply(p.g, y, h), 1, n));
    } else {
        output(&p, mf_graph_square(p.g, mf_graph_absolute(p.g, y)));
    }
    snprintf(what, sizeof what, "window, transform %d of %lld points", (int)kind, (long long)n);
    check(s, &p, true, number, what);
}

Test(emulated_fft, windows)
{
    setting s;
    if (!open_setting(&s))
        cr_skip_test("there is no C++ compiler called c++");
    windowed(&s, MF_FFT, 5, 256, 256, false, 0);
    windowed(&s, MF_RFFT, 3, 400, 512, false, 1);
    windowed(&s, MF_RFFT, 3, 100, 125, true, 2);
    windowed(&s, MF_FFT, 3, 300, 512, true, 3);
    close_setting(&s);
}

/* Two blocks of a cluster share a signal. */
Test(emulated_fft, pairs)
{
    setting s;
    if (!open_setting(&s))
        cr_skip_test("there is no C++ compiler called c++");
    filtered(&s, MF_C64, 2, 1, 32768, 0);
    filtered(&s, MF_C128, 1, 2, 16384, 1);
    with_chain(&s, MF_FFT, 2, 32768, 32768, 2);
    windowed(&s, MF_FFT, 2, 20000, 32768, true, 3);
    close_setting(&s);
}

/* Only the first terms are read by another step: the kernel leaves the rest of its result as it was. `inner` signals lie
 * beside each other. */
static void narrowed(setting *s, mf_fft_kind kind, int64_t n, int64_t inner, int64_t keep, int number)
{
    problem p = {0};
    mf_plan *plan;
    char *data[2] = {0}, *want;
    cr_assert_eq(mf_graph_new(&p.g), MF_OK);
    output(&p, transform(&p, kind, input(&p, kind == MF_RFFT ? MF_F32 : MF_C64, 3, 3, n, inner), 1, n));
    size_t term = (size_t)inner * mf_dtype_size(MF_C64), signal = (size_t)p.shape[1][1] * term;
    for (int i = 0; i < 2; i++) {
        data[i] = mfi_alloc_aligned((size_t)count(&p, i) * mf_dtype_size(p.dtype[i]));
        fill(s, data[i], p.dtype[i], count(&p, i));
    }
    want = mfi_alloc_aligned(3 * signal);
    run_on_cpu(s, &p, data, want);
    for (size_t r = 0, kept = (size_t)keep * term; r < 3; r++)
        memcpy(want + r * signal + kept, data[1] + r * signal + kept, signal - kept);
    cr_assert_eq(mf_plan_new(&plan, s->gpu, p.g, NULL), MF_OK);
    mfi_problem part = *plan->step[0].problem;
    part.shape[part.ndim - 1] = keep;
    cr_expect(mfi_fft_is_narrow(&part));
    const char *error = run_emulated(&part, mfi_context_caps(s->gpu), data, 1, number);
    cr_expect(!error, "%lld of %lld points: %s", (long long)keep, (long long)n, error);
    double far = distance(data[1], want, MF_C64, count(&p, 1));
    cr_expect_leq(far, 2e-6, "%lld of %lld points: off by %g", (long long)keep, (long long)n, far);
    mf_plan_free(plan);
    mf_graph_free(p.g);
    mfi_free_aligned(data[0]);
    mfi_free_aligned(data[1]);
    mfi_free_aligned(want);
}

Test(emulated_fft, first_terms)
{
    setting s;
    if (!open_setting(&s))
        cr_skip_test("there is no C++ compiler called c++");
    narrowed(&s, MF_FFT, 256, 1, 17, 0);
    narrowed(&s, MF_RFFT, 1024, 1, 64, 1);
    narrowed(&s, MF_RFFT, 75, 1, 37, 2);
    narrowed(&s, MF_IFFT, 101, 1, 1, 3);
    narrowed(&s, MF_FFT, 128, 16, 16, 4);
    narrowed(&s, MF_RFFT, 96, 21, 5, 5);
    narrowed(&s, MF_RFFT, 4096, 1, 100, 6);
    narrowed(&s, MF_RFFT, 2048, 1, 400, 7);
    close_setting(&s);
}

/* The first terms, and what a chain makes of them, by the transform's own kernel; or by a map after it, where it has to. */
static void sliced(setting *s, mf_fft_kind kind, int64_t n, int64_t keep, bool squared, int number)
{
    problem p = {0};
    const int64_t start[2] = {0}, step[2] = {1, 1}, length[2] = {3, keep};
    cr_assert_eq(mf_graph_new(&p.g), MF_OK);
    mf_node x = input(&p, kind == MF_RFFT ? MF_F32 : MF_C64, 2, 3, n, 0);
    mf_node h = squared ? input(&p, MF_C64, 1, keep, 0, 0) : x;
    mf_node y = mf_graph_slice(p.g, transform(&p, kind, x, 1, n), start, length, step);
    output(&p, squared ? mf_graph_square(p.g, mf_graph_absolute(p.g, mf_graph_multiply(p.g, y, h))) : y);
    check(s, &p, false, number, "first terms");
}

Test(emulated_fft, slices)
{
    setting s;
    if (!open_setting(&s))
        cr_skip_test("there is no C++ compiler called c++");
    sliced(&s, MF_RFFT, 1024, 64, false, 0);
    sliced(&s, MF_RFFT, 600, 37, true, 1);
    sliced(&s, MF_FFT, 256, 100, true, 2);
    close_setting(&s);
}

Test(emulated_fft, slices_apart)
{
    setting s;
    mf_plan *plan;
    problem p = {0};
    const int64_t start[2] = {0}, step[2] = {1, 1}, length[2] = {3, 64};
    if (!open_setting(&s))
        cr_skip_test("there is no C++ compiler called c++");
    cr_assert_eq(mf_graph_new(&p.g), MF_OK);
    mf_node y = transform(&p, MF_RFFT, input(&p, MF_F32, 2, 3, 1024, 0), 1, 1024);
    output(&p, mf_graph_absolute(p.g, mf_graph_slice(p.g, y, start, length, step)));
    cr_assert_eq(mf_plan_new(&plan, s.gpu, p.g, NULL), MF_OK);
    cr_assert(mfi_fft_is_narrow(plan->schedule->step[0]));
    cr_assert_eq(mfi_widen(plan->schedule, 0), MF_OK);
    cr_assert_eq(plan->schedule->steps, 2);
    const mfi_problem *whole = plan->schedule->step[0], *map = plan->schedule->step[1];
    const mfi_view *store = mfi_only_store(whole), *load = &map->chain.operand[0].view;
    cr_expect(!mfi_fft_is_narrow(whole) && whole->chain.count == 2);
    cr_expect_eq(map->anchor, MFI_MAP);
    cr_expect(map->shape[0] == 3 && map->shape[1] == 64 && map->ndim == 2);
    cr_expect(store->slot == load->slot && plan->schedule->buffer[store->slot].kind == MFI_BUF_TEMP);
    cr_expect(store->strides[0] == 513 && load->strides[0] == 513 && load->strides[1] == 1);
    mf_plan_free(plan);
    mf_graph_free(p.g);
    close_setting(&s);
}

/* Along an axis whose elements are far apart in memory, and signals beside each other: `outer` x n x `inner`. */
static void across(setting *s, mf_fft_kind kind, int64_t outer, int64_t length, int64_t n, int64_t inner, bool twice,
                   int number)
{
    char what[80];
    problem p = {0};
    cr_assert_eq(mf_graph_new(&p.g), MF_OK);
    bool real = kind == MF_RFFT, f64 = number == 6;
    mf_dtype complex_type = f64 ? MF_C128 : MF_C64;
    mf_node x = input(&p, real ? MF_F32 : complex_type, 3, outer, length, inner);
    mf_node y = transform(&p, kind, x, 1, n);
    if (twice) {
        mf_node h = input(&p, complex_type, 2, real ? n / 2 + 1 : n, 1, 0);
        y = transform(&p, real ? MF_IRFFT : MF_IFFT, mf_graph_multiply(p.g, y, h), 1, n);
    }
    output(&p, real && twice ? mf_graph_tanh(p.g, y) : mf_graph_square(p.g, y));
    snprintf(what, sizeof what, "transform %d of %lld points across %lld signals", (int)kind, (long long)n,
             (long long)inner);
    check(s, &p, twice, number, what);
}

Test(emulated_fft, signals_beside_each_other)
{
    setting s;
    if (!open_setting(&s))
        cr_skip_test("there is no C++ compiler called c++");
    across(&s, MF_FFT, 2, 64, 64, 16, false, 0);
    across(&s, MF_FFT, 3, 128, 128, 5, true, 1);
    across(&s, MF_RFFT, 2, 96, 128, 19, true, 2);
    across(&s, MF_RFFT, 1, 45, 45, 40, true, 3);
    across(&s, MF_IFFT, 2, 20, 97, 7, false, 4);
    across(&s, MF_FFT, 1, 1024, 1024, 6, true, 5);
    across(&s, MF_FFT, 2, 60, 60, 9, true, 6);
    close_setting(&s);
}
