/* MATMUL steps on the CPU: see matmul_cpu.h. The chain runs on panels of the product while they are in cache. */
#include "matmul_cpu.h"
#include "factor_cpu.h"

#include <limits.h>

enum {
    LOOPS_FLOPS = 256, /* m n k up to which a library call costs more than it saves; a quarter of complex numbers … */
    COLUMN_SHARE = 8,  /* … and a smaller share for n = 1, where loops do not vectorise */
    SMALL_FLOPS = 64 * 64 * 64, /* m n k up to which libraries stay on the calling thread */
    GROUP_BYTES = 64 << 10,     /* of products of a batch that go through the chain together */
    PANEL_BYTES = 8 << 20,      /* of a product that threads share */
    TILE_BYTES = 32 << 20,      /* of the buffer in which a thread keeps a tile of a product */
    MIN_PANEL = 512,            /* rows; with fewer, repacking the right operand shows */
    MIRROR = 64                 /* edge of the blocks by which a triangle is copied to the other side */
};

typedef struct matmul_state {
    const mfi_problem *p;
    const mfi_gemm_engine *engine;
    const void *self;
    mfi_matmul_layout l;
    mfi_batch a_batch, b_batch, c_batch;
    mfi_cpu_chain *chain;
    int threads;
} matmul_state;

/* ---- layout ---- */

bool mfi_has_leading_dim(int64_t rows, int64_t cols, int64_t rs, int64_t cs)
{
    bool by_rows = (cs == 1 || cols == 1) && (rows == 1 || (rs >= cols && rs >= 1 && rs <= INT_MAX));
    bool by_columns = (rs == 1 || rows == 1) && (cols == 1 || (cs >= rows && cs >= 1 && cs <= INT_MAX));
    return by_rows || by_columns;
}

/* Batches that share b and lie behind each other in a are one product with more rows. */
static void merge_rows(mfi_matmul_layout *l, const mfi_problem *p)
{
    const mfi_matmul *mm = &p->u.matmul;
    while (l->batch_dims > 0) {
        int d = l->batch_dims - 1;
        int64_t size = p->shape[d];
        bool follows = l->m == 1 || mm->a.strides[d] == l->am * l->m;
        if (size != 1 && (mm->b.strides[d] != 0 || !follows))
            return;
        if (size != 1 && l->m == 1)
            l->am = mm->a.strides[d];
        l->m *= size;
        l->batch_dims--;
    }
}

/* The strides of rows and columns of the merged product in a view, if the merged dims allow one. */
static bool product_strides(const mfi_matmul_layout *l, const mfi_problem *p, const mfi_view *view, int64_t *cm,
                            int64_t *cn)
{
    mfi_view part = *view;
    memmove(part.strides, view->strides + l->batch_dims, sizeof *part.strides * (size_t)(p->ndim - l->batch_dims));
    mfi_batch rows = mfi_batch_of(&part, p->ndim - 1 - l->batch_dims, p->shape + l->batch_dims);
    *cn = view->strides[p->ndim - 1];
    *cm = rows.dims ? rows.strides[0] : l->n;
    return rows.dims <= 1;
}

static bool whole_contiguous(const mfi_problem *p, const mfi_view *view)
{
    int64_t expected = 1;
    for (int d = p->ndim - 1; d >= 0; d--) {
        if (p->shape[d] != 1 && view->strides[d] != expected)
            return false;
        expected *= p->shape[d];
    }
    return true;
}

/* The one store whose memory can hold the product until the chain has replaced it. */
static const mfi_operand *product_store(const mfi_problem *p, mfi_ctype type)
{
    const mfi_operand *store = NULL;
    for (int i = 0; i < p->chain.count; i++)
        if (p->chain.instr[i].kind == MFI_STORE) {
            if (store)
                return NULL;
            store = &p->chain.operand[p->chain.instr[i].operand];
        }
    if (!store || store->view.dtype != mfi_ctype_dtype(type) || !whole_contiguous(p, &store->view))
        return NULL;
    for (int i = 0; i < p->chain.operands; i++)
        if (&p->chain.operand[i] != store && p->chain.operand[i].view.slot == store->view.slot)
            return NULL;
    return store;
}

