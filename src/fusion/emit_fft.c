/* Kernels that transform: which elements go to which thread, and the source over src/device/fft_chain.cuh. */
#include "emit.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- how a length is shared out: as default_choice of fft_block.cuh, which a static_assert compares ---- */

enum { LARGEST_PRIME = 13, FREE_RADIX = 16, MOST_RADICES = 14 };

static bool is_power_of_2(int n)
{
    return (n & (n - 1)) == 0;
}

static bool is_smooth(int n)
{
    for (int p = 2; p <= LARGEST_PRIME; p++)
        while (n % p == 0)
            n /= p;
    return n == 1;
}

static int largest_divisor(int n, int limit, int of)
{
    for (int d = limit; d > 1; d--)
        if (n % d == 0 && (of == 0 || of % d == 0))
            return d;
    return 1;
}

/* The cost of `e` elements in a thread: passes, exchanges at the ends, idle threads. */
static int elements_cost(int n, int e)
{
    int radix[MOST_RADICES] = {1}, count = 0, rest = n, d;
    bool exact = true;
    while ((d = largest_divisor(rest, e, e)) > 1) {
        radix[count++] = d;
        rest /= d;
    }
    while (rest > 1) {
        d = largest_divisor(rest, FREE_RADIX, 0);
        int at = count > 0 ? 1 : 0;
        memmove(radix + at + 1, radix + at, sizeof *radix * (size_t)(count - at));
        radix[at] = d;
        count++;
        exact = false;
        rest /= d;
    }
    int ends = (e % radix[0] != 0) + (e % radix[count > 0 ? count - 1 : 0] != 0);
    return 12 * (count + ends) + (exact ? 0 : 4) + abs(e - 12);
}

static int default_elements(int n, bool f64)
{
    if (is_power_of_2(n)) {
        if (n <= 8)
            return n;
        if (n <= 64 || n == 512)
            return n == 16 ? 4 : 8;
        return n < 8192 || (n == 8192 && f64) ? 16 : 32;
    }
    int best = n, least = 1 << 30;
    for (int e = 2; e <= (f64 ? 16 : 32); e++) {
        int cost = n % e == 0 && n / e <= 1024 ? elements_cost(n, e) : 1 << 30;
        if (cost < least) {
            least = cost;
            best = e;
        }
    }
    return best;
}

/* ---- the shape ---- */

mfi_fft_parts mfi_fft_parts_of(const mfi_problem *p)
{
    mfi_fft_parts parts = {NULL, NULL, p};
    const mfi_problem *head = p->head;
    if (head && head->anchor != MFI_MAP) {
        parts.first = head;
        head = head->head;
    }
    parts.before = head;
    return parts;
}

static const mfi_fft *first_transform(const mfi_problem *p)
{
    mfi_fft_parts parts = mfi_fft_parts_of(p);
    return parts.first ? &parts.first->u.fft : &p->u.fft;
}

static bool is_real(const mfi_problem *p)
{
    mf_fft_kind kind = first_transform(p)->kind;
    return kind == MF_RFFT || kind == MF_IRFFT;
}

/* The length of the complex transform behind it. */
static int complex_length(const mfi_problem *p)
{
    int n = (int)p->u.fft.n[0];
    return is_real(p) && n % 2 == 0 ? n / 2 : n;
}

static bool chain_fits(const mfi_problem *p)
{
    for (int i = 0; i < p->chain.count; i++) {
        const mfi_instr *in = &p->chain.instr[i];
        if (in->kind == MFI_REDUCE || in->kind == MFI_INDEX || in->level ||
            (in->kind == MFI_APPLY && in->op != MF_OP_WHERE && !mfi_op_defined((mf_op)in->op, (mfi_ctype)in->from)))
            return false;
    }
    return p->nreduce == 0 && p->chain.phases == 0;
}

static int vector_of(const mfi_problem *p)
{
    return p->u.fft.kind == MF_IRFFT && p->u.fft.n[0] % 2 == 0 ? 2 : 1;
}

/* What a variant changes: powers of two of elements a thread and signals a block, blocks a multiprocessor. */
static const struct {
    int elements, ffts, resident;
} ways[MFI_FFT_VARIANTS] = {{0, 0, 0},  {0, 0, 1}, {0, 0, -1}, {0, 1, 0}, {0, -1, 0},
                            {-1, 0, 0}, {1, 0, 0}, {0, 0, 2},  {0, 0, -2}};

