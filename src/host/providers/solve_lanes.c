/* Provider `lanes`: batches of small real systems on the CPU, as many side by side as a vector has lanes. */
#include "cpu_loops.h"
#include "factor_lanes.h"

#include <stdio.h>

extern const mfi_lane_table mfi_lanes_base;
#if defined(__x86_64__)
extern const mfi_lane_table mfi_lanes_avx2, mfi_lanes_avx512;
#endif

typedef struct lanes_state {
    const mfi_problem *p;
    const mfi_lane_functions *f;
    int threads;
    int64_t items, ld;
    mfi_solve_views views;
} lanes_state;

const mfi_lane_functions *mfi_lane_functions_of(mfi_ctype type)
{
    const char *isa = mfi_loops_at(0)->isa;
    const mfi_lane_table *table = &mfi_lanes_base;
#if defined(__x86_64__)
    if (!strcmp(isa, "avx512"))
        table = &mfi_lanes_avx512;
    else if (!strcmp(isa, "avx2"))
        table = &mfi_lanes_avx2;
#else
    (void)isa;
#endif
    return type == MFI_F32 ? &table->f32 : &table->f64;
}

/* ---- a group of matrices ---- */

/* A thread's memory: vectors, and a matrix of each lane to convert from or to. */
typedef struct lanes_memory {
    char *m, *pack;
    size_t pack_bytes; /* of one lane */
} lanes_memory;

void mfi_lanes_locate(mfi_lane_matrices *out, const mfi_solve_view *v, void *const *slots, int64_t first, int count)
{
    int64_t size = (int64_t)mf_dtype_size(v->view.dtype), offset = 0, left = 0;
    int64_t step = v->batch.dims ? v->batch.strides[v->batch.dims - 1] : 0;
    out->count = count;
    out->rs = v->rs;
    out->cs = v->cs;
    for (int i = 0; i < count; i++, left--, offset += step) {
        if (!left) {
            offset = mfi_batch_offset(&v->batch, first + i);
            left = mfi_batch_run(&v->batch, first + i);
        }
        out->data[i] = (char *)slots[v->view.slot] + (v->view.offset + offset) * size;
    }
}

void mfi_lanes_repeat_last(mfi_lane_matrices *m)
{
    for (int i = m->count; i < MFI_MOST_LANES; i++)
        m->data[i] = m->data[m->count - 1];
}

static void transpose(mfi_lane_matrices *m)
{
    int64_t rs = m->rs;
    m->rs = m->cs;
    m->cs = rs;
}

/* Operand `v` of a group into columns `column` and following; `turned`: its transpose. */
static void read(const lanes_state *s, const mfi_solve_view *v, void *const *slots, int64_t first, int count,
                 int64_t cols, int64_t column, bool turned, const lanes_memory *w)
{
    const mfi_solve *f = &s->p->u.solve;
    size_t size = mfi_ctype_size(f->ctype);
    mfi_lane_matrices m;
    mfi_lanes_locate(&m, v, slots, first, count);
    m.rows = f->n;
    m.cols = cols;
    if (v->view.dtype != mfi_ctype_dtype(f->ctype))
        for (int i = 0; i < count; i++)
            m.data[i] = mfi_solve_read(v, slots, first + i, f->n, cols, f->ctype, w->pack + (size_t)i * w->pack_bytes,
                                       &m.rs, &m.cs);
    if (turned)
        transpose(&m);
    mfi_lanes_repeat_last(&m);
    s->f->load(w->m + (size_t)column * (size_t)s->f->lanes * size, s->ld, &m);
}

static void write(const lanes_state *s, void *const *slots, int64_t first, int count, int64_t cols, int64_t column,
                  bool turned, const lanes_memory *w)
{
    const mfi_solve *f = &s->p->u.solve;
    const mfi_solve_view *v = &s->views.x;
    size_t size = mfi_ctype_size(f->ctype);
    bool convert = v->view.dtype != mfi_ctype_dtype(f->ctype);
    mfi_lane_matrices m;
    mfi_lanes_locate(&m, v, slots, first, count);
    m.rows = f->n;
    m.cols = cols;
    for (int i = 0; i < count && convert; i++)
        m.data[i] =
            mfi_solve_result(v, slots, first + i, cols, f->ctype, w->pack + (size_t)i * w->pack_bytes, &m.rs, &m.cs);
    if (turned)
        transpose(&m);
    mfi_lanes_repeat_last(&m);
    s->f->store(w->m + (size_t)column * (size_t)s->f->lanes * size, s->ld, &m);
    for (int i = 0; i < count && convert; i++)
        mfi_solve_written(v, slots, first + i, f->n, cols, f->ctype, m.data[i]);
}

static void solve_group(const lanes_state *s, void *const *slots, int64_t first, int count, const lanes_memory *w)
{
    const mfi_solve *f = &s->p->u.solve;
    bool factor = f->solver == MFI_CHOLESKY, upper = f->flags & MF_UPPER, triangular = f->solver == MFI_TRSM;
    bool turned = upper && f->solver != MFI_TRSM && f->solver != MFI_LU_SOLVE; /* U^T is the lower factor */
    mfi_lane_group g = {.solver = f->solver, .n = f->n, .nrhs = factor ? 0 : f->nrhs, .ld = s->ld, .m = w->m};
    g.upper = triangular && upper;
    g.transpose = triangular && (f->flags & (MF_TRANS | MF_ADJOINT));
    g.unit = triangular && (f->flags & MF_UNIT);
    read(s, &s->views.a, slots, first, count, f->n, 0, turned, w);
    if (!factor)
        read(s, &s->views.b, slots, first, count, f->nrhs, f->n, false, w);
    s->f->compute(&g);
    for (int i = 0; i < count; i++)
        mfi_solve_write_info(&s->views.info, slots, first + i, g.info[i]);
    if (f->x.slot < 0)
        return;
    s->f->finish(&g);
    write(s, slots, first, count, factor ? f->n : f->nrhs, factor ? 0 : f->n, factor && turned, w);
}

