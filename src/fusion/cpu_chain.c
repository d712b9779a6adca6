/* Runs compiled chains (cpu_compile.c): the interpreter over blocks, groups of rows, and the split over threads. */
#include "cpu_program.h"

typedef struct value {
    char *p;
    bool scalar; /* one element stands for all */
} value;

/* One thread's view of a run. Values of the row arena may be shared with other threads that run the same group. */
typedef struct frame {
    const mfi_cpu_chain *chain;
    void *const *slots;
    const mfi_acc_block *acc;
    char *element, *row; /* arenas */
    int64_t kept_from;   /* index of the element that kept values begin with */
    mfi_acc *part;       /* accumulators of the chunk being reduced: [reduction][row of the group] */
    value v[MFI_MAX_VALUES];
} frame;

/* ---- uops ---- */

/* The first element again and again: what is there is copied behind itself. */
static void fill(void *dst, const void *src, int64_t n, int size)
{
    int64_t done = mfi_min64(n, 8), end = n * size;
    mfi_gather_line(dst, src, 0, done, size);
    for (done *= size; done < end; done *= 2)
        memcpy((char *)dst + done, dst, (size_t)mfi_min64(done, end - done));
}

/* The value's n elements as a block. */
static const char *block_of(const frame *f, value v, int64_t n, int size)
{
    if (!v.scalar)
        return v.p;
    char *block = f->element + f->chain->fill;
    fill(block, v.p, n, size);
    return block;
}

static bool aligned(const char *p, int alignment)
{
    return (uintptr_t)p % (uintptr_t)alignment == 0;
}

static void load(frame *f, const mfi_uop *u, char *dst, int64_t index, int n, bool scalar)
{
    const mfi_walk *w = &f->chain->walk[u->walk];
    int64_t stride;
    char *p = mfi_walk_line(w, f->slots, index, n, &stride);
    bool repeat = p && stride == 0;
    bool usable = p && (repeat || n == 1 || stride == w->size) && aligned(p, w->alignment);
    n = repeat ? 1 : n;
    if (!usable || (u->native && u->copy)) {
        char *copy = u->native ? dst : f->element + f->chain->raw;
        mfi_walk_gather(w, f->slots, index, n, copy);
        p = copy;
    }
    if (!u->native) {
        u->convert(n, dst, p);
        p = dst;
    }
    f->v[u->dst] = (value){p, scalar || repeat};
}

static void store(frame *f, const mfi_uop *u, int64_t index, int n)
{
    const mfi_walk *w = &f->chain->walk[u->walk];
    int64_t stride;
    char *p = mfi_walk_line(w, f->slots, index, n, &stride);
    if (p && p == f->v[u->a].p && !f->v[u->a].scalar && u->native)
        return; /* written there at once */
    bool usable = p && (n == 1 || stride == w->size) && aligned(p, w->alignment);
    const char *src = block_of(f, f->v[u->a], n, u->size);
    if (usable) {
        u->convert(n, p, src);
        return;
    }
    if (!u->native) {
        char *raw = f->element + f->chain->raw;
        u->convert(n, raw, src);
        src = raw;
    }
    mfi_walk_scatter(w, f->slots, index, n, src);
}

/* Operands that have one value for each row of the block: row by row, where they are scalars. */
static void apply_rows(frame *f, const mfi_uop *u, char *dst, int n)
{
    const int16_t operand[3] = {u->a, u->b < 0 ? u->a : u->b, u->c < 0 ? u->b < 0 ? u->a : u->b : u->c};
    const char *p[3];
    int64_t each = mfi_min64(f->chain->row_length, n), step[3];
    unsigned scalars = 0, all = u->c < 0 ? MFI_SCALAR_A | MFI_SCALAR_B : MFI_SCALAR_A | MFI_SCALAR_B | MFI_SCALAR_C;
    for (int k = 0; k < 3; k++) {
        value v = f->v[operand[k]];
        bool by_row = u->by_row & 1u << k;
        p[k] = v.p;
        step[k] = v.scalar ? 0 : by_row ? u->operand_size[k] : each * u->operand_size[k];
        scalars |= v.scalar || by_row ? all & 1u << k : 0;
    }
    for (int64_t i = 0; i < n; i += each, dst += each * u->size) {
        u->apply(scalars == all ? 1 : (int)each, scalars == all ? 0 : scalars, dst, p[0], p[1], p[2]);
        if (scalars == all)
            fill(dst, dst, each, u->size);
        for (int k = 0; k < 3; k++)
            p[k] += step[k];
    }
}