static void choose_product(mfi_matmul_layout *l, const mfi_problem *p)
{
    const mfi_operand *store;
    int64_t cm, cn;
    l->cm = l->n;
    l->cn = 1;
    if (mfi_chain_is_store(&p->chain, &store) && store->view.dtype == mfi_ctype_dtype(l->type) &&
        product_strides(l, p, &store->view, &cm, &cn) &&
        (l->loops ? cn == 1 && (cm > 0 || l->m == 1) : mfi_has_leading_dim(l->m, l->n, cm, cn))) {
        l->direct = store;
        l->cm = cm;
        l->cn = cn;
    } else if ((store = product_store(p, l->type))) {
        l->in_place = store;
    }
}

static void choose_panels(mfi_matmul_layout *l, const mfi_problem *p, int threads)
{
    int64_t size = (int64_t)mfi_ctype_size(l->type), n = mfi_max64(l->n, 1), m = mfi_max64(l->m, 1);
    int64_t unit = mfi_chain_unit(p, n) / n; /* rows that go together */
    if (l->items) {
        int64_t group = mfi_max64(GROUP_BYTES / (m * n * size), 1);
        group = mfi_min64(group, mfi_ceil_div(l->batch, 2 * (int64_t)threads));
        unit = mfi_max64(unit / m, 1);
        l->panel = mfi_min64(mfi_ceil_div(group, unit) * unit, mfi_max64(l->batch, 1));
    } else {
        int64_t rows = mfi_max64(PANEL_BYTES / (n * size), MIN_PANEL);
        if (l->loops)
            rows = mfi_max64(mfi_min64(rows, mfi_ceil_div(m, 2 * (int64_t)threads)), 4);
        if (l->direct && l->a_direct && !l->loops)
            rows = INT_MAX / 2;
        l->panel = mfi_min64(mfi_ceil_div(rows, unit) * unit, m);
    }
}

static bool choose_tiles(mfi_matmul_layout *l, const mfi_problem *p, int threads, int rank)
{
    int64_t unit = mfi_chain_unit(p, 1);
    bool product = !l->direct && !l->in_place;
    mfi_tile_limits limits = {
        .m = mfi_max64(l->m, 1),
        .n = mfi_max64(l->n, 1),
        .k = l->k,
        .size = (int64_t)mfi_ctype_size(l->type),
        .flops = l->type == MFI_C64 || l->type == MFI_C128 ? 8 : 2,
        .unit = mfi_max64(unit / mfi_max64(l->n, 1), 1),
        .columns = unit == 1,
        .bytes = product ? TILE_BYTES : 0,
        .batch = l->a_direct && l->b_direct ? mfi_max64(l->batch, 1) : 1,
        .threads = threads,
    };
    return mfi_choose_tiles(&l->tiles, &limits, rank);
}

/* x^T x and x x^T, if both operands turn out to lie in one place: one side of the result is the other one's mirror image. All of
 * it must be stored before the chain runs. */
static int64_t square_edge(const mfi_matmul_layout *l, const mfi_problem *p, int threads)
{
    const mfi_matmul *mm = &p->u.matmul;
    int nd = p->ndim;
    bool real = l->type == MFI_F32 || l->type == MFI_F64, stored = l->direct || l->in_place;
    bool one = mm->a.dtype == mm->b.dtype && mm->m == mm->n && l->m == l->n &&
               mm->a.strides[nd - 2] == mm->b.strides[nd - 1] && mm->a.strides[nd - 1] == mm->b.strides[nd - 2];
    for (int d = 0; d < nd - 2; d++)
        one &= mm->a.strides[d] == mm->b.strides[d];
    if (!real || !stored || !one || l->loops || l->items || !l->a_direct || !l->b_direct || l->cn != 1)
        return 0;
    int64_t cuts = 1; /* one square for a thread alone; else a few for each */
    while (threads > 1 && cuts * cuts < 2 * (int64_t)threads)
        cuts++;
    return mfi_ceil_div(mfi_ceil_div(l->n, cuts), MIRROR) * MIRROR;
}

