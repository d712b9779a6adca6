/* CPU chains against an oracle that evaluates one element at a time: random chains, layouts, padding, splits over
 * threads. */
#include <criterion/criterion.h>
#include <math.h>

#include "chain_oracle.h"

static const mf_dtype dtypes_of[MFI_CTYPE_COUNT][5] = {
    {MF_I32, MF_BOOL, MF_I32, MF_BOOL, MF_I32},  {MF_I64, MF_I64, MF_I64, MF_I64, MF_I64},
    {MF_F32, MF_F16, MF_BF16, MF_E4M3, MF_E5M2}, {MF_F64, MF_F64, MF_F64, MF_F64, MF_F64},
    {MF_C64, MF_C64, MF_C64, MF_C64, MF_C64},    {MF_C128, MF_C128, MF_C128, MF_C128, MF_C128},
};

/* Some value of compute type c, of those made so far or cast from one. */
static int16_t some_value(world *w, mfi_ctype c)
{
    for (int tries = 0; tries < 8; tries++) {
        int v = (int)pick(w, w->p.chain.count);
        if (type_of(w, v) == c)
            return (int16_t)v;
    }
    int v = (int)pick(w, w->p.chain.count);
    if (type_of(w, v) >= MFI_C64 && c < MFI_C64)
        v = emit_apply(w, MF_OP_REAL, type_of(w, v) == MFI_C64 ? MFI_F32 : MFI_F64, v, -1, -1);
    return emit_cast(w, v, mfi_ctype_dtype(c), false);
}

static void random_operation(world *w, mfi_ctype c)
{
    static const mf_op binary[] = {MF_OP_ADD, MF_OP_SUBTRACT, MF_OP_MAXIMUM, MF_OP_MINIMUM};
    int16_t a = some_value(w, c), b = some_value(w, c);
    switch (pick(w, 6)) {
    case 0: {
        int16_t less = emit_apply(w, c >= MFI_C64 ? MF_OP_NOT_EQUAL : MF_OP_LESS, MFI_I32, a, b, -1);
        emit_apply(w, MF_OP_WHERE, c, less, b, a);
        break;
    }
    case 1:
        emit_apply(w, MF_OP_NEGATIVE, c, a, -1, -1);
        break;
    case 2:
        emit_cast(w, a, dtypes_of[c][pick(w, 5)], pick(w, 2));
        break;
    case 3:
        if (c < MFI_C64) {
            emit_apply(w, MF_OP_CLIP, c, a, b, some_value(w, c));
            break;
        } /* fall through */
    default:
        emit_apply(w, binary[pick(w, c >= MFI_C64 ? 2 : 4)], c, a, b, -1);
    }
}

static void random_reduction(world *w, mfi_ctype c)
{
    int16_t a = some_value(w, c);
    bool empty = false, is_complex = c >= MFI_C64;
    for (int d = w->p.ndim - w->p.nreduce; d < w->p.ndim; d++)
        empty |= w->p.shape[d] == 0;
    mf_reduce_op op =
        (mf_reduce_op[]){MF_SUM, MF_PROD, MF_ANY, MF_ALL, MF_MAX, MF_MIN}[pick(w, empty || is_complex ? 4 : 6)];
    if (op == MF_PROD && is_complex)
        op = MF_SUM;
    if (op == MF_PROD) /* -1, 0 and 1 stay exact */
        a = emit_apply(w, MF_OP_SIGN, c, a, -1, -1);
    int16_t r = emit_reduce(w, op, a);
    if (op == MF_SUM && !is_complex) { /* keep the numbers small */
        int16_t ten = emit(
            w, (mfi_instr){.kind = MFI_CONST, .ctype = (uint8_t)c, .re = 10, .operand = -1, .a = -1, .b = -1, .c = -1});
        int16_t minus = emit_apply(w, MF_OP_NEGATIVE, c, ten, -1, -1);
        emit_apply(w, MF_OP_CLIP, c, r, minus, ten);
    }
}

static void random_shape(world *w)
{
    static const int64_t lengths[] = {1, 2, 3, 5, 8, 17, 33, 70, 1, 4, 6, 130, 700, 1100};
    int64_t points = 1;
    w->p.ndim = (int)pick(w, 5);
    for (int d = 0; d < w->p.ndim; d++) {
        int64_t n = pick(w, 40) == 0 ? 0 : lengths[pick(w, 14)];
        w->p.shape[d] = points * n > 3000 ? 1 + pick(w, 3) : n;
        points *= mfi_max64(w->p.shape[d], 1);
    }
    w->p.nreduce = w->p.ndim ? (int)pick(w, mfi_min64(w->p.ndim, 2) + 1) : 0;
}

static bool depends_on_elements(const world *w, int v)
{
    const mfi_instr *in = &w->p.chain.instr[v];
    if (in->kind == MFI_REDUCE || in->kind == MFI_CONST)
        return false;
    if (in->kind == MFI_ACC || in->kind == MFI_INDEX)
        return true;
    if (in->kind == MFI_LOAD) {
        const mfi_operand *o = &w->p.chain.operand[in->operand];
        for (int d = w->p.ndim - w->p.nreduce; d < w->p.ndim; d++)
            if (o->view.strides[d] || o->extent[d] >= 0)
                return true;
        return false;
    }
    return depends_on_elements(w, in->a) || (in->b >= 0 && depends_on_elements(w, in->b)) ||
           (in->c >= 0 && depends_on_elements(w, in->c));
}

