/* Dense solvers on the GPU, cuSOLVER and cuBLAS called directly: residuals, info and NaN. One test: CUDA starts once.
 */
#include "gpu_harness.h"

extern const mfi_provider mfi_provider_cusolver, mfi_provider_ref;
static const mfi_provider *provider;

enum { GOOD, SINGULAR, HAS_NAN, HEALTHS };

typedef struct solve_case {
    mfi_solver solver;
    mf_dtype dtype;
    int flags;
    int64_t batch, n, nrhs;
} solve_case;

/* Well-conditioned matrices; in a batch, every third is singular and every third has a NaN. */
static int health(const solve_case *c, int64_t item)
{
    return c->batch < 3 ? GOOD : (int)(item % HEALTHS);
}

static bool definite(const solve_case *c)
{
    return c->solver == MFI_CHOLESKY || c->solver == MFI_POSV;
}

static double complex a_of(const slot *s, const solve_case *c, int64_t item, int64_t i, int64_t j)
{
    return get(s, (item * c->n + i) * c->n + j);
}

static void fill_matrices(slot *s, const solve_case *c)
{
    for (int64_t item = 0; item < c->batch; item++) {
        for (int64_t i = 0; i < c->n; i++)
            for (int64_t j = 0; j < c->n; j++) {
                double complex z = a_of(s, c, item, i, j) / 2;
                if (definite(c) && j < i)
                    z = conj(a_of(s, c, item, j, i));
                if (i == j)
                    z = (double)c->n + fabs(creal(z));
                put(s, (item * c->n + i) * c->n + j, z);
            }
        int64_t last = (item * c->n + c->n - 1) * c->n + c->n - 1;
        if (health(c, item) == SINGULAR && c->solver == MFI_LU_SOLVE)
            for (int64_t j = 0; j < c->n; j++)
                put(s, (item * c->n + c->n - 1) * c->n + j, 0);
        else if (health(c, item) == SINGULAR)
            put(s, last, 0);
        else if (health(c, item) == HAS_NAN)
            put(s, last, NAN);
        bool triangular = c->solver != MFI_LU_SOLVE; /* the triangle that is not named is garbage */
        for (int64_t i = 0; i < c->n && triangular && !definite(c); i++)
            for (int64_t j = 0; j < c->n; j++)
                if (c->flags & MF_UPPER ? j < i : j > i)
                    put(s, (item * c->n + i) * c->n + j, NAN);
    }
}

/* op(A) as the solver reads it: only the named triangle, a unit diagonal where asked. */
static double complex read_a(const slot *s, const solve_case *c, int64_t item, int64_t i, int64_t j)
{
    bool trans = c->solver == MFI_TRSM && c->flags & (MF_TRANS | MF_ADJOINT);
    int64_t r = trans ? j : i, k = trans ? i : j;
    double complex z = a_of(s, c, item, r, k);
    if (c->solver != MFI_LU_SOLVE && (c->flags & MF_UPPER ? k < r : k > r))
        return 0;
    if (c->solver == MFI_TRSM && c->flags & MF_UNIT && r == k)
        return 1;
    return c->solver == MFI_TRSM && c->flags & MF_ADJOINT ? conj(z) : z;
}

/* The residual of item's result, relative to its terms. */
static double residual(const solve_case *c, const slot *slots, int64_t item)
{
    const slot *a = &slots[0], *b = &slots[1], *x = &slots[2];
    int64_t n = c->n, columns = c->solver == MFI_CHOLESKY ? n : c->nrhs;
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < columns; j++) {
            double complex sum = 0;
            double size = 1;
            for (int64_t k = 0; k < n; k++) {
                double complex term = 0;
                if (c->solver == MFI_CHOLESKY) {
                    bool upper = c->flags & MF_UPPER;
                    double complex l = get(x, (item * n + (upper ? k : i)) * n + (upper ? i : k));
                    double complex r = get(x, (item * n + (upper ? k : j)) * n + (upper ? j : k));
                    term = upper ? conj(l) * r : l * conj(r);
                } else if (c->solver == MFI_CHO_SOLVE) {
                    double complex product = 0; /* (L L^H)_ik or (U^H U)_ik */
                    for (int64_t q = 0; q < n; q++)
                        product += c->flags & MF_UPPER ? conj(read_a(a, c, item, q, i)) * read_a(a, c, item, q, k)
                                                       : read_a(a, c, item, i, q) * conj(read_a(a, c, item, k, q));
                    term = product * get(x, (item * n + k) * columns + j);
                } else if (c->solver == MFI_POSV) {
                    term = a_of(a, c, item, i, k) * get(x, (item * n + k) * columns + j);
                } else {
                    term = read_a(a, c, item, i, k) * get(x, (item * n + k) * columns + j);
                }
                sum += term;
                size += cabs(term);
            }
            double complex want =
                c->solver == MFI_CHOLESKY ? a_of(a, c, item, i, j) : get(b, (item * n + i) * columns + j);
            double error = cabs(sum - want) / size;
            worst = error > worst || error != error ? error : worst;
            bool outside = c->solver == MFI_CHOLESKY && (c->flags & MF_UPPER ? j < i : j > i);
            if (outside && get(x, (item * n + i) * n + j) != 0)
                worst = INFINITY;
        }
    return worst;
}

