/* Walks over strided views, and the copies between them and contiguous memory. */
#include "cpu_view.h"

void mfi_walk_init(mfi_walk *walk, const mfi_view *view, const int64_t *extent, const int64_t *shape, const int *dims,
                   int count)
{
    int size = (int)mf_dtype_size(view->dtype), n = 0;
    *walk = (mfi_walk){.size = size, .slot = view->slot, .offset = view->offset * size};
    walk->alignment = mfi_is_complex(view->dtype) ? size / 2 : size;
    for (int i = 0; i < count; i++) {
        int d = dims[i];
        int64_t length = shape[d], stride = view->strides[d] * size;
        int64_t limit = extent && extent[d] >= 0 && extent[d] < length ? extent[d] : -1;
        if (length == 1 && limit < 0)
            continue;
        walk->padded |= limit >= 0;
        bool merge = n && limit < 0 && walk->extent[n - 1] < 0 && walk->stride[n - 1] == stride * length;
        if (merge)
            length *= walk->shape[--n];
        walk->shape[n] = length;
        walk->stride[n] = stride;
        walk->extent[n++] = limit;
    }
    if (n == 0) {
        walk->shape[0] = 1;
        walk->extent[0] = -1;
        n = 1;
    }
    walk->ndim = n;
}

static char *base_of(const mfi_walk *walk, void *const *slots)
{
    return (char *)slots[walk->slot] + walk->offset;
}

/* Coordinates of a linear index. */
static void locate(const mfi_walk *walk, int64_t index, int64_t *at)
{
    for (int d = walk->ndim - 1; d > 0; d--) {
        int64_t up = index / walk->shape[d];
        at[d] = index - up * walk->shape[d];
        index = up;
    }
    at[0] = index;
}

char *mfi_walk_line(const mfi_walk *walk, void *const *slots, int64_t index, int64_t n, int64_t *stride)
{
    int64_t at[MF_MAX_DIMS];
    int last = walk->ndim - 1;
    locate(walk, index, at);
    *stride = walk->stride[last];
    if (at[last] + n > walk->shape[last])
        return NULL;
    for (int d = 0; walk->padded && d <= last; d++)
        if (walk->extent[d] >= 0 && at[d] + (d == last ? n : 1) > walk->extent[d])
            return NULL;
    char *p = base_of(walk, slots);
    for (int d = 0; d <= last; d++)
        p += at[d] * walk->stride[d];
    return p;
}

#define COPY_LINE(T, dst, dst_step, src, src_step)                                                                     \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        T value;                                                                                                       \
        memcpy(&value, (const char *)(src) + i * (src_step), sizeof value);                                            \
        memcpy((char *)(dst) + i * (dst_step), &value, sizeof value);                                                  \
    }                                                                                                                  \
    break;

typedef struct wide {
    uint64_t half[2];
} wide;

void mfi_gather_line(void *dst, const char *src, int64_t stride, int64_t n, int size)
{
    if (stride == size) {
        memcpy(dst, src, (size_t)(n * size));
        return;
    }
    switch (size) {
    case 1:
        COPY_LINE(uint8_t, dst, 1, src, stride)
    case 2:
        COPY_LINE(uint16_t, dst, 2, src, stride)
    case 4:
        COPY_LINE(uint32_t, dst, 4, src, stride)
    case 8:
        COPY_LINE(uint64_t, dst, 8, src, stride)
    default:
        COPY_LINE(wide, dst, 16, src, stride)
    }
}

void mfi_scatter_line(char *dst, int64_t stride, const void *src, int64_t n, int size)
{
    if (stride == size) {
        memcpy(dst, src, (size_t)(n * size));
        return;
    }
    switch (size) {
    case 1:
        COPY_LINE(uint8_t, dst, stride, src, 1)
    case 2:
        COPY_LINE(uint16_t, dst, stride, src, 2)
    case 4:
        COPY_LINE(uint32_t, dst, stride, src, 4)
    case 8:
        COPY_LINE(uint64_t, dst, stride, src, 8)
    default:
        COPY_LINE(wide, dst, stride, src, 16)
    }
}

/* ---- short lines: rows of a few elements, as of vectors of three ---- */

enum { SHORT_LINE = 8 };

#define COPY_LINES(T)                                                                                                  \
    for (int64_t r = 0; r < rows; r++)                                                                                 \
        for (int64_t i = 0; i < cols; i++) {                                                                           \
            T value;                                                                                                   \
            memcpy(&value, from + r * from_row + i * from_step, sizeof value);                                         \
            memcpy(to + r * to_row + i * to_step, &value, sizeof value);                                               \
        }                                                                                                              \
    break;

