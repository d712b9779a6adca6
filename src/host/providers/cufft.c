/* FFT on CUDA through cuFFT: which layouts it takes as they are, and which go through workspace. cufft_run.c calls it.
 */
#include "cufft.h"

#include <math.h>
#include <stdio.h>

/* Outer batch dims that cuFFT's one batch distance cannot express: so many calls, or calls of this size, beat a copy.
 */
enum { FEW_CALLS = 8, MOST_CALLS = 1024, LAST_RESORT_CALLS = 1 << 16, LARGE_CALL_BYTES = 4 << 20 };

/* The dims of one stage: axes, then the other dims as batch. */
typedef struct dims {
    int axes, batches;
    int64_t n[MFI_CUFFT_RANK], in_length[MFI_CUFFT_RANK], out_length[MFI_CUFFT_RANK];
    int64_t in_axis[MFI_CUFFT_RANK], out_axis[MFI_CUFFT_RANK];
    int64_t shape[MF_MAX_DIMS], in_batch[MF_MAX_DIMS], out_batch[MF_MAX_DIMS];
} dims;

static void swap(int64_t *array, int i, int j)
{
    int64_t t = array[i];
    array[i] = array[j];
    array[j] = t;
}

/* Longest stride first. A real transform halves its last axis, which stays last. */
static void sort_axes(dims *d, bool complex_to_complex)
{
    int movable = d->axes - (complex_to_complex ? 0 : 1);
    for (int pass = 0; pass < movable; pass++)
        for (int i = 0; i + 1 < movable; i++)
            if (d->in_axis[i] < d->in_axis[i + 1]) {
                int64_t *arrays[] = {d->n, d->in_length, d->out_length, d->in_axis, d->out_axis};
                for (size_t a = 0; a < MFI_COUNT(arrays); a++)
                    swap(arrays[a], i, i + 1);
            }
}

static bool embed(mfi_cufft_side *side, int rank, const int64_t *length, const int64_t *strides)
{
    int64_t inner = length[rank - 1] == 1 ? 1 : strides[rank - 1];
    side->stride = inner;
    side->embed[0] = length[0];
    if (inner <= 0)
        return false;
    for (int i = rank - 2; i >= 0; i--) {
        int64_t outer = length[i] == 1 ? inner * length[i + 1] : strides[i];
        if (outer <= 0 || outer % inner || outer / inner < length[i + 1])
            return false;
        side->embed[i + 1] = outer / inner;
        inner = outer;
    }
    return true;
}

/* Merge neighbouring batch dims that are one on both sides; drop those of length 1. */
static void merge_batches(dims *d)
{
    int count = 0;
    for (int i = 0; i < d->batches; i++) {
        if (d->shape[i] == 1)
            continue;
        int last = count - 1;
        bool merges = count > 0 && d->in_batch[last] == d->in_batch[i] * d->shape[i] &&
                      d->out_batch[last] == d->out_batch[i] * d->shape[i];
        int at = merges ? last : count++;
        d->shape[at] = merges ? d->shape[at] * d->shape[i] : d->shape[i];
        d->in_batch[at] = d->in_batch[i];
        d->out_batch[at] = d->out_batch[i];
    }
    d->batches = count;
}

/* The longest batch dim with usable distances becomes cuFFT's batch; the others are looped over. */
static void take_batches(mfi_cufft_stage *s, dims *d)
{
    int best = -1;
    merge_batches(d);
    for (int i = 0; i < d->batches; i++)
        if (d->in_batch[i] > 0 && d->out_batch[i] > 0 && (best < 0 || d->shape[i] > d->shape[best]))
            best = i;
    s->batch = best < 0 ? 1 : d->shape[best];
    s->in.dist = best < 0 ? 1 : d->in_batch[best]; /* cuFFT refuses 0, even for a single transform */
    s->out.dist = best < 0 ? 1 : d->out_batch[best];
    s->calls = 1;
    for (int i = 0; i < d->batches; i++) {
        if (i == best)
            continue;
        s->loop_shape[s->loops] = d->shape[i];
        s->in.loop_stride[s->loops] = d->in_batch[i];
        s->out.loop_stride[s->loops++] = d->out_batch[i];
        s->calls *= d->shape[i];
    }
}