static void check_solve(const solve_case *c, const slot *slots, const char *what)
{
    double tolerance = c->dtype == MF_F32 || c->dtype == MF_C64 ? 2e-6 : 1e-14;
    bool unit = c->solver == MFI_TRSM && c->flags & MF_UNIT;
    int64_t columns = c->solver == MFI_CHOLESKY ? c->n : c->nrhs;
    for (int64_t item = 0; item < c->batch; item++) {
        int info = (int)creal(get(&slots[3], item)), state = unit ? GOOD : health(c, item);
        double complex last = get(&slots[2], (item * c->n + c->n - 1) * columns + columns - 1);
        if (state == GOOD) {
            double error = residual(c, slots, item);
            cr_expect(info == 0 && error <= tolerance, "%s: item %d: info %d, residual %.3g", what, (int)item, info,
                      error);
        } else if (state == SINGULAR) {
            cr_expect(info == (int)c->n && last != last, "%s: singular item %d: info %d, x %g", what, (int)item, info,
                      creal(last));
        } else {
            cr_expect(last != last, "%s: NaN item %d: info %d, x %g", what, (int)item, info, creal(last));
            cr_expect(!definite(c) || info == (int)c->n, "%s: NaN item %d: info %d", what, (int)item, info);
        }
    }
}

static void solve(const solve_case *c)
{
    slot slots[MAX_SLOTS];
    char what[160];
    int64_t n = c->n, columns = c->solver == MFI_CHOLESKY ? n : c->nrhs;
    snprintf(what, sizeof what, "solver %d %s flags %d batch %lld n %lld nrhs %lld", c->solver, mf_dtype_name(c->dtype),
             c->flags, (long long)c->batch, (long long)n, (long long)c->nrhs);
    mfi_problem p = {.anchor = MFI_SOLVE, .ndim = 1, .shape = {c->batch}};
    mfi_solve *s = &p.u.solve;
    *s = (mfi_solve){
        .solver = c->solver, .flags = c->flags, .n = n, .nrhs = c->nrhs, .ctype = mfi_compute_type(c->dtype)};
    s->a = (mfi_view){.slot = 0, .dtype = c->dtype, .alignment = 16, .strides = {n * n, n, 1}};
    s->b = (mfi_view){.slot = (int16_t)(c->solver == MFI_CHOLESKY ? -1 : 1), .dtype = c->dtype, .alignment = 16};
    s->b.strides[0] = n * columns;
    s->b.strides[1] = columns;
    s->b.strides[2] = 1;
    s->x = s->b;
    s->x.slot = 2;
    s->info = (mfi_view){.slot = 3, .dtype = MF_I32, .alignment = 16, .strides = {1}};
    make(&slots[0], c->dtype, c->batch * n * n);
    make(&slots[1], c->dtype, c->batch * n * columns);
    make(&slots[2], c->dtype, c->batch * n * columns);
    make(&slots[3], MF_I32, c->batch);
    fill_matrices(&slots[0], c);
    if (run(provider, &p, mfi_context_caps(context), slots, 4, 2, what))
        check_solve(c, slots, what);
    release(slots, 4);
}

static void solves(void)
{
    static const mf_dtype dtypes[] = {MF_F32, MF_F64, MF_C64, MF_C128};
    static const int64_t orders[] = {1, 2, 5, 32, 33};
    for (size_t t = 0; t < MFI_COUNT(dtypes); t++)
        for (int solver = 0; solver < MFI_SOLVER_COUNT; solver++)
            for (int flags = 0; flags < 16; flags++) {
                bool upper_only = solver == MFI_CHOLESKY || solver == MFI_CHO_SOLVE || solver == MFI_POSV;
                bool both = (flags & MF_TRANS) && (flags & MF_ADJOINT);
                if (both || (upper_only && flags & ~MF_UPPER) || (solver == MFI_LU_SOLVE && flags))
                    continue;
                for (size_t i = 0; i < MFI_COUNT(orders); i++) {
                    solve(&(solve_case){(mfi_solver)solver, dtypes[t], flags, 1, orders[i], 3});
                    solve(&(solve_case){(mfi_solver)solver, dtypes[t], flags, 6, orders[i], 2});
                }
                solve(&(solve_case){(mfi_solver)solver, dtypes[t], flags, 3, 40, 1});
            }
}

Test(gpu, solve)
{
    provider = open_context(MFI_SOLVE) ? &mfi_provider_cusolver : &mfi_provider_ref;
    solves();
    mf_context_free(context);
}
