/* FFT steps on the CPU: see fft_cpu.h. Items are the transforms of the batch; blocks of them fit a core's cache. */
#include "fft_cpu.h"

enum { BLOCK_BYTES = 192 << 10, CHUNK_BYTES = 64 << 10, CHUNK_LINES = 16 };

/* One axis. Lines of an item: `outer` groups of `inner` lines next to each other. */
typedef struct axis_pass {
    void *plan;
    int64_t n, outer, inner, chunk;
    int64_t in_group, out_group; /* elements from group to group, inner > 1 */
    int64_t in_stride, in_dist, out_stride, out_dist;
    size_t in_size, out_size; /* bytes per element */
} axis_pass;

typedef struct fft_state {
    const mfi_problem *p;
    const mfi_fft_engine *engine;
    int threads, passes;
    axis_pass pass[MF_MAX_DIMS];
    mfi_cpu_chain *chain; /* NULL: results go straight to `store` */
    const mfi_operand *store;
    mfi_batch in_batch, out_batch;
    bool direct_in, direct_out;
    bool separate; /* C2R over several axes: complex passes have a buffer of their own */
    mfi_ctype in_type, out_type;
    int64_t items, item_in, item_out, block;
    bool by_blocks; /* threads share the blocks; otherwise the lines of each block */
    size_t scratch; /* of the engine, for one thread */
} fft_state;

/* ---- geometry ---- */

static bool contiguous(const mfi_view *view, int first, int ndim, const int64_t *shape)
{
    int64_t expected = 1;
    for (int d = ndim - 1; d >= first; d--) {
        if (shape[d] != 1 && view->strides[d] != expected)
            return false;
        expected *= shape[d];
    }
    return true;
}

/* The engine can read or write the items of this view where they are. */
static bool direct(const fft_state *s, const mfi_view *view, const mfi_batch *batch, const int64_t *axes,
                   mfi_ctype type)
{
    int ndim = s->p->ndim, naxes = s->p->u.fft.naxes;
    int64_t shape[MF_MAX_DIMS];
    if (view->dtype != mfi_ctype_dtype(type) || batch->dims > 1)
        return false;
    memcpy(shape, s->p->shape, sizeof shape);
    memcpy(shape + ndim - naxes, axes, (size_t)naxes * sizeof *axes);
    if (naxes > 1)
        return contiguous(view, 0, ndim, shape);
    bool spread = axes[0] == 1 || view->strides[ndim - 1] != 0;
    return spread && (batch->dims == 0 || batch->strides[0] != 0);
}

static void view_lines(const fft_state *s, const mfi_view *view, const mfi_batch *batch, int64_t *stride, int64_t *dist,
                       int64_t n)
{
    *stride = n > 1 ? view->strides[s->p->ndim - 1] : 1;
    *dist = batch->dims ? batch->strides[0] : n;
}