static int scaled(int value, int power)
{
    return power < 0 ? value >> -power : value << power;
}

/* How neighbours of the axis, or else of the dim before it, lie: side by side? */
static bool lies_along(const mfi_view *view, int ndim, bool beside)
{
    return ndim > (beside ? 1 : 0) && view->strides[ndim - (beside ? 2 : 1)] == 1;
}

static bool stores_into(const mfi_chain *c, int operand)
{
    for (int i = 0; i < c->count; i++)
        if (c->instr[i].kind == MFI_STORE && c->instr[i].operand == operand)
            return true;
    return false;
}

/* What the head of a pair stores stays in registers. */
static int64_t strided_bytes(const mfi_problem *p, bool beside, bool head)
{
    int64_t bytes = p->head ? strided_bytes(p->head, beside, true) : 0;
    for (int o = 0; o < p->chain.operands; o++) {
        const mfi_view *v = &p->chain.operand[o].view;
        if (mfi_operand_access(p, o) != MFI_ACCESS_REPEAT && !lies_along(v, p->ndim, beside) &&
            !(head && stores_into(&p->chain, o)))
            bytes += mfi_view_bytes(v, p->ndim, p->shape);
    }
    if (p->anchor == MFI_FFT && !lies_along(&p->u.fft.in, p->ndim, beside)) {
        int64_t shape[MF_MAX_DIMS];
        memcpy(shape, p->shape, sizeof shape);
        shape[p->ndim - 1] = p->u.fft.in_extent[0];
        bytes += mfi_view_bytes(&p->u.fft.in, p->ndim, shape);
    }
    return bytes;
}

int64_t mfi_fft_strided_bytes(const mfi_problem *p, bool beside)
{
    return strided_bytes(p, beside, false);
}

/* Whole lines of memory across signals, as far as threads and shared memory go. */
static int beside_ffts(const mfi_problem *p, int lanes, size_t signal_bytes, int variant)
{
    int64_t signals = p->shape[p->ndim - 2], most = 128 / (p->u.fft.f64 ? 16 : 8);
    int ffts = 1;
    while (ffts * 2 <= most && ffts < signals)
        ffts *= 2;
    ffts = (int)mfi_max64(scaled(ffts, ways[variant].ffts), 1);
    while (ffts > 1 && (lanes * ffts > (ffts > 4 ? 512 : 1024) || signal_bytes * (size_t)ffts > (size_t)112 << 10))
        ffts /= 2;
    return ffts;
}

/* Signals of a block: some hundred threads, of whose warps little is idle. */
static int block_ffts(int lanes)
{
    int ffts = lanes >= 96 ? 1 : 128 / lanes;
    if (is_power_of_2(lanes))
        return ffts;
    for (int more = ffts; more <= 4 && lanes * more <= 320; more++) {
        int threads = lanes * more, whole = (threads + 31) / 32 * 32;
        if (threads * 100 >= whole * 93)
            return more;
    }
    return ffts;
}

/* The length whose passes are run. */
static int work_length(int n)
{
    int work = 1;
    while (work < 2 * n - 1)
        work *= 2;
    return is_smooth(n) ? n : work;
}

/* Shared memory of one signal, at least what it takes. */
static size_t signal_bytes(int work, int lanes, size_t size, bool split)
{
    size_t word = split && lanes > 1 ? size / 2 : size, line = 128 / word;
    return ((size_t)work + (size_t)work / (is_power_of_2(work) ? line : line / 2) + 16) * word;
}

/* Blocks whose registers a multiprocessor has: the elements, and what butterflies, roots and addresses take without spilling. */
static int blocks_by_registers(const mfi_fft_shape *s, int work, bool f64)
{
    int held = s->elements * (f64 ? 4 : 2), threads = (s->threads + 31) / 32 * 32;
    int registers = f64 ? 2 * held + 40 : work == 4096 ? held + 32 : held + (is_power_of_2(work) ? 48 : 44);
    return (int)mfi_max64(65536 / ((int64_t)mfi_min64(registers, 255) * threads), 1);
}