/* cuFFT reads and writes real data by pairs: every address is aligned as a complex number. */
static bool aligned(const mfi_cufft_stage *s, const mfi_cufft_side *side, const mfi_view *view, bool f64)
{
    int64_t pair = f64 ? 16 : 8, size = (int64_t)mf_dtype_size(view->dtype);
    bool ok = view->alignment >= pair;
    for (int i = 0; i < s->loops; i++)
        ok = ok && side->loop_stride[i] * size % pair == 0;
    return ok;
}

static const mfi_view *view_of(const mfi_cufft_spec *f, mfi_cufft_buffer buffer)
{
    const mfi_view *views[] = {f->in, &f->work_in, &f->work_out, f->out};
    return views[buffer];
}

/* One stage over domain dims [lo, hi): n are the transform lengths, shapes the extents in memory. */
static bool add_stage(mfi_cufft_spec *f, const mfi_problem *p, mf_fft_kind kind, int lo, int hi, mfi_cufft_buffer from,
                      mfi_cufft_buffer to, const int64_t *from_shape)
{
    mfi_cufft_stage *s = &f->stage[f->stages++];
    const mfi_view *in = view_of(f, from), *out = view_of(f, to);
    bool complex_to_complex = kind == MF_FFT || kind == MF_IFFT;
    dims d = {.axes = hi - lo};
    *s = (mfi_cufft_stage){.kind = kind, .rank = hi - lo, .in.buffer = from, .out.buffer = to};
    for (int i = 0; i < p->ndim; i++) {
        if (i < lo || i >= hi) {
            d.shape[d.batches] = to == MFI_CUFFT_WORK_IN ? from_shape[i] : p->shape[i];
            d.in_batch[d.batches] = in->strides[i];
            d.out_batch[d.batches++] = out->strides[i];
            continue;
        }
        d.n[i - lo] = p->u.fft.n[i - f->batch_dims];
        d.in_length[i - lo] = from_shape[i];
        d.out_length[i - lo] = complex_to_complex ? d.n[i - lo] : p->shape[i];
        d.in_axis[i - lo] = in->strides[i];
        d.out_axis[i - lo] = out->strides[i];
    }
    sort_axes(&d, complex_to_complex);
    memcpy(s->n, d.n, sizeof s->n);
    if (!embed(&s->in, s->rank, d.in_length, d.in_axis) || !embed(&s->out, s->rank, d.out_length, d.out_axis))
        return false;
    take_batches(s, &d);
    int64_t bytes = s->batch * (int64_t)mf_dtype_size(out->dtype);
    for (int i = 0; i < s->rank; i++)
        bytes *= s->n[i];
    bool calls = s->calls <= FEW_CALLS || (s->calls <= MOST_CALLS && bytes >= LARGE_CALL_BYTES) ||
                 (f->copy_in && f->copy_out && s->calls <= LAST_RESORT_CALLS);
    return calls && aligned(s, &s->in, in, f->f64) && aligned(s, &s->out, out, f->f64);
}

/* Groups of at most three axes. A real transform runs with the last group: first if it makes complex numbers, else
 * last. */
static bool add_stages(mfi_cufft_spec *f, const mfi_problem *p)
{
    mfi_cufft_buffer from = f->copy_in ? MFI_CUFFT_WORK_IN : MFI_CUFFT_IN;
    mfi_cufft_buffer to = f->copy_out ? MFI_CUFFT_WORK_OUT : MFI_CUFFT_OUT;
    mf_fft_kind kind = p->u.fft.kind, outer = kind == MF_RFFT ? MF_FFT : kind == MF_IRFFT ? MF_IFFT : kind;
    int first = f->batch_dims, last = (int)mfi_max64(first, p->ndim - MFI_CUFFT_RANK);
    f->stages = 0;
    if (kind != MF_IRFFT && !add_stage(f, p, kind, last, p->ndim, from, to, f->in_shape))
        return false;
    mfi_cufft_buffer at = kind == MF_IRFFT ? from : to;
    for (int hi = last; hi > first; hi -= MFI_CUFFT_RANK) {
        int lo = (int)mfi_max64(first, hi - MFI_CUFFT_RANK);
        if (!add_stage(f, p, outer, lo, hi, at, at, kind == MF_IRFFT ? f->in_shape : p->shape))
            return false;
    }
    return kind != MF_IRFFT || add_stage(f, p, kind, last, p->ndim, from, to, f->in_shape);
}

static int64_t product(const int64_t *shape, int ndim)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    return n;
}

