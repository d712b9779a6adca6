/* Every operation of op.def, on every instruction set here, against the golden values of tests/golden. */
#include <criterion/criterion.h>
#include <math.h>

#include "cpu_loops.h"

typedef struct golden {
    const char *op;
    mfi_ctype ctype;
    int arity;
    bool boolean;
    const uint64_t *in, *out;
    int outs;
} golden;

#include "../golden/op_values.h"

#define MOST 160 /* more than any pool */

/* Errors allowed, in units of the last place; 0: the same bits. What is not here may be off by half of one (f32: by 1).
 */
static const struct {
    const char *op;
    int f32, f64;
} bounds[] = {
    {"cbrt", 1, 2},      {"power", 1, 1},   {"rsqrt", 2, 2},        {"exp", 1, 1},      {"exp2", 1, 1},
    {"expm1", 1, 1},     {"log", 1, 1},     {"log2", 1, 1},         {"log10", 1, 2},    {"log1p", 1, 1},
    {"logaddexp", 1, 2}, {"sin", 1, 1},     {"cos", 1, 1},          {"tan", 1, 1},      {"arcsin", 1, 1},
    {"arccos", 1, 1},    {"arctan", 1, 1},  {"arctan2", 1, 1},      {"sinh", 1, 2},     {"cosh", 1, 2},
    {"tanh", 1, 3},      {"arcsinh", 1, 2}, {"arccosh", 1, 2},      {"arctanh", 1, 2},  {"erf", 1, 1},
    {"sigmoid", 1, 3},   {"silu", 1, 3},    {"gelu", 1, 4},         {"gelu_erf", 1, 4}, {"softplus", 1, 2},
    {"gelu_grad", 1, 8}, {"hypot", 1, 1},   {"floor_divide", 1, 0}, /* where the quotient has no exact float */
};

static const char *const names[] = {
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) #name,
#include "mathfuse/def/op.def"
#undef MF_OP
};

static int find_op(const char *name)
{
    int op = 0;
    while (op < MF_OP_COUNT && strcmp(names[op], name) != 0)
        op++;
    return op;
}

static int bound_of(const golden *g)
{
    for (size_t i = 0; i < MFI_COUNT(bounds); i++)
        if (!strcmp(bounds[i].op, g->op))
            return g->ctype == MFI_F32 ? bounds[i].f32 : bounds[i].f64;
    return 0;
}

/* Distance in units of the last place, counted through the bits; NaN matches NaN, and zeros must have their sign. */
static double distance(uint64_t have, uint64_t want, bool single)
{
    uint64_t sign = single ? 0x80000000u : (uint64_t)1 << 63, infinity = single ? 0x7f800000u : (uint64_t)0x7ff << 52;
    bool have_nan = (have & ~sign) > infinity, want_nan = (want & ~sign) > infinity;
    if (have_nan || want_nan)
        return have_nan && want_nan ? 0 : INFINITY;
    double a = (double)(have & ~sign) * 1, b = (double)(want & ~sign);
    if ((have ^ want) & sign)
        return a + b > 0 ? a + b : INFINITY;
    int64_t gap = (int64_t)((have & ~sign) - (want & ~sign));
    return (double)(gap < 0 ? -gap : gap);
}

/* Inputs of position `which`, as elements of the compute type (as i32 conditions for where's first). */
static int unpack(const golden *g, int count, int which, unsigned char *dst)
{
    bool pair = g->ctype >= MFI_C64, condition = which == 0 && !strcmp(g->op, "where");
    size_t part = mfi_ctype_size(g->ctype) / (pair ? 2 : 1);
    for (int i = 0; i < count; i++) {
        const uint64_t *v = g->in + (i * g->arity + which) * (pair ? 2 : 1);
        if (condition) {
            uint64_t magnitude = part == 4 ? 0x7fffffff : INT64_MAX;
            bool real = g->ctype >= MFI_F32;
            int32_t holds = ((real ? v[0] & magnitude : v[0]) != 0) || (pair && (v[1] & magnitude));
            memcpy(dst + i * 4, &holds, 4);
            continue;
        }
        for (int k = 0; k < (pair ? 2 : 1); k++)
            memcpy(dst + ((size_t)i * (pair ? 2 : 1) + (size_t)k) * part, &v[k], part);
    }
    return count;
}

/* Which zero comes out of equal zeros is open there. */
static bool any_zero(const char *op)
{
    static const char *const ops[] = {"maximum", "minimum", "fmax", "fmin", "logaddexp"};
    for (size_t i = 0; i < MFI_COUNT(ops); i++)
        if (!strcmp(op, ops[i]))
            return true;
    return false;
}

static uint64_t bits_at(const unsigned char *p, size_t index, size_t size)
{
    uint64_t bits = 0;
    memcpy(&bits, p + index * size, size);
    return bits;
}

static double value_of(uint64_t bits, bool single)
{
    float f;
    double d;
    memcpy(&f, &bits, sizeof f);
    memcpy(&d, &bits, sizeof d);
    return single ? (double)f : d;
}