static mf_status plan_pass(fft_state *s, mf_fft_kind kind, int axis, bool first, bool in_place)
{
    const mfi_fft *f = &s->p->u.fft;
    const int64_t *out_shape = s->p->shape + s->p->ndim - f->naxes;
    axis_pass *a = &s->pass[s->passes++];
    bool real_in = kind == MF_RFFT, real_out = kind == MF_IRFFT, last = axis == f->naxes - 1;
    size_t complex_size = f->f64 ? 16 : 8;
    int64_t n_in = kind == MF_IRFFT ? f->n[axis] / 2 + 1 : f->n[axis];
    int64_t n_out = kind == MF_RFFT ? f->n[axis] / 2 + 1 : f->n[axis];
    a->n = f->n[axis];
    a->outer = mfi_product(out_shape, axis);
    /* what follows the axis is a spectrum: real axes are always last */
    a->inner = mfi_product(out_shape + axis + 1, f->naxes - axis - 1);
    if (f->kind == MF_IRFFT && !last)
        a->inner = a->inner / out_shape[f->naxes - 1] * (f->n[f->naxes - 1] / 2 + 1);
    a->in_size = real_in ? complex_size / 2 : complex_size;
    a->out_size = real_out ? complex_size / 2 : complex_size;
    a->in_stride = a->out_stride = a->inner;
    a->in_dist = a->inner > 1 ? 1 : n_in;
    a->out_dist = a->inner > 1 ? 1 : n_out;
    a->in_group = n_in * a->inner;
    a->out_group = n_out * a->inner;
    if (f->naxes == 1 && first && s->direct_in)
        view_lines(s, &f->in, &s->in_batch, &a->in_stride, &a->in_dist, n_in);
    if (f->naxes == 1 && s->direct_out)
        view_lines(s, &s->store->view, &s->out_batch, &a->out_stride, &a->out_dist, n_out);
    int64_t lines = a->inner > 1 ? a->inner : s->block * a->outer;
    a->chunk = mfi_max64(CHUNK_BYTES / (int64_t)complex_size / a->n / CHUNK_LINES, 1) * CHUNK_LINES;
    bool apart = a->in_stride == 1 || a->out_stride == 1 || a->n == 1;
    if (a->inner == 1 && apart && a->n * (int64_t)complex_size > CHUNK_BYTES / 4)
        a->chunk = 2; /* long contiguous lines gain nothing from company; two keep odd lengths aligned */
    a->chunk = mfi_min64(a->chunk, lines);
    mfi_line_geometry g = {kind,       a->n,          f->f64,      in_place, a->in_stride,
                           a->in_dist, a->out_stride, a->out_dist, a->chunk};
    MF_TRY(s->engine->plan(&a->plan, &g));
    size_t scratch = s->engine->scratch(a->plan);
    s->scratch = scratch > s->scratch ? scratch : s->scratch;
    return MF_OK;
}

static mf_status plan_passes(fft_state *s)
{
    const mfi_fft *f = &s->p->u.fft;
    int last = f->naxes - 1;
    if (f->kind == MF_IRFFT) {
        bool in_place = !s->direct_in; /* packed input is ours to overwrite */
        for (int axis = last - 1; axis >= 0; axis--) {
            MF_TRY(plan_pass(s, MF_IFFT, axis, axis == last - 1, in_place));
            in_place = true;
        }
        return plan_pass(s, MF_IRFFT, last, last == 0, false);
    }
    MF_TRY(plan_pass(s, f->kind, last, true, false));
    for (int axis = last - 1; axis >= 0; axis--)
        MF_TRY(plan_pass(s, f->kind == MF_IFFT ? MF_IFFT : MF_FFT, axis, false, true));
    return MF_OK;
}

static void choose_block(fft_state *s)
{
    int64_t bytes =
        s->item_in * (int64_t)mfi_ctype_size(s->in_type) + s->item_out * (int64_t)mfi_ctype_size(s->out_type);
    int64_t group = mfi_chain_unit(s->p, s->item_out) / s->item_out;
    int64_t block = mfi_max64(BLOCK_BYTES / bytes, 1);
    if (s->direct_in && s->direct_out && s->p->u.fft.naxes == 1) /* nothing is buffered: columns gain from company */
        block = mfi_max64(block, CHUNK_LINES);
    block = mfi_min64(block, mfi_ceil_div(s->items, 2 * (int64_t)s->threads));
    if (block > 1) /* full vectors of lines, and even numbers of them so that odd lengths stay aligned */
        block -= block % (block >= CHUNK_LINES / 2 ? CHUNK_LINES / 2 : 2);
    s->block = mfi_min64(mfi_ceil_div(block, group) * group, s->items);
    s->by_blocks = mfi_ceil_div(s->items, s->block) >= s->threads; /* else few large transforms */
}

