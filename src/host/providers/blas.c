/* MATMUL through any CBLAS with 32-bit integers: OpenBLAS, MKL, BLIS, the reference. */
#include "loader.h"
#include "matmul_cpu.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112, UPPER = 121 }; /* values of the CBLAS interface */

typedef void real_gemm_f32(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                           int);
typedef void real_gemm_f64(int, int, int, int, int, int, double, const double *, int, const double *, int, double,
                           double *, int);
typedef void complex_gemm(int, int, int, int, int, int, const void *, const void *, int, const void *, int,
                          const void *, void *, int);
typedef void real_gemv_f32(int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
typedef void real_gemv_f64(int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
typedef void complex_gemv(int, int, int, int, const void *, const void *, int, const void *, int, const void *, void *,
                          int);

/* C has no cast from the loader's void * to a function. */
typedef union gemm_function {
    void *symbol;
    real_gemm_f32 *f32;
    real_gemm_f64 *f64;
    complex_gemm *complex;
} gemm_function;
typedef void real_syrk_f32(int, int, int, int, int, float, const float *, int, float, float *, int);
typedef void real_syrk_f64(int, int, int, int, int, double, const double *, int, double, double *, int);
typedef union syrk_function {
    void *symbol;
    real_syrk_f32 *f32;
    real_syrk_f64 *f64;
} syrk_function;
typedef union gemv_function {
    void *symbol;
    real_gemv_f32 *f32;
    real_gemv_f64 *f64;
    complex_gemv *complex;
} gemv_function;

/* How to have OpenBLAS work on the calling thread alone: it has one number of threads for the process. */
typedef union thread_function {
    void *symbol;
    void (*set)(int);
    int (*get)(void);
    int (*exchange)(int);
} thread_function;
enum { OPENBLAS_SEQUENTIAL, OPENBLAS_PTHREADS, OPENBLAS_OPENMP }; /* what openblas_get_parallel returns */

typedef struct blas_state {
    gemm_function gemm;
    gemv_function gemv;
    syrk_function syrk; /* may be missing */
    thread_function set_threads, get_threads;
    thread_function set_local; /* MKL: of the calling thread; returns what it was, 0 for the process's number */
    bool sequential;           /* it has no threads */
    void *inner;
} blas_state;

static const char letter[MFI_CTYPE_COUNT] = {[MFI_F32] = 's', [MFI_F64] = 'd', [MFI_C64] = 'c', [MFI_C128] = 'z'};

/* How a rows x cols matrix is told to a row-major BLAS. */
static int describe(int64_t rows, int64_t cols, int64_t rs, int64_t cs, int *ld)
{
    if ((cs == 1 || cols == 1) && (rows == 1 || rs >= mfi_max64(cols, 1))) {
        *ld = rows == 1 ? (int)mfi_max64(cols, 1) : (int)rs;
        return NO_TRANS;
    }
    *ld = cols == 1 ? (int)mfi_max64(rows, 1) : (int)cs;
    return TRANS;
}

static void call_gemm(const blas_state *s, const mfi_gemm *g)
{
    static const double one[2] = {1, 0}, zero[2] = {0, 0};
    static const float one_f[2] = {1, 0}, zero_f[2] = {0, 0};
    int lda, ldb, ldc, m = (int)g->m, n = (int)g->n, k = (int)g->k;
    int ta = describe(g->m, g->k, g->am, g->ak, &lda), tb = describe(g->k, g->n, g->bk, g->bn, &ldb);
    describe(g->m, g->n, g->cm, g->cn, &ldc);
    switch (g->type) {
    case MFI_F32:
        s->gemm.f32(ROW_MAJOR, ta, tb, m, n, k, 1, g->a, lda, g->b, ldb, 0, g->c, ldc);
        break;
    case MFI_F64:
        s->gemm.f64(ROW_MAJOR, ta, tb, m, n, k, 1, g->a, lda, g->b, ldb, 0, g->c, ldc);
        break;
    case MFI_C64:
        s->gemm.complex(ROW_MAJOR, ta, tb, m, n, k, one_f, g->a, lda, g->b, ldb, zero_f, g->c, ldc);
        break;
    default:
        s->gemm.complex(ROW_MAJOR, ta, tb, m, n, k, one, g->a, lda, g->b, ldb, zero, g->c, ldc);
    }
}

static void clear(const mfi_gemm *g)
{
    size_t size = mfi_ctype_size(g->type);
    for (int64_t i = 0; i < g->m && g->cn == 1; i++)
        memset((char *)g->c + i * g->cm * (int64_t)size, 0, (size_t)g->n * size);
    for (int64_t i = 0; i < g->m && g->cn != 1; i++)
        for (int64_t j = 0; j < g->n; j++)
            memset((char *)g->c + (i * g->cm + j * g->cn) * (int64_t)size, 0, size);
}

/* n == 1: c = a b. Some libraries read y even for beta = 0, so it is cleared first. */
static void call_gemv(const blas_state *s, const mfi_gemm *g)
{
    static const double one[2] = {1, 0};
    static const float one_f[2] = {1, 0};
    int lda, trans = describe(g->m, g->k, g->am, g->ak, &lda);
    int rows = (int)(trans == TRANS ? g->k : g->m), cols = (int)(trans == TRANS ? g->m : g->k);
    int incx = (int)(g->k == 1 ? 1 : g->bk), incy = (int)(g->m == 1 ? 1 : g->cm);
    clear(g);
    switch (g->type) {
    case MFI_F32:
        s->gemv.f32(ROW_MAJOR, trans, rows, cols, 1, g->a, lda, g->b, incx, 1, g->c, incy);
        break;
    case MFI_F64:
        s->gemv.f64(ROW_MAJOR, trans, rows, cols, 1, g->a, lda, g->b, incx, 1, g->c, incy);
        break;
    case MFI_C64:
        s->gemv.complex(ROW_MAJOR, trans, rows, cols, one_f, g->a, lda, g->b, incx, one_f, g->c, incy);
        break;
    default:
        s->gemv.complex(ROW_MAJOR, trans, rows, cols, one, g->a, lda, g->b, incx, one, g->c, incy);
    }
}

static mfi_gemm transposed(const mfi_gemm *g)
{
    mfi_gemm t = *g;
    t.m = g->n, t.n = g->m;
    t.a = g->b, t.b = g->a;
    t.am = g->bn, t.ak = g->bk, t.bk = g->ak, t.bn = g->am;
    t.cm = g->cn, t.cn = g->cm;
    return t;
}

static void call(const blas_state *s, const mfi_gemm *g)
{
    mfi_gemm t = transposed(g);
    if (!g->k)
        clear(g);
    else if (g->n == 1)
        call_gemv(s, g);
    else if (g->m == 1)
        call_gemv(s, &t);
    else
        call_gemm(s, g->cn == 1 ? g : &t);
}

static void multiply(const void *engine, const mfi_gemm *g)
{
    const blas_state *s = engine;
    int before = s->set_local.symbol ? s->set_local.exchange(1) : 0;
    call(s, g);
    if (s->set_local.symbol)
        s->set_local.exchange(before);
}

/* The library's, or if it has none the product. Some scale what is there even by 0, which NaN survives, so it is cleared first. */
static void multiply_symmetric(const void *engine, const mfi_gemm *g)
{
    const blas_state *s = engine;
    int lda, n = (int)g->n, k = (int)g->k, trans = describe(g->m, g->k, g->am, g->ak, &lda), ldc = (int)g->cm;
    if (!s->syrk.symbol || !g->k || g->n < 2) {
        multiply(engine, g);
        return;
    }
    clear(g);
    int before = s->set_local.symbol ? s->set_local.exchange(1) : 0;
    if (g->type == MFI_F32)
        s->syrk.f32(ROW_MAJOR, UPPER, trans, n, k, 1, g->a, lda, 0, g->c, ldc);
    else
        s->syrk.f64(ROW_MAJOR, UPPER, trans, n, k, 1, g->a, lda, 0, g->c, ldc);
    if (s->set_local.symbol)
        s->set_local.exchange(before);
}

/* The process's number of OpenBLAS threads while runs of ours want one: the first lowers it, the last puts it back, unless
 * somebody else has set it meanwhile. */
static struct {
    pthread_mutex_t lock;
    int runs, before;
} lowered = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool alone(const void *engine)
{
    const blas_state *s = engine;
    if (s->sequential || s->set_local.symbol)
        return true;
    if (!s->set_threads.symbol || !s->get_threads.symbol)
        return false;
    pthread_mutex_lock(&lowered.lock);
    if (lowered.runs++ == 0)
        lowered.before = s->get_threads.get();
    if (s->get_threads.get() != 1)
        s->set_threads.set(1);
    pthread_mutex_unlock(&lowered.lock);
    return true;
}

static void share(const void *engine)
{
    const blas_state *s = engine;
    if (s->sequential || s->set_local.symbol)
        return;
    pthread_mutex_lock(&lowered.lock);
    if (--lowered.runs == 0 && lowered.before != 1 && s->get_threads.get() == 1)
        s->set_threads.set(lowered.before);
    pthread_mutex_unlock(&lowered.lock);
}

/* MKL and OpenBLAS can be had alone on several threads of ours; OpenBLAS's OpenMP builds take the number from OpenMP
 * again. */
static void find_thread_functions(blas_state *s)
{
    s->set_local.symbol = mfi_library_symbol(MFI_LIB_BLAS, "MKL_Set_Num_Threads_Local");
    thread_function parallel = {mfi_library_symbol(MFI_LIB_BLAS, "openblas_get_parallel")};
    if (!parallel.symbol)
        return;
    int kind = parallel.get();
    s->sequential = kind == OPENBLAS_SEQUENTIAL;
    if (kind != OPENBLAS_PTHREADS)
        return;
    s->set_threads.symbol = mfi_library_symbol(MFI_LIB_BLAS, "openblas_set_num_threads");
    s->get_threads.symbol = mfi_library_symbol(MFI_LIB_BLAS, "openblas_get_num_threads");
}

static const mfi_gemm_engine engine = {"blas", true, multiply, alone, share, multiply_symmetric};

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_matmul *mm = &p->u.matmul;
    mfi_matmul_layout layout;
    MF_REFUSE_UNLESS(!c->cuda, WRONG_TARGET, "BLAS runs on the CPU, the target is %s", c->arch);
    MF_REFUSE_UNLESS(p->anchor == MFI_MATMUL, NOT_ANCHOR, "only matmul");
    MF_REFUSE_UNLESS(!p->chain.phases || p->nreduce, NO_EPILOGUE, "a reduction beside the product");
    MF_REFUSE_UNLESS(c->library[MFI_LIB_BLAS], NOT_FOUND, "no CBLAS; see mathfuse info");
    MF_REFUSE_UNLESS(letter[mm->acc], DTYPE, "sums in %s; BLAS has f32, f64, c64, c128", mfi_ctype_name(mm->acc));
    MF_REFUSE_UNLESS(mm->n <= INT_MAX && mm->k <= INT_MAX, SIZE, "n=%lld k=%lld, at most 2^31 - 1", (long long)mm->n,
                     (long long)mm->k);
    (void)mfi_matmul_plan(&layout, p, false, c->threads, 0);
    MF_REFUSE_UNLESS(!layout.items || layout.m <= INT_MAX, SIZE, "m=%lld, at most 2^31 - 1", (long long)layout.m);
    mfi_bid_roofline(bid, p, c, 0.8, 1);
    bid->workspace = layout.workspace;
    if (layout.loops)
        strcpy(bid->kernel, "loops");
    else
        snprintf(bid->kernel, sizeof bid->kernel, "cblas_%cgem%c", letter[mm->acc],
                 layout.m == 1 || layout.n == 1 ? 'v' : 'm');
    return true;
}

/* Variants: other tilings on all threads; then the best one on fewer. */
enum { TILINGS = 8, VARIANTS = 11 };

typedef struct way {
    int rank, threads;
} way;

static way way_of(int variant, const mfi_caps *c)
{
    if (variant < TILINGS)
        return (way){variant, c->threads};
    return (way){0, c->threads >> (variant - TILINGS + 1)};
}

static int variants(const mfi_problem *p, const mfi_caps *c)
{
    (void)p, (void)c;
    return VARIANTS;
}

/* For explain: whose threads work on what. */
static void tell_threads(const blas_state *s, const mfi_problem *p, const way *w, mfi_bid *bid)
{
    mfi_matmul_layout l;
    int threads = w->threads;
    if (!mfi_matmul_plan(&l, p, false, threads, w->rank))
        return;
    snprintf(bid->identity, sizeof bid->identity, "%lld x %lld tiles %d threads", (long long)l.tiles.down,
             (long long)l.tiles.across, threads);
    size_t used = strlen(bid->kernel), left = sizeof bid->kernel - used;
    bool local = s->sequential || s->set_local.symbol || s->set_threads.symbol;
    if (l.loops || threads < 2)
        return;
    if (l.square && local && p->u.matmul.a.slot == p->u.matmul.b.slot)
        snprintf(bid->kernel + used, left, ", half of it by squares of %lld", (long long)l.square);
    else if (l.items)
        snprintf(bid->kernel + used, left, ", products shared by %d threads", threads);
    else if (local)
        snprintf(bid->kernel + used, left, ", %lld x %lld tiles shared by %d threads", (long long)l.tiles.down,
                 (long long)l.tiles.across, threads);
    else
        snprintf(bid->kernel + used, left, ", on the library's threads");
}

static void destroy(void *state)
{
    blas_state *s = state;
    if (s)
        mfi_matmul_cpu_free(s->inner);
    mf_free(s);
}

static mf_status prepare(void **state, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    (void)context;
    char name[16];
    way w = way_of(bid->variant, c);
    *state = NULL;
    MF_REQUIRE(bid->variant < VARIANTS && w.threads > 0, MF_E_INVALID, "there are not so many threads");
    blas_state *s = mfi_calloc(1, sizeof *s);
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    snprintf(name, sizeof name, "cblas_%cgemm", letter[p->u.matmul.acc]);
    s->gemm.symbol = mfi_library_symbol(MFI_LIB_BLAS, name);
    name[strlen(name) - 1] = 'v';
    s->gemv.symbol = mfi_library_symbol(MFI_LIB_BLAS, name);
    mf_status status = MF_OK;
    if (!s->gemm.symbol || !s->gemv.symbol)
        status = mfi_fail(MF_E_LIBRARY, "the BLAS library has no %s", name);
    snprintf(name, sizeof name, "cblas_%csyrk", letter[p->u.matmul.acc]);
    s->syrk.symbol = mfi_library_symbol(MFI_LIB_BLAS, name);
    find_thread_functions(s);
    if (status == MF_OK)
        status = mfi_matmul_cpu_new(&s->inner, p, &engine, s, false, w.threads, w.rank);
    if (status != MF_OK) {
        destroy(s);
        return status;
    }
    tell_threads(s, p, &w, bid);
    *state = s;
    return MF_OK;
}

static mf_status run(void *state, const mfi_run *run)
{
    return mfi_matmul_cpu_run(((blas_state *)state)->inner, run);
}

const mfi_provider mfi_provider_blas = {"blas", query, prepare, run, destroy, NULL, NULL, variants};