static double loops_flops(const mfi_matmul_layout *l)
{
    bool complex = l->type == MFI_C64 || l->type == MFI_C128;
    return LOOPS_FLOPS / (complex ? 4.0 : 1.0) / (l->n == 1 ? COLUMN_SHARE : 1.0);
}

bool mfi_matmul_plan(mfi_matmul_layout *l, const mfi_problem *p, bool loops, int threads, int rank)
{
    const mfi_matmul *mm = &p->u.matmul;
    int nd = p->ndim;
    *l = (mfi_matmul_layout){.batch_dims = nd - 2, .m = mm->m, .n = mm->n, .k = mm->k, .type = mm->acc};
    l->am = mm->a.strides[nd - 2];
    l->ak = mm->a.strides[nd - 1];
    l->bk = mm->b.strides[nd - 2];
    l->bn = mm->b.strides[nd - 1];
    merge_rows(l, p);
    if (mfi_chain_unit(p, 1) > l->m * l->n) { /* a row of a reduction spans products: keep them apart, and together */
        l->batch_dims = nd - 2;
        l->m = mm->m;
        l->am = mm->a.strides[nd - 2];
    }
    l->batch = mfi_product(p->shape, l->batch_dims);
    double work = (double)l->m * (double)l->n * (double)l->k;
    l->loops = loops || work <= loops_flops(l);
    bool spans = mfi_chain_unit(p, 1) > l->m * l->n;
    l->items = spans || (l->batch > 1 && (work <= SMALL_FLOPS || (loops && l->batch >= threads)));
    mf_dtype dtype = mfi_ctype_dtype(l->type);
    l->a_direct = mm->a.dtype == dtype && (l->loops || mfi_has_leading_dim(l->m, l->k, l->am, l->ak));
    l->b_direct = mm->b.dtype == dtype && (l->loops ? l->bn == 1 : mfi_has_leading_dim(l->k, l->n, l->bk, l->bn));
    choose_product(l, p);
    choose_panels(l, p, threads);
    bool there = choose_tiles(l, p, threads, rank);
    l->square = square_edge(l, p, threads);
    size_t size = mfi_ctype_size(l->type);
    int64_t rows = l->items ? l->m : l->panel;
    l->a_bytes = l->a_direct ? 0 : mfi_align_up((size_t)(rows * l->k) * size, 256);
    l->b_bytes = l->b_direct ? 0 : mfi_align_up((size_t)(l->k * l->n) * size, 256);
    bool product = !l->direct && !l->in_place;
    l->c_bytes = product ? mfi_align_up((size_t)((l->items ? l->panel * l->m : l->panel) * l->n) * size, 256) : 0;
    if (!l->items) { /* loops run panels side by side, each thread with its own buffers; tiles have all of a */
        size_t whole_a = l->a_direct ? 0 : mfi_align_up((size_t)(l->m * l->k) * size, 256);
        size_t panels = l->a_bytes + l->c_bytes;
        l->workspace = l->b_bytes + (loops ? 0 : whole_a > panels ? whole_a : panels);
    }
    return there && (rank == 0 || !(l->items || l->loops)); /* those have no tiles */
}