mf_status mfi_fft_cpu_new(void **state, const mfi_problem *p, const mfi_fft_engine *engine, int threads,
                          bool owns_input)
{
    const mfi_fft *f = &p->u.fft;
    int batch = p->ndim - f->naxes;
    const int64_t *out_shape = p->shape + batch;
    fft_state *s = mfi_calloc(1, sizeof *s);
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->p = p;
    s->engine = engine;
    s->threads = threads;
    s->in_type = f->kind == MF_RFFT ? (f->f64 ? MFI_F64 : MFI_F32) : (f->f64 ? MFI_C128 : MFI_C64);
    s->out_type = f->kind == MF_IRFFT ? (f->f64 ? MFI_F64 : MFI_F32) : (f->f64 ? MFI_C128 : MFI_C64);
    s->items = mfi_product(p->shape, batch);
    s->item_in = mfi_product(f->in_shape, f->naxes);
    s->item_out = mfi_product(out_shape, f->naxes);
    s->in_batch = mfi_batch_of(&f->in, batch, p->shape);
    s->direct_in = direct(s, &f->in, &s->in_batch, f->in_shape, s->in_type);
    for (int a = 0; a < f->naxes; a++)
        s->direct_in &= f->in_extent[a] < 0 || f->in_extent[a] >= f->in_shape[a];
    if (f->kind == MF_IRFFT && f->naxes == 1 && !engine->keeps_c2r_input && !owns_input)
        s->direct_in = false;
    s->separate = f->kind == MF_IRFFT && f->naxes > 1 && s->direct_in;
    if (mfi_chain_is_store(&p->chain, &s->store)) {
        s->out_batch = mfi_batch_of(&s->store->view, batch, p->shape);
        s->direct_out = direct(s, &s->store->view, &s->out_batch, out_shape, s->out_type) &&
                        (f->scale == 1 || contiguous(&s->store->view, 0, p->ndim, p->shape));
    }
    mf_status status = s->direct_out ? MF_OK : mfi_cpu_chain_new(&s->chain, p);
    if (status == MF_OK && s->items && s->item_out) {
        choose_block(s);
        status = plan_passes(s);
    }
    *state = s;
    if (status != MF_OK) {
        mfi_fft_cpu_free(s);
        *state = NULL;
    }
    return status;
}

void mfi_fft_cpu_free(void *state)
{
    fft_state *s = state;
    if (!s)
        return;
    for (int i = 0; i < s->passes; i++)
        if (s->pass[i].plan)
            s->engine->free(s->pass[i].plan);
    mfi_cpu_chain_free(s->chain);
    mf_free(s);
}

bool mfi_fft_cpu_some(const void *state, bool (*holds)(const void *plan))
{
    const fft_state *s = state;
    bool found = false;
    for (int i = 0; i < s->passes; i++)
        found |= holds(s->pass[i].plan);
    return found;
}

/* ---- running ---- */

typedef struct pass_job {
    const fft_state *s;
    const axis_pass *pass;
    char *in, *out;
    int64_t lines, chunks; /* lines of a group and chunks that they make */
    mfi_first_error *error;
} pass_job;

static void run_chunks(const pass_job *job, int64_t begin, int64_t end, void *scratch)
{
    const axis_pass *a = job->pass;
    for (int64_t i = begin; i < end; i++) {
        int64_t group = i / job->chunks, first = i % job->chunks * a->chunk;
        char *in = job->in + (group * a->in_group + first * a->in_dist) * (int64_t)a->in_size;
        char *out = job->out + (group * a->out_group + first * a->out_dist) * (int64_t)a->out_size;
        int64_t count = mfi_min64(a->chunk, job->lines - first);
        mfi_note(job->error, job->s->engine->run(a->plan, in, out, count, scratch));
    }
}

static void pass_piece(void *context, int64_t begin, int64_t end)
{
    const pass_job *job = context;
    void *scratch = mfi_alloc_aligned(job->s->scratch);
    if (scratch)
        run_chunks(job, begin, end, scratch);
    else
        mfi_note(job->error, MF_E_MEMORY);
    mfi_free_aligned(scratch);
}

