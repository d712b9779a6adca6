/* Dense solvers of the CPU's providers: residuals, info, NaN and triangles, over batches good and bad. */
#include "cpu_loops.h"
#include "cpu_problem.h"
#include "solve_lanes.h"

TestSuite(cpu_solve, .init = open_context, .fini = close_context);

static const mfi_provider *const providers[] = {&mfi_provider_ref, &mfi_provider_lanes, &mfi_provider_lapack};

typedef struct solve_case {
    mfi_solver solver;
    mf_dtype dtype, stored; /* of the computation; of a and b */
    int flags, layout;
    int64_t batch, n, nrhs;
} solve_case;

typedef struct solve_arrays {
    mfi_problem *p;
    array a, b, x, info;
    void *slots[4];
} solve_arrays;

static void make(solve_arrays *s, const solve_case *t)
{
    int64_t matrix[] = {t->batch, t->n, t->n}, sides[] = {t->batch, t->n, t->nrhs};
    bool factor = t->solver == MFI_CHOLESKY;
    s->a = array_new(0, t->stored, 3, matrix, t->layout);
    s->b = array_new(1, t->stored, 3, sides, t->layout);
    s->x = array_new(2, t->dtype, 3, factor ? matrix : sides, t->layout);
    s->info = array_new(3, MF_I32, 1, &t->batch, t->layout);
    void *slots[] = {s->a.memory, s->b.memory, s->x.memory, s->info.memory};
    memcpy(s->slots, slots, sizeof slots);
    fill_random(&s->a);
    fill_random(&s->b);
    s->p = mfi_calloc(1, sizeof *s->p);
    s->p->anchor = MFI_SOLVE;
    s->p->ndim = 1;
    s->p->shape[0] = t->batch;
    s->p->u.solve = (mfi_solve){t->solver, t->flags,  t->n,      t->nrhs,     mfi_compute_type(t->dtype),
                                s->a.view, s->b.view, s->x.view, s->info.view};
    if (factor)
        s->p->u.solve.b.slot = -1;
}

static void drop(solve_arrays *s)
{
    array_free(&s->a);
    array_free(&s->b);
    array_free(&s->x);
    array_free(&s->info);
    mf_free(s->p);
}

static int64_t at(const solve_case *t, int64_t item, int64_t i, int64_t j)
{
    return (item * t->n + i) * t->n + j;
}

/* Make `a` fit its solver: positive definite, or with a heavy diagonal; NaN where it must not be read. */
static void condition(solve_arrays *s, const solve_case *t)
{
    bool upper = t->flags & MF_UPPER, triangular = t->solver != MFI_LU_SOLVE;
    for (int64_t item = 0; item < t->batch; item++)
        for (int64_t i = 0; i < t->n; i++) {
            /* the rest of a row is smaller than n, so this is definite and well-conditioned */
            if (t->solver != MFI_LU_SOLVE)
                set_at(&s->a, at(t, item, i, i),
                       2 * (double)t->n + 1 + (t->solver == MFI_CHOLESKY || t->solver == MFI_POSV ? 3 * I : 0.5 * I));
            for (int64_t j = 0; triangular && j < t->n; j++)
                if (upper ? j < i : j > i)
                    set_at(&s->a, at(t, item, i, j), NAN);
            if (t->flags & MF_UNIT)
                set_at(&s->a, at(t, item, i, i), NAN);
            for (int64_t j = 0; t->flags & MF_UNIT && j < t->n; j++)
                if (upper ? j > i : j < i)
                    set_at(&s->a, at(t, item, i, j), get_at(&s->a, at(t, item, i, j)) / (double)t->n);
        }
}

/* Element of the matrix whose system is solved, or that was factored. */
static number whole(const solve_arrays *s, const solve_case *t, int64_t item, int64_t i, int64_t j)
{
    bool upper = t->flags & MF_UPPER;
    if (t->solver == MFI_LU_SOLVE)
        return get_at(&s->a, at(t, item, i, j));
    if (t->solver == MFI_TRSM) {
        bool turned = t->flags & (MF_TRANS | MF_ADJOINT);
        int64_t r = turned ? j : i, c = turned ? i : j;
        if (r == c && (t->flags & MF_UNIT))
            return 1;
        number v = (upper ? c < r : c > r) ? 0 : get_at(&s->a, at(t, item, r, c));
        return t->flags & MF_ADJOINT ? conj(v) : v;
    }
    if (t->solver == MFI_CHO_SOLVE) { /* L L^H or U^H U */
        number sum = 0;
        for (int64_t k = 0; k <= mfi_min64(i, j); k++)
            sum += upper ? conj(get_at(&s->a, at(t, item, k, i))) * get_at(&s->a, at(t, item, k, j))
                         : get_at(&s->a, at(t, item, i, k)) * conj(get_at(&s->a, at(t, item, j, k)));
        return sum;
    }
    /* CHOLESKY and POSV: the triangle that is read, mirrored */
    if (i == j)
        return creal(get_at(&s->a, at(t, item, i, i)));
    bool mine = upper ? i < j : i > j;
    return mine ? get_at(&s->a, at(t, item, i, j)) : conj(get_at(&s->a, at(t, item, j, i)));
}