static void copy_lines(char *to, int64_t to_row, int64_t to_step, const char *from, int64_t from_row, int64_t from_step,
                       int64_t rows, int64_t cols, int size)
{
    switch (size) {
    case 1:
        COPY_LINES(uint8_t)
    case 2:
        COPY_LINES(uint16_t)
    case 4:
        COPY_LINES(uint32_t)
    case 8:
        COPY_LINES(uint64_t)
    default:
        COPY_LINES(wide)
    }
}

/* How many whole short lines from `at` on lie at equal distances and are within n elements: worth one loop. */
static int64_t short_lines(const mfi_walk *walk, const int64_t *at, int64_t n)
{
    int last = walk->ndim - 1;
    if (walk->padded || last == 0 || at[last] || walk->shape[last] > SHORT_LINE)
        return 0;
    return mfi_min64(n / walk->shape[last], walk->shape[last - 1] - at[last - 1]);
}

/* Move on by whole lines of the last dim but one; false past the end. */
static bool skip_lines(const mfi_walk *walk, int64_t *at, int64_t lines)
{
    int d = walk->ndim - 2;
    at[d] += lines;
    while (at[d] == walk->shape[d]) {
        at[d] = 0;
        if (--d < 0)
            return false;
        at[d]++;
    }
    return true;
}

/* Move on to the start of the next line; false past the end. */
static bool next_line(const mfi_walk *walk, int64_t *at)
{
    int d = walk->ndim - 1;
    at[d] = 0;
    while (--d >= 0) {
        if (++at[d] < walk->shape[d])
            return true;
        at[d] = 0;
    }
    return false;
}

/* How many of the n elements from `at` along the last dim exist. */
static int64_t present(const mfi_walk *walk, const int64_t *at, int64_t n)
{
    int last = walk->ndim - 1;
    for (int d = 0; d < last; d++)
        if (walk->extent[d] >= 0 && at[d] >= walk->extent[d])
            return 0;
    return walk->extent[last] < 0 ? n : mfi_min64(n, mfi_max64(0, walk->extent[last] - at[last]));
}

void mfi_walk_gather(const mfi_walk *walk, void *const *slots, int64_t index, int64_t n, void *dst)
{
    int64_t at[MF_MAX_DIMS];
    int last = walk->ndim - 1;
    char *out = dst;
    bool more;
    locate(walk, index, at);
    do {
        const char *p = base_of(walk, slots);
        for (int d = 0; d <= last; d++)
            p += at[d] * walk->stride[d];
        int64_t lines = short_lines(walk, at, n), cols = walk->shape[last];
        if (lines > 1) {
            copy_lines(out, cols * walk->size, walk->size, p, walk->stride[last - 1], walk->stride[last], lines, cols,
                       walk->size);
            out += lines * cols * walk->size;
            n -= lines * cols;
            more = skip_lines(walk, at, lines);
            continue;
        }
        int64_t run = mfi_min64(n, cols - at[last]);
        int64_t real = walk->padded ? present(walk, at, run) : run;
        mfi_gather_line(out, p, walk->stride[last], real, walk->size);
        if (real < run)
            memset(out + real * walk->size, 0, (size_t)((run - real) * walk->size));
        out += run * walk->size;
        n -= run;
        more = next_line(walk, at);
    } while (n > 0 && more);
}

void mfi_walk_scatter(const mfi_walk *walk, void *const *slots, int64_t index, int64_t n, const void *src)
{
    int64_t at[MF_MAX_DIMS];
    int last = walk->ndim - 1;
    const char *in = src;
    bool more;
    locate(walk, index, at);
    do {
        char *p = base_of(walk, slots);
        for (int d = 0; d <= last; d++)
            p += at[d] * walk->stride[d];
        int64_t lines = short_lines(walk, at, n), cols = walk->shape[last];
        if (lines > 1) {
            copy_lines(p, walk->stride[last - 1], walk->stride[last], in, cols * walk->size, walk->size, lines, cols,
                       walk->size);
            in += lines * cols * walk->size;
            n -= lines * cols;
            more = skip_lines(walk, at, lines);
            continue;
        }
        int64_t run = mfi_min64(n, cols - at[last]);
        mfi_scatter_line(p, walk->stride[last], in, run, walk->size);
        in += run * walk->size;
        n -= run;
        more = next_line(walk, at);
    } while (n > 0 && more);
}