static void apply(frame *f, const mfi_uop *u, char *dst, int64_t index, int n, bool scalar)
{
    value a = f->v[u->a], b = u->b < 0 ? a : f->v[u->b], c = u->c < 0 ? b : f->v[u->c];
    if (scalar || (!u->by_row && a.scalar && b.scalar && c.scalar)) {
        u->apply(1, 0, dst, a.p, b.p, c.p);
        f->v[u->dst] = (value){dst, true};
        return;
    }
    if (u->direct >= 0) {
        const mfi_walk *w = &f->chain->walk[u->direct];
        int64_t stride;
        char *p = mfi_walk_line(w, f->slots, index, n, &stride);
        dst = p && stride == w->size && aligned(p, w->alignment) ? p : dst;
    }
    f->v[u->dst] = (value){dst, false};
    if (u->by_row) {
        apply_rows(f, u, dst, n);
        return;
    }
    unsigned flags = (u->b >= 0 && a.scalar ? MFI_SCALAR_A : 0) | (u->b >= 0 && b.scalar ? MFI_SCALAR_B : 0) |
                     (u->c >= 0 && c.scalar ? MFI_SCALAR_C : 0);
    u->apply(n, flags, dst, a.p, b.p, c.p);
}

static void cast(frame *f, const mfi_uop *u, char *dst, int n)
{
    value a = f->v[u->a];
    n = a.scalar ? 1 : n;
    char *narrow = u->widen ? f->element + f->chain->raw : dst;
    u->convert(n, narrow, a.p);
    if (u->widen)
        u->widen(n, dst, narrow);
    f->v[u->dst] = (value){dst, a.scalar};
}

static void constant(frame *f, const mfi_uop *u, char *dst)
{
    switch (u->ctype) {
    case MFI_I32:
        *(int32_t *)dst = (int32_t)u->re;
        break;
    case MFI_I64:
        *(int64_t *)dst = (int64_t)u->re;
        break;
    case MFI_F32:
        *(float *)dst = (float)u->re;
        break;
    case MFI_F64:
        *(double *)dst = u->re;
        break;
    case MFI_C64:
        memcpy(dst, (float[]){(float)u->re, (float)u->im}, 2 * sizeof(float));
        break;
    default:
        memcpy(dst, (double[]){u->re, u->im}, 2 * sizeof(double));
    }
    f->v[u->dst] = (value){dst, true};
}

/* The first n elements of a sequence that repeats every `period` of them: what is there is copied behind itself. */
static void repeat_period(int64_t *values, int64_t period, int64_t n)
{
    for (int64_t done = period; done < n; done *= 2)
        memcpy(values + done, values, (size_t)mfi_min64(done, n - done) * sizeof *values);
}

static void index_values(frame *f, const mfi_uop *u, char *dst, int64_t index, int n, bool scalar)
{
    int64_t *values = (int64_t *)dst, at = index / u->inner % u->extent, left = u->inner - index % u->inner;
    int64_t fresh = u->extent < n && u->inner * u->extent < n ? u->inner * u->extent : n;
    for (int64_t i = 0; i < fresh;) {
        int64_t run = mfi_min64(fresh - i, u->inner == 1 ? u->extent - at : left);
        for (int64_t k = 0; k < run; k++)
            values[i + k] = u->inner == 1 ? at + k : at;
        i += run;
        at = u->inner == 1 ? 0 : at + 1 == u->extent ? 0 : at + 1;
        left = u->inner;
    }
    repeat_period(values, fresh, n);
    f->v[u->dst] = (value){dst, scalar};
}

