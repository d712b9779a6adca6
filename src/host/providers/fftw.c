/* FFT through any library with FFTW 3's interface: FFTW itself and MKL. An engine of fft_cpu.c. */
#include "fft_cpu.h"
#include "loader.h"
#include "ref.h"

#include <pthread.h>
#include <stdio.h>

/* The few facts of the interface that we use. */
typedef struct fftw_dim {
    ptrdiff_t n, is, os;
} fftw_dim;
enum {
    FFTW_MEASURE = 0,
    FFTW_UNALIGNED = 1 << 1,
    FFTW_PATIENT = 1 << 5,
    FFTW_ESTIMATE = 1 << 6,
    FFTW_FORWARD = -1,
    FFTW_BACKWARD = 1
};
enum { PLAN_ALIGNMENT = 16, COLUMNS_BYTES = 128 << 10 };

typedef void *plan_dft(int rank, const fftw_dim *dims, int loops, const fftw_dim *loop, void *in, void *out, int sign,
                       unsigned flags);
typedef void *plan_real(int rank, const fftw_dim *dims, int loops, const fftw_dim *loop, void *in, void *out,
                        unsigned flags);
typedef void execute(void *plan, void *in, void *out);
typedef void destroy_plan(void *plan);
typedef void set_timelimit(double seconds);
typedef union fftw_function { /* C has no cast from the loader's void * to a function */
    void *symbol;
    plan_dft *plan_dft;
    plan_real *plan_real;
    execute *execute;
    destroy_plan *destroy;
    set_timelimit *set_timelimit;
} fftw_function;

/* Planning is the one thing in FFTW that is not thread-safe. */
static pthread_mutex_t planner = PTHREAD_MUTEX_INITIALIZER;

/* A plan serves one number of lines and one alignment; both may differ at the ends of a batch. */
typedef struct fftw_variant {
    int64_t count;
    bool aligned;
    void *plan;
    struct fftw_variant *next;
} fftw_variant;

typedef struct fftw_lines {
    mfi_line_geometry g;
    fftw_function plan, execute, destroy, set_timelimit;
    unsigned effort; /* of the plan for g.count aligned lines */
    void *columns;   /* mfi_ref_fft_engine's plan, which runs instead; or NULL */
    _Atomic(fftw_variant *) variants;
} fftw_lines;

static fftw_function symbol(bool f64, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "fftw%s_%s", f64 ? "" : "f", name);
    return (fftw_function){mfi_library_symbol(f64 ? MFI_LIB_FFTW : MFI_LIB_FFTWF, full)};
}

/* In-place plans of strided lines are slow without measuring: such lines go through scratch, laid out as in memory but
 * without gaps. */
static void packed_layout(const mfi_line_geometry *g, int64_t count, int64_t *stride, int64_t *dist)
{
    *stride = g->in_dist == 1 ? count : 1;
    *dist = g->in_dist == 1 ? 1 : g->n;
}

static size_t extent(int64_t n, int64_t stride, int64_t count, int64_t dist)
{
    return (size_t)((n - 1) * stride + (count - 1) * dist + 1) * 2 * sizeof(double);
}

/* FFTW_ESTIMATE never touches the arrays, so addresses of the right kind do; others need arrays to measure on. */
static void *make_plan(const fftw_lines *f, int64_t count, bool aligned, unsigned effort, void *in, void *out)
{
    const mfi_line_geometry *g = &f->g;
    fftw_dim dim = {(ptrdiff_t)g->n, (ptrdiff_t)g->in_stride, (ptrdiff_t)g->out_stride};
    fftw_dim loop = {(ptrdiff_t)count, (ptrdiff_t)g->in_dist, (ptrdiff_t)g->out_dist};
    unsigned flags = effort | (aligned ? 0 : FFTW_UNALIGNED);
    if (g->in_place) {
        int64_t stride, dist;
        packed_layout(g, count, &stride, &dist);
        dim.os = (ptrdiff_t)stride;
        loop.os = (ptrdiff_t)dist;
    }
    if (g->kind == MF_RFFT || g->kind == MF_IRFFT)
        return f->plan.plan_real(1, &dim, 1, &loop, in, out, flags);
    return f->plan.plan_dft(1, &dim, 1, &loop, in, out, g->kind == MF_FFT ? FFTW_FORWARD : FFTW_BACKWARD, flags);
}

/* FFTW stops measuring after so many seconds, and takes the best so far. */
static double time_limit(unsigned effort)
{
    return effort == FFTW_PATIENT ? 6 : 3;
}

