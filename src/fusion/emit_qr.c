/* QR of small matrices in batches: qr_batch.cuh, instantiated. */
#include "emit.h"

enum { MOST_COLUMNS = 64, MOST_ROWS = 64, REGISTER_WORDS = 112, REGISTER_WORDS_C128 = 96, THREADS = 128 };

static const mfi_view *result(const mfi_factor *f, int index)
{
    return &f->out[index].view;
}

bool mfi_qr_shape_choose(mfi_qr_shape *s, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_factor *f = &p->u.factor;
    const mfi_view *info = result(f, MFI_INFO);
    memset(s, 0, sizeof *s);
    MF_REFUSE_UNLESS(f->kind == MFI_QR, NOT_ANCHOR, "of decompositions it does QR, eigh and SVD");
    MF_REFUSE_UNLESS(!(f->flags & MF_RAW), NO_EPILOGUE, "reflections are not given, only Q and R");
    MF_REFUSE_UNLESS(f->ctype == MFI_F32 || f->ctype == MFI_F64 || f->ctype >= MFI_C64, DTYPE, "%s",
                     mfi_ctype_name(f->ctype));
    MF_REFUSE_UNLESS(f->m > 0 && f->n > 0, EMPTY, "matrices without elements");
    int64_t q = f->flags & MF_FULL ? f->m : mfi_min64(f->m, f->n), columns = mfi_max64(f->n, q);
    int words = (int)mfi_ctype_size(f->ctype) / 4, vector = words >= 4 ? 1 : 4 / words;
    MF_REFUSE_UNLESS(f->m <= MOST_ROWS && columns <= MOST_COLUMNS, SIZE,
                     "%lldx%lld: up to %d rows and columns, those of Q among them", (long long)f->m, (long long)f->n,
                     MOST_ROWS);
    s->rows = (int)(mfi_ceil_div(f->m, vector) * vector);
    MF_REFUSE_UNLESS(s->rows * words <= (words == 4 ? REGISTER_WORDS_C128 : REGISTER_WORDS), SIZE,
                     "a column of %d numbers of %d bytes does not fit a thread's registers", s->rows, 4 * words);
    s->group = columns <= 4 ? 4 : columns <= 8 ? 8 : columns <= 16 ? 16 : columns <= 32 ? 32 : 64;
    s->threads = THREADS;
    s->inner = q;
    int64_t steps = mfi_min64(s->rows, s->group), elements = steps * (s->rows + vector) + steps + 3;
    s->shared = (size_t)(elements / 4 * 4 * 4 * words) * (size_t)(s->threads / s->group);
    while (s->shared + 1024 > c->shared_bytes && s->threads > s->group) {
        s->threads /= 2;
        s->shared /= 2;
    }
    s->items = mfi_problem_points(p);
    s->blocks = mfi_ceil_div(s->items, s->threads / s->group);
    MF_REFUSE_UNLESS(s->items > 0 && s->blocks <= 0x7fffffff, SIZE, "%lld matrices", (long long)s->items);
    MF_REFUSE_UNLESS(info->slot < 0 || info->dtype == MF_I32, DTYPE, "info is i32");
    return true;
}

void mfi_emit_qr_types(mfi_text *out, const mfi_problem *p, const mfi_qr_shape *s)
{
    const mfi_factor *f = &p->u.factor;
    const mfi_view *q = result(f, 0), *r = result(f, 2);
    mf_dtype own = mfi_ctype_dtype(f->ctype);
    mfi_text_add(out, "typedef mf::qr_batch<%s, %d, %d, %s, %s, %s, %d, %d> batch;\n", mfi_emit_ctype(f->ctype),
                 s->rows, s->group, mfi_emit_storage(f->in[0].view.dtype),
                 mfi_emit_storage(q->slot >= 0 ? q->dtype : own), mfi_emit_storage(r->slot >= 0 ? r->dtype : own),
                 p->ndim > 0 ? p->ndim : 1, s->threads);
}

mf_status mfi_emit_qr(mfi_source *out, const mfi_problem *p, const mfi_qr_shape *s)
{
    mfi_text types = {0};
    mfi_emit_qr_types(&types, p, s);
    mf_status status = mfi_emit_batch(out, "qr", "qr_batch", &types, s->threads, 1);
    mfi_text_free(&types);
    return status;
}

void mfi_qr_words(mfi_words *w, const mfi_problem *p, const mfi_qr_shape *s)
{
    const mfi_factor *f = &p->u.factor;
    const int64_t sizes[] = {s->items, f->m, f->n, s->inner};
    mfi_words_batch(w, p, sizes, MFI_COUNT(sizes), 4);
    mfi_words_strides(w, p, &f->in[0].view, 2, false);
    mfi_words_strides(w, p, result(f, 0), 2, false);
    mfi_words_strides(w, p, result(f, 2), 2, false);
    mfi_words_strides(w, p, result(f, MFI_INFO), 0, false);
}
