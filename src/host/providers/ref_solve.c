/* SOLVE steps by plain loops: matrices one by one or, if small, as many side by side as a vector has lanes. */
#include "ref.h"

#include <math.h>

enum { FULL, LOWER_PART, UPPER_PART };
enum { MAX_LANES = 8, LANES_ORDER = 64 }; /* up to that order lanes fit the cache and beat loops along rows */

/* A strided matrix in memory, seen as the solver wants it. */
typedef struct solve_source {
    void *data;
    int64_t rows, cols, rs, cs;
    int triangle;
    bool strict, conjugate; /* strict: the diagonal is not read */
} solve_source;

typedef struct solve_group {
    mfi_solver solver;
    bool lower, unit;
    int64_t n, nrhs;
    void *m, *b, *column; /* column: scratch of n elements */
    int32_t *info;        /* one per lane */
} solve_group;

typedef float floats __attribute__((vector_size(32), may_alias));
typedef double doubles __attribute__((vector_size(32), may_alias));

#define COMPLEX 0
#define T float
#define L float
#define LANES 1
#define FABS fabsf
#define SQRT sqrtf
#define FN(name) name##_f32
#define TARGET
#include "ref_solve_loops.h"
#define T float
#define L floats
#define LANES 8
#define FABS fabsf
#define SQRT sqrtf
#define FN(name) name##_f32_lanes
#define TARGET
#include "ref_solve_loops.h"
#define T double
#define L double
#define LANES 1
#define FABS fabs
#define SQRT sqrt
#define FN(name) name##_f64
#define TARGET
#include "ref_solve_loops.h"
#define T double
#define L doubles
#define LANES 4
#define FABS fabs
#define SQRT sqrt
#define FN(name) name##_f64_lanes
#define TARGET
#include "ref_solve_loops.h"
#if defined(__x86_64__)
#define T float
#define L floats
#define LANES 8
#define FABS fabsf
#define SQRT sqrtf
#define FN(name) name##_f32_lanes_avx2
#define TARGET __attribute__((target("avx2")))
#include "ref_solve_loops.h"
#define T double
#define L doubles
#define LANES 4
#define FABS fabs
#define SQRT sqrt
#define FN(name) name##_f64_lanes_avx2
#define TARGET __attribute__((target("avx2")))
#include "ref_solve_loops.h"
#endif
#undef COMPLEX
#define COMPLEX 1
#define T float
#define L float
#define LANES 1
#define FABS fabsf
#define SQRT sqrtf
#define FN(name) name##_c64
#define TARGET
#include "ref_solve_loops.h"
#define T float
#define L floats
#define LANES 8
#define FABS fabsf
#define SQRT sqrtf
#define FN(name) name##_c64_lanes
#define TARGET
#include "ref_solve_loops.h"
#define T double
#define L double
#define LANES 1
#define FABS fabs
#define SQRT sqrt
#define FN(name) name##_c128
#define TARGET
#include "ref_solve_loops.h"
#define T double
#define L doubles
#define LANES 4
#define FABS fabs
#define SQRT sqrt
#define FN(name) name##_c128_lanes
#define TARGET
#include "ref_solve_loops.h"
#if defined(__x86_64__)
#define T float
#define L floats
#define LANES 8
#define FABS fabsf
#define SQRT sqrtf
#define FN(name) name##_c64_lanes_avx2
#define TARGET __attribute__((target("avx2")))
#include "ref_solve_loops.h"
#define T double
#define L doubles
#define LANES 4
#define FABS fabs
#define SQRT sqrt
#define FN(name) name##_c128_lanes_avx2
#define TARGET __attribute__((target("avx2")))
#include "ref_solve_loops.h"
#endif
#undef COMPLEX

typedef struct kernels {
    int lanes;
    void (*compute)(const solve_group *g);
    void (*load)(void *to, int v, const solve_source *s);
    void (*store)(const void *from, int v, const solve_source *s, bool failed);
} kernels;

