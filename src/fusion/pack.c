/* Copies between strided views and contiguous memory of a compute type: operands of GEMM, FFT and solvers. */
#include "cpu_loops.h"
#include "cpu_view.h"
#include "fusion.h"

#define BLOCK 1024   /* elements converted at a time */
#define TILE_ROWS 32 /* of a transposed view: elements that lie side by side in memory */
#define TILE_COLUMNS 32
#define GRAIN (64 * 1024) /* elements that are worth a thread */

typedef struct pack {
    mfi_walk walk;
    void *const *slots;
    char *memory;                     /* contiguous */
    int wide;                         /* bytes of an element there */
    bool out;                         /* from memory to the view */
    mfi_convert_loop *first, *second; /* one after the other; second may be NULL */
    int across;                       /* dim of the walk along which the view is contiguous; -1: the last, or none */
    int64_t across_step;              /* elements of memory from one index of that dim to the next */
    int64_t tiles_across, tiles_along, outer;
} pack;

/* n elements, contiguous on both sides. */
static void convert(const pack *p, int64_t n, char *dst, const char *src)
{
    _Alignas(64) char middle[BLOCK * 16];
    int from = p->out ? p->wide : p->walk.size, to = p->out ? p->walk.size : p->wide;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int count = (int)mfi_min64(BLOCK, n - i);
        p->first(count, p->second ? middle : dst + i * to, src + i * from);
        if (p->second)
            p->second(count, dst + i * to, middle);
    }
}

static void lines(void *context, int64_t begin, int64_t end)
{
    const pack *p = context;
    _Alignas(64) char raw[BLOCK * 16];
    for (int64_t i = begin; i < end; i += BLOCK) {
        int64_t n = mfi_min64(BLOCK, end - i), stride;
        char *memory = p->memory + i * p->wide, *line = mfi_walk_line(&p->walk, p->slots, i, n, &stride);
        bool direct = line && (n == 1 || stride == p->walk.size) && (uintptr_t)line % (uintptr_t)p->walk.alignment == 0;
        if (p->out) {
            convert(p, n, direct ? line : raw, memory);
            if (!direct)
                mfi_walk_scatter(&p->walk, p->slots, i, n, raw);
        } else {
            if (!direct)
                mfi_walk_gather(&p->walk, p->slots, i, n, raw);
            convert(p, n, memory, direct ? line : raw);
        }
    }
}

#define TRANSPOSE(T)                                                                                                   \
    for (int64_t j = 0; j < columns; j++)                                                                              \
        for (int64_t i = 0; i < rows; i++) {                                                                           \
            T *a = (T *)(void *)raw + i * TILE_COLUMNS + j;                                                            \
            char *b = view + i * row_step + j * column_step;                                                           \
            memcpy(out ? b : (char *)a, out ? (const char *)a : b, sizeof(T));                                         \
        }                                                                                                              \
    break;

typedef struct wide {
    uint64_t half[2];
} wide;

/* Between a tile of rows and a view whose rows lie side by side. */
static void transpose(char *raw, char *view, int64_t row_step, int64_t column_step, int64_t rows, int64_t columns,
                      int size, bool out)
{
    switch (size) {
    case 1:
        TRANSPOSE(uint8_t)
    case 2:
        TRANSPOSE(uint16_t)
    case 4:
        TRANSPOSE(uint32_t)
    case 8:
        TRANSPOSE(uint64_t)
    default:
        TRANSPOSE(wide)
    }
}