mf_status mfi_matmul_cpu_new(void **state, const mfi_problem *p, const mfi_gemm_engine *engine, const void *self,
                             bool loops, int threads, int rank)
{
    matmul_state *s = mfi_calloc(1, sizeof *s);
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->p = p;
    s->engine = engine;
    s->self = self;
    s->threads = threads;
    if (!mfi_matmul_plan(&s->l, p, loops, threads, rank)) {
        mf_free(s);
        return mfi_fail(MF_E_UNSUPPORTED, "there is no tiling of rank %d", rank);
    }
    if (s->l.loops)
        s->engine = &mfi_loops_gemm;
    if (p->u.matmul.a.dtype == MF_BOOL && p->u.matmul.b.dtype == MF_BOOL && s->l.type == MFI_I32)
        s->engine = &mfi_bits_gemm;
    s->a_batch = mfi_batch_of(&p->u.matmul.a, s->l.batch_dims, p->shape);
    s->b_batch = mfi_batch_of(&p->u.matmul.b, s->l.batch_dims, p->shape);
    const mfi_operand *store = s->l.direct ? s->l.direct : s->l.in_place;
    if (store)
        s->c_batch = mfi_batch_of(&store->view, s->l.batch_dims, p->shape);
    mf_status status = s->l.direct ? MF_OK : mfi_cpu_chain_new(&s->chain, p);
    *state = s;
    if (status != MF_OK) {
        mfi_matmul_cpu_free(s);
        *state = NULL;
    }
    return status;
}

void mfi_matmul_cpu_free(void *state)
{
    matmul_state *s = state;
    if (s)
        mfi_cpu_chain_free(s->chain);
    mf_free(s);
}

/* ---- running ---- */

/* Rows of the product of one batch item, operands packed into `a` and `b` where needed; b may be packed already. */
static mfi_gemm product(const matmul_state *s, void *const *slots, int64_t item, int64_t row, int64_t rows)
{
    const mfi_matmul_layout *l = &s->l;
    const mfi_matmul *mm = &s->p->u.matmul;
    mfi_gemm g = {.type = l->type, .m = rows, .n = l->n, .k = l->k, .cm = l->cm, .cn = l->cn};
    g.a = mfi_at(&mm->a, slots, mfi_batch_offset(&s->a_batch, item) + row * l->am);
    g.b = mfi_at(&mm->b, slots, mfi_batch_offset(&s->b_batch, item));
    g.am = l->am, g.ak = l->ak, g.bk = l->bk, g.bn = l->bn;
    const mfi_operand *store = l->direct ? l->direct : l->in_place;
    if (store)
        g.c = mfi_at(&store->view, slots, mfi_batch_offset(&s->c_batch, item) + row * l->cm);
    return g;
}

static mfi_view matrix_view(const mfi_view *view, int64_t offset, int64_t rs, int64_t cs)
{
    mfi_view v = {.slot = view->slot, .dtype = view->dtype, .offset = view->offset + offset};
    v.alignment = (int32_t)mf_dtype_size(view->dtype);
    v.strides[0] = rs;
    v.strides[1] = cs;
    return v;
}

static void pack_a(const matmul_state *s, void *const *slots, mfi_gemm *g, int64_t item, int64_t row, void *to,
                   int threads)
{
    const mfi_matmul_layout *l = &s->l;
    if (l->a_direct)
        return;
    mfi_view v = matrix_view(&s->p->u.matmul.a, mfi_batch_offset(&s->a_batch, item) + row * l->am, l->am, l->ak);
    mfi_pack_all(to, l->type, &v, slots, 2, (int64_t[]){g->m, l->k}, threads);
    g->a = to, g->am = l->k, g->ak = 1;
}

static void pack_b(const matmul_state *s, void *const *slots, int64_t item, void *to, int threads)
{
    const mfi_matmul_layout *l = &s->l;
    mfi_view v = matrix_view(&s->p->u.matmul.b, mfi_batch_offset(&s->b_batch, item), l->bk, l->bn);
    mfi_pack_all(to, l->type, &v, slots, 2, (int64_t[]){l->k, l->n}, threads);
}

static void use_packed_b(const mfi_matmul_layout *l, mfi_gemm *g, const void *b)
{
    if (l->b_direct)
        return;
    g->b = b, g->bk = l->n, g->bn = 1;
}