static void random_world(world *w, uint64_t seed)
{
    *w = (world){.random = seed * 977 + 5};
    random_shape(w);
    mfi_ctype c = (mfi_ctype)pick(w, MFI_CTYPE_COUNT);
    int64_t points = mfi_problem_points(&w->p);
    if (pick(w, 5) == 0) {
        emit(w, (mfi_instr){.kind = MFI_ACC, .ctype = (uint8_t)c, .operand = -1, .a = -1, .b = -1, .c = -1});
        size_t size = mfi_ctype_size(c);
        w->acc = malloc((size_t)(points + 1) * size);
        for (int64_t i = 0; i < points; i++)
            fill_element(w, w->acc + (size_t)i * size, mfi_ctype_dtype(c));
    }
    for (int64_t loads = 1 + pick(w, 3); loads; loads--)
        emit_load(w, dtypes_of[c][pick(w, 5)], (unsigned)pick(w, 16) & (unsigned)pick(w, 16));
    if (pick(w, 3) == 0)
        emit(w, (mfi_instr){.kind = MFI_CONST, .ctype = (uint8_t)c, .re = 2, .operand = -1, .a = -1, .b = -1, .c = -1});
    if (pick(w, 6) == 0 && w->p.ndim)
        emit(w, (mfi_instr){.kind = MFI_INDEX,
                            .ctype = MFI_I64,
                            .axis = (uint8_t)pick(w, w->p.ndim),
                            .operand = -1,
                            .a = -1,
                            .b = -1,
                            .c = -1});
    for (int64_t n = pick(w, 7); n; n--) {
        if (w->p.nreduce && pick(w, 3) == 0)
            random_reduction(w, c);
        else
            random_operation(w, c);
    }
    for (int64_t n = 1 + pick(w, 3); n; n--) {
        int v = n == 1 ? w->p.chain.count - 1 : (int)pick(w, w->p.chain.count);
        if (w->p.chain.instr[v].kind == MFI_STORE)
            v = 0;
        bool row = !depends_on_elements(w, v) && pick(w, 4);
        mfi_ctype t = type_of(w, v);
        emit_store(w, v, pick(w, 3) ? dtypes_of[t][0] : dtypes_of[t][pick(w, 5)], row ? row_mask(w) : 0);
    }
    bool reduces = false;
    for (int i = 0; i < w->p.chain.count; i++)
        reduces |= w->p.chain.instr[i].kind == MFI_REDUCE;
    w->p.nreduce = reduces ? w->p.nreduce : 0; /* rows come with reductions */
}

static void describe(const world *w, uint64_t seed, char *text, size_t bytes)
{
    mfi_text t = {0};
    mfi_problem_text(&w->p, &t);
    mfi_text_add(&t, " ");
    mfi_chain_text(&w->p, &t);
    char *s = mfi_text_take(&t);
    snprintf(text, bytes, "seed %llu: %s", (unsigned long long)seed, s ? s : "");
    mf_free(s);
}

/* Run a world's chain with one set of loops, in one of several ways, and compare everything with the oracle's copy. */
static bool check_world(world *w, const mfi_loops *loops, int way, const char *what)
{
    mfi_cpu_chain *chain;
    char *start[ORACLE_SLOTS];
    mf_status status = mfi_cpu_chain_new_isa(&chain, &w->p, loops);
    cr_expect_eq(status, MF_OK, "%s: %s", what, mf_error_message(status));
    if (status != MF_OK)
        return false;
    for (int i = 0; i < w->buffers; i++) {
        start[i] = malloc(w->bytes[i]);
        memcpy(start[i], w->memory[i], w->bytes[i]);
    }
    mfi_acc_block acc = {w->acc, 0};
    int64_t units = w->p.nreduce ? mfi_problem_rows(&w->p) : mfi_problem_points(&w->p);
    if (way == 0)
        mfi_cpu_chain_run_all(chain, (void *const *)w->memory, &acc, 2);
    for (int64_t i = 0; i < units && way == 1;) {
        int64_t n = mfi_min64(1 + pick(w, 900), units - i);
        mfi_cpu_chain_run(chain, (void *const *)w->memory, i, i + n, &acc);
        i += n;
    }
    bool good = true;
    for (int i = 0; i < w->buffers; i++) {
        good &= !memcmp(w->memory[i], w->copy[i], w->bytes[i]);
        memcpy(w->memory[i], start[i], w->bytes[i]);
        free(start[i]);
    }
    cr_expect(good, "%s (%s, way %d)", what, loops->isa, way);
    mfi_cpu_chain_free(chain);
    return good;
}

Test(cpu_chain, random_chains)
{
    const char *chosen = getenv("MATHFUSE_TEST_SEED");
    uint64_t first = chosen ? strtoull(chosen, NULL, 10) : 1, count = chosen ? 1 : 3000;
    int failures = 0;
    for (uint64_t seed = first; seed < first + count && failures < 5; seed++) {
        world w;
        char what[2048];
        random_world(&w, seed);
        describe(&w, seed, what, sizeof what);
        oracle_run(&w.p, (void *const *)w.copy, w.acc);
        for (int isa = 0; mfi_loops_at(isa); isa++)
            for (int way = 0; way < 2; way++)
                failures += !check_world(&w, mfi_loops_at(isa), way, what);
        free_world(&w);
    }
}