static const kernels single[MFI_CTYPE_COUNT] = {
    [MFI_F32] = {1, compute_f32, load_f32, store_f32},
    [MFI_F64] = {1, compute_f64, load_f64, store_f64},
    [MFI_C64] = {1, compute_c64, load_c64, store_c64},
    [MFI_C128] = {1, compute_c128, load_c128, store_c128},
};
static const kernels side_by_side[MFI_CTYPE_COUNT] = {
    [MFI_F32] = {8, compute_f32_lanes, load_f32_lanes, store_f32_lanes},
    [MFI_F64] = {4, compute_f64_lanes, load_f64_lanes, store_f64_lanes},
    [MFI_C64] = {8, compute_c64_lanes, load_c64_lanes, store_c64_lanes},
    [MFI_C128] = {4, compute_c128_lanes, load_c128_lanes, store_c128_lanes},
};
#if defined(__x86_64__)
static const kernels side_by_side_avx2[MFI_CTYPE_COUNT] = {
    [MFI_F32] = {8, compute_f32_lanes_avx2, load_f32_lanes_avx2, store_f32_lanes_avx2},
    [MFI_F64] = {4, compute_f64_lanes_avx2, load_f64_lanes_avx2, store_f64_lanes_avx2},
    [MFI_C64] = {8, compute_c64_lanes_avx2, load_c64_lanes_avx2, store_c64_lanes_avx2},
    [MFI_C128] = {4, compute_c128_lanes_avx2, load_c128_lanes_avx2, store_c128_lanes_avx2},
};
#endif

static const kernels *choose_kernels(const mfi_solve *s, int64_t items)
{
    if (s->n > LANES_ORDER || items < 2)
        return &single[s->ctype];
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return &side_by_side_avx2[s->ctype];
#endif
    return &side_by_side[s->ctype];
}

/* ---- steps ---- */

typedef struct solve_state {
    const mfi_problem *p;
    const kernels *k;
    int threads;
    int64_t items;
    mfi_solve_views views;
} solve_state;

mf_status mfi_ref_solve_new(void **state, const mfi_problem *p, int threads)
{
    solve_state *s = mfi_calloc(1, sizeof *s);
    *state = s;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->p = p;
    s->threads = threads;
    s->items = mfi_product(p->shape, p->ndim);
    s->k = choose_kernels(&p->u.solve, s->items);
    mfi_solve_views_init(&s->views, p);
    return MF_OK;
}

void mfi_ref_solve_free(void *state)
{
    mf_free(state);
}

/* How the solver sees `a`: cholesky and cho_solve want a lower triangle, triangular solves op(a). */
static solve_source left_side(const mfi_solve *s, void *data, int64_t rs, int64_t cs)
{
    solve_source source = {.data = data, .rows = s->n, .cols = s->n, .rs = rs, .cs = cs};
    bool upper = s->flags & MF_UPPER, transpose = upper;
    if (s->solver == MFI_LU_SOLVE)
        return source;
    source.conjugate = upper;
    source.triangle = LOWER_PART;
    if (s->solver == MFI_TRSM) {
        transpose = s->flags & (MF_TRANS | MF_ADJOINT);
        source.conjugate = s->flags & MF_ADJOINT;
        source.triangle = upper != transpose ? UPPER_PART : LOWER_PART;
        source.strict = s->flags & MF_UNIT;
    }
    if (transpose) {
        source.rs = cs;
        source.cs = rs;
    }
    return source;
}

typedef struct solve_buffers {
    char *m, *b, *column, *pack;
} solve_buffers;