typedef struct matmul_job {
    const matmul_state *s;
    void *const *slots;
    int64_t item;      /* panels and tiles: of this item, tiles of all items from it on */
    const void *a, *b; /* packed, or unused; panels: b alone */
    mfi_first_error *error;
} matmul_job;

/* Groups of whole items. */
static void item_piece(void *context, int64_t begin, int64_t end)
{
    const matmul_job *job = context;
    const matmul_state *s = job->s;
    const mfi_matmul_layout *l = &s->l;
    char *a = mfi_alloc_aligned(l->a_bytes + l->b_bytes + l->c_bytes), *b = a + l->a_bytes, *c = b + l->b_bytes;
    int64_t points = l->m * l->n, packed = -1;
    if (!a) {
        mfi_note(job->error, MF_E_MEMORY);
        return;
    }
    for (int64_t group = begin; group < end; group++) {
        int64_t first = group * l->panel, last = mfi_min64(first + l->panel, l->batch);
        const char *data = NULL;
        for (int64_t item = first; item < last; item++) {
            mfi_gemm g = product(s, job->slots, item, 0, l->m);
            pack_a(s, job->slots, &g, item, 0, a, 1);
            int64_t offset = mfi_batch_offset(&s->b_batch, item);
            if (!l->b_direct && (packed < 0 || offset != mfi_batch_offset(&s->b_batch, packed)))
                pack_b(s, job->slots, item, b, 1);
            packed = item;
            use_packed_b(l, &g, b);
            if (!g.c)
                g.c = c + (item - first) * points * (int64_t)mfi_ctype_size(l->type);
            data = data ? data : g.c;
            s->engine->multiply(s->self, &g);
        }
        if (s->chain)
            mfi_chain_points(s->p, s->chain, job->slots, first * points, last * points, data, first * points);
    }
    mfi_free_aligned(a);
}

/* One panel of an item into g->c (or `c`), and its chain. */
static void run_panel(const matmul_state *s, void *const *slots, int64_t item, int64_t row, void *a, const void *b,
                      void *c, int threads)
{
    const mfi_matmul_layout *l = &s->l;
    mfi_gemm g = product(s, slots, item, row, mfi_min64(l->panel, l->m - row));
    pack_a(s, slots, &g, item, row, a, threads);
    use_packed_b(l, &g, b);
    if (!g.c)
        g.c = c;
    s->engine->multiply(s->self, &g);
    int64_t begin = (item * l->m + row) * l->n;
    if (s->chain)
        mfi_chain_points_all(s->p, s->chain, slots, begin, begin + g.m * l->n, g.c, begin, threads);
}

static void panel_piece(void *context, int64_t begin, int64_t end)
{
    const matmul_job *job = context;
    const mfi_matmul_layout *l = &job->s->l;
    char *a = mfi_alloc_aligned(l->a_bytes + l->c_bytes);
    if (!a) {
        mfi_note(job->error, MF_E_MEMORY);
        return;
    }
    for (int64_t panel = begin; panel < end; panel++)
        run_panel(job->s, job->slots, job->item, panel * l->panel, a, job->b, a + l->a_bytes, 1);
    mfi_free_aligned(a);
}

/* The chain on a tile whose rows are `ld` elements apart in `data`. */
static void tile_chain(const matmul_state *s, void *const *slots, int64_t begin, const mfi_gemm *g, int64_t ld)
{
    int64_t n = s->l.n, size = (int64_t)mfi_ctype_size(g->type);
    if (g->n == n) {
        mfi_chain_points(s->p, s->chain, slots, begin, begin + g->m * n, g->c, begin);
        return;
    }
    for (int64_t row = 0; row < g->m; row++, begin += n)
        mfi_chain_points(s->p, s->chain, slots, begin, begin + g->n, (char *)g->c + row * ld * size, begin);
}