static void run_pass(const fft_state *s, const axis_pass *a, void *in, void *out, int64_t items, void *scratch,
                     mfi_first_error *error)
{
    int64_t groups = a->inner > 1 ? items * a->outer : 1, lines = a->inner > 1 ? a->inner : items * a->outer;
    pass_job job = {s, a, in, out, lines, mfi_ceil_div(lines, a->chunk), error};
    if (s->by_blocks)
        run_chunks(&job, 0, groups * job.chunks, scratch);
    else
        mfi_parallel_for(groups * job.chunks, 1, s->threads, pass_piece, &job);
}

/* Copy `items` of the batch, padded and in the engine's type. */
static void pack_items(const fft_state *s, void *const *slots, int64_t first, int64_t items, char *dst)
{
    const mfi_fft *f = &s->p->u.fft;
    int naxes = f->naxes, batch = s->p->ndim - naxes;
    for (int64_t i = first, run; i < first + items; i += run) {
        int64_t shape[MF_MAX_DIMS], extent[MF_MAX_DIMS];
        mfi_view view = f->in;
        run = mfi_min64(mfi_batch_run(&s->in_batch, i), first + items - i);
        view.offset += mfi_batch_offset(&s->in_batch, i);
        view.alignment = (int32_t)mf_dtype_size(view.dtype);
        /* one batch dim in front of the axes; the domain has room for it, or the batch has one item */
        int lead = batch > 0;
        for (int a = 0; a < naxes; a++) {
            view.strides[lead + a] = f->in.strides[batch + a];
            shape[lead + a] = f->in_shape[a];
            extent[lead + a] = f->in_extent[a];
        }
        if (lead) {
            view.strides[0] = s->in_batch.dims ? s->in_batch.strides[s->in_batch.dims - 1] : 0;
            shape[0] = run;
            extent[0] = -1;
        }
        mfi_pack(dst, s->in_type, &view, slots, lead + naxes, shape, extent);
        dst += run * s->item_in * (int64_t)mfi_ctype_size(s->in_type);
    }
}

/* A real inverse does not see the imaginary parts of the first element of a line and, for even n, of the last. */
static void clear_edges(const fft_state *s, void *spectra, int64_t items)
{
    const mfi_fft *f = &s->p->u.fft;
    int64_t n = f->n[f->naxes - 1], bins = n / 2 + 1, lines = items * (s->item_in / bins);
    for (int64_t l = 0; l < lines; l++)
        for (int end = 0; end < (n % 2 == 0 ? 2 : 1); end++) {
            int64_t at = 2 * (l * bins + (end ? bins - 1 : 0)) + 1;
            if (f->f64)
                ((double *)spectra)[at] = 0;
            else
                ((float *)spectra)[at] = 0;
        }
}

static void multiply(void *data, int64_t count, double scale, bool f64)
{
    if (f64)
        for (int64_t i = 0; i < count; i++)
            ((double *)data)[i] *= scale;
    else
        for (int64_t i = 0; i < count; i++)
            ((float *)data)[i] *= (float)scale;
}

typedef struct scale_job {
    char *data;
    double scale;
    bool f64;
} scale_job;

static void scale_piece(void *context, int64_t begin, int64_t end)
{
    const scale_job *job = context;
    multiply(job->data + begin * (job->f64 ? 8 : 4), end - begin, job->scale, job->f64);
}

static void finish_items(const fft_state *s, void *const *slots, int64_t first, int64_t items, void *out)
{
    const mfi_fft *f = &s->p->u.fft;
    int64_t points = items * s->item_out, begin = first * s->item_out;
    if (f->scale != 1) {
        scale_job job = {out, f->scale, f->f64};
        int64_t reals = points * (f->kind == MF_IRFFT ? 1 : 2);
        mfi_parallel_for(reals, 1 << 14, s->threads, scale_piece, &job);
    }
    if (s->chain)
        mfi_chain_points_all(s->p, s->chain, slots, begin, begin + points, out, begin, s->threads);
}

/* Buffers of one thread for a block of items. */
typedef struct block_buffers {
    void *memory, *scratch;
    char *in, *middle, *out;
} block_buffers;