typedef struct lanes_job {
    const lanes_state *s;
    void *const *slots;
    mfi_first_error *error;
} lanes_job;

static void solve_piece(void *context, int64_t begin, int64_t end)
{
    const lanes_job *job = context;
    const lanes_state *s = job->s;
    const mfi_solve *f = &s->p->u.solve;
    size_t size = mfi_ctype_size(f->ctype), lanes = (size_t)s->f->lanes;
    bool convert = f->a.dtype != mfi_ctype_dtype(f->ctype) || (f->b.slot >= 0 && f->b.dtype != f->a.dtype) ||
                   (f->x.slot >= 0 && f->x.dtype != f->a.dtype);
    size_t m_bytes = mfi_align_up((size_t)(f->n * s->ld) * lanes * size, 64);
    size_t pack_bytes = convert ? mfi_align_up((size_t)(f->n * mfi_max64(f->n, f->nrhs)) * size, 64) : 0;
    char *memory = mfi_alloc_aligned(m_bytes + lanes * pack_bytes);
    if (!memory) {
        mfi_note(job->error, MF_E_MEMORY);
        return;
    }
    lanes_memory w = {memory, memory + m_bytes, pack_bytes};
    for (int64_t group = begin; group < end; group++) {
        int64_t first = group * s->f->lanes;
        solve_group(s, job->slots, first, (int)mfi_min64(s->f->lanes, s->items - first), &w);
    }
    mfi_free_aligned(memory);
}

static mf_status run(void *state, const mfi_run *run)
{
    const lanes_state *s = state;
    if (s->p->anchor == MFI_FACTOR)
        return mfi_lanes_factor_run(state, run);
    const mfi_solve *f = &s->p->u.solve;
    mfi_first_error error = {MF_OK};
    lanes_job job = {s, run->slots, &error};
    int64_t work = f->n * f->n * (f->n + f->nrhs) * s->f->lanes;
    if (!s->items)
        return MF_OK;
    mfi_parallel_for(mfi_ceil_div(s->items, s->f->lanes), mfi_ceil_div(40000, mfi_max64(work, 1)), s->threads,
                     solve_piece, &job);
    return mfi_noted(&error, "solve");
}

/* ---- the provider ---- */

/* A multiplication and a subtraction of vectors, what an element costs besides (moving it, dividing, choosing pivots), and what a
 * group does. */
double mfi_lanes_group_us(mfi_solver solver, int64_t order, int64_t sides)
{
    static const double product_us = 0.0005, element_us = 0.004, group_us = 0.15;
    double n = (double)order, nrhs = (double)sides;
    double factor = solver == MFI_LU_SOLVE                         ? n * n * n / 3
                    : solver == MFI_CHOLESKY || solver == MFI_POSV ? n * n * n / 6
                                                                   : 0;
    double side = solver == MFI_TRSM ? n * n * nrhs / 2 : n * n * nrhs;
    return product_us * (factor + side) + element_us * n * (n + nrhs) + group_us;
}

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_solve *f = &p->u.solve;
    MF_REFUSE_UNLESS(!c->cuda, WRONG_TARGET, "its loops run on the CPU, the target is %s", c->arch);
    if (p->anchor == MFI_FACTOR)
        return mfi_lanes_factor_query(p, c, bid);
    MF_REFUSE_UNLESS(p->anchor == MFI_SOLVE, NOT_ANCHOR, "only dense solvers");
    MF_REFUSE_UNLESS(f->ctype == MFI_F32 || f->ctype == MFI_F64, DTYPE, "f32 and f64, not %s",
                     mf_dtype_name(mfi_ctype_dtype(f->ctype)));
    int64_t items = mfi_problem_points(p);
    MF_REFUSE_UNLESS(mfi_solve_is_small(p), SIZE,
                     "n=%lld nrhs=%lld batch %lld: at most %d and %d, and two matrices, which are the lanes",
                     (long long)f->n, (long long)f->nrhs, (long long)items, MFI_SMALL_ORDER, MFI_FEW_SIDES);
    int lanes = mfi_lane_functions_of(f->ctype)->lanes;
    bid->bytes = mfi_problem_bytes(p);
    bid->launches = 1;
    bid->cost_us =
        (double)mfi_ceil_div(mfi_ceil_div(items, lanes), c->threads) * mfi_lanes_group_us(f->solver, f->n, f->nrhs) +
        c->launch_us;
    snprintf(bid->kernel, sizeof bid->kernel, "solve n=%lld, %d side by side", (long long)f->n, lanes);
    return true;
}

static mf_status prepare(void **state, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    (void)context;
    (void)bid;
    if (p->anchor == MFI_FACTOR)
        return mfi_lanes_factor_prepare(state, p, c);
    lanes_state *s = mfi_calloc(1, sizeof *s);
    *state = s;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->p = p;
    s->f = mfi_lane_functions_of(p->u.solve.ctype);
    s->threads = c->threads;
    s->items = mfi_problem_points(p);
    int64_t cols = p->u.solve.n + (p->u.solve.solver == MFI_CHOLESKY ? 0 : p->u.solve.nrhs);
    s->ld = cols | 1; /* odd: a column's vectors spread over the cache */
    mfi_solve_views_init(&s->views, p);
    return MF_OK;
}

const mfi_provider mfi_provider_lanes = {"lanes", query, prepare, run, mf_free, NULL, NULL, NULL};
