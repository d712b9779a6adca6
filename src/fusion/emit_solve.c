/* Small dense systems in batches: solve_rows_batch.cuh, solve_tiles_batch.cuh or solve_batch.cuh, instantiated. */
#include "emit.h"

#include <stdio.h>

enum {
    MOST_ROWS = 64,
    MOST_SIDES = 16,
    REGISTER_WORDS = 176,
    REGISTER_WORDS_C128 = 112,
    ROWS_WORDS = 144,
    LEAST_TILED = 33,
    LEAST_TILED_FIRST = 40,     /* where a matrix would fit a warp by rows, too: faster on an H200, */
    MOST_TILED_FIRST_POSV = 48, /* Cholesky with right-hand sides up to here */
    MOST_TILED = 128,
    TILE_WORDS = 144,
    TILE_WORDS_CHOLESKY = 128,
    SCHEDULER_WORDS = 512 /* registers for each thread of a warp that is alone on its scheduler */
};

static bool is_real(mfi_ctype c)
{
    return c == MFI_F32 || c == MFI_F64;
}

static int rounded(int64_t n, int unit)
{
    return (int)(mfi_ceil_div(n, unit) * unit);
}

static int sides_of(int64_t nrhs)
{
    int sides = 1;
    while (sides < nrhs)
        sides *= 2;
    return sides;
}

/* Lower or upper, as it stands once it is transposed or not. */
static void triangle(mfi_solve_shape *s, const mfi_solve *f)
{
    bool upper = f->flags & MF_UPPER, turned = f->flags & (MF_TRANS | MF_ADJOINT);
    s->kind = upper != turned ? MFI_SOLVE_UPPER : MFI_SOLVE_LOWER;
    s->transpose = turned;
    s->conjugate = f->flags & MF_ADJOINT;
    s->unit = f->flags & MF_UNIT;
}

/* Lanes that have a matrix between them, two rows each or one, so that it fits their registers. 0: it does not. */
static int lanes_of(int64_t n, int64_t sides, int words)
{
    for (int lanes = 4; lanes <= 32; lanes *= 2) {
        int64_t rows = mfi_ceil_div(n, lanes);
        if (rows <= 2 && rows * (n + sides) * words <= ROWS_WORDS)
            return lanes;
    }
    return 0;
}

/* Of a row in registers. */
static int most_words(int words)
{
    return words == 4 ? REGISTER_WORDS_C128 : REGISTER_WORDS;
}

/* The kernel for exactly this size, where a matrix fits a warp. */
static bool by_rows(mfi_solve_shape *s, const mfi_solve *f, int words, int vector)
{
    int64_t sides = f->solver == MFI_CHOLESKY ? 0 : f->nrhs;
    s->lanes = (f->n + sides) * words <= most_words(words) ? lanes_of(f->n, sides, words) : 0;
    if (!s->lanes)
        return false;
    s->n = (int)f->n;
    s->sides = (int)sides;
    s->group = s->lanes;
    s->shared = (size_t)f->n * (size_t)((mfi_ceil_div(f->n + sides, vector) | 1) * vector) * (size_t)(4 * words) *
                (size_t)(s->threads / s->lanes);
    return true;
}

/* As solve::tiles counts: what a thread holds of the matrix, and shared memory. 0 words: it does not fit the registers. */
static int tile_words(const mfi_solve_shape *s, int warps, int words, int vector, size_t *shared)
{
    int block = warps >= 4 ? 16 : 8, ways = 32 * warps / block, panels = (int)mfi_ceil_div(s->n, block);
    int padded = panels * block, columns = s->kind == MFI_SOLVE_CHOLESKY ? padded + block : 2 * padded;
    int tile = (panels * columns / (2 * ways) + panels * (int)mfi_ceil_div(s->sides, ways)) * words;
    int numbers = padded + block + 2 * warps, ld = (int)mfi_ceil_div(padded + s->sides, vector) | 1;
    *shared =
        (size_t)(padded * ld * vector + (warps > 1 ? 2 * warps * block : 0) + padded * s->sides) * (size_t)(4 * words) +
        (size_t)rounded(4 * numbers, 4 * words * vector);
    return tile <= (s->kind == MFI_SOLVE_CHOLESKY ? TILE_WORDS_CHOLESKY : TILE_WORDS) ? tile : 0;
}

