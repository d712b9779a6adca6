/* FFT through any library with FFTW 3's interface: FFTW itself and MKL. An engine of fft_cpu.c. */
#include "fft_cpu.h"
#include "loader.h"

#include <pthread.h>
#include <stdio.h>

/* The few facts of the interface that we use. */
typedef struct fftw_dim {
    ptrdiff_t n, is, os;
} fftw_dim;
enum { FFTW_UNALIGNED = 1 << 1, FFTW_ESTIMATE = 1 << 6, FFTW_FORWARD = -1, FFTW_BACKWARD = 1 };
enum { PLAN_ALIGNMENT = 16 };

typedef void *plan_dft(int rank, const fftw_dim *dims, int loops, const fftw_dim *loop, void *in, void *out, int sign,
                       unsigned flags);
typedef void *plan_real(int rank, const fftw_dim *dims, int loops, const fftw_dim *loop, void *in, void *out,
                        unsigned flags);
typedef void execute(void *plan, void *in, void *out);
typedef void destroy_plan(void *plan);
typedef union fftw_function { /* C has no cast from the loader's void * to a function */
    void *symbol;
    plan_dft *plan_dft;
    plan_real *plan_real;
    execute *execute;
    destroy_plan *destroy;
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
    fftw_function plan, execute, destroy;
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

/* FFTW_ESTIMATE never touches the arrays, so addresses of the right kind do. */
static void *make_plan(const fftw_lines *f, int64_t count, bool aligned)
{
    const mfi_line_geometry *g = &f->g;
    fftw_dim dim = {(ptrdiff_t)g->n, (ptrdiff_t)g->in_stride, (ptrdiff_t)g->out_stride};
    fftw_dim loop = {(ptrdiff_t)count, (ptrdiff_t)g->in_dist, (ptrdiff_t)g->out_dist};
    unsigned flags = FFTW_ESTIMATE | (aligned ? 0 : FFTW_UNALIGNED);
    _Alignas(64) static char somewhere[2][64];
    void *in = somewhere[0], *out = somewhere[1];
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
    if (v && (plan = make_plan(f, count, aligned))) {
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
    pthread_mutex_lock(&planner);
    for (fftw_variant *v = atomic_load(&f->variants), *next; v; v = next) {
        next = v->next;
        f->destroy.destroy(v->plan);
        mf_free(v);
    }
    pthread_mutex_unlock(&planner);
    mf_free(f);
}

static mf_status plan_lines(void **out, const mfi_line_geometry *g)
{
    bool real = g->kind == MF_RFFT || g->kind == MF_IRFFT;
    const char *kind = !real ? "dft" : g->kind == MF_RFFT ? "dft_r2c" : "dft_c2r";
    char name[32];
    fftw_lines *f = mfi_calloc(1, sizeof *f);
    *out = NULL;
    if (!f)
        return MFI_NO_MEMORY(sizeof *f);
    f->g = *g;
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
    const mfi_line_geometry *g = &((const fftw_lines *)plan)->g;
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

static const mfi_fft_engine engine = {"fftw", false, plan_lines, lines_scratch, run_lines, free_lines};

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
    (void)bid;
    fftw_state *s = mfi_calloc(1, sizeof *s);
    *state = s;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->pair = p->anchor == MFI_FFT_PAIR;
    mf_status status = s->pair ? mfi_fft_pair_new(&s->inner, p, &engine, c->threads)
                               : mfi_fft_cpu_new(&s->inner, p, &engine, c->threads, false);
    if (status != MF_OK) {
        mf_free(s);
        *state = NULL;
    }
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

const mfi_provider mfi_provider_fftw = {"fftw", query, prepare, run, destroy, NULL, NULL};