static bool get_buffers(const fft_state *s, block_buffers *b)
{
    size_t in_bytes = (size_t)(s->block * s->item_in) * mfi_ctype_size(s->in_type);
    size_t out_bytes = (size_t)(s->block * s->item_out) * mfi_ctype_size(s->out_type);
    size_t scratch = s->by_blocks ? mfi_align_up(s->scratch, 64) : 0;
    in_bytes = mfi_align_up(in_bytes, 64);
    b->memory = mfi_alloc_aligned(scratch + (s->direct_in ? 0 : in_bytes) + (s->separate ? in_bytes : 0) +
                                  (s->direct_out ? 0 : out_bytes));
    b->scratch = b->memory;
    b->in = (char *)b->memory + scratch;
    b->middle = s->direct_in ? b->in : b->in + in_bytes;
    b->out = s->separate ? b->middle + in_bytes : b->middle;
    return b->memory != NULL;
}

static void run_block(const fft_state *s, void *const *slots, int64_t first, int64_t items, const block_buffers *b,
                      mfi_first_error *error)
{
    const mfi_fft *f = &s->p->u.fft;
    char *in = b->in, *out = b->out;
    if (s->direct_in)
        in = mfi_at(&f->in, slots, mfi_batch_offset(&s->in_batch, first));
    else
        pack_items(s, slots, first, items, in);
    if (s->direct_out)
        out = mfi_at(&s->store->view, slots, mfi_batch_offset(&s->out_batch, first));
    char *middle = s->separate ? b->middle : in; /* C2R: where the complex passes leave the spectrum */
    for (int i = 0; i < s->passes; i++) {
        if (f->kind == MF_IRFFT && i == s->passes - 1) {
            char *from = i ? middle : in;
            if (!s->engine->keeps_c2r_input)
                clear_edges(s, from, items);
            run_pass(s, &s->pass[i], from, out, items, b->scratch, error);
        } else if (f->kind == MF_IRFFT) {
            run_pass(s, &s->pass[i], i ? middle : in, middle, items, b->scratch, error);
        } else {
            run_pass(s, &s->pass[i], i ? out : in, out, items, b->scratch, error);
        }
    }
    finish_items(s, slots, first, items, out);
}

typedef struct block_job {
    const fft_state *s;
    void *const *slots;
    mfi_first_error *error;
} block_job;

static void block_piece(void *context, int64_t begin, int64_t end)
{
    const block_job *job = context;
    const fft_state *s = job->s;
    block_buffers buffers;
    if (!get_buffers(s, &buffers)) {
        mfi_note(job->error, MF_E_MEMORY);
        return;
    }
    for (int64_t i = begin; i < end; i++)
        run_block(s, job->slots, i * s->block, mfi_min64(s->block, s->items - i * s->block), &buffers, job->error);
    mfi_free_aligned(buffers.memory);
}

mf_status mfi_fft_cpu_run(void *state, const mfi_run *run)
{
    const fft_state *s = state;
    mfi_first_error error = {MF_OK};
    if (!s->items || !s->item_out)
        return MF_OK;
    block_job job = {s, run->slots, &error};
    int64_t blocks = mfi_ceil_div(s->items, s->block);
    if (!s->by_blocks)
        block_piece(&job, 0, blocks);
    else
        mfi_parallel_for(blocks, 1, s->threads, block_piece, &job);
    return mfi_noted(&error, "FFT");
}

/* ---- as a part ---- */

int64_t mfi_fft_cpu_block(const void *state)
{
    return ((const fft_state *)state)->block;
}

void *mfi_fft_cpu_buffers(const void *state)
{
    block_buffers *b = mfi_alloc(sizeof *b);
    if (b && !get_buffers(state, b)) {
        mf_free(b);
        return NULL;
    }
    return b;
}

void mfi_fft_cpu_release(void *buffers)
{
    if (buffers)
        mfi_free_aligned(((block_buffers *)buffers)->memory);
    mf_free(buffers);
}

void mfi_fft_cpu_items(const void *state, void *const *slots, int64_t first, int64_t items, const void *buffers,
                       mfi_first_error *error)
{
    run_block(state, slots, first, items, buffers, error);
}