/* Row values into a block: each for its whole row, or side by side for each reduction index. */
static void repeat(frame *f, const mfi_uop *u, char *dst, int n, int rows)
{
    const mfi_cpu_chain *chain = f->chain;
    value a = f->v[u->a];
    bool as_is = a.scalar || (chain->layout == MFI_LAYOUT_COLUMN && n == rows);
    f->v[u->dst] = as_is ? a : (value){dst, false};
    if (as_is)
        return;
    if (chain->layout == MFI_LAYOUT_COLUMN) {
        for (int i = 0; i < n; i += rows)
            memcpy(dst + (int64_t)i * u->size, a.p, (size_t)rows * u->size);
        return;
    }
    int64_t each = mfi_min64(chain->row_length, n);
    for (int i = 0; i * each < n; i++)
        fill(dst + i * each * u->size, a.p + i * u->size, each, u->size);
}

static void fold(frame *f, const mfi_uop *u, int n, int rows)
{
    const mfi_cpu_chain *chain = f->chain;
    const mfi_cpu_reduce *r = &chain->reduce[u->reduce];
    const char *a = block_of(f, f->v[u->a], n, u->size);
    mfi_acc *acc = f->part + (int64_t)u->reduce * chain->group;
    if (chain->layout == MFI_LAYOUT_COLUMN) {
        r->column(rows, n / rows, a, f->element + r->narrow_buffer);
        return;
    }
    int64_t each = mfi_min64(chain->row_length, n);
    for (int i = 0; i * each < n; i++)
        r->fold((int)each, a + i * each * u->size, &acc[i]);
}

static void finish(frame *f, const mfi_uop *u, char *dst, int rows)
{
    const mfi_acc *acc = f->part + (int64_t)u->reduce * f->chain->group;
    const mfi_cpu_reduce *r = &f->chain->reduce[u->reduce];
    if (f->chain->plain_columns)
        memcpy(dst, f->element + r->narrow_buffer, (size_t)rows * u->size);
    else
        mfi_acc_finish(acc, rows, r, dst);
}

static char *kept_at(const frame *f, const mfi_uop *u, int64_t index)
{
    return f->element + u->keep + (index - f->kept_from) * u->size;
}

/* A later phase reads a whole block of it. */
static void keep(frame *f, const mfi_uop *u, int n)
{
    value *v = &f->v[u->dst];
    if (v->scalar)
        fill(v->p, v->p, n, u->size);
    v->scalar = false;
}

/* A list over elements [index, index + n) of its walks, which belong to `rows` rows. scalar: one element stands for
 * all. */
static void run_list(frame *f, mfi_list list, char *arena, int64_t index, int n, int rows, bool scalar)
{
    const mfi_uop *u = &f->chain->uop[list.first], *end = u + list.count;
    for (; u != end; u++) {
        char *dst = u->keep ? kept_at(f, u, index) : arena + u->buffer;
        switch (u->kind) {
        case MFI_U_LOAD:
            load(f, u, dst, index, n, scalar);
            break;
        case MFI_U_ACC:
            f->v[u->dst] = (value){(char *)f->acc->data + (index - f->acc->base) * u->size, false};
            break;
        case MFI_U_KEPT:
            f->v[u->dst] = (value){dst, false};
            break;
        case MFI_U_CONST:
            constant(f, u, dst);
            break;
        case MFI_U_INDEX:
            index_values(f, u, dst, index, n, scalar);
            break;
        case MFI_U_APPLY:
            apply(f, u, dst, index, n, scalar);
            break;
        case MFI_U_CAST:
            cast(f, u, dst, n);
            break;
        case MFI_U_REPEAT:
            repeat(f, u, dst, n, rows);
            break;
        case MFI_U_FOLD:
            fold(f, u, n, rows);
            break;
        case MFI_U_FINISH:
            finish(f, u, dst, rows);
            f->v[u->dst] = (value){dst, scalar};
            break;
        default:
            store(f, u, index, n);
        }
        if (u->keep && u->kind != MFI_U_KEPT)
            keep(f, u, n);
    }
}