static void run_tile(const matmul_job *job, int64_t index, void *buffer)
{
    const matmul_state *s = job->s;
    const mfi_matmul_layout *l = &s->l;
    int64_t size = (int64_t)mfi_ctype_size(l->type), each = l->tiles.down * l->tiles.across;
    int64_t item = job->item + index / each, tile = index % each;
    int64_t row = tile / l->tiles.across * l->tiles.rows, col = tile % l->tiles.across * l->tiles.cols;
    mfi_gemm g = product(s, job->slots, item, row, mfi_min64(l->tiles.rows, l->m - row));
    g.n = mfi_min64(l->tiles.cols, l->n - col);
    if (!l->a_direct)
        g.a = (const char *)job->a + row * l->k * size, g.am = l->k, g.ak = 1;
    use_packed_b(l, &g, job->b);
    g.b = (const char *)g.b + col * g.bn * size;
    if (g.c)
        g.c = (char *)g.c + col * g.cn * size;
    else
        g.c = buffer, g.cm = g.n;
    s->engine->multiply(s->self, &g);
    if (s->chain)
        tile_chain(s, job->slots, (item * l->m + row) * l->n + col, &g, g.cm);
}

static void tile_piece(void *context, int64_t begin, int64_t end)
{
    const matmul_job *job = context;
    const mfi_tiles *t = &job->s->l.tiles;
    bool product = !job->s->l.direct && !job->s->l.in_place;
    void *buffer = product ? mfi_alloc_aligned((size_t)(t->rows * t->cols) * mfi_ctype_size(job->s->l.type)) : NULL;
    if (product && !buffer) {
        mfi_note(job->error, MF_E_MEMORY);
        return;
    }
    for (int64_t tile = begin; tile < end; tile++)
        run_tile(job, tile, buffer);
    mfi_free_aligned(buffer);
}

/* Each product cut into tiles, on our threads; the library is alone on each. What has to be packed goes product by product. */
static void run_tiles(const matmul_state *s, const mfi_run *run, mfi_first_error *error)
{
    const mfi_matmul_layout *l = &s->l;
    char *b = run->workspace, *a = b + l->b_bytes;
    int64_t packed = -1, each = l->tiles.down * l->tiles.across;
    if (l->a_direct && l->b_direct) {
        matmul_job job = {s, run->slots, 0, NULL, NULL, error};
        mfi_parallel_for(l->batch * each, 1, s->threads, tile_piece, &job);
        return;
    }
    for (int64_t item = 0; item < l->batch; item++) {
        int64_t offset = mfi_batch_offset(&s->b_batch, item);
        mfi_gemm whole = product(s, run->slots, item, 0, l->m);
        pack_a(s, run->slots, &whole, item, 0, a, s->threads);
        if (!l->b_direct && (packed < 0 || offset != mfi_batch_offset(&s->b_batch, packed)))
            pack_b(s, run->slots, item, b, s->threads);
        packed = item;
        matmul_job job = {s, run->slots, item, a, b, error};
        mfi_parallel_for(each, 1, s->threads, tile_piece, &job);
    }
}

/* ---- symmetric products ---- */

/* Below the diagonal of a square, what is above it. */
static void mirror_square(const mfi_gemm *g)
{
    int64_t size = (int64_t)mfi_ctype_size(g->type);
    for (int64_t i0 = 0; i0 < g->m; i0 += MIRROR) {
        int64_t i1 = mfi_min64(i0 + MIRROR, g->m);
        char *row = (char *)g->c + i0 * g->cm * size;
        mfi_copy_matrix(row, g->cm, 1, (char *)g->c + i0 * size, 1, g->cm, i1 - i0, i0, (size_t)size);
        for (int64_t i = i0; i < i1; i++)
            for (int64_t j = i0; j < i; j++)
                memcpy((char *)g->c + (i * g->cm + j) * size, (char *)g->c + (j * g->cm + i) * size, (size_t)size);
    }
}

