/* Several steps over the items of a batch as one kernel: a block does them one after the other for some items. Each is the device code
 * of its own kernel for so many items; what they hand on lies in shared memory. The last block repeats items of the one before it where
 * the batch is no multiple. */
#include "emit.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { MOST_SHARED = 96 << 10, EXPRESSION = 64, NOT_ALIGNED = 8 };

static size_t rounded(size_t bytes)
{
    return mfi_align_up(bytes, 16);
}

/* ---- shape ---- */

/* Where an own slot begins: nowhere that 16 bytes are aligned, as solvers copy what is from global memory by itself. */
static size_t own_offset(const mfi_together *t, const mfi_together_shape *s, int index)
{
    size_t at = s->work + NOT_ALIGNED;
    for (int i = 0; i < index; i++)
        at += rounded((size_t)(t->own[i].bytes * s->items));
    return at;
}

static size_t shared_bytes(const mfi_together *t, const mfi_together_shape *s)
{
    return own_offset(t, s, t->owns) + NOT_ALIGNED;
}

static bool defined(const mfi_chain *c)
{
    for (int i = 0; i < c->count; i++)
        if (c->instr[i].kind == MFI_APPLY && c->instr[i].op != MF_OP_WHERE &&
            !mfi_op_defined((mf_op)c->instr[i].op, (mfi_ctype)c->instr[i].from))
            return false;
    return true;
}

/* The place of a view of the part, added if it is new; -1: there is no room. */
static int place_of(mfi_together_shape *s, const mfi_view *v)
{
    int64_t step = v->strides[0] * (int64_t)mf_dtype_size(v->dtype);
    int i = 0;
    while (i < s->places && (s->place[i].slot != v->slot || s->place[i].step != step))
        i++;
    if (i == MFI_TOGETHER_PLACES)
        return -1;
    if (i == s->places) {
        s->place[i].slot = v->slot;
        s->place[i].step = step;
        s->places++;
    }
    return i;
}

/* Threads, and matrices that those have between them. */
static bool solver_fits(mfi_together_shape *s, const mfi_problem *part, const mfi_caps *c, mfi_bid *bid)
{
    mfi_solve_shape solve;
    if (!mfi_solve_shape_choose(&solve, part, c, bid))
        return false;
    MF_REFUSE_UNLESS(!s->threads || s->threads == solve.threads, SIZE, "solvers of blocks of %d and of %d threads",
                     s->threads, solve.threads);
    s->threads = solve.threads;
    s->items = solve.threads / solve.group > s->items ? solve.threads / solve.group : s->items;
    s->work = solve.shared > s->work ? rounded(solve.shared) : s->work;
    s->us += 0.12 * solve.n;
    return true;
}

static bool part_fits(mfi_together_shape *s, const mfi_together *t, mfi_problem *part, const mfi_caps *c, mfi_bid *bid)
{
    mfi_view *view[MFI_MOST_VIEWS];
    mfi_shape layout;
    for (int k = mfi_problem_views(part, view) - 1; k >= 0; k--)
        MF_REFUSE_UNLESS(view[k]->slot < 0 || mfi_together_own(t, view[k]->slot) >= 0 || place_of(s, view[k]) >= 0,
                         RANK, "more than %d arrays", MFI_TOGETHER_PLACES);
    if (part->anchor == MFI_SOLVE)
        return true;
    MF_REFUSE_UNLESS(defined(&part->chain), DTYPE, "an operation is not defined for its dtype");
    MF_REFUSE_UNLESS(mfi_words_needed(part) <= MFI_MAX_WORDS, RANK, "too many operands of too many dims");
    MF_REFUSE_UNLESS(mfi_shape_choose_within(&layout, part, c, s->threads), SIZE, "rows too long for a warp");
    s->us += 0.5 + 0.1 * (double)mfi_shape_grid(&layout, part, 0);
    s->us +=
        part->anchor == MFI_MATMUL ? 0.01 * (double)part->u.matmul.k * (double)mfi_shape_grid(&layout, part, 0) : 0;
    return true;
}

/* Each part for s->items items, through `fits`. */
static bool all_fit(mfi_together_shape *s, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid, bool solvers)
{
    bool fit = true;
    for (int i = 0; i < p->u.together.parts && fit; i++) {
        mfi_problem *part;
        if (mfi_together_items(&part, p, i, solvers ? p->shape[0] : s->items) != MF_OK)
            return mfi_refuse(bid, MFI_R_SIZE, "out of memory");
        if (!solvers)
            fit = part_fits(s, &p->u.together, part, c, bid);
        else if (part->anchor == MFI_SOLVE)
            fit = solver_fits(s, part, c, bid);
        mfi_problem_free(part);
    }
    return fit;
}

bool mfi_together_choose(mfi_together_shape *s, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    memset(s, 0, sizeof *s);
    if (!all_fit(s, p, c, bid, true))
        return false;
    s->batch = p->shape[0];
    s->items = (int)mfi_min64(s->items, s->batch);
    while (s->items > 1 && shared_bytes(&p->u.together, s) > MOST_SHARED)
        s->items /= 2;
    s->shared = shared_bytes(&p->u.together, s);
    MF_REFUSE_UNLESS(s->shared + 1024 <= c->shared_bytes, SIZE, "%zu bytes of shared memory for an item", s->shared);
    if (!all_fit(s, p, c, bid, false))
        return false;
    s->blocks = mfi_ceil_div(s->batch, s->items);
    MF_REFUSE_UNLESS(s->blocks <= 0x7fffffff, SIZE, "%lld blocks would be launched", (long long)s->blocks);
    int64_t together = mfi_min64(2048 / s->threads, (int64_t)(c->shared_bytes / (s->shared + 1024)));
    s->us *= (double)mfi_ceil_div(s->blocks, (int64_t)c->multiprocessors * mfi_max64(mfi_min64(together, 8), 1));
    return true;
}