/* ---- groups of rows ---- */

typedef struct group {
    int64_t first; /* row */
    int rows;
} group;

static void run_rows(frame *f, mfi_list list, const group *g)
{
    run_list(f, list, f->row, g->first, g->rows, g->rows, f->chain->layout == MFI_LAYOUT_LONG);
}

static group next_group(const mfi_cpu_chain *c, int64_t first, int64_t end)
{
    int64_t rows = mfi_min64(c->group, end - first);
    if (c->layout == MFI_LAYOUT_COLUMN) /* within one run of the last row dim */
        rows = mfi_min64(rows, c->last_rows - first % c->last_rows);
    return (group){first, (int)rows};
}

static void start_parts(frame *f, int phase, int rows)
{
    const mfi_cpu_chain *c = f->chain;
    for (int r = 0; r < c->reduces && !c->plain_columns; r++)
        if (c->reduce[r].phase == phase)
            mfi_acc_init(f->part + (int64_t)r * c->group, rows, &c->reduce[r]);
}

/* What fold_narrow does of f32 sums, without a call for each. */
static void flush_sums(const float *restrict narrow, mfi_acc *restrict part, int rows)
{
    for (int i = 0; i < rows; i++)
        part[i].v[0] += (double)narrow[i];
}

/* Narrow column accumulators into the wide ones, and start them again. */
static void flush_columns(frame *f, int phase, int rows, bool last)
{
    const mfi_cpu_chain *c = f->chain;
    for (int r = 0; r < c->reduces; r++) {
        const mfi_cpu_reduce *reduce = &c->reduce[r];
        if (reduce->phase != phase || (!reduce->wide && !last))
            continue;
        char *narrow = f->element + reduce->narrow_buffer;
        int64_t size = (int64_t)mfi_ctype_size(reduce->narrow);
        mfi_acc *part = f->part + (int64_t)r * c->group;
        if (reduce->op == MF_SUM && reduce->narrow == MFI_F32)
            flush_sums((const float *)(const void *)narrow, part, rows);
        else
            for (int i = 0; i < rows; i++)
                reduce->fold_narrow(1, narrow + i * size, &part[i]);
        if (!last)
            mfi_narrow_init(narrow, rows, reduce);
    }
}

/* Elements of reduction indices [begin, end) of a COLUMN group, a few indices a block. */
static void run_columns(frame *f, int phase, const group *g, int64_t begin, int64_t end)
{
    const mfi_cpu_chain *c = f->chain;
    int64_t outer = g->first / c->last_rows, column = g->first % c->last_rows;
    bool folds = phase < c->phases;
    int step = 1;
    while (g->rows == c->last_rows && step < MFI_COLUMN_FLUSH && step * 2 * g->rows <= c->block)
        step *= 2;
    for (int r = 0; r < c->reduces && folds; r++)
        if (c->reduce[r].phase == phase)
            mfi_narrow_init(f->element + c->reduce[r].narrow_buffer, g->rows, &c->reduce[r]);
    for (int64_t j = begin; j < end; j += step) {
        int indices = (int)mfi_min64(step, end - j);
        int64_t index = (outer * c->row_length + j) * c->last_rows + column;
        run_list(f, c->element[phase], f->element, index, indices * g->rows, g->rows, false);
        if (folds && !c->plain_columns && (j - begin + step) % MFI_COLUMN_FLUSH == 0)
            flush_columns(f, phase, g->rows, false);
    }
    if (folds && !c->plain_columns)
        flush_columns(f, phase, g->rows, true);
}

/* Element work of one phase for reduction indices [begin, end) of a group. */
static void run_chunk(frame *f, int phase, const group *g, int64_t begin, int64_t end)
{
    const mfi_cpu_chain *c = f->chain;
    if (phase < c->phases)
        start_parts(f, phase, g->rows);
    if (c->layout == MFI_LAYOUT_COLUMN) {
        run_columns(f, phase, g, begin, end);
        return;
    }
    int64_t base = g->first * c->row_length, count = c->layout == MFI_LAYOUT_SHORT ? g->rows * c->row_length : end;
    int64_t most = c->layout == MFI_LAYOUT_SHORT && g->rows > 1 ? count : c->block;
    for (int64_t at = begin; at < count; at += most)
        run_list(f, c->element[phase], f->element, base + at, (int)mfi_min64(most, count - at), g->rows, false);
}