static void *measured_plan(const fftw_lines *f, int64_t count)
{
    const mfi_line_geometry *g = &f->g;
    fftw_function limit = f->set_timelimit;
    int64_t stride = g->out_stride, dist = g->out_dist;
    if (g->in_place)
        packed_layout(g, count, &stride, &dist);
    void *in = mfi_alloc_aligned(extent(g->n, g->in_stride, count, g->in_dist));
    void *out = mfi_alloc_aligned(extent(g->n, stride, count, dist)), *plan = NULL;
    if (in && out) {
        if (limit.symbol)
            limit.set_timelimit(time_limit(f->effort));
        plan = make_plan(f, count, true, f->effort, in, out);
        if (limit.symbol)
            limit.set_timelimit(-1);
    }
    mfi_free_aligned(in);
    mfi_free_aligned(out);
    return plan;
}

static void *plan_for(const fftw_lines *f, int64_t count, bool aligned)
{
    _Alignas(64) static char somewhere[2][64];
    if (f->effort != FFTW_ESTIMATE && aligned && count == f->g.count)
        return measured_plan(f, count);
    return make_plan(f, count, aligned, FFTW_ESTIMATE, somewhere[0], somewhere[1]);
}

static void *find_plan(fftw_lines *f, int64_t count, bool aligned)
{
    for (fftw_variant *v = atomic_load(&f->variants); v; v = v->next)
        if (v->count == count && v->aligned == aligned)
            return v->plan;
    return NULL;
}

static void *get_plan(fftw_lines *f, int64_t count, bool aligned)
{
    void *plan = find_plan(f, count, aligned);
    if (plan)
        return plan;
    pthread_mutex_lock(&planner);
    plan = find_plan(f, count, aligned);
    fftw_variant *v = plan ? NULL : mfi_alloc(sizeof *v);
    if (v && (plan = plan_for(f, count, aligned))) {
        *v = (fftw_variant){count, aligned, plan, atomic_load(&f->variants)};
        atomic_store(&f->variants, v);
    } else {
        mf_free(v);
    }
    pthread_mutex_unlock(&planner);
    return plan;
}

static void free_lines(void *plan)
{
    fftw_lines *f = plan;
    if (!f)
        return;
    if (f->columns)
        mfi_ref_fft_engine.free(f->columns);
    pthread_mutex_lock(&planner);
    for (fftw_variant *v = atomic_load(&f->variants), *next; v; v = next) {
        next = v->next;
        f->destroy.destroy(v->plan);
        mf_free(v);
    }
    pthread_mutex_unlock(&planner);
    mf_free(f);
}

/* Columns that lie side by side, spread over more than the first-level cache: without measuring FFTW takes them one by one, up to
 * seven times slower than loops over all of them. */
static bool better_as_columns(const mfi_line_geometry *g)
{
    int64_t rest = g->n, size = g->f64 ? 16 : 8;
    bool spread = g->in_dist == 1 && g->out_dist == 1 && g->in_stride * g->n * size >= COLUMNS_BYTES;
    for (int p = 2; p <= 7; p++)
        while (rest % p == 0)
            rest /= p;
    return spread && g->count >= 8 && rest == 1 && g->kind != MF_IRFFT;
}

static mf_status plan_lines(void **out, const mfi_line_geometry *g, unsigned effort)
{
    bool real = g->kind == MF_RFFT || g->kind == MF_IRFFT;
    const char *kind = !real ? "dft" : g->kind == MF_RFFT ? "dft_r2c" : "dft_c2r";
    char name[32];
    fftw_lines *f = mfi_calloc(1, sizeof *f);
    *out = NULL;
    if (!f)
        return MFI_NO_MEMORY(sizeof *f);
    f->g = *g;
    f->effort = effort;
    if (effort == FFTW_ESTIMATE && better_as_columns(g)) {
        mf_status status = mfi_ref_fft_engine.plan(&f->columns, g);
        if (status == MF_OK)
            *out = f;
        else
            mf_free(f);
        return status;
    }
    f->set_timelimit = symbol(g->f64, "set_timelimit");
    snprintf(name, sizeof name, "plan_guru64_%s", kind);
    f->plan = symbol(g->f64, name);
    snprintf(name, sizeof name, "execute_%s", kind);
    f->execute = symbol(g->f64, name);
    f->destroy = symbol(g->f64, "destroy_plan");
    if (!f->plan.symbol || !f->execute.symbol || !f->destroy.symbol) {
        mf_free(f);
        return mfi_fail(MF_E_LIBRARY, "the FFTW library lacks %s or its planner", name);
    }
    if (!get_plan(f, g->count, true)) {
        free_lines(f);
        return mfi_fail(MF_E_LIBRARY, "the FFTW library made no plan for %s of length %lld", kind, (long long)g->n);
    }
    *out = f;
    return MF_OK;
}

static size_t lines_scratch(const void *plan)
{
    const fftw_lines *f = plan;
    const mfi_line_geometry *g = &f->g;
    if (f->columns)
        return mfi_ref_fft_engine.scratch(f->columns);
    return g->in_place ? (size_t)(g->n * g->count) * (g->f64 ? 16 : 8) : 0;
}

