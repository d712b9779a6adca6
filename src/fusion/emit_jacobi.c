/* Hermitian eigenproblems and singular values of small matrices in batches: eigen_batch.cuh and svd_batch.cuh, instantiated. */
#include "emit.h"

enum { COLUMN_WORDS = 64, MOST_COLUMNS = 64, WARP = 32, WARPS = 2, REGISTERS = 1 << 16 };

static const mfi_view *result(const mfi_factor *f, int index)
{
    return &f->out[index].view;
}

static bool is_wide(const mfi_factor *f)
{
    return f->m < f->n;
}

static int64_t magnitude(int64_t x)
{
    return x < 0 ? -x : x;
}

/* Neighbours in memory lie down a column. */
static bool by_columns(const mfi_problem *p)
{
    const int64_t *stride = p->u.factor.in[0].view.strides + p->ndim;
    return magnitude(stride[0]) < magnitude(stride[1]);
}

/* A round has a product of two columns, a rotation, and a column that moves. */
static double microseconds(const mfi_jacobi_shape *s, const mfi_caps *c, mfi_ctype ctype)
{
    const double sweeps = 8, instructions_us = 4 * 1300.0; /* as measured on an H200 */
    const bool complex = ctype >= MFI_C64;
    const int words = (int)mfi_ctype_size(ctype) / 4, reals = complex ? words / 2 : words;
    double rounds = sweeps * (2 * s->group - 1), all = s->rows + s->carried;
    double instructions = 60 + (complex ? 4 : 1) * reals * (s->rows + 2 * all) + words * all;
    double warps = (double)mfi_ceil_div(s->items * s->group, WARP);
    double work = rounds * warps * instructions / (instructions_us * c->multiprocessors);
    double latency = rounds * (0.15 + instructions * 0.0007); /* of one warp alone */
    return work > latency ? work : latency;
}

/* As few registers as do without local memory: two columns, and what rotations need. */
static int resident(const mfi_jacobi_shape *s, const mfi_caps *c, mfi_ctype ctype)
{
    const int words = (int)mfi_ctype_size(ctype) / 4, columns = 2 * (s->rows + s->carried) * words;
    const bool wide = ctype == MFI_F64 || ctype == MFI_C128;
    int registers = columns + (wide ? 64 : 56);
    if (registers > (wide ? 128 : 184))
        registers = 255;
    int by_registers = REGISTERS / (registers * s->threads), by_memory = (int)(c->shared_bytes / (s->shared + 1024));
    return by_registers < by_memory ? by_registers : by_memory;
}

/* As the headers have it, in numbers. */
static int64_t shared_elements(const mfi_jacobi_shape *s, int vector)
{
    int64_t elements = s->eigen ? (int64_t)s->rows * (s->rows + vector) + 2 * s->group
                                : (int64_t)(s->rows + s->carried) * (s->columns + 1) + 4 * s->group;
    return mfi_ceil_div(elements, vector) * vector;
}

static bool choose_extents(mfi_jacobi_shape *s, const mfi_problem *p, mfi_bid *bid)
{
    const mfi_factor *f = &p->u.factor;
    const int words = (int)mfi_ctype_size(f->ctype) / 4, vector = words >= 4 ? 1 : 4 / words;
    const int64_t rows = mfi_max64(f->m, f->n), columns = mfi_min64(f->m, f->n);
    s->eigen = f->kind == MFI_EIGH;
    bool vectors = result(f, 2)->slot >= 0 || result(f, 3)->slot >= 0;
    int64_t carried = vectors && !s->eigen ? columns : 0;
    MF_REFUSE_UNLESS(s->eigen || !(f->flags & MF_FULL) || !vectors || f->m == f->n, SIZE,
                     "full matrices of %lldx%lld are not made", (long long)f->m, (long long)f->n);
    MF_REFUSE_UNLESS((rows + carried) * words <= COLUMN_WORDS, SIZE,
                     "%lldx%lld: columns of up to %d numbers%s, as a thread has two in registers", (long long)f->m,
                     (long long)f->n, COLUMN_WORDS / words, carried ? ", those of V below them," : "");
    s->rows = (int)(s->eigen ? mfi_ceil_div(rows, vector) * vector : rows);
    s->columns = (int)columns;
    s->carried = (int)carried;
    s->group = 1;
    while (2 * s->group < (s->eigen ? s->rows : s->columns))
        s->group *= 2;
    s->threads = WARP * WARPS;
    s->shared = (size_t)(shared_elements(s, vector) * 4 * words * (s->threads / s->group));
    return true;
}