static int64_t blocks_by_shared(const mfi_caps *c, size_t bytes)
{
    return (int64_t)((c->shared_bytes + 1024) / (bytes + 1024));
}

static void share_out(mfi_fft_shape *s, const mfi_problem *p, const mfi_caps *c, int variant)
{
    const bool f64 = p->u.fft.f64;
    int n = complex_length(p), size = f64 ? 16 : 8, work = work_length(s->pair ? n / 2 : n);
    s->n = n;
    s->elements = default_elements(work, f64);
    if (ways[variant].elements && is_power_of_2(work))
        s->elements = (int)mfi_max64(scaled(s->elements, ways[variant].elements), 2);
    int lanes = (work + s->elements - 1) / s->elements;
    bool across =
        p->ndim > 1 && p->shape[p->ndim - 2] > 1 && mfi_fft_strided_bytes(p, true) < mfi_fft_strided_bytes(p, false);
    s->split = work * size >= 65536;
    size_t bytes = signal_bytes(work, lanes, (size_t)size, s->split);
    s->ffts = s->pair  ? 1
              : across ? beside_ffts(p, lanes, bytes, variant)
                       : (int)mfi_max64(scaled(block_ffts(lanes), ways[variant].ffts), 1);
    s->beside = across && s->ffts > 1;
    s->threads = lanes * s->ffts;
    s->resident = blocks_by_registers(s, work, f64);
    /* Whole numbers at once take half the instructions and barriers, where as many blocks have room for them. */
    size_t whole = signal_bytes(work, lanes, (size_t)size, false);
    if (s->split && !across && !s->pair && !f64 && blocks_by_shared(c, whole * (size_t)s->ffts) >= s->resident) {
        s->split = false;
        bytes = whole;
    }
    s->shared = bytes * (size_t)s->ffts + (s->pair ? (size_t)work / 2 * (size_t)size + 16 : 0);
    s->table = 4 * (int64_t)work + n + 16;
    int threads = (s->threads + 31) / 32 * 32;
    s->resident = (int)mfi_max64(mfi_min64(s->resident + ways[variant].resident, 2048 / threads), 1);
}

bool mfi_fft_shape_choose(mfi_fft_shape *s, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_fft *f = &p->u.fft;
    int most = f->f64 ? 8192 : 16384;
    *s = (mfi_fft_shape){0};
    MF_REFUSE_UNLESS(f->naxes == 1, RANK, "%d axes at once; a kernel has one", f->naxes);
    MF_REFUSE_UNLESS(f->n[0] >= 2 && f->n[0] <= 2 * most, SIZE, "n=%lld, a block transforms 2 to %d points",
                     (long long)f->n[0], most);
    int n = complex_length(p);
    s->pair = n == 2 * most && c->sm >= 90 && !is_real(p);
    MF_REFUSE_UNLESS(n >= 2 && (s->pair || n <= (is_smooth(n) ? most : most / 2)), SIZE,
                     "n=%lld: a block transforms %d points, or %d where n has primes over %d", (long long)f->n[0], most,
                     most / 2, LARGEST_PRIME);
    for (const mfi_problem *part = p; part; part = part->head)
        MF_REFUSE_UNLESS(chain_fits(part), NO_EPILOGUE,
                         "a reduction, or an operation that is not defined for its dtype");
    MF_REFUSE_UNLESS(bid->variant >= 0 && bid->variant < MFI_FFT_VARIANTS, SIZE, "there is no variant %d",
                     bid->variant);
    share_out(s, p, c, bid->variant);
    MF_REFUSE_UNLESS(s->threads <= 1024 && s->elements <= (f->f64 ? 16 : 32), SIZE,
                     "n=%lld would take %d threads of %d elements", (long long)f->n[0], s->threads, s->elements);
    MF_REFUSE_UNLESS(s->shared + 1024 <= c->shared_bytes, SIZE, "n=%lld takes %zu bytes of shared memory of %zu",
                     (long long)f->n[0], s->shared, c->shared_bytes);
    s->resident = (int)mfi_max64(mfi_min64(s->resident, blocks_by_shared(c, s->shared)), 1);
    int64_t signals = mfi_problem_points(p) / mfi_max64(p->shape[p->ndim - 1], 1);
    s->blocks = mfi_ceil_div(signals, s->ffts) * (s->pair ? 2 : 1);
    MF_REFUSE_UNLESS(s->blocks <= 0x7fffffff, SIZE, "%lld blocks would be launched", (long long)s->blocks);
    bool wide = false;
    for (const mfi_problem *part = p; part; part = part->head)
        wide |= mfi_shape_needs_wide(part);
    s->last = (mfi_shape){.vector = vector_of(p), .threads = s->threads, .wide = wide, .splits = 1, .launches = 1};
    s->middle = (mfi_shape){.vector = 1, .threads = s->threads, .wide = wide, .splits = 1, .launches = 1};
    s->middle.through = true;
    return true;
}