static double residual(const solve_arrays *s, const solve_case *t, int64_t item)
{
    double worst = 0, scale = 1e-300;
    bool upper = t->flags & MF_UPPER, factor = t->solver == MFI_CHOLESKY;
    int64_t cols = factor ? t->n : t->nrhs;
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t j = 0; j < cols; j++) {
            number sum = 0;
            double size = 0;
            for (int64_t k = 0; k < t->n; k++) {
                number term;
                if (!factor)
                    term = whole(s, t, item, i, k) * get_at(&s->x, (item * t->n + k) * t->nrhs + j);
                else if (upper)
                    term = conj(get_at(&s->x, at(t, item, k, i))) * get_at(&s->x, at(t, item, k, j));
                else
                    term = get_at(&s->x, at(t, item, i, k)) * conj(get_at(&s->x, at(t, item, j, k)));
                sum += term;
                size += cabs(term);
            }
            number want = factor ? whole(s, t, item, i, j) : get_at(&s->b, (item * t->n + i) * t->nrhs + j);
            worst = fmax(worst, isnan(cabs(sum - want)) ? INFINITY : cabs(sum - want));
            scale = fmax(scale, size);
        }
    return worst / scale;
}

static void check(const solve_case *t)
{
    solve_arrays s;
    make(&s, t);
    condition(&s, t);
    keep(&s.a);
    keep(&s.b);
    keep(&s.x);
    bool narrow = t->dtype == MF_F32 || t->dtype == MF_C64;
    for (size_t i = 0; i < MFI_COUNT(providers); i++) {
        if (!run_problem(providers[i], s.p, s.slots))
            continue;
        for (int64_t item = 0; item < t->batch; item++) {
            double error = residual(&s, t, item);
            cr_assert(error < (double)(t->n + 10) * (narrow ? 3e-7 : 1e-15) * (t->solver == MFI_LU_SOLVE ? 20 : 1),
                      "%s solver %d %s flags %d layout %d n %lld nrhs %lld batch %lld: residual %g", providers[i]->name,
                      (int)t->solver, mf_dtype_name(t->dtype), t->flags, t->layout, (long long)t->n, (long long)t->nrhs,
                      (long long)t->batch, error);
            cr_assert_eq(get_at(&s.info, item), 0);
        }
        for (int64_t j = 0; t->solver == MFI_CHOLESKY && j < s.x.count; j++) {
            int64_t row = j / t->n % t->n, col = j % t->n;
            if (t->flags & MF_UPPER ? col < row : col > row)
                cr_assert_eq(get_at(&s.x, j), 0, "the other triangle is not zero");
        }
        check_kept(&s.a, true, providers[i]->name);
        check_kept(&s.b, true, providers[i]->name);
        check_kept(&s.x, false, providers[i]->name);
    }
    drop(&s);
}

Test(cpu_solve, random_systems)
{
    static const mf_dtype dtypes[] = {MF_F32, MF_F64, MF_C64, MF_C128};
    for (int i = 0; i < 800; i++) {
        solve_case t = {.solver = (mfi_solver)draw(MFI_SOLVER_COUNT), .dtype = dtypes[draw(4)], .layout = draw(2)};
        t.stored = t.dtype == MF_F32 && draw(3) == 0 ? MF_F16 : t.dtype;
        t.flags = t.solver == MFI_LU_SOLVE ? 0 : draw(2) ? MF_UPPER : 0;
        if (t.solver == MFI_TRSM)
            t.flags |= (draw(2) ? MF_UNIT : 0) | (draw(3) == 0 ? MF_TRANS : draw(2) ? MF_ADJOINT : 0);
        t.batch = draw(3) ? 1 + draw(12) : 1;
        t.n = draw(10) ? 1 + draw(20) : 30 + draw(60);
        t.nrhs = 1 + draw(4);
        check(&t);
    }
}