/* The first arrangement that cuFFT can express; with both copies everything is contiguous. */
static bool arrange(mfi_cufft_spec *f, const mfi_problem *p, bool must_copy_in, bool must_copy_out)
{
    f->work_in = mfi_pass_contiguous(f->in_dtype, p->ndim, f->in_shape);
    f->work_out = mfi_pass_contiguous(f->out_dtype, p->ndim, p->shape);
    for (int copies = 0; copies < 4; copies++) {
        f->copy_in = copies & 1;
        f->copy_out = copies & 2;
        if ((must_copy_in && !f->copy_in) || (must_copy_out && !f->copy_out) || !add_stages(f, p))
            continue;
        f->in_bytes = f->copy_in ? (size_t)product(f->in_shape, p->ndim) * mf_dtype_size(f->in_dtype) : 0;
        f->out_bytes = f->copy_out ? (size_t)product(p->shape, p->ndim) * mf_dtype_size(f->out_dtype) : 0;
        f->in_bytes = mfi_align_up(f->in_bytes, 256);
        f->out_bytes = mfi_align_up(f->out_bytes, 256);
        return true;
    }
    return false;
}

/* acc, or acc times a constant, stored once. */
static bool match_chain(mfi_cufft_spec *f, const mfi_problem *p, mfi_bid *bid)
{
    const mfi_chain *c = &p->chain;
    int value = 0, store = -1;
    for (int i = 1; i < c->count; i++) {
        const mfi_instr *in = &c->instr[i];
        bool by_constant = in->kind == MFI_APPLY && in->op == MF_OP_MULTIPLY && in->from == in->ctype;
        int other = by_constant && in->a == value ? in->b : in->a;
        if (in->kind == MFI_CONST)
            continue;
        if (in->kind == MFI_STORE && in->a == value && store < 0 && !in->saturate) {
            store = in->operand;
            continue;
        }
        MF_REFUSE_UNLESS(by_constant && (in->a == value || in->b == value) && c->instr[other].kind == MFI_CONST,
                         NO_EPILOGUE, "cuFFT stores its result, at most scaled by a constant");
        double re = c->instr[other].re, im = c->instr[other].im, old = f->scale[0];
        f->scale[0] = old * re - f->scale[1] * im;
        f->scale[1] = old * im + f->scale[1] * re;
        value = i;
    }
    MF_REFUSE_UNLESS(store >= 0, NO_EPILOGUE, "the chain stores nothing");
    MF_REFUSE_UNLESS(isfinite(f->scale[0]) && isfinite(f->scale[1]), NO_EPILOGUE, "a scale that is not finite");
    f->out = &c->operand[store].view;
    return true;
}

static void set_shapes(mfi_cufft_spec *f, const mfi_problem *p)
{
    const mfi_fft *fft = &p->u.fft;
    f->batch_dims = p->ndim - fft->naxes;
    for (int i = 0; i < p->ndim; i++) {
        int axis = i - f->batch_dims;
        f->in_shape[i] = axis < 0 ? p->shape[i] : fft->in_shape[axis];
        f->in_extent[i] = axis >= 0 && fft->in_extent[axis] < fft->in_shape[axis] ? fft->in_extent[axis] : -1;
    }
}

bool mfi_cufft_describe(mfi_cufft_spec *f, const mfi_problem *p, mfi_bid *bid)
{
    const mfi_fft *fft = &p->u.fft;
    mf_dtype complex_dtype = fft->f64 ? MF_C128 : MF_C64, real_dtype = fft->f64 ? MF_F64 : MF_F32;
    *f = (mfi_cufft_spec){.f64 = fft->f64, .scale = {fft->scale, 0}, .in = &fft->in};
    f->in_dtype = fft->kind == MF_RFFT ? real_dtype : complex_dtype;
    f->out_dtype = fft->kind == MF_IRFFT ? real_dtype : complex_dtype;
    if (!match_chain(f, p, bid) || !f->out)
        return false;
    set_shapes(f, p);
    bool cut = false;
    for (int i = 0; i < p->ndim; i++)
        cut = cut || f->in_extent[i] >= 0;
    MF_REFUSE_UNLESS(!mfi_is_complex(fft->in.dtype) || mfi_is_complex(f->in_dtype), DTYPE,
                     "a real transform of %s input", mf_dtype_name(fft->in.dtype));
    MF_REFUSE_UNLESS(!mfi_is_complex(f->out_dtype) || mfi_is_complex(f->out->dtype), DTYPE,
                     "a complex result stored as %s", mf_dtype_name(f->out->dtype));
    MF_REFUSE_UNLESS(f->scale[1] == 0 || mfi_is_complex(f->out_dtype), NO_EPILOGUE,
                     "a real result times a complex number");
    /* C2R overwrites its input, and reads imaginary parts that have to be zero first: always through a copy. */
    bool must_copy_in = fft->kind == MF_IRFFT || cut || fft->in.dtype != f->in_dtype;
    MF_REFUSE_UNLESS(arrange(f, p, must_copy_in, f->out->dtype != f->out_dtype), LAYOUT,
                     "no layout that cuFFT could be given");
    f->hermitian = fft->kind == MF_IRFFT && fft->naxes > 1;
    bool scaled = f->scale[0] != 1 || f->scale[1] != 0;
    bool in_scales = f->copy_in && (f->scale[1] == 0 || mfi_is_complex(f->in_dtype));
    f->scale_out = scaled && !in_scales && !f->copy_out;
    return true;
}