/* ---- the text ---- */

static void chain_space(mfi_text *out, const char *name, const mfi_problem *p, const mfi_shape *layout)
{
    mfi_text_add(out, "namespace %s\n{\n\n", name);
    mfi_emit_chain(out, p, layout);
    mfi_text_add(out, "\n} // namespace %s\n\n", name);
}

static void transform_type(mfi_text *out, const char *name, const mfi_fft *f, bool pair)
{
    const char *type = f->f64 ? "double" : "float";
    int n = (int)f->n[0];
    const char *direction = f->kind == MF_FFT ? "forward" : "inverse";
    if (pair)
        mfi_text_add(out, "typedef mf::fft_half<mf::fft_complex<%s, %d, mf::fft::%s, config>> %s;\n", type, n / 2,
                     direction, name);
    else if (f->kind == MF_RFFT)
        mfi_text_add(out, "typedef mf::fft_real<%s, %d, config> %s;\n", type, n, name);
    else if (f->kind == MF_IRFFT)
        mfi_text_add(out, "typedef mf::fft_hermitian<%s, %d, config> %s;\n", type, n, name);
    else
        mfi_text_add(out, "typedef mf::fft_complex<%s, %d, mf::fft::%s, config> %s;\n", type, n, direction, name);
}

void mfi_emit_fft_transforms(mfi_text *out, const mfi_problem *p, const mfi_fft_shape *s)
{
    mfi_text_add(out, "typedef mf::fft::config<%d, %d, %s%s> config;\n", s->elements, s->ffts,
                 s->split ? "true" : "false", s->beside ? ", mf::fft::by_length, true" : "");
    transform_type(out, "first", first_transform(p), s->pair);
    transform_type(out, "second", &p->u.fft, s->pair);
    mfi_text_add(out,
                 "static_assert(first::threads == %d && first::shared_bytes <= %zu && first::table_size <= %lld, "
                 "\"\");\n",
                 s->threads, s->shared, (long long)s->table);
}

void mfi_emit_fft_types(mfi_text *out, const mfi_problem *p, const mfi_fft_shape *s)
{
    mfi_fft_parts parts = mfi_fft_parts_of(p);
    if (parts.before)
        chain_space(out, "first_chain", parts.before, &s->middle);
    if (parts.first)
        chain_space(out, "middle_chain", parts.first, &s->middle);
    chain_space(out, "last_chain", p, &s->last);
    mfi_emit_fft_transforms(out, p, s);
    mfi_text_add(out, "struct kernel_args {\n    mf::fft_head<%d> fft;\n%s%s    last_chain::args last;\n};\n", p->ndim,
                 parts.before ? "    first_chain::args before;\n" : "",
                 parts.first ? "    middle_chain::args middle;\n" : "");
}

void mfi_emit_fft_call(mfi_text *out, const mfi_problem *p, const mfi_fft_shape *s, const char *block)
{
    mfi_fft_parts parts = mfi_fft_parts_of(p);
    const mfi_fft *first = first_transform(p);
    bool unit = first->in.strides[p->ndim - 1] == 1;
    int64_t some = first->in_extent[0] ? first->in_extent[0] : -1;
    int64_t have = first->in_extent[0] == first->in_shape[0] ? 0 : some;
    mfi_text_add(out, "mf::%s<first, second, %s, %s, %s, last_chain::chain<%d>, %d, %s, %lld, %lld, %s>(a, %s, shared)",
                 s->pair ? "fft_pair_chain" : "fft_chain", mfi_emit_storage(first->in.dtype),
                 parts.before ? "first_chain::chain<1>" : "mf::no_chain",
                 parts.first ? "middle_chain::chain<1>" : "mf::no_chain", s->last.vector, p->ndim,
                 unit ? "true" : "false", (long long)have, mfi_fft_is_narrow(p) ? (long long)p->shape[p->ndim - 1] : 0,
                 first->scale != 1 ? "true" : "false", block);
}