/* Square `index` of those on and above the diagonal, row by row, and its mirror image. */
static void run_square(const matmul_job *job, int64_t index)
{
    const matmul_state *s = job->s;
    const mfi_matmul_layout *l = &s->l;
    int64_t cuts = mfi_ceil_div(l->n, l->square), each = cuts * (cuts + 1) / 2, down = 0, across = index % each;
    int64_t size = (int64_t)mfi_ctype_size(l->type);
    while (across >= cuts - down)
        across -= cuts - down++;
    int64_t row = down * l->square, col = (down + across) * l->square;
    mfi_gemm g = product(s, job->slots, index / each, row, mfi_min64(l->square, l->m - row));
    char *mirrored = (char *)g.c + ((col - row) * g.cm + row) * size;
    g.n = mfi_min64(l->square, l->n - col);
    g.b = (const char *)g.b + col * g.bn * size;
    g.c = (char *)g.c + col * size;
    if (across) {
        s->engine->multiply(s->self, &g);
        mfi_copy_matrix(mirrored, g.cm, 1, g.c, 1, g.cm, g.n, g.m, (size_t)size);
    } else {
        s->engine->symmetric(s->self, &g);
        mirror_square(&g);
    }
}

static void square_piece(void *context, int64_t begin, int64_t end)
{
    for (int64_t index = begin; index < end; index++)
        run_square(context, index);
}

static bool one_operand(const matmul_state *s, void *const *slots)
{
    const mfi_matmul *mm = &s->p->u.matmul;
    return mfi_at(&mm->a, slots, 0) == mfi_at(&mm->b, slots, 0);
}

static void run_squares(const matmul_state *s, const mfi_run *run, mfi_first_error *error)
{
    const mfi_matmul_layout *l = &s->l;
    int64_t cuts = mfi_ceil_div(l->n, l->square), points = l->m * l->n;
    matmul_job job = {s, run->slots, 0, NULL, NULL, error};
    mfi_parallel_for(l->batch * cuts * (cuts + 1) / 2, 1, s->threads, square_piece, &job);
    for (int64_t item = 0; item < l->batch && s->chain; item++) {
        mfi_gemm g = product(s, run->slots, item, 0, l->m);
        mfi_chain_points_all(s->p, s->chain, run->slots, item * points, (item + 1) * points, g.c, item * points,
                             s->threads);
    }
}

static void run_panels(const matmul_state *s, const mfi_run *run, mfi_first_error *error)
{
    const mfi_matmul_layout *l = &s->l;
    char *b = run->workspace;
    int64_t panels = mfi_ceil_div(l->m, l->panel), packed = -1;
    for (int64_t item = 0; item < l->batch; item++) {
        int64_t offset = mfi_batch_offset(&s->b_batch, item);
        if (!l->b_direct && (packed < 0 || offset != mfi_batch_offset(&s->b_batch, packed)))
            pack_b(s, run->slots, item, b, s->threads);
        packed = item;
        matmul_job job = {s, run->slots, item, NULL, b, error};
        if (s->engine->threaded)
            for (int64_t panel = 0; panel < panels; panel++)
                run_panel(s, run->slots, item, panel * l->panel, b + l->b_bytes, b, b + l->b_bytes + l->a_bytes,
                          s->threads);
        else
            mfi_parallel_for(panels, 1, s->threads, panel_piece, &job);
    }
}

mf_status mfi_matmul_cpu_run(void *state, const mfi_run *run)
{
    const matmul_state *s = state;
    const mfi_matmul_layout *l = &s->l;
    mfi_first_error error = {MF_OK};
    if (!l->batch || !l->m || !l->n)
        return MF_OK;
    matmul_job job = {s, run->slots, 0, NULL, NULL, &error};
    bool alone = s->engine->alone && s->engine->alone(s->self);
    if (l->items)
        mfi_parallel_for(mfi_ceil_div(l->batch, l->panel), 1, s->threads, item_piece, &job);
    else if (alone && l->square && s->engine->symmetric && one_operand(s, run->slots))
        run_squares(s, run, &error);
    else if (alone)
        run_tiles(s, run, &error);
    else
        run_panels(s, run, &error);
    if (alone)
        s->engine->share(s->self);
    return mfi_noted(&error, "matmul");
}