/* Trips over memory: one per axis that fits a block, two for longer ones. */
static int trips(const mfi_cufft_spec *f, int *launches)
{
    int total = 0;
    *launches = f->copy_in + f->copy_out + f->scale_out + f->hermitian;
    for (int i = 0; i < f->stages; i++) {
        int stage = 0;
        for (int a = 0; a < f->stage[i].rank; a++)
            stage += f->stage[i].n[a] == 1 ? 0 : f->stage[i].n[a] > 16384 ? 2 : 1;
        stage = stage ? stage : 1;
        total += stage;
        *launches += stage * (int)f->stage[i].calls;
    }
    return total;
}

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    static const char *const types[2][4] = {{"C2C", "C2C", "R2C", "C2R"}, {"Z2Z", "Z2Z", "D2Z", "Z2D"}};
    mfi_cufft_spec f;
    MF_REFUSE_UNLESS(p->anchor == MFI_FFT, NOT_ANCHOR, "it transforms");
    MF_REFUSE_UNLESS(!mfi_fft_is_narrow(p), LAYOUT, "it stores all terms, the step keeps %lld",
                     (long long)p->shape[p->ndim - 1]);
    MF_REFUSE_UNLESS(c->cuda, WRONG_TARGET, "the target is %s", c->arch);
#ifndef MFI_WITH_CUDA
    return mfi_refuse(bid, MFI_R_NOT_BUILT, "built without CUDA's headers");
#endif
    MF_REFUSE_UNLESS(c->library[MFI_LIB_CUFFT], NOT_FOUND, "cuFFT");
    MF_REFUSE_UNLESS(mfi_problem_points(p) > 0, EMPTY, "the result has no elements");
    if (!mfi_cufft_describe(&f, p, bid))
        return false;
    MF_REFUSE_UNLESS(c->library[MFI_LIB_NVRTC] || !(f.copy_in || f.copy_out || f.scale_out), NOT_FOUND,
                     "NVRTC, for the copy that this layout needs");
    int64_t out_bytes = mfi_problem_points(p) * (int64_t)mf_dtype_size(f.out_dtype);
    int launches, passes = trips(&f, &launches);
    mfi_bid_roofline(bid, p, c, 0.88, launches);
    int64_t extra = 2 * ((passes - 1 + f.scale_out) * out_bytes + (int64_t)f.in_bytes + (int64_t)f.out_bytes);
    bid->bytes += extra;
    bid->cost_us += (double)extra / c->bytes_per_us / 0.88;
    /* cuFFT's own work area is known once planned there; it is at most of the result's order. */
    bid->workspace = f.in_bytes + f.out_bytes + mfi_align_up((size_t)out_bytes * (passes > 1 ? 2 : 1), 256);
    snprintf(bid->kernel, sizeof bid->kernel, "cufft %s%s%s%s%s", types[f.f64][p->u.fft.kind],
             f.copy_in ? ", copy in" : "", f.hermitian ? ", make Hermitian" : "", f.copy_out ? ", copy out" : "",
             f.scale_out ? ", scale" : "");
    return true;
}

const mfi_provider mfi_provider_cufft = {
    "cufft", query, mfi_cufft_prepare, mfi_cufft_run, mfi_cufft_destroy, mfi_cufft_kernel, NULL, NULL};