/* ---- text ---- */

static mf_status part_code(mfi_device_code *out, mfi_problem *part, const mfi_together_shape *s, const mfi_caps *c,
                           const char *const *slots)
{
    mfi_words words;
    mfi_bid unused = {0};
    if (part->anchor == MFI_SOLVE) {
        mfi_solve_shape solve;
        MF_REQUIRE(mfi_solve_shape_choose(&solve, part, c, &unused), MF_E_INTERNAL, "%s", unused.detail);
        mfi_solve_words(&words, part, &solve);
        return mfi_emit_solve_device(out, part, &solve, &words, slots);
    }
    mfi_shape layout;
    MF_REQUIRE(mfi_shape_choose_within(&layout, part, c, s->threads), MF_E_INTERNAL, "a part is too large");
    mfi_words_fill(&words, &layout, part);
    return mfi_emit_device(out, part, &layout, 0, &words, slots, "nullptr");
}

/* Views of the part by their places: slots of the text. */
static void renumber(mfi_problem *part, const mfi_problem *p, mfi_together_shape *s)
{
    mfi_view *view[MFI_MOST_VIEWS];
    for (int k = mfi_problem_views(part, view) - 1; k >= 0; k--) {
        int own = view[k]->slot < 0 ? -1 : mfi_together_own(&p->u.together, view[k]->slot);
        if (own >= 0)
            view[k]->slot = (int16_t)(MFI_TOGETHER_PLACES + own);
        else if (view[k]->slot >= 0)
            view[k]->slot = (int16_t)place_of(s, view[k]);
    }
}

static mf_status add_part(mfi_text *headers, mfi_text *body, const mfi_problem *p, int index, mfi_together_shape *s,
                          const mfi_caps *c, const char *const *slots)
{
    mfi_problem *part;
    mfi_device_code code = {0};
    MF_TRY(mfi_together_items(&part, p, index, s->items));
    renumber(part, p, s);
    mf_status status = part_code(&code, part, s, c, slots);
    mfi_problem_free(part);
    MF_TRY(status);
    mfi_text_add(headers, "#include \"device/%s.cuh\"\n", code.skeleton);
    mfi_text_add(body, "namespace part%d\n{\n%s} // namespace part%d\n\n", index, code.text, index);
    mf_free(code.text);
    return MF_OK;
}

static void add_kernel(mfi_text *out, const mfi_together_shape *s, int parts, const char *name)
{
    mfi_text_add(out,
                 "extern \"C\" __global__ void __launch_bounds__(%d) %s(const __grid_constant__ kernel_args k)\n{\n"
                 "    MF_DYNAMIC_SHARED(uint4, shared);\n    args p;\n"
                 "    for (int i = 0; i < %d; i++)\n        p.at[i] = k.at[i];\n"
                 "    mf::i64 first = (mf::i64)blockIdx.x * %d, last = k.batch - %d;\n"
                 "    p.first = first < last ? first : last;\n    p.own = (char *)shared;\n",
                 s->threads, name, s->places, s->items, s->items);
    for (int i = 0; i < parts; i++)
        mfi_text_add(out,
                     "    for (mf::i64 t = 0; t < part%d::tiles; t++)\n        part%d::run_tile(p, t, shared);\n%s", i,
                     i, i + 1 < parts ? "    __syncthreads();\n" : "}\n");
}

static mf_status finish(mfi_source *out, mfi_text *headers, const mfi_text *body, const mfi_together_shape *s,
                        int parts)
{
    mfi_text_add(headers,
                 "\nnamespace\n{\n\nstruct args {\n    char *at[%d];\n    mf::i64 first;\n    char *own;\n};\n"
                 "struct kernel_args {\n    char *at[%d];\n    mf::i64 batch;\n};\n\n%s} // namespace\n\n",
                 s->places, s->places, body->data ? body->data : "");
    if (headers->failed || body->failed)
        return MFI_NO_MEMORY(headers->capacity);
    snprintf(out->name, sizeof out->name, "mf_together_%016llx",
             (unsigned long long)XXH3_64bits(headers->data, headers->length));
    add_kernel(headers, s, parts, out->name);
    out->text = mfi_text_take(headers);
    return out->text ? MF_OK : MFI_NO_MEMORY(headers->capacity);
}

mf_status mfi_emit_together(mfi_source *out, const mfi_problem *p, const mfi_together_shape *shape, const mfi_caps *c)
{
    enum { SLOTS = MFI_TOGETHER_PLACES + MFI_TOGETHER_OWN };
    char text[SLOTS][EXPRESSION];
    const char *slots[SLOTS];
    const mfi_together *t = &p->u.together;
    mfi_together_shape s = *shape;
    mfi_text headers = {0}, body = {0};
    mf_status status = MF_OK;
    for (int i = 0; i < SLOTS; i++) {
        slots[i] = text[i];
        if (i < MFI_TOGETHER_PLACES)
            snprintf(text[i], EXPRESSION, "p.at[%d] + p.first * %lldll", i,
                     i < s.places ? (long long)s.place[i].step : 0);
        else
            snprintf(text[i], EXPRESSION, "p.own + %zu",
                     i - MFI_TOGETHER_PLACES < t->owns ? own_offset(t, &s, i - MFI_TOGETHER_PLACES) : 0);
    }
    *out = (mfi_source){.text = NULL};
    for (int i = 0; i < t->parts && status == MF_OK; i++)
        status = add_part(&headers, &body, p, i, &s, c, slots);
    if (status == MF_OK)
        status = finish(out, &headers, &body, &s, t->parts);
    mfi_text_free(&headers);
    mfi_text_free(&body);
    return status;
}