static void tile(const pack *p, int64_t index)
{
    _Alignas(64) char raw[TILE_ROWS * TILE_COLUMNS * 16];
    const mfi_walk *w = &p->walk;
    int last = w->ndim - 1;
    int64_t j = index % p->tiles_along * TILE_COLUMNS;
    index /= p->tiles_along;
    int64_t i = index % p->tiles_across * TILE_ROWS;
    index /= p->tiles_across;
    char *view = (char *)p->slots[w->slot] + w->offset + i * w->stride[p->across] + j * w->stride[last];
    int64_t at = i * p->across_step + j, step = w->shape[last];
    for (int d = last - 1; d >= 0; d--) {
        if (d != p->across) {
            view += index % w->shape[d] * w->stride[d];
            at += index % w->shape[d] * step;
            index /= w->shape[d];
        }
        step *= w->shape[d];
    }
    int64_t rows = mfi_min64(TILE_ROWS, w->shape[p->across] - i), columns = mfi_min64(TILE_COLUMNS, w->shape[last] - j);
    if (!p->out)
        transpose(raw, view, w->stride[p->across], w->stride[last], rows, columns, w->size, false);
    for (int64_t r = 0; r < rows; r++) {
        char *row = raw + r * TILE_COLUMNS * w->size, *memory = p->memory + (at + r * p->across_step) * p->wide;
        convert(p, columns, p->out ? row : memory, p->out ? memory : row);
    }
    if (p->out)
        transpose(raw, view, w->stride[p->across], w->stride[last], rows, columns, w->size, true);
}

static void tiles(void *context, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        tile(context, i);
}

/* A dim other than the last that is contiguous in memory, where the last is not. */
static void find_transpose(pack *p, int64_t points)
{
    const mfi_walk *w = &p->walk;
    int last = w->ndim - 1;
    int64_t step = w->shape[last];
    p->across = -1;
    if (w->padded || w->stride[last] == 0 || w->stride[last] == w->size)
        return;
    for (int d = last - 1; d >= 0; d--) {
        bool contiguous = w->stride[d] == w->size || w->stride[d] == -w->size;
        if (contiguous && w->shape[d] >= 4 && w->shape[last] >= 4) {
            p->across = d;
            p->across_step = step;
        }
        step *= w->shape[d];
    }
    if (p->across < 0)
        return;
    p->tiles_across = mfi_ceil_div(w->shape[p->across], TILE_ROWS);
    p->tiles_along = mfi_ceil_div(w->shape[last], TILE_COLUMNS);
    p->outer = points / (w->shape[p->across] * w->shape[last]);
}

static void run(pack *p, const mfi_view *view, int ndim, const int64_t *shape, const int64_t *extent, mfi_ctype ctype)
{
    static const int natural[MF_MAX_DIMS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const mfi_loops *loops = mfi_loops_at(0);
    mfi_ctype own = mfi_compute_type(view->dtype);
    int64_t points = 1;
    for (int d = 0; d < ndim; d++)
        points *= shape[d];
    if (points == 0)
        return;
    mfi_walk_init(&p->walk, view, extent, shape, natural, ndim);
    p->wide = (int)mfi_ctype_size(ctype);
    p->first = p->out ? loops->store[ctype][view->dtype][0] : loops->load[view->dtype];
    p->second = p->out || own == ctype ? NULL : loops->store[own][mfi_ctype_dtype(ctype)][0];
    find_transpose(p, points);
    if (p->across >= 0)
        mfi_parallel_for(p->tiles_across * p->tiles_along * p->outer, GRAIN / (TILE_ROWS * TILE_COLUMNS), 0, tiles, p);
    else
        mfi_parallel_for(points, GRAIN, 0, lines, p);
}

void mfi_pack(void *dst, mfi_ctype ctype, const mfi_view *view, void *const *slots, int ndim, const int64_t *shape,
              const int64_t *extent)
{
    pack p = {.slots = slots, .memory = dst};
    run(&p, view, ndim, shape, extent, ctype);
}

void mfi_unpack(const mfi_view *view, void *const *slots, int ndim, const int64_t *shape, const void *src,
                mfi_ctype ctype)
{
    pack p = {.slots = slots, .memory = (char *)(uintptr_t)src, .out = true};
    run(&p, view, ndim, shape, NULL, ctype);
}