/* Lines from gapless scratch to their place: rows of neighbours, or lines as a whole. */
static void put_back(const mfi_line_geometry *g, char *out, const char *from, int64_t count)
{
    size_t size = g->f64 ? 16 : 8;
    if (g->in_dist != 1) {
        memcpy(out, from, (size_t)(g->n * count) * size);
        return;
    }
    for (int64_t j = 0; j < g->n; j++)
        memcpy(out + j * g->out_stride * (int64_t)size, from + j * count * (int64_t)size, (size_t)count * size);
}

static mf_status run_lines(void *plan, void *in, void *out, int64_t count, void *scratch)
{
    fftw_lines *f = plan;
    if (f->columns)
        return mfi_ref_fft_engine.run(f->columns, in, out, count, scratch);
    void *to = f->g.in_place ? scratch : out;
    bool aligned = ((uintptr_t)in | (uintptr_t)to) % PLAN_ALIGNMENT == 0;
    void *library_plan = get_plan(f, count, aligned);
    if (!library_plan)
        return MF_E_LIBRARY;
    f->execute.execute(library_plan, in, to);
    if (f->g.in_place)
        put_back(&f->g, out, scratch, count);
    return MF_OK;
}

static bool runs_columns(const void *plan)
{
    return ((const fftw_lines *)plan)->columns;
}

static mf_status plan_estimated(void **out, const mfi_line_geometry *g)
{
    return plan_lines(out, g, FFTW_ESTIMATE);
}

static mf_status plan_measured(void **out, const mfi_line_geometry *g)
{
    return plan_lines(out, g, FFTW_MEASURE);
}

static mf_status plan_patiently(void **out, const mfi_line_geometry *g)
{
    return plan_lines(out, g, FFTW_PATIENT);
}

/* By variant. */
static const mfi_fft_engine engines[] = {
    {"fftw", false, plan_estimated, lines_scratch, run_lines, free_lines},
    {"fftw", false, plan_measured, lines_scratch, run_lines, free_lines},
    {"fftw", false, plan_patiently, lines_scratch, run_lines, free_lines},
};
static const char *const efforts[] = {"estimate", "measure", "patient"};

static int variants(const mfi_problem *p, const mfi_caps *c)
{
    (void)p, (void)c;
    return (int)MFI_COUNT(engines);
}

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    MF_REFUSE_UNLESS(!c->cuda, WRONG_TARGET, "FFTW runs on the CPU, the target is %s", c->arch);
    MF_REFUSE_UNLESS(p->anchor == MFI_FFT || p->anchor == MFI_FFT_PAIR, NOT_ANCHOR, "only FFTs");
    MF_REFUSE_UNLESS(!mfi_fft_is_narrow(p), LAYOUT, "it stores all terms, the step keeps %lld",
                     (long long)p->shape[p->ndim - 1]);
    bool f64 = p->u.fft.f64;
    MF_REFUSE_UNLESS(c->library[f64 ? MFI_LIB_FFTW : MFI_LIB_FFTWF], NOT_FOUND, "no FFTW for %s; see mathfuse info",
                     f64 ? "f64" : "f32");
    if (p->anchor == MFI_FFT_PAIR && !mfi_fft_pair_query(p, c, bid))
        return false;
    mfi_bid_roofline(bid, p, c, 0.5, 1);
    snprintf(bid->kernel, sizeof bid->kernel, "fftw%s guru64", f64 ? "" : "f");
    return true;
}

typedef struct fftw_state {
    bool pair;
    void *inner;
} fftw_state;

static mf_status prepare(void **state, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    (void)context;
    MF_REQUIRE(bid->variant < (int)MFI_COUNT(engines), MF_E_INVALID, "FFTW has no variant %d", bid->variant);
    const mfi_fft_engine *engine = &engines[bid->variant];
    snprintf(bid->identity, sizeof bid->identity, "%s", efforts[bid->variant]);
    fftw_state *s = mfi_calloc(1, sizeof *s);
    *state = s;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->pair = p->anchor == MFI_FFT_PAIR;
    mf_status status = s->pair ? mfi_fft_pair_new(&s->inner, p, engine, c->threads)
                               : mfi_fft_cpu_new(&s->inner, p, engine, c->threads, false);
    if (status != MF_OK) {
        mf_free(s);
        *state = NULL;
    }
    if (status == MF_OK && !s->pair && mfi_fft_cpu_some(s->inner, runs_columns))
        strncat(bid->kernel, ", columns by loops", sizeof bid->kernel - strlen(bid->kernel) - 1);
    return status;
}

static mf_status run(void *state, const mfi_run *run)
{
    const fftw_state *s = state;
    return s->pair ? mfi_fft_pair_run(s->inner, run) : mfi_fft_cpu_run(s->inner, run);
}

static void destroy(void *state)
{
    fftw_state *s = state;
    if (s && s->pair)
        mfi_fft_pair_free(s->inner);
    else if (s)
        mfi_fft_cpu_free(s->inner);
    mf_free(s);
}

const mfi_provider mfi_provider_fftw = {"fftw", query, prepare, run, destroy, NULL, NULL, variants};
