/* LU factors and inverses of small real matrices, as many side by side as a vector has lanes: the FACTOR steps of `lanes`. */
#include "factor_lanes.h"

#include <stdio.h>

typedef struct factor_state {
    const mfi_problem *p;
    const mfi_lane_functions *f;
    int threads;
    int64_t items, ld;
    mfi_factor_views views;
} factor_state;

typedef struct factor_job {
    const factor_state *s;
    void *const *slots;
    mfi_first_error *error;
} factor_job;

static void put_numbers(const factor_state *s, void *const *slots, int64_t item, const int32_t *pivots)
{
    const mfi_factor *f = &s->p->u.factor;
    int32_t own[MFI_SMALL_ORDER], sign = 1;
    for (int64_t k = 0; k < f->n; k++) {
        own[k] = pivots[k * MFI_MOST_LANES];
        sign = own[k] == (int32_t)k ? sign : -sign;
    }
    mfi_factor_put(f, &s->views, slots, item, 2, own, f->n);
    mfi_factor_put(f, &s->views, slots, item, 3, &sign, 1);
}

static void move(const factor_state *s, const mfi_solve_view *v, void *const *slots, int64_t first, int count, char *m,
                 bool store)
{
    mfi_lane_matrices at;
    mfi_lanes_locate(&at, v, slots, first, count);
    at.rows = at.cols = s->p->u.factor.n;
    mfi_lanes_repeat_last(&at);
    if (store)
        s->f->store(m, s->ld, &at);
    else
        s->f->load(m, s->ld, &at);
}

static void factor_group(const factor_state *s, void *const *slots, int64_t first, int count, char *m)
{
    const mfi_factor *f = &s->p->u.factor;
    bool inverse = f->kind == MFI_INVERSE;
    int32_t pivots[MFI_SMALL_ORDER * MFI_MOST_LANES];
    size_t behind = (size_t)f->n * (size_t)s->f->lanes * mfi_ctype_size(f->ctype);
    mfi_lane_group g = {.solver = MFI_LU_SOLVE, .n = f->n, .nrhs = inverse ? f->n : 0, .ld = s->ld, .m = m};
    g.pivots = inverse ? NULL : pivots;
    g.invert = inverse;
    g.finite = true;
    move(s, &s->views.in[0], slots, first, count, m, false);
    s->f->compute(&g);
    if (mfi_factor_wants(f, 0))
        move(s, &s->views.out[0], slots, first, count, m + (inverse ? behind : 0), true);
    for (int i = 0; i < count; i++) {
        if (!inverse)
            put_numbers(s, slots, first + i, pivots + i);
        if (g.info[i] < 0 || (inverse && g.info[i]))
            mfi_factor_put_failed(f, &s->views, slots, first + i);
        mfi_factor_put(f, &s->views, slots, first + i, MFI_INFO, &g.info[i], 1);
    }
}

static void factor_piece(void *context, int64_t begin, int64_t end)
{
    const factor_job *job = context;
    const factor_state *s = job->s;
    const mfi_factor *f = &s->p->u.factor;
    int64_t lanes = s->f->lanes;
    char *m = mfi_alloc_aligned((size_t)(f->n * s->ld * lanes) * mfi_ctype_size(f->ctype));
    if (!m) {
        mfi_note(job->error, MF_E_MEMORY);
        return;
    }
    for (int64_t group = begin; group < end; group++)
        factor_group(s, job->slots, group * lanes, (int)mfi_min64(lanes, s->items - group * lanes), m);
    mfi_free_aligned(m);
}

mf_status mfi_lanes_factor_run(void *state, const mfi_run *run)
{
    const factor_state *s = state;
    const mfi_factor *f = &s->p->u.factor;
    mfi_first_error error = {MF_OK};
    factor_job job = {s, run->slots, &error};
    int64_t work = f->n * f->n * f->n * s->f->lanes;
    mfi_parallel_for(mfi_ceil_div(s->items, s->f->lanes), mfi_ceil_div(40000, mfi_max64(work, 1)), s->threads,
                     factor_piece, &job);
    return mfi_noted(&error, mfi_factor_name(f->kind));
}

bool mfi_lanes_factor_query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_factor *f = &p->u.factor;
    mf_dtype dtype = mfi_ctype_dtype(f->ctype);
    int64_t items = mfi_problem_points(p), sides = f->kind == MFI_INVERSE ? f->n : 0;
    MF_REFUSE_UNLESS(f->kind == MFI_LU || f->kind == MFI_INVERSE, NOT_ANCHOR, "LU and inverse only");
    MF_REFUSE_UNLESS(f->ctype == MFI_F32 || f->ctype == MFI_F64, DTYPE, "f32 and f64, not %s", mf_dtype_name(dtype));
    MF_REFUSE_UNLESS(f->in[0].view.dtype == dtype && (!mfi_factor_wants(f, 0) || f->out[0].view.dtype == dtype), DTYPE,
                     "matrices are converted to %s", mf_dtype_name(dtype));
    MF_REFUSE_UNLESS(f->m == f->n && f->n > 0 && f->n <= MFI_SMALL_ORDER && items >= 2, SIZE,
                     "%lld x %lld batch %lld: square, at most %d, and two matrices, which are the lanes",
                     (long long)f->m, (long long)f->n, (long long)items, MFI_SMALL_ORDER);
    int lanes = mfi_lane_functions_of(f->ctype)->lanes;
    bid->bytes = mfi_problem_bytes(p);
    bid->launches = 1;
    bid->cost_us =
        (double)mfi_ceil_div(mfi_ceil_div(items, lanes), c->threads) * mfi_lanes_group_us(MFI_LU_SOLVE, f->n, sides) +
        c->launch_us;
    snprintf(bid->kernel, sizeof bid->kernel, "%s n=%lld, %d side by side", mfi_factor_name(f->kind), (long long)f->n,
             lanes);
    return true;
}

mf_status mfi_lanes_factor_prepare(void **state, const mfi_problem *p, const mfi_caps *c)
{
    factor_state *s = mfi_calloc(1, sizeof *s);
    *state = s;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    int64_t cols = p->u.factor.n * (p->u.factor.kind == MFI_INVERSE ? 2 : 1);
    *s = (factor_state){.p = p, .f = mfi_lane_functions_of(p->u.factor.ctype), .threads = c->threads};
    s->ld = cols | 1; /* odd: a column's vectors spread over the cache */
    s->items = mfi_problem_points(p);
    mfi_factor_views_init(&s->views, p);
    return MF_OK;
}
