/* FACTOR steps on the CPU: see factor_cpu.h. */
#include "factor_cpu.h"

#include <math.h>

enum { LARGE_ORDER = 256 }; /* from that order on a matrix has all threads */
enum { TILE = 32 };         /* edge of the squares that copies go through: both sides stay in the cache */

static mfi_solve_view locate(const mfi_factor_operand *o, const mfi_problem *p)
{
    mfi_solve_view v = {.view = o->view};
    if (o->view.slot < 0)
        return v;
    v.batch = mfi_batch_of(&o->view, p->ndim, p->shape);
    v.rs = o->rank > 0 ? o->view.strides[p->ndim] : 0;
    v.cs = o->rank > 1 ? o->view.strides[p->ndim + 1] : 0;
    return v;
}

void mfi_factor_views_init(mfi_factor_views *views, const mfi_problem *p)
{
    for (int i = 0; i < MFI_FACTOR_INPUTS; i++)
        views->in[i] = locate(&p->u.factor.in[i], p);
    for (int i = 0; i < MFI_FACTOR_RESULTS; i++)
        views->out[i] = locate(&p->u.factor.out[i], p);
}

/* ---- copies ---- */

typedef struct copy_job {
    char *dst;
    const char *src;
    int64_t drs, dcs, srs, scs, rows, cols;
    size_t size;
} copy_job;

typedef struct wide_element {
    double part[2];
} wide_element;

#define COPY_TILE(T)                                                                                                   \
    for (int64_t j = j0; j < j1; j++)                                                                                  \
        for (int64_t i = i0; i < i1; i++)                                                                              \
            ((T *)(void *)c->dst)[i * c->drs + j * c->dcs] = ((const T *)(const void *)c->src)[i * c->srs + j * c->scs];

static void copy_columns(void *context, int64_t begin, int64_t end)
{
    const copy_job *c = context;
    for (int64_t j0 = begin; j0 < end; j0 += TILE)
        for (int64_t i0 = 0; i0 < c->rows; i0 += TILE) {
            int64_t j1 = mfi_min64(j0 + TILE, end), i1 = mfi_min64(i0 + TILE, c->rows);
            if (c->drs == 1 && c->srs == 1) {
                for (int64_t j = j0; j < j1; j++)
                    memcpy(c->dst + (i0 + j * c->dcs) * (int64_t)c->size, c->src + (i0 + j * c->scs) * (int64_t)c->size,
                           (size_t)(i1 - i0) * c->size);
            } else if (c->size == 4) {
                COPY_TILE(uint32_t)
            } else if (c->size == 8) {
                COPY_TILE(uint64_t)
            } else {
                COPY_TILE(wide_element)
            }
        }
}

void mfi_copy_matrix(void *dst, int64_t drs, int64_t dcs, const void *src, int64_t srs, int64_t scs, int64_t rows,
                     int64_t cols, size_t size)
{
    copy_job job = {dst, src, drs, dcs, srs, scs, rows, cols, size};
    mfi_parallel_for(cols, mfi_max64(TILE, (1 << 18) / mfi_max64(rows, 1)), 0, copy_columns, &job);
}

void mfi_factor_get(const mfi_factor *f, const mfi_factor_views *views, void *const *slots, int64_t item, int index,
                    void *dst, int64_t ld, mfi_ctype type)
{
    const mfi_factor_operand *o = &f->in[index];
    const mfi_solve_view *v = &views->in[index];
    if (v->view.dtype == mfi_ctype_dtype(type)) {
        const void *src = mfi_at(&v->view, slots, mfi_batch_offset(&v->batch, item));
        mfi_copy_matrix(dst, 1, ld, src, v->rs, v->cs, o->rows, o->cols, mfi_ctype_size(type));
        return;
    }
    bool packed = ld == o->rows; /* the transpose, row by row, is the matrix column by column */
    for (int64_t j = 0; j < (packed ? 1 : o->cols); j++) {
        mfi_view columns = {.slot = v->view.slot, .dtype = v->view.dtype, .strides = {v->cs, v->rs}};
        columns.alignment = (int32_t)mf_dtype_size(columns.dtype);
        columns.offset = v->view.offset + mfi_batch_offset(&v->batch, item) + j * v->cs;
        mfi_pack((char *)dst + j * ld * (int64_t)mfi_ctype_size(type), type, &columns, slots, 2,
                 (int64_t[]){packed ? o->cols : 1, o->rows}, NULL);
    }
}