mf_status mfi_emit_fft(mfi_source *out, const mfi_problem *p, const mfi_fft_shape *s)
{
    mfi_text text = {0}, body = {0};
    mfi_text_add(&text, "#include \"device/%s.cuh\"\n\nnamespace\n{\n\n", s->pair ? "fft_pair" : "fft_chain");
    mfi_emit_fft_types(&text, p, s);
    mfi_text_add(&text, "\n} // namespace\n\n");
    mfi_emit_fft_call(&body, p, s, "blockIdx.x");
    *out = (mfi_source){.text = NULL};
    if (!text.failed && !body.failed) {
        /* the name stands for everything else in the text */
        uint64_t hash =
            XXH3_64bits_withSeed(body.data, body.length, XXH3_64bits(text.data, text.length)) + (uint64_t)s->resident;
        snprintf(out->name, sizeof out->name, "mf_fft_%016llx", (unsigned long long)hash);
        mfi_text_add(
            &text,
            "extern \"C\" __global__ void %s__launch_bounds__(%d, %d) %s(const __grid_constant__ kernel_args a)\n"
            "{\n    MF_DYNAMIC_SHARED(unsigned char, shared);\n    mf::begin_kernel();\n    %s;\n}\n\n"
            "extern \"C\" __global__ void %s_table(mf::cplx<first::real> *table)\n"
            "{\n    mf::fft_fill_table<first>(table, blockIdx.x * blockDim.x + threadIdx.x);\n}\n",
            s->pair ? "__cluster_dims__(2, 1, 1) " : "", s->threads, s->resident, out->name, body.data, out->name);
        out->text = mfi_text_take(&text);
    }
    mfi_text_free(&text);
    mfi_text_free(&body);
    return out->text ? MF_OK : MFI_NO_MEMORY(text.capacity);
}

/* ---- arguments ---- */

static mf_status append(mfi_words *to, int *data, const mfi_problem *p, const mfi_shape *layout)
{
    mfi_problem *chain = mfi_alloc(sizeof *chain);
    mfi_words *own = mfi_alloc(sizeof *own);
    mf_status status = chain && own ? MF_OK : MFI_NO_MEMORY(sizeof *chain);
    if (status == MF_OK) {
        *chain = *p;
        chain->anchor = MFI_MAP; /* the chain's arguments alone */
        if (to->count + mfi_words_needed(chain) > MFI_MAX_WORDS) {
            status = mfi_fail(MF_E_UNSUPPORTED, "the chains' operands exceed a kernel's arguments");
        } else {
            mfi_words_fill(own, layout, chain);
            *data = to->count + own->data;
            memcpy(to->word + to->count, own->word, sizeof *own->word * (size_t)own->count);
            to->count += own->count;
        }
    }
    mf_free(chain);
    mf_free(own);
    return status;
}

static void add(mfi_words *w, const void *value)
{
    memcpy(&w->word[w->count++], value, sizeof *w->word);
}

mf_status mfi_fft_words_fill(mfi_fft_words *out, const mfi_problem *p, const mfi_fft_shape *s)
{
    mfi_fft_parts parts = mfi_fft_parts_of(p);
    const mfi_fft *first = first_transform(p);
    const int64_t none = 0, signals = mfi_problem_points(p) / mfi_max64(p->shape[p->ndim - 1], 1);
    mfi_words *w = &out->words;
    w->count = 0;
    out->before = out->middle = -1;
    add(w, &signals);
    out->in = w->count;
    add(w, &none);
    out->table = w->count;
    add(w, &none);
    for (int d = 0; d < p->ndim; d++)
        add(w, &first->in.strides[d]);
    out->scale = w->count;
    add(w, &first->scale);
    add(w, &p->u.fft.scale);
    if (parts.before)
        MF_TRY(append(w, &out->before, parts.before, &s->middle));
    if (parts.first)
        MF_TRY(append(w, &out->middle, parts.first, &s->middle));
    return append(w, &out->last, p, &s->last);
}