/* Up to `lanes` items from `first`. */
static void solve_items(const solve_state *s, const kernels *k, void *const *slots, int64_t first, int64_t count,
                        const solve_buffers *buffers)
{
    const mfi_solve *f = &s->p->u.solve;
    int32_t info[MAX_LANES] = {0};
    bool factor = f->solver == MFI_CHOLESKY;
    solve_source a = {0}, x;
    for (int v = 0; v < k->lanes; v++) { /* lanes without an item repeat the last one */
        int64_t item = first + mfi_min64(v, count - 1), rs, cs;
        void *data = mfi_solve_read(&s->views.a, slots, item, f->n, f->n, f->ctype, buffers->pack, &rs, &cs);
        a = left_side(f, data, rs, cs);
        k->load(buffers->m, v, &a);
        if (!factor) {
            data = mfi_solve_read(&s->views.b, slots, item, f->n, f->nrhs, f->ctype, buffers->pack, &rs, &cs);
            x = (solve_source){.data = data, .rows = f->n, .cols = f->nrhs, .rs = rs, .cs = cs};
            k->load(buffers->b, v, &x);
        }
    }
    solve_group g = {
        f->solver, a.triangle == LOWER_PART, f->flags & MF_UNIT, f->n, f->nrhs, buffers->m, buffers->b, buffers->column,
        info};
    k->compute(&g);
    for (int v = 0; v < count; v++) {
        mfi_solve_write_info(&s->views.info, slots, first + v, info[v]);
        if (f->x.slot < 0)
            continue;
        int64_t cols = factor ? f->n : f->nrhs, rs, cs;
        void *data = mfi_solve_result(&s->views.x, slots, first + v, cols, f->ctype, buffers->pack, &rs, &cs);
        x = (solve_source){.data = data, .rows = f->n, .cols = cols, .rs = rs, .cs = cs};
        if (factor)
            x = left_side(f, data, rs, cs);
        k->store(factor ? buffers->m : buffers->b, v, &x, info[v] != 0);
        mfi_solve_written(&s->views.x, slots, first + v, f->n, cols, f->ctype, buffers->pack);
    }
}

typedef struct solve_job {
    const solve_state *s;
    const kernels *kernels;
    void *const *slots;
    mfi_first_error *error;
} solve_job;

static void solve_piece(void *context, int64_t begin, int64_t end)
{
    const solve_job *job = context;
    const solve_state *s = job->s;
    const mfi_solve *f = &s->p->u.solve;
    int64_t lanes = job->kernels->lanes, cols = mfi_max64(f->nrhs, 1), size = (int64_t)mfi_ctype_size(f->ctype);
    int64_t m_bytes = (int64_t)mfi_align_up((size_t)(f->n * f->n * lanes * size), 64);
    int64_t b_bytes = (int64_t)mfi_align_up((size_t)(f->n * cols * lanes * size), 64);
    int64_t column_bytes = (int64_t)mfi_align_up((size_t)(f->n * lanes * size), 64);
    int64_t pack_bytes = f->n * mfi_max64(f->n, cols) * size;
    char *memory = mfi_alloc_aligned((size_t)(m_bytes + b_bytes + column_bytes + pack_bytes));
    if (!memory) {
        mfi_note(job->error, MF_E_MEMORY);
        return;
    }
    memset(memory, 0, (size_t)m_bytes); /* what is outside a triangle is never used, but is copied */
    solve_buffers buffers = {memory, memory + m_bytes, memory + m_bytes + b_bytes,
                             memory + m_bytes + b_bytes + column_bytes};
    for (int64_t group = begin; group < end; group++)
        solve_items(s, job->kernels, job->slots, group * lanes, mfi_min64(lanes, s->items - group * lanes), &buffers);
    mfi_free_aligned(memory);
}

mf_status mfi_ref_solve_run(void *state, const mfi_run *run)
{
    const solve_state *s = state;
    mfi_first_error error = {MF_OK};
    if (!s->items)
        return MF_OK;
    solve_job job = {s, s->k, run->slots, &error};
    int64_t work = s->p->u.solve.n * s->p->u.solve.n * (s->p->u.solve.n + s->p->u.solve.nrhs) * s->k->lanes;
    mfi_parallel_for(mfi_ceil_div(s->items, s->k->lanes), mfi_ceil_div(20000, mfi_max64(work, 1)), s->threads,
                     solve_piece, &job);
    return mfi_noted(&error, "solve");
}

mf_status mfi_ref_solve_item(void *state, void *const *slots, int64_t item)
{
    const solve_state *s = state;
    mfi_first_error error = {MF_OK};
    solve_job job = {s, &single[s->p->u.solve.ctype], slots, &error};
    solve_piece(&job, item, item + 1);
    return mfi_noted(&error, "solve");
}