/* The kernel for exactly this size, for matrices that warps hold as tiles: as few as can. */
static bool by_tiles(mfi_solve_shape *s, const mfi_solve *f, const mfi_caps *c, int words, int vector)
{
    mfi_solve_shape t = *s;
    int tile = 0;
    bool factors = f->solver == MFI_CHOLESKY || f->solver == MFI_POSV || f->solver == MFI_LU_SOLVE;
    if (!factors || f->n < LEAST_TILED || f->n > MOST_TILED)
        return false;
    t.n = (int)f->n;
    t.sides = f->solver == MFI_CHOLESKY ? 0 : (int)f->nrhs;
    for (t.warps = 1; t.warps <= 8 && !tile; t.warps *= 2)
        tile = tile_words(&t, t.warps, words, vector, &t.shared);
    if (!tile || t.shared > c->shared_bytes)
        return false;
    t.warps /= 2;
    t.group = t.threads = 32 * t.warps;
    tile += words > 1 ? 64 : t.kind == MFI_SOLVE_CHOLESKY || t.warps == 2 ? 56 : 32;
    t.resident = SCHEDULER_WORDS / rounded(tile, 8) * 4 / t.warps;
    t.resident = t.resident > 0 ? t.resident : 1;
    *s = t;
    return true;
}

/* Are tiles faster where rows would do? */
static bool tiles_first(const mfi_solve *f)
{
    return f->n >= LEAST_TILED_FIRST &&
           (f->solver == MFI_LU_SOLVE || (f->solver == MFI_POSV && f->n <= MOST_TILED_FIRST_POSV));
}

/* A thread for each row. */
static bool by_threads(mfi_solve_shape *s, const mfi_solve *f, int words, int vector, mfi_bid *bid)
{
    MF_REFUSE_UNLESS(f->n <= MOST_ROWS, SIZE, "n=%lld: up to %d unknowns, a thread each", (long long)f->n, MOST_ROWS);
    s->n = rounded(f->n, vector > 2 ? vector : 2);
    s->sides = f->solver == MFI_CHOLESKY ? 0 : sides_of(f->nrhs);
    MF_REFUSE_UNLESS((s->n + s->sides) * words <= most_words(words), SIZE,
                     "a row of %d numbers of %d bytes does not fit a thread's registers", s->n + s->sides, 4 * words);
    s->group = s->n <= 4 ? 4 : s->n <= 8 ? 8 : s->n <= 16 ? 16 : s->n <= 32 ? 32 : 64;
    int columns = rounded(s->n, vector), per = columns * (columns + vector) + s->n * (s->sides ? s->sides : 1) + 8;
    s->shared = (size_t)rounded(per, 4) * (size_t)(4 * words) * (size_t)(s->threads / s->group);
    return true;
}

static void set_kind(mfi_solve_shape *s, const mfi_solve *f)
{
    s->kind = f->solver == MFI_CHOLESKY || f->solver == MFI_POSV ? MFI_SOLVE_CHOLESKY
              : f->solver == MFI_LU_SOLVE                        ? MFI_SOLVE_LU
                                                                 : MFI_SOLVE_WITH_FACTOR;
    s->transpose = s->conjugate = f->solver != MFI_LU_SOLVE && (f->flags & MF_UPPER) != 0;
    if (f->solver == MFI_TRSM)
        triangle(s, f);
}

bool mfi_solve_shape_choose(mfi_solve_shape *s, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_solve *f = &p->u.solve;
    bool factor = f->solver == MFI_CHOLESKY;
    memset(s, 0, sizeof *s);
    MF_REFUSE_UNLESS(is_real(f->ctype) || f->ctype == MFI_C64 || f->ctype == MFI_C128, DTYPE, "%s",
                     mfi_ctype_name(f->ctype));
    MF_REFUSE_UNLESS(factor || (f->nrhs >= 1 && f->nrhs <= MOST_SIDES), SIZE, "%lld right-hand sides, 1 to %d",
                     (long long)f->nrhs, MOST_SIDES);
    set_kind(s, f);
    s->threads = 128;
    int words = (int)mfi_ctype_size(f->ctype) / 4, vector = words >= 4 ? 1 : 4 / words;
    bool tiled = tiles_first(f) && by_tiles(s, f, c, words, vector);
    if (!tiled && !by_rows(s, f, words, vector) && !by_tiles(s, f, c, words, vector) &&
        !by_threads(s, f, words, vector, bid))
        return false;
    while (s->shared + 1024 > c->shared_bytes && s->threads > s->group) {
        s->threads /= 2;
        s->shared /= 2;
    }
    s->items = mfi_problem_points(p);
    s->blocks = mfi_ceil_div(s->items, s->threads / s->group);
    MF_REFUSE_UNLESS(s->items > 0 && s->blocks <= 0x7fffffff, SIZE, "%lld matrices", (long long)s->items);
    MF_REFUSE_UNLESS(f->info.slot < 0 || f->info.dtype == MF_I32, DTYPE, "info is i32");
    return true;
}