Test(cpu_solve, mapping_boundaries)
{
    static const int64_t orders[] = {31, 32, 33, 64, 65, 127, 128, 129, 161};
    for (size_t i = 0; i < MFI_COUNT(orders); i++)
        for (int solver = 0; solver < MFI_SOLVER_COUNT; solver++) {
            solve_case t = {(mfi_solver)solver, MF_F64, MF_F64, 0, PLAIN, 2, orders[i], 1};
            check(&t);
        }
}

/* Good, singular or indefinite, NaN, good: the good ones are solved, the others say so. n tries loops and libraries. */
static void check_mixed(const mfi_provider *provider, mfi_solver solver, mf_dtype dtype, int64_t n)
{
    solve_case t = {solver, dtype, dtype, 0, PLAIN, 4, n, 2};
    solve_arrays s;
    make(&s, &t);
    for (int64_t item = 0; item < 4; item++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                set_at(&s.a, at(&t, item, i, j), i == j ? 4 : i > j && item != 1 ? 0.5 / (double)n : 0);
    set_at(&s.a, at(&t, 1, 1, 1), 0);
    set_at(&s.a, at(&t, 2, 0, 0), NAN);
    if (run_problem(provider, s.p, s.slots)) {
        cr_assert_eq(get_at(&s.info, 0), 0);
        cr_assert_eq(get_at(&s.info, 1), 2, "%s solver %d: info %g", provider->name, (int)solver,
                     creal(get_at(&s.info, 1)));
        cr_assert_eq(get_at(&s.info, 2), solver == MFI_CHOLESKY || solver == MFI_POSV ? 1 : 0, "%s solver %d: info %g",
                     provider->name, (int)solver, creal(get_at(&s.info, 2)));
        cr_assert_eq(get_at(&s.info, 3), 0);
        int64_t count = s.x.count / 4, cols = count / n;
        for (int64_t j = 0; j < count; j++) {
            bool outside = solver == MFI_CHOLESKY && j % cols > j / cols;
            cr_assert(isfinite(cabs(get_at(&s.x, j))) && isfinite(cabs(get_at(&s.x, 3 * count + j))));
            cr_assert_eq((bool)isnan(creal(get_at(&s.x, count + j))), !outside);
        }
        cr_assert(isnan(creal(get_at(&s.x, 2 * count))));
        cr_assert(residual(&s, &t, 0) < 1e-5 && residual(&s, &t, 3) < 1e-5);
    }
    drop(&s);
}

Test(cpu_solve, one_bad_matrix_does_not_stop_the_batch)
{
    static const mf_dtype dtypes[] = {MF_F32, MF_F64, MF_C64, MF_C128};
    for (size_t i = 0; i < MFI_COUNT(providers); i++)
        for (int solver = 0; solver < MFI_SOLVER_COUNT; solver++)
            for (size_t d = 0; d < MFI_COUNT(dtypes); d++) {
                check_mixed(providers[i], (mfi_solver)solver, dtypes[d], 3);
                check_mixed(providers[i], (mfi_solver)solver, dtypes[d], 70);
                check_mixed(providers[i], (mfi_solver)solver, dtypes[d], 130);
            }
}

Test(cpu_solve, empty_sizes)
{
    for (int zero = 0; zero < 3; zero++)
        for (int solver = 0; solver < MFI_SOLVER_COUNT; solver++)
            for (size_t i = 0; i < MFI_COUNT(providers); i++) {
                solve_case t = {(mfi_solver)solver, MF_F32, MF_F32, 0, PLAIN, 2, 3, 2};
                t.batch = zero == 0 ? 0 : 2, t.n = zero == 1 ? 0 : 3, t.nrhs = zero == 2 ? 0 : 2;
                solve_arrays s;
                make(&s, &t);
                for (int64_t item = 0; item < t.batch; item++)
                    for (int64_t j = 0; j < t.n * t.n; j++)
                        set_at(&s.a, item * t.n * t.n + j, j % (t.n + 1) == 0);
                if (run_problem(providers[i], s.p, s.slots))
                    for (int64_t item = 0; item < t.batch; item++)
                        cr_assert_eq(get_at(&s.info, item), 0);
                drop(&s);
            }
}

/* ---- lanes ---- */

/* A copy of an array's memory, and whether two such copies are the same but for the bits of NaN. */
static unsigned char *copy_of(const array *a)
{
    unsigned char *copy = mfi_alloc((size_t)a->bytes);
    memcpy(copy, a->memory, (size_t)a->bytes);
    return copy;
}

static bool same(const array *a, const unsigned char *other, int64_t index)
{
    const unsigned char *p = array_at(a, index), *q = other + (p - a->memory);
    if (a->view.dtype == MF_F32 && isnan(*(const float *)(const void *)p))
        return isnan(*(const float *)(const void *)q);
    if (a->view.dtype == MF_F64 && isnan(*(const double *)(const void *)p))
        return isnan(*(const double *)(const void *)q);
    return !memcmp(p, q, mf_dtype_size(a->view.dtype));
}

static const double BAD[] = {0, 0, NAN, INFINITY, -1, 1e30, 1e-30, -INFINITY};

/* Some members of a batch fail, or hold what is no number. */
static void spoil(solve_arrays *s, const solve_case *t)
{
    for (int64_t item = 0; item < t->batch; item++) {
        if (draw(3))
            continue;
        int64_t i = draw((int)t->n), j = draw(2) ? i : draw((int)t->n);
        double bad = BAD[draw(MFI_COUNT(BAD))];
        set_at(&s->a, at(t, item, i, j), bad);
        for (int64_t k = 0; bad == 0 && t->solver == MFI_LU_SOLVE && k < t->n; k++)
            set_at(&s->a, at(t, item, k, i), 0);
    }
}

static solve_case lanes_case(void)
{
    solve_case t = {
        .solver = (mfi_solver)draw(MFI_SOLVER_COUNT), .dtype = draw(2) ? MF_F32 : MF_F64, .layout = draw(2)};
    t.stored = t.dtype == MF_F32 && draw(4) == 0 ? MF_F16 : t.dtype;
    t.flags = t.solver == MFI_LU_SOLVE ? 0 : draw(2) ? MF_UPPER : 0;
    if (t.solver == MFI_TRSM)
        t.flags |= (draw(2) ? MF_UNIT : 0) | (draw(3) == 0 ? MF_TRANS : draw(2) ? MF_ADJOINT : 0);
    t.batch = 2 + draw(40);
    t.n = draw(8) ? 1 + draw(34) : 60 + draw(69);
    t.nrhs = 1 + draw(6);
    return t;
}

Test(cpu_solve, lanes_have_the_bits_of_the_reference)
{
    for (int i = 0; i < 400; i++) {
        solve_case t = lanes_case();
        solve_arrays s;
        make(&s, &t);
        condition(&s, &t);
        spoil(&s, &t);
        cr_assert(run_problem(&mfi_provider_ref, s.p, s.slots));
        unsigned char *x = copy_of(&s.x), *info = copy_of(&s.info);
        memset(s.x.memory, 0x55, (size_t)s.x.bytes);
        memset(s.info.memory, 0x55, (size_t)s.info.bytes);
        cr_assert(run_problem(&mfi_provider_lanes, s.p, s.slots));
        for (int64_t j = 0; j < s.info.count; j++)
            cr_assert(same(&s.info, info, j), "solver %d n %lld: info %g of item %lld", (int)t.solver, (long long)t.n,
                      creal(get_at(&s.info, j)), (long long)j);
        for (int64_t j = 0; j < s.x.count; j++)
            cr_assert(same(&s.x, x, j), "solver %d %s flags %d layout %d n %lld nrhs %lld: element %lld of %lld",
                      (int)t.solver, mf_dtype_name(t.dtype), t.flags, t.layout, (long long)t.n, (long long)t.nrhs,
                      (long long)j, (long long)s.x.count);
        mf_free(x);
        mf_free(info);
        drop(&s);
    }
}

/* The same items from another first one on: other lanes, other neighbours, other threads. */
Test(cpu_solve, lanes_do_not_depend_on_the_place_in_the_batch)
{
    for (int i = 0; i < 60; i++) {
        solve_case t = lanes_case();
        solve_arrays s;
        t.batch = 300;
        t.n = 1 + draw(12);
        t.layout = PLAIN;
        make(&s, &t);
        condition(&s, &t);
        spoil(&s, &t);
        cr_assert(run_problem(&mfi_provider_lanes, s.p, s.slots));
        unsigned char *x = copy_of(&s.x), *info = copy_of(&s.info);
        int64_t from = 1 + draw(20);
        mfi_view *views[] = {&s.p->u.solve.a, &s.p->u.solve.b, &s.p->u.solve.x, &s.p->u.solve.info};
        for (size_t v = 0; v < MFI_COUNT(views); v++)
            views[v]->offset += views[v]->slot < 0 ? 0 : from * views[v]->strides[0];
        s.p->shape[0] = t.batch - from - draw(200);
        for (int64_t j = from * (s.x.count / t.batch); j < (from + s.p->shape[0]) * (s.x.count / t.batch); j++)
            set_at(&s.x, j, 5);
        cr_assert(run_problem(&mfi_provider_lanes, s.p, s.slots));
        for (int64_t j = 0; j < s.x.count; j++)
            cr_assert(same(&s.x, x, j), "solver %d n %lld: element %lld", (int)t.solver, (long long)t.n, (long long)j);
        for (int64_t j = 0; j < s.info.count; j++)
            cr_assert(same(&s.info, info, j));
        mf_free(x);
        mf_free(info);
        drop(&s);
    }
}

extern const mfi_lane_table mfi_lanes_base;
#if defined(__x86_64__)
extern const mfi_lane_table mfi_lanes_avx2, mfi_lanes_avx512;
static const mfi_lane_table *const tables[] = {&mfi_lanes_base, &mfi_lanes_avx2, &mfi_lanes_avx512};
#else
static const mfi_lane_table *const tables[] = {&mfi_lanes_base};
#endif

static bool runs_here(const char *isa)
{
    for (int i = 0; mfi_loops_at(i); i++)
        if (!strcmp(mfi_loops_at(i)->isa, isa))
            return true;
    return false;
}

/* The systems in `s` through one table, in groups; x row by row. */
static void run_table(const mfi_lane_table *table, const solve_case *t, const double *a, const double *b, double *x,
                      int32_t *info)
{
    const mfi_lane_functions *f = &table->f64;
    int64_t ld = t->n + t->nrhs;
    double *m = mfi_alloc_aligned((size_t)(t->n * ld * f->lanes) * sizeof *m);
    for (int64_t first = 0; first < t->batch; first += f->lanes) {
        mfi_lane_group g = {.solver = t->solver, .n = t->n, .nrhs = t->nrhs, .ld = ld, .m = m};
        mfi_lane_matrices as = {.count = (int)mfi_min64(f->lanes, t->batch - first), .rows = t->n};
        mfi_lane_matrices bs = as;
        as.cols = as.rs = t->n, bs.cols = bs.rs = t->nrhs, as.cs = bs.cs = 1;
        mfi_lane_matrices xs = bs;
        for (int v = 0; v < f->lanes; v++) {
            int64_t item = mfi_min64(first + v, t->batch - 1);
            as.data[v] = (void *)(uintptr_t)(a + item * t->n * t->n);
            bs.data[v] = (void *)(uintptr_t)(b + item * t->n * t->nrhs);
            xs.data[v] = x + item * t->n * t->nrhs;
        }
        f->load(m, ld, &as);
        f->load(m + t->n * f->lanes, ld, &bs);
        f->compute(&g);
        f->finish(&g);
        f->store(m + t->n * f->lanes, ld, &xs);
        memcpy(info + first, g.info, (size_t)as.count * sizeof *info);
    }
    mfi_free_aligned(m);
}

Test(cpu_solve, every_instruction_set_gives_the_same_bits)
{
    enum { ORDER = 21, BATCH = 19, SIDES = 3 };
    static double a[BATCH * ORDER * ORDER], b[BATCH * ORDER * SIDES], x[2][BATCH * ORDER * SIDES];
    int32_t info[2][BATCH];
    for (size_t i = 0; i < MFI_COUNT(a); i++)
        a[i] = draw_value();
    for (size_t i = 0; i < MFI_COUNT(b); i++)
        b[i] = draw_value();
    for (int k = 0; k < ORDER; k++)
        a[4 * ORDER * ORDER + k * ORDER + 2] = 0;
    for (int solver = MFI_LU_SOLVE; solver < MFI_SOLVER_COUNT; solver++)
        for (size_t i = 0; i < MFI_COUNT(tables); i++) {
            solve_case t = {(mfi_solver)solver, MF_F64, MF_F64, 0, PLAIN, BATCH, ORDER, SIDES};
            if (!runs_here(tables[i]->isa))
                continue;
            run_table(tables[i], &t, a, b, x[i > 0], info[i > 0]);
            if (solver == MFI_LU_SOLVE)
                cr_assert_eq(info[i > 0][4], 3);
            cr_assert(!i || !memcmp(info[0], info[1], sizeof info[0]), "%s", tables[i]->isa);
            for (size_t j = 0; i && j < MFI_COUNT(x[0]); j++)
                cr_assert(isnan(x[0][j]) ? isnan(x[1][j]) : x[0][j] == x[1][j], "%s: element %zu", tables[i]->isa, j);
        }
}
