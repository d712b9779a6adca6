/* Matrices between memory and vectors, for element type T; included by lane_loops.c, which says what it needs. */
#undef FN
#undef V
#undef UNALIGNED
#undef LANES
#define FN(name) CAT(name##_, SUFFIX)
#define LANES ((int)(VECTOR_BYTES / sizeof(T)))
typedef T FN(vector) __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef T FN(unaligned) __attribute__((vector_size(VECTOR_BYTES), may_alias, aligned(sizeof(T))));
#define V FN(vector)
#define UNALIGNED FN(unaligned)

INLINE void FN(transpose)(V *t)
{
    TRANSPOSE
}

/* Matrices with their closer axis inside: `inner` elements `step` apart, `outer` times; the same for the vectors. */
typedef struct FN(walk) {
    int64_t inner, outer, step, skip, to_inner, to_outer;
} FN(walk);

static FN(walk) FN(plan_walk)(const mfi_lane_matrices *s, int64_t ld)
{
    bool columns = s->cols == 1 || (s->rows > 1 && s->rs == 1 && s->cs != 1);
    FN(walk) w = {s->cols, s->rows, s->cs, s->rs, 1, ld};
    if (columns)
        w = (FN(walk)){s->rows, s->cols, s->rs, s->cs, ld, 1};
    if (w.outer == 1)
        w.skip = w.inner;
    return w;
}

/* The vectors' place of element `at` in the order of the walk, and the way to the next. */
typedef struct FN(cursor) {
    int64_t at, inner;
} FN(cursor);

INLINE FN(cursor) FN(cursor_at)(const FN(walk) * w, int64_t element)
{
    int64_t outer = element / w->inner, inner = element - outer * w->inner;
    return (FN(cursor)){outer * w->to_outer + inner * w->to_inner, inner};
}

INLINE void FN(advance)(FN(cursor) * c, const FN(walk) * w)
{
    c->at += w->to_inner;
    if (++c->inner == w->inner) {
        c->inner = 0;
        c->at += w->to_outer - w->inner * w->to_inner;
    }
}

static bool FN(is_interleaved)(const mfi_lane_matrices *s)
{
    for (int v = 1; v < LANES; v++)
        if ((const T *)s->data[v] != (const T *)s->data[0] + v)
            return false;
    return s->count == LANES;
}

/* `count` elements that lie together in memory, at least LANES; the last squares overlap. */
INLINE void FN(load_run)(V *to, const FN(walk) * w, T *const *from, int64_t first, int64_t count)
{
    for (int64_t e = 0; e < count; e += LANES) {
        V t[LANES];
        int64_t begin = e + LANES <= count ? e : count - LANES;
        for (int v = 0; v < LANES; v++)
            t[v] = *(const UNALIGNED *)(from[v] + begin);
        FN(transpose)(t);
        FN(cursor) c = FN(cursor_at)(w, first + begin);
        for (int i = 0; i < LANES; i++) {
            to[c.at] = t[i];
            FN(advance)(&c, w);
        }
    }
}

INLINE void FN(store_run)(const V *from, const FN(walk) * w, T *const *to, int64_t first, int64_t count)
{
    for (int64_t e = 0; e < count; e += LANES) {
        V t[LANES];
        int64_t begin = e + LANES <= count ? e : count - LANES;
        FN(cursor) c = FN(cursor_at)(w, first + begin);
        for (int i = 0; i < LANES; i++) {
            t[i] = from[c.at];
            FN(advance)(&c, w);
        }
        FN(transpose)(t);
        for (int v = 0; v < LANES; v++)
            *(UNALIGNED *)(to[v] + begin) = t[v];
    }
}

/* Element by element; `data` are the lanes' first elements. */
static void FN(load_scattered)(V *to, const FN(walk) * w, T *const *data)
{
    for (int v = 0; v < LANES; v++)
        for (int64_t o = 0; o < w->outer; o++)
            for (int64_t i = 0; i < w->inner; i++)
                ((T *)(to + o * w->to_outer + i * w->to_inner))[v] = data[v][o * w->skip + i * w->step];
}

static void FN(store_scattered)(const V *from, const FN(walk) * w, T *const *data, int count)
{
    for (int v = 0; v < count; v++)
        for (int64_t o = 0; o < w->outer; o++)
            for (int64_t i = 0; i < w->inner; i++)
                data[v][o * w->skip + i * w->step] = ((const T *)(from + o * w->to_outer + i * w->to_inner))[v];
}

/* How many elements from a row on lie together: all, a row, or too few to matter (0). */
static int64_t FN(run_length)(const FN(walk) * w)
{
    int64_t run = w->step != 1 ? 0 : w->skip == w->inner ? w->inner * w->outer : w->inner;
    return run < LANES ? 0 : run;
}

static void FN(load)(void *to, int64_t ld, const mfi_lane_matrices *s)
{
    const FN(walk) w = FN(plan_walk)(s, ld);
    int64_t run = FN(run_length)(&w), total = w.inner * w.outer;
    T *data[LANES];
    for (int v = 0; v < LANES; v++)
        data[v] = s->data[v];
    if (FN(is_interleaved)(s)) {
        for (int64_t o = 0; o < w.outer; o++)
            for (int64_t i = 0; i < w.inner; i++)
                ((V *)to)[o * w.to_outer + i * w.to_inner] = *(const UNALIGNED *)(data[0] + o * w.skip + i * w.step);
    } else if (!run) {
        FN(load_scattered)(to, &w, data);
    } else {
        for (int64_t e = 0; e < total; e += run) {
            FN(load_run)(to, &w, data, e, run);
            for (int v = 0; v < LANES; v++)
                data[v] += w.skip;
        }
    }
}

static void FN(store)(const void *from, int64_t ld, const mfi_lane_matrices *s)
{
    const FN(walk) w = FN(plan_walk)(s, ld);
    int64_t run = FN(run_length)(&w), total = w.inner * w.outer;
    T *data[LANES];
    for (int v = 0; v < LANES; v++)
        data[v] = s->data[v];
    if (FN(is_interleaved)(s)) {
        for (int64_t o = 0; o < w.outer; o++)
            for (int64_t i = 0; i < w.inner; i++)
                *(UNALIGNED *)(data[0] + o * w.skip + i * w.step) = ((const V *)from)[o * w.to_outer + i * w.to_inner];
    } else if (!run || s->count < LANES) {
        FN(store_scattered)(from, &w, data, s->count);
    } else {
        for (int64_t e = 0; e < total; e += run) {
            FN(store_run)(from, &w, data, e, run);
            for (int v = 0; v < LANES; v++)
                data[v] += w.skip;
        }
    }
}