bool mfi_jacobi_shape_choose(mfi_jacobi_shape *s, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_factor *f = &p->u.factor;
    const mfi_view *info = result(f, MFI_INFO);
    memset(s, 0, sizeof *s);
    MF_REFUSE_UNLESS(f->kind == MFI_EIGH || f->kind == MFI_SVD, NOT_ANCHOR,
                     "it decomposes Hermitian matrices, and into singular values");
    MF_REFUSE_UNLESS(f->ctype == MFI_F32 || f->ctype == MFI_F64 || f->ctype >= MFI_C64, DTYPE, "%s",
                     mfi_ctype_name(f->ctype));
    MF_REFUSE_UNLESS(f->m > 0 && f->n > 0, EMPTY, "matrices without elements");
    if (!choose_extents(s, p, bid))
        return false;
    while (s->shared + 1024 > c->shared_bytes && s->threads > WARP) {
        s->threads /= 2;
        s->shared /= 2;
    }
    MF_REFUSE_UNLESS(s->shared + 1024 <= c->shared_bytes, SIZE, "%zu bytes of shared memory", s->shared);
    s->items = mfi_problem_points(p);
    s->blocks = mfi_ceil_div(s->items, s->threads / s->group);
    MF_REFUSE_UNLESS(s->items > 0 && s->blocks <= 0x7fffffff, SIZE, "%lld matrices", (long long)s->items);
    MF_REFUSE_UNLESS(info->slot < 0 || info->dtype == MF_I32, DTYPE, "info is i32");
    s->resident = resident(s, c, f->ctype);
    s->us = microseconds(s, c, f->ctype);
    return true;
}

const char *mfi_jacobi_skeleton(const mfi_jacobi_shape *s)
{
    return s->eigen ? "eigen_batch" : "svd_batch";
}

static const mfi_view *vectors_of(const mfi_factor *f)
{
    const mfi_view *u = result(f, 2), *vh = result(f, 3);
    return u->slot >= 0 || f->kind == MFI_EIGH ? u : vh;
}

void mfi_emit_jacobi_types(mfi_text *out, const mfi_problem *p, const mfi_jacobi_shape *s)
{
    const mfi_factor *f = &p->u.factor;
    const mfi_view *values = result(f, 0), *vectors = vectors_of(f);
    mf_dtype own = mfi_ctype_dtype(f->ctype);
    mfi_text_add(out, "typedef mf::%s<%s, %d, ", mfi_jacobi_skeleton(s), mfi_emit_ctype(f->ctype), s->rows);
    if (!s->eigen)
        mfi_text_add(out, "%d, %s, ", s->columns, s->carried ? "true" : "false");
    mfi_text_add(out, "%s, %s, %s, %d, %d> batch;\n", mfi_emit_storage(f->in[0].view.dtype),
                 mfi_emit_storage(values->slot >= 0 ? values->dtype : mf_dtype_to_real(own)),
                 mfi_emit_storage(vectors->slot >= 0 ? vectors->dtype : own), p->ndim > 0 ? p->ndim : 1, s->threads);
}

mf_status mfi_emit_jacobi(mfi_source *out, const mfi_problem *p, const mfi_jacobi_shape *s)
{
    mfi_text types = {0};
    mfi_emit_jacobi_types(&types, p, s);
    mf_status status =
        mfi_emit_batch(out, s->eigen ? "eigen" : "svd", mfi_jacobi_skeleton(s), &types, s->threads, s->resident);
    mfi_text_free(&types);
    return status;
}

static void eigen_words(mfi_words *w, const mfi_problem *p, const mfi_jacobi_shape *s)
{
    const mfi_factor *f = &p->u.factor;
    const bool stored_upper = f->flags & MF_UPPER, swapped = by_columns(p);
    const int64_t sizes[] = {s->items, f->n, stored_upper != swapped, stored_upper};
    mfi_words_batch(w, p, sizes, MFI_COUNT(sizes), 4);
    mfi_words_strides(w, p, &f->in[0].view, 2, swapped);
    mfi_words_strides(w, p, result(f, 0), 1, false);
    mfi_words_strides(w, p, result(f, 2), 2, false);
    mfi_words_strides(w, p, result(f, MFI_INFO), 0, false);
}

/* A wide matrix is read as its adjoint, whose left vectors are V. */
static void svd_words(mfi_words *w, const mfi_problem *p, const mfi_jacobi_shape *s)
{
    const mfi_factor *f = &p->u.factor;
    const bool wide = is_wide(f);
    const int64_t sizes[] = {s->items, wide ? f->n : f->m, s->columns, wide != by_columns(p), wide, wide, !wide};
    mfi_words_batch(w, p, sizes, MFI_COUNT(sizes), 5);
    mfi_words_strides(w, p, &f->in[0].view, 2, wide);
    mfi_words_strides(w, p, result(f, 0), 1, false);
    mfi_words_strides(w, p, result(f, wide ? 3 : 2), 2, wide);
    mfi_words_strides(w, p, result(f, wide ? 2 : 3), 2, !wide);
    mfi_words_strides(w, p, result(f, MFI_INFO), 0, false);
}

void mfi_jacobi_words(mfi_words *w, const mfi_problem *p, const mfi_jacobi_shape *s)
{
    if (s->eigen)
        eigen_words(w, p, s);
    else
        svd_words(w, p, s);
}

int mfi_jacobi_views(const mfi_view **views, const mfi_factor *f)
{
    int count = 0;
    views[count++] = &f->in[0].view;
    views[count++] = result(f, 0);
    views[count++] = result(f, f->kind == MFI_SVD && is_wide(f) ? 3 : 2);
    if (f->kind == MFI_SVD)
        views[count++] = result(f, is_wide(f) ? 2 : 3);
    views[count++] = result(f, MFI_INFO);
    return count;
}