void mfi_factor_put(const mfi_factor *f, const mfi_factor_views *views, void *const *slots, int64_t item, int index,
                    const void *src, int64_t ld)
{
    const mfi_factor_operand *o = &f->out[index];
    const mfi_solve_view *v = &views->out[index];
    if (v->view.slot < 0)
        return;
    void *dst = mfi_at(&v->view, slots, mfi_batch_offset(&v->batch, item));
    mfi_copy_matrix(dst, v->rs, v->cs, src, 1, ld, o->rows, o->cols, mf_dtype_size(v->view.dtype));
}

static void fill_nan(void *at, mf_dtype dtype)
{
    int parts = mfi_is_complex(dtype) ? 2 : 1;
    for (int i = 0; i < parts; i++)
        if (mf_dtype_to_real(dtype) == MF_F32)
            ((float *)at)[i] = NAN;
        else
            ((double *)at)[i] = (double)NAN;
}

void mfi_factor_put_failed(const mfi_factor *f, const mfi_factor_views *views, void *const *slots, int64_t item)
{
    for (int r = 0; r < MFI_FACTOR_RESULTS; r++) {
        const mfi_factor_operand *o = &f->out[r];
        const mfi_solve_view *v = &views->out[r];
        if (v->view.slot < 0 || r == MFI_INFO)
            continue;
        int64_t from = mfi_batch_offset(&v->batch, item);
        for (int64_t i = 0; i < o->rows; i++)
            for (int64_t j = 0; j < o->cols; j++) {
                void *at = mfi_at(&v->view, slots, from + i * v->rs + j * v->cs);
                if (v->view.dtype == MF_I32)
                    *(int32_t *)at = o->rank ? (int32_t)i : 0;
                else
                    fill_nan(at, v->view.dtype);
            }
    }
}

/* ---- checks ---- */

/* Exponents of all ones, by bits: such a loop vectorises. */
static bool finite_f32(const uint32_t *bits, int64_t count)
{
    uint32_t bad = 0;
    for (int64_t i = 0; i < count; i++)
        bad |= (bits[i] & 0x7f800000u) == 0x7f800000u;
    return !bad;
}

static bool finite_f64(const uint64_t *bits, int64_t count)
{
    const uint64_t mask = UINT64_C(0x7ff0000000000000);
    uint64_t bad = 0;
    for (int64_t i = 0; i < count; i++)
        bad |= (bits[i] & mask) == mask;
    return !bad;
}

bool mfi_factor_finite(const mfi_factor *f, const void *a, int64_t rows, int64_t cols, mfi_ctype type)
{
    bool triangle = f->kind == MFI_EIGH || f->kind == MFI_SYMMETRIC_SOLVE, upper = f->flags & MF_UPPER;
    int64_t parts = type == MFI_C64 || type == MFI_C128 ? 2 : 1;
    for (int64_t j = 0; j < cols; j++) {
        int64_t begin = triangle && !upper ? j : 0, end = triangle && upper ? j + 1 : rows;
        int64_t at = (j * rows + begin) * parts, count = (end - begin) * parts;
        bool fine = type == MFI_F32 || type == MFI_C64 ? finite_f32((const uint32_t *)a + at, count)
                                                       : finite_f64((const uint64_t *)a + at, count);
        if (!fine)
            return false;
    }
    return true;
}

/* ---- the batch ---- */

typedef struct factor_job {
    mfi_factor_item *fn;
    const void *context;
    void *const *slots;
    size_t bytes;
    mfi_first_error *error;
} factor_job;

static void run_piece(void *context, int64_t begin, int64_t end)
{
    const factor_job *job = context;
    char *memory = mfi_alloc_aligned(job->bytes + 64);
    if (!memory) {
        mfi_note(job->error, MF_E_MEMORY);
        return;
    }
    for (int64_t item = begin; item < end; item++)
        mfi_note(job->error, job->fn(job->context, job->slots, item, memory));
    mfi_free_aligned(memory);
}

mf_status mfi_factor_run(const mfi_problem *p, mfi_factor_item *fn, const void *context, void *const *slots,
                         size_t bytes, int threads, const char *what)
{
    const mfi_factor *f = &p->u.factor;
    mfi_first_error error = {MF_OK};
    factor_job job = {fn, context, slots, bytes, &error};
    int64_t items = mfi_problem_points(p), order = mfi_min64(f->m, f->n);
    if (items == 1 || order >= LARGE_ORDER)
        run_piece(&job, 0, items);
    else
        mfi_parallel_for(items, mfi_max64(1, 20000 / mfi_max64(f->m * f->n * order, 1)), threads, run_piece, &job);
    return mfi_noted(&error, what);
}