/* total = total op part, for the reductions of a phase. */
static void merge_parts(const mfi_cpu_chain *c, int phase, int rows, mfi_acc *total, const mfi_acc *part)
{
    for (int r = 0; r < c->reduces; r++)
        for (int i = 0; i < rows && c->reduce[r].phase == phase; i++)
            mfi_acc_merge(&total[r * c->group + i], &part[r * c->group + i], &c->reduce[r]);
}

/* Chunk after chunk on this thread. */
static void run_phase(frame *f, int phase, const group *g, mfi_acc *total)
{
    const mfi_cpu_chain *c = f->chain;
    mfi_acc *part = f->part;
    if (c->chunks == 1) {
        f->part = total;
        run_chunk(f, phase, g, 0, c->row_length);
        f->part = part;
        return;
    }
    f->part = total;
    if (phase < c->phases)
        start_parts(f, phase, g->rows);
    f->part = part;
    for (int64_t k = 0; k < c->chunks; k++) {
        run_chunk(f, phase, g, k * c->chunk, mfi_min64((k + 1) * c->chunk, c->row_length));
        if (phase < c->phases)
            merge_parts(c, phase, g->rows, total, part);
    }
}

static void run_group(frame *f, const group *g, mfi_acc *total)
{
    const mfi_cpu_chain *c = f->chain;
    mfi_acc *part = f->part;
    f->kept_from = g->first * c->row_length;
    for (int phase = 0; phase <= c->phases; phase++) {
        run_rows(f, c->row[phase], g);
        if (phase == c->phases && !c->element_stores)
            break;
        f->part = part;
        run_phase(f, phase, g, total);
        f->part = total; /* for the next row list */
    }
    run_rows(f, c->row_stores, g);
    f->part = part;
}

/* ---- runs ---- */

static _Thread_local _Alignas(64) char scratch[MFI_CPU_SCRATCH];

/* Lay the arenas out, and compute the uniform values. `rows` has room for the row arena, the group's totals and its
 * parts. Returns the totals. */
static mfi_acc *open_frame(frame *f, const mfi_cpu_chain *c, void *const *slots, const mfi_acc_block *acc, char *rows)
{
    f->chain = c;
    f->slots = slots;
    f->acc = acc;
    f->kept_from = 0;
    f->element = scratch;
    f->row = rows;
    mfi_acc *total = (mfi_acc *)(void *)(rows + c->row_bytes);
    f->part = total + (int64_t)c->reduces * c->group;
    run_list(f, c->uniform, f->row, 0, 1, 1, true);
    return total;
}

#define STRIP 256     /* columns of a transposed operand: fewer cost calls, more leave the caches between rows */
#define STRIP_ROWS 32 /* rows that use them one after the other */

static void run_map(frame *f, int64_t begin, int64_t end)
{
    const mfi_cpu_chain *c = f->chain;
    for (int64_t i = begin; i < end; i += c->block)
        run_list(f, c->element[0], f->element, i, (int)mfi_min64(c->block, end - i), 1, false);
}

static void run_strips(frame *f, int64_t first_row, int64_t end_row)
{
    const mfi_cpu_chain *c = f->chain;
    int strip = c->block < STRIP ? c->block : STRIP;
    for (int64_t top = first_row; top < end_row; top += STRIP_ROWS)
        for (int64_t column = 0; column < c->strip_row; column += strip)
            for (int64_t row = top; row < mfi_min64(top + STRIP_ROWS, end_row); row++)
                run_list(f, c->element[0], f->element, row * c->strip_row + column,
                         (int)mfi_min64(strip, c->strip_row - column), 1, false);
}