/* Complex results: the error beside the size of the whole number. */
static double complex_error(const unsigned char *out, size_t at, const uint64_t *want, bool single)
{
    size_t size = single ? 4 : 8;
    double re = value_of(want[0], single), im = value_of(want[1], single);
    if (isnan(re) || isnan(im))
        return 0;
    double dr = value_of(bits_at(out, 2 * at, size), single) - re,
           di = value_of(bits_at(out, 2 * at + 1, size), single) - im;
    double scale = hypot(re, im);
    if (!isfinite(scale))
        return 0;
    return dr == 0 && di == 0 ? 0 : hypot(dr, di) / (scale * (single ? 0x1p-23 : 0x1p-52));
}

static void check_golden(const golden *g, const mfi_loops *loops)
{
    _Alignas(64) unsigned char in[3][MOST * 16], out[MOST * 16];
    bool is_complex = g->ctype >= MFI_C64,
         real_result = !strcmp(g->op, "absolute") || !strcmp(g->op, "real") || !strcmp(g->op, "imag");
    int pairs = is_complex && !g->boolean && !real_result ? 2 : 1, count = g->outs / pairs;
    bool single = g->ctype == MFI_F32 || g->ctype == MFI_C64, exact = g->ctype < MFI_F32 || g->boolean;
    size_t size = g->boolean || g->ctype == MFI_I32 || single ? 4 : 8;
    cr_assert(count <= MOST);
    for (int k = 0; k < g->arity; k++)
        unpack(g, count, k, in[k]);
    mfi_apply_loop *apply = loops->apply[g->ctype][find_op(g->op)];
    cr_assert(apply, "%s has golden values for %s but is not defined", g->op, mfi_ctype_name(g->ctype));
    apply(count, 0, out, in[0], in[1], in[2]);
    for (int i = 0; i < count; i++) {
        const uint64_t *want = g->out + i * pairs;
        uint64_t have = bits_at(out, (size_t)i * (size_t)pairs, size);
        double error, allowed = is_complex ? 4 : bound_of(g);
        if (exact)
            error = have == *want ? 0 : INFINITY;
        else
            error = pairs == 2 ? complex_error(out, (size_t)i, want, single) : distance(have, *want, single);
        if (any_zero(g->op) && value_of(have, single) == 0 && value_of(*want, single) == 0)
            error = 0;
        cr_expect(error <= (exact ? 0 : allowed), "%s %s (%s) of %#llx, %#llx gives %#llx, golden %#llx, %g ulp", g->op,
                  mfi_ctype_name(g->ctype), loops->isa, (unsigned long long)g->in[i * g->arity],
                  (unsigned long long)g->in[i * g->arity + (g->arity > 1)], (unsigned long long)have,
                  (unsigned long long)*want, error);
    }
}

Test(cpu_ops, golden_values)
{
    for (int isa = 0; mfi_loops_at(isa); isa++)
        for (size_t i = 0; i < MFI_COUNT(goldens); i++)
            check_golden(&goldens[i], mfi_loops_at(isa));
}

Test(cpu_ops, every_operation_has_golden_values)
{
    for (int op = 0; op < MF_OP_COUNT; op++)
        for (int c = 0; c < MFI_CTYPE_COUNT; c++) {
            bool found = false;
            for (size_t i = 0; i < MFI_COUNT(goldens); i++)
                found |= goldens[i].ctype == (mfi_ctype)c && !strcmp(goldens[i].op, names[op]);
            bool defined = mfi_op_defined((mf_op)op, (mfi_ctype)c);
            cr_expect_eq(defined, found, "%s %s: defined %d, golden values %d: add it to make_golden.py", names[op],
                         mfi_ctype_name((mfi_ctype)c), defined, found);
            for (int isa = 0; mfi_loops_at(isa); isa++)
                cr_expect_eq(mfi_loops_at(isa)->apply[c][op] != NULL, defined);
        }
}

/* All instruction sets give the same bits, on dense samples of f32 and f64. */
Test(cpu_ops, instruction_sets_agree)
{
    enum { N = 1024 };
    static _Alignas(64) double in[N], out[2][N];
    uint64_t random = 1;
    for (int op = 0; op < MF_OP_COUNT; op++)
        for (int c = MFI_F32; c <= MFI_F64; c++)
            for (int isa = 1; mfi_loops_at(isa); isa++) {
                if (!mfi_loops_at(isa)->apply[c][op] || mfi_op_arity(op) > 1)
                    continue;
                for (int i = 0; i < N; i++) {
                    random = random * 6364136223846793005u + 1442695040888963407u;
                    double x = ldexp((double)(int64_t)random, (int)(i % 64) - 90);
                    if (c == MFI_F32)
                        ((float *)in)[i] = (float)x;
                    else
                        in[i] = x;
                }
                memset(out, 0, sizeof out);
                mfi_loops_at(0)->apply[c][op](N, 0, out[0], in, in, in);
                mfi_loops_at(isa)->apply[c][op](N, 0, out[1], in, in, in);
                int differ = 0;
                for (int i = 0; i < N; i++) {
                    double a = c == MFI_F32 ? ((float *)out[0])[i] : out[0][i],
                           b = c == MFI_F32 ? ((float *)out[1])[i] : out[1][i];
                    differ += memcmp(&a, &b, sizeof a) && (a == a || b == b);
                }
                cr_expect_eq(differ, 0, "%s %s: %d results differ", names[op], mfi_ctype_name((mfi_ctype)c), differ);
            }
}