static const char *word(bool value)
{
    return value ? "true" : "false";
}

const char *mfi_solve_skeleton(const mfi_solve_shape *s)
{
    return s->lanes ? "solve_rows_batch" : s->warps ? "solve_tiles_batch" : "solve_batch";
}

void mfi_emit_solve_types(mfi_text *out, const mfi_problem *p, const mfi_solve_shape *s)
{
    static const char *const kinds[] = {"CHOLESKY", "LU", "WITH_FACTOR", "LOWER", "UPPER"};
    const mfi_solve *f = &p->u.solve;
    mf_dtype own = mfi_ctype_dtype(f->ctype);
    char lanes[16] = "";
    if (s->lanes || s->warps)
        snprintf(lanes, sizeof lanes, ", %d", s->lanes ? s->lanes : s->warps);
    mfi_text_add(out, "typedef mf::%s<mf::SOLVE_%s, %s, %d, %d, %s, %s, %s, %d, %d, %s, %s%s> batch;\n",
                 mfi_solve_skeleton(s), kinds[s->kind], mfi_emit_ctype(f->ctype), s->n, s->sides,
                 mfi_emit_storage(f->a.dtype), mfi_emit_storage(f->b.slot >= 0 ? f->b.dtype : own),
                 mfi_emit_storage(f->x.slot >= 0 ? f->x.dtype : own), p->ndim > 0 ? p->ndim : 1, s->threads,
                 word(s->conjugate), word(s->unit), lanes);
}

mf_status mfi_emit_solve(mfi_source *out, const mfi_problem *p, const mfi_solve_shape *s)
{
    mfi_text types = {0};
    mfi_emit_solve_types(&types, p, s);
    mf_status status = mfi_emit_batch(out, "solve", mfi_solve_skeleton(s), &types, s->threads, s->resident);
    mfi_text_free(&types);
    return status;
}

mf_status mfi_emit_solve_device(mfi_device_code *out, const mfi_problem *p, const mfi_solve_shape *s,
                                const mfi_words *words, const char *const *slots)
{
    const mfi_view *views[] = {&p->u.solve.a, &p->u.solve.b, &p->u.solve.x, &p->u.solve.info};
    mfi_device_unit u = {.skeleton = mfi_solve_skeleton(s), .threads = s->threads, .tiles = s->blocks, .words = words};
    for (size_t i = 0; i < MFI_COUNT(views); i++)
        mfi_device_place(&u, words->data + (int)i, views[i], NULL);
    mfi_emit_solve_types(&u.types, p, s);
    mfi_text_add(&u.types, "typedef batch::args kernel_args;\n");
    mfi_text_add(&u.shared_bytes, "code::batch::BYTES");
    /* What one tile leaves in shared memory is read until its end. */
    mfi_text_add(&u.call, "batch::run(a, tile, shared);\n    __syncthreads()");
    return mfi_emit_device_unit(out, &u, slots);
}

void mfi_solve_words(mfi_words *w, const mfi_problem *p, const mfi_solve_shape *s)
{
    const mfi_solve *f = &p->u.solve;
    const int64_t sizes[] = {s->items, f->n, f->solver == MFI_CHOLESKY ? 0 : f->nrhs};
    mfi_words_batch(w, p, sizes, MFI_COUNT(sizes), 4);
    mfi_words_strides(w, p, &f->a, 2, s->transpose);
    mfi_words_strides(w, p, &f->b, 2, false);
    mfi_words_strides(w, p, &f->x, 2, f->solver == MFI_CHOLESKY && s->transpose);
    mfi_words_strides(w, p, &f->info, 0, false);
}