void mfi_cpu_chain_run(const mfi_cpu_chain *c, void *const *slots, int64_t begin, int64_t end, const mfi_acc_block *acc)
{
    frame f;
    begin *= c->scale;
    end *= c->scale;
    if (begin >= end)
        return;
    mfi_acc *total = open_frame(&f, c, slots, acc, scratch + c->element_bytes);
    if (c->layout == MFI_LAYOUT_MAP) {
        int64_t first = c->strip_row ? mfi_ceil_div(begin, c->strip_row) : 0,
                last = c->strip_row ? end / c->strip_row : 0;
        bool strips = last > first;
        run_map(&f, begin, strips ? first * c->strip_row : end);
        run_strips(&f, first, last);
        run_map(&f, strips ? last * c->strip_row : end, end);
        return;
    }
    for (int64_t i = begin; i < end;) {
        group g = next_group(c, i, end);
        run_group(&f, &g, total);
        i += g.rows;
    }
}

typedef struct job {
    const mfi_cpu_chain *chain;
    void *const *slots;
    const mfi_acc_block *acc;
    const frame *owner; /* whose row values the chunks use */
    const group *group;
    mfi_acc *parts; /* [chunk][reduction][row] */
    int phase, threads;
} job;

static void run_range(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    mfi_cpu_chain_run(j->chain, j->slots, begin, end, j->acc);
}

static void run_chunks(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const mfi_cpu_chain *c = j->chain;
    frame f = *j->owner;
    f.element = scratch;
    for (int64_t k = begin; k < end; k++) {
        f.part = j->parts + k * c->reduces * c->group;
        run_chunk(&f, j->phase, j->group, k * c->chunk, mfi_min64((k + 1) * c->chunk, c->row_length));
    }
}

/* A few long rows: one after the other, the chunks of each on all threads. Sums are the same as on one thread. */
static bool run_split(job *j)
{
    const mfi_cpu_chain *c = j->chain;
    size_t each = (size_t)c->reduces * (size_t)c->group * sizeof(mfi_acc);
    char *memory = mfi_alloc_aligned((size_t)c->row_bytes + each * ((size_t)c->chunks + 1));
    if (!memory)
        return false;
    frame f;
    mfi_acc *total = open_frame(&f, c, j->slots, j->acc, memory);
    j->parts = f.part;
    j->owner = &f;
    for (int64_t i = 0; i < c->rows;) {
        group g = next_group(c, i, c->rows);
        j->group = &g;
        for (int phase = 0; phase <= c->phases; phase++) {
            f.part = total;
            run_rows(&f, c->row[phase], &g);
            if (phase == c->phases && !c->element_stores)
                break;
            if (phase < c->phases)
                start_parts(&f, phase, g.rows);
            j->phase = phase;
            mfi_parallel_for(c->chunks, 1, j->threads, run_chunks, j);
            for (int64_t k = 0; k < c->chunks && phase < c->phases; k++)
                merge_parts(c, phase, g.rows, total, j->parts + k * c->reduces * c->group);
        }
        run_rows(&f, c->row_stores, &g);
        i += g.rows;
    }
    j->owner = NULL;
    j->group = NULL;
    mfi_free_aligned(memory);
    return true;
}

void mfi_cpu_chain_run_all(const mfi_cpu_chain *c, void *const *slots, const mfi_acc_block *acc, int threads)
{
    job j = {.chain = c, .slots = slots, .acc = acc, .threads = threads > 0 ? threads : mfi_thread_default()};
    int64_t units = c->scale ? c->rows / c->scale : 0, groups = mfi_ceil_div(c->rows, c->group);
    if (c->chunks > 1 && j.threads > 1 && groups < 4 * j.threads && run_split(&j))
        return;
    int64_t length = c->layout == MFI_LAYOUT_MAP ? c->scale : c->row_length;
    int64_t grain = mfi_ceil_div(16384, mfi_max64(length, 1));
    if (c->layout == MFI_LAYOUT_COLUMN)
        grain = mfi_max64(grain, 64);
    mfi_parallel_for(units, grain, j.threads, run_range, &j);
}
