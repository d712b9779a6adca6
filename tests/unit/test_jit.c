/* Generated kernels without a GPU: chains of every operation, dtype and layout compile for each architecture and keep
 * everything in registers; the text is deterministic; the disk cache survives races, kill -9, damage and bad
 * directories. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "context_internal.h"
#include "emit.h"
#include "jit_elf.h"
#include "loader.h"

static const char *const targets[] = {"sm_80", "sm_90a", "sm_100a"};

static bool can_compile(void)
{
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    mf_context *context;
    void *cubin;
    size_t bytes;
    options.device = "sm_90a";
    cr_assert_eq(mf_context_new(&context, &options), MF_OK);
    mf_context_free(context);
    mf_status status = mfi_jit_build(&cubin, &bytes, MF_CUBIN, NULL, "sm_90a", "probe", "", NULL);
    mf_free(cubin);
    if (status == MF_E_MISSING)
        fprintf(stderr, "skipped: %s\n", mf_error_message(status));
    else
        cr_assert_eq(status, MF_OK, "%s", mf_error_message(status));
    return status == MF_OK;
}

/* ---- compiling one step for one target ---- */

static const mfi_caps *caps_of(mf_context **context, const char *target)
{
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    options.device = target;
    cr_assert_eq(mf_context_new(context, &options), MF_OK);
    return mfi_context_caps(*context);
}

/* `local`: the bytes of local memory that are all right; sine and its like reduce large arguments there. */
static void check_launch(const mfi_problem *p, const mfi_shape *l, int launch, const char *arch, int local,
                         const char *what)
{
    mfi_source source, again;
    void *cubin;
    size_t bytes;
    int registers, shared, frame;
    cr_assert_eq(mfi_emit(&source, p, l, launch), MF_OK);
    cr_assert_eq(mfi_emit(&again, p, l, launch), MF_OK);
    cr_expect_str_eq(source.text, again.text, "%s: the text differs from run to run", what);
    mf_status status = mfi_jit_build(&cubin, &bytes, MF_CUBIN, NULL, arch, source.name, source.text, NULL);
    cr_expect_eq(status, MF_OK, "%s: %s\n%s", what, mf_error_message(status), source.text);
    if (status == MF_OK) {
        mfi_cubin_resources(cubin, bytes, source.name, &registers, &shared, &frame);
        cr_expect(registers > 0 && registers <= 255, "%s, %s: %d registers", what, arch, registers);
        cr_expect(registers * l->threads <= 65536, "%s, %s: %d registers in %d threads", what, arch, registers,
                  l->threads);
        cr_expect(shared >= 0 && shared <= 49152, "%s, %s: %d bytes of shared memory", what, arch, shared);
        cr_expect(frame >= 0 && frame <= local, "%s, %s: %d bytes of local memory", what, arch, frame);
    }
    mf_free(cubin);
    mf_free(source.text);
    mf_free(again.text);
}

static void check_step(const mfi_problem *p, const char *target, int local, const char *what)
{
    mf_context *context;
    mfi_problem copy = *p;
    mfi_shape layout;
    mfi_shape_choose(&layout, &copy, caps_of(&context, target));
    for (int k = 0; k < layout.launches; k++)
        check_launch(&copy, &layout, k, target, local, what);
    mf_context_free(context);
}

static void check_everywhere(const mfi_problem *p, int local, const char *what)
{
    for (size_t t = 0; t < MFI_COUNT(targets); t++)
        check_step(p, targets[t], local, what);
}

/* ---- building steps ---- */

static mfi_problem domain(int ndim, int nreduce, const int64_t *shape)
{
    mfi_problem p = {.ndim = ndim, .nreduce = nreduce};
    memcpy(p.shape, shape, (size_t)ndim * sizeof *shape);
    return p;
}
#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

static int16_t add(mfi_problem *p, mfi_instr in)
{
    p->chain.instr[p->chain.count] = in;
    return (int16_t)p->chain.count++;
}

static int16_t operand_of(mfi_problem *p, mf_dtype dtype, int alignment, const int64_t *strides)
{
    mfi_operand *o = &p->chain.operand[p->chain.operands];
    memset(o, 0, sizeof *o);
    o->view = (mfi_view){.slot = (int16_t)p->chain.operands, .dtype = dtype, .alignment = alignment};
    memcpy(o->view.strides, strides, (size_t)p->ndim * sizeof *strides);
    for (int d = 0; d < MF_MAX_DIMS; d++)
        o->extent[d] = -1;
    return (int16_t)p->chain.operands++;
}

static const mfi_instr NONE = {.operand = -1, .a = -1, .b = -1, .c = -1, .op = -1};

static int16_t load(mfi_problem *p, mf_dtype dtype, const int64_t *strides)
{
    mfi_instr in = NONE;
    in.kind = MFI_LOAD;
    in.ctype = (uint8_t)mfi_compute_type(dtype);
    in.operand = operand_of(p, dtype, 16, strides);
    return add(p, in);
}

static void store(mfi_problem *p, mf_dtype dtype, const int64_t *strides, int a, bool saturate)
{
    mfi_instr in = NONE;
    in.kind = MFI_STORE;
    in.ctype = p->chain.instr[a].ctype;
    in.operand = operand_of(p, dtype, 16, strides);
    in.a = (int16_t)a;
    in.saturate = saturate;
    add(p, in);
}

static int16_t apply(mfi_problem *p, mf_op op, mfi_ctype from, mfi_ctype result, int a, int b, int c)
{
    mfi_instr in = NONE;
    in.kind = MFI_APPLY;
    in.op = (int16_t)op;
    in.from = (uint8_t)from;
    in.ctype = (uint8_t)result;
    in.a = (int16_t)a;
    in.b = (int16_t)b;
    in.c = (int16_t)c;
    return add(p, in);
}

static int16_t reduce(mfi_problem *p, mf_reduce_op op, int a)
{
    mfi_instr in = NONE;
    in.kind = MFI_REDUCE;
    in.reduce = (uint8_t)op;
    in.ctype = in.from = p->chain.instr[a].ctype;
    in.a = (int16_t)a;
    return add(p, in);
}

static int16_t constant(mfi_problem *p, mfi_ctype ctype, double re, double im)
{
    mfi_instr in = NONE;
    in.kind = MFI_CONST;
    in.ctype = (uint8_t)ctype;
    in.re = re;
    in.im = im;
    return add(p, in);
}

/* ---- operations and dtypes ---- */

static mfi_ctype result_of(mf_op op, mfi_ctype c)
{
    static const char *const rules[] = {
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) #rule,
#include "mathfuse/def/op.def"
#undef MF_OP
    };
    if (!strcmp(rules[op], "BOOL"))
        return MFI_I32;
    return c >= MFI_C64 && !strcmp(rules[op], "REAL") ? (c == MFI_C64 ? MFI_F32 : MFI_F64) : c;
}

static bool needs_local(mf_op op)
{
    return op == MF_OP_SIN || op == MF_OP_COS || op == MF_OP_TAN || op == MF_OP_EXP;
}

/* All operations of a compute type, several to a kernel. */
static void check_operations(mfi_ctype c, bool local, const char *target)
{
    for (int op = 0; op < MF_OP_COUNT;) {
        mfi_problem p = domain(1, 0, DIMS(5000));
        mf_dtype d = mfi_ctype_dtype(c);
        int16_t x = load(&p, d, DIMS(1)), y = load(&p, d, DIMS(1)), z = load(&p, d, DIMS(1)),
                q = load(&p, MF_BOOL, DIMS(1));
        mfi_text names = {0};
        for (int n = 0; op < MF_OP_COUNT && n < (c >= MFI_C64 ? 3 : 8); op++) {
            if (!mfi_op_defined((mf_op)op, c) || needs_local((mf_op)op) != local)
                continue;
            int arity = mf_op_arity((mf_op)op);
            mfi_ctype r = result_of((mf_op)op, c);
            int16_t v = apply(&p, (mf_op)op, c, r, op == MF_OP_WHERE ? q : x, arity > 1 ? y : -1, arity > 2 ? z : -1);
            store(&p, mfi_ctype_dtype(r), DIMS(1), v, false);
            mfi_text_add(&names, "%s ", mf_op_name((mf_op)op));
            n++;
        }
        if (names.data)
            check_step(&p, target, local ? 64 : 0, names.data);
        mfi_text_free(&names);
    }
}

Test(jit, every_operation)
{
    if (!can_compile())
        return;
    for (int c = 0; c < MFI_CTYPE_COUNT; c++) {
        check_operations((mfi_ctype)c, false, targets[c % 3]);
        check_operations((mfi_ctype)c, true, targets[c % 3]);
    }
}

Test(jit, every_dtype_to_every_dtype)
{
    if (!can_compile())
        return;
    for (int from = 0; from < MF_DTYPE_COUNT; from++) {
        mfi_problem p = domain(1, 0, DIMS(5000));
        int16_t x = load(&p, (mf_dtype)from, DIMS(1));
        for (int to = 0; to < MF_DTYPE_COUNT; to++) {
            if (mfi_is_complex((mf_dtype)from) && !mfi_is_complex((mf_dtype)to))
                continue;
            store(&p, (mf_dtype)to, DIMS(1), x, to & 1);
        }
        check_everywhere(&p, 0, mf_dtype_name((mf_dtype)from));
    }
}

Test(jit, constants)
{
    if (!can_compile())
        return;
    static const double values[] = {0,       -0.0,     1,         -1.5, 0x1p-1060, 1e-45, 1e300,
                                    3.14159, INFINITY, -INFINITY, NAN,  -0x1p63,   0x1p63};
    for (int c = 0; c < MFI_CTYPE_COUNT; c++) {
        mfi_problem p = domain(1, 0, DIMS(64));
        for (size_t i = 0; i < 10; i++)
            store(&p, mfi_ctype_dtype((mfi_ctype)c), DIMS(1), constant(&p, (mfi_ctype)c, values[i + 3], values[i]),
                  false);
        check_step(&p, targets[c % 3], 0, mfi_ctype_name((mfi_ctype)c));
    }
}

/* ---- layouts ---- */

Test(jit, maps)
{
    if (!can_compile())
        return;
    static const struct {
        int64_t shape[3], x[3], y[3], z[3];
        const char *what;
    } cases[] = {
        {{4, 70, 512}, {35840, 512, 1}, {0, 0, 1}, {35840, 512, 1}, "a row repeated"},
        {{4, 70, 512}, {35840, 512, 1}, {70, 1, 0}, {35840, 512, 1}, "a column repeated"},
        {{4, 70, 512}, {-35840, -512, -1}, {0, 0, 0}, {40000, 520, 1}, "backwards, padded, a scalar"},
        {{4, 70, 512}, {35840, 1, 70}, {0, 0, 1}, {35840, 512, 1}, "transposed"},
        {{4, 70, 511}, {35770, 511, 1}, {0, 0, 1}, {35770, 511, 1}, "odd rows"},
        {{3000, 1000, 1000}, {1000000, 1000, 1}, {0, 0, 1}, {1000000, 1000, 1}, "64-bit offsets"},
    };
    for (size_t i = 0; i < MFI_COUNT(cases); i++) {
        mfi_problem p = domain(3, 0, cases[i].shape);
        int16_t x = load(&p, MF_BF16, cases[i].x), y = load(&p, MF_F32, cases[i].y);
        int16_t s = apply(&p, MF_OP_ADD, MFI_F32, MFI_F32, x, y, -1);
        store(&p, MF_BF16, cases[i].z, apply(&p, MF_OP_SILU, MFI_F32, MFI_F32, s, -1, -1), false);
        check_everywhere(&p, 0, cases[i].what);
        p.chain.operand[0].extent[1] = 60;
        check_step(&p, targets[1], 0, cases[i].what);
        p.chain.operand[0].extent[2] = 500;
        p.chain.operand[1].view.alignment = 2; /* not even an element's */
        check_step(&p, targets[2], 0, cases[i].what);
    }
}

/* softmax(x) * w, and its sum: three levels, points and rows stored. */
static mfi_problem softmax(const int64_t *shape, const int64_t *strides, mf_dtype dtype)
{
    mfi_problem p = domain(2, 1, shape);
    int16_t x = load(&p, dtype, strides), w = load(&p, MF_F32, DIMS(0, 1));
    int16_t m = reduce(&p, MF_MAX, x), d = apply(&p, MF_OP_SUBTRACT, MFI_F32, MFI_F32, x, m, -1);
    int16_t e = apply(&p, MF_OP_EXP, MFI_F32, MFI_F32, d, -1, -1), s = reduce(&p, MF_SUM, e);
    int16_t q = apply(&p, MF_OP_DIVIDE, MFI_F32, MFI_F32, e, s, -1), t = reduce(&p, MF_SUM, q);
    store(&p, dtype, strides, apply(&p, MF_OP_MULTIPLY, MFI_F32, MFI_F32, q, w, -1), false);
    store(&p, MF_F32, DIMS(1, 0), t, false);
    return p;
}

Test(jit, reductions)
{
    if (!can_compile())
        return;
    static const int64_t shapes[][2] = {{1000, 7},    {1000, 64},  {1000, 1024}, {1000, 8192}, {500, 32768},
                                        {64, 200000}, {1, 300000}, {30, 5000},   {7, 0},       {3000, 1}};
    for (size_t i = 0; i < MFI_COUNT(shapes); i++) {
        char what[64];
        snprintf(what, sizeof what, "softmax %lld x %lld", (long long)shapes[i][0], (long long)shapes[i][1]);
        mfi_problem rows = softmax(shapes[i], DIMS(shapes[i][1], 1), i % 2 ? MF_BF16 : MF_F32);
        check_step(&rows, targets[i % 3], 0, what);
        mfi_problem columns = softmax(shapes[i], DIMS(1, shapes[i][0]), i % 2 ? MF_F32 : MF_BF16);
        check_step(&columns, targets[(i + 1) % 3], 0, what);
    }
}

Test(jit, every_reduction_of_every_type)
{
    if (!can_compile())
        return;
    for (int c = 0; c < MFI_CTYPE_COUNT; c++)
        for (int split = 0; split < 2; split++) {
            mfi_problem p = domain(2, 1, split ? DIMS(2, 100000) : DIMS(500, 300));
            int16_t x = load(&p, mfi_ctype_dtype((mfi_ctype)c), DIMS(p.shape[1], 1));
            for (int op = 0; op < MF_REDUCE_COUNT; op++) {
                bool logical = op == MF_ANY || op == MF_ALL, ordered = op == MF_MAX || op == MF_MIN;
                if (op != MF_MEAN && (c <= MFI_F64 || !ordered) && (!logical || c == MFI_I32))
                    store(&p, mfi_ctype_dtype((mfi_ctype)c), DIMS(1, 0), reduce(&p, (mf_reduce_op)op, x), false);
            }
            check_step(&p, targets[(c + split) % 3], 0, mfi_ctype_name((mfi_ctype)c));
        }
}

/* how 0 to 3: whole vectors and large tiles, in every layout; 4: small tiles, odd places and strides. */
static void check_product(mf_dtype d, int how)
{
    int64_t m = how < 4 ? 256 : 100, n = how < 4 ? 8192 : 50, k = how < 4 ? 64 : 7;
    mfi_problem p = domain(3, 0, DIMS(3, m, n));
    mfi_ctype c = mfi_compute_type(d);
    int size = how < 4 ? 16 : (int)mf_dtype_size(d);
    p.anchor = MFI_MATMUL;
    p.u.matmul = (mfi_matmul){.m = m, .n = n, .k = k, .acc = c};
    p.u.matmul.a = (mfi_view){.dtype = d, .alignment = size, .strides = {0, how & 1 ? 1 : k, how & 1 ? m : 1}};
    p.u.matmul.b = (mfi_view){.dtype = d, .alignment = size, .strides = {k * n, how & 2 ? 1 : n, how & 2 ? k : 1}};
    if (how == 4)
        p.u.matmul.b.strides[1] = -1, p.u.matmul.b.strides[2] = 7;
    mfi_instr acc = NONE;
    acc.kind = MFI_ACC;
    acc.ctype = (uint8_t)c;
    int16_t v = add(&p, acc), bias = load(&p, d, DIMS(0, 0, 1)), tile = load(&p, d, DIMS(m * n, n, 1));
    v = apply(&p, MF_OP_ADD, c, c, v, bias, -1);
    store(&p, d, DIMS(m * n, n, 1), apply(&p, MF_OP_MULTIPLY, c, c, v, tile, -1), false);
    check_step(&p, targets[(d + how) % 3], 0, mf_dtype_name(d));
}

Test(jit, matrix_products)
{
    if (!can_compile())
        return;
    for (int d = 0; d < MF_DTYPE_COUNT; d++) {
        bool tiled = d == MF_F16 || d == MF_BF16 ||
                     (mfi_compute_type((mf_dtype)d) >= MFI_F32 && mf_dtype_size((mf_dtype)d) >= 4);
        for (int how = tiled ? 0 : 4; how < 5; how++)
            check_product((mf_dtype)d, how);
    }
}

Test(jit, errors_carry_the_log)
{
    if (!can_compile())
        return;
    void *cubin;
    size_t bytes;
    char *log;
    mf_status status =
        mfi_jit_build(&cubin, &bytes, MF_CUBIN, &log, "sm_90a", "broken", "__global__ void f() { nonsense; }", NULL);
    cr_expect_eq(status, MF_E_COMPILE);
    cr_expect(strstr(mf_error_message(status), "nonsense") && strstr(mf_error_message(status), "broken"));
    cr_expect(log && strstr(log, "nonsense"));
    mf_free(log);
}

Test(jit, contexts_keep_modules)
{
    if (!can_compile())
        return;
    mf_context *context;
    mfi_module *one, *two;
    caps_of(&context, "sm_80");
    const char *source = "extern \"C\" __global__ void f(int *p) { *p = 1; }";
    mf_status status = mfi_jit_compile(&one, context, "f", source, false);
    cr_assert_eq(status, MF_OK, "%s", mf_error_message(status));
    cr_assert_eq(mfi_jit_compile(&two, context, "f", source, false), MF_OK);
    cr_expect_eq(one, two);
    cr_expect(one->registers > 0 && one->spills == 0 && one->cubin_bytes > 0 && !one->function);
    cr_expect_eq(mfi_jit_launch(one, context, 1, 1, 0, &one, 8, NULL), MF_E_STATE);
    mf_context_free(context);
}

/* ---- damaged cubins ---- */

Test(jit, elf_reader_stays_inside)
{
    unsigned char junk[4096];
    int r, s, l;
    srand(1);
    for (int round = 0; round < 2000; round++) {
        for (size_t i = 0; i < sizeof junk; i++)
            junk[i] = (unsigned char)rand();
        memcpy(junk, "\177ELF\2\1\1", 7);
        if (round & 1)
            junk[58] = 64, junk[59] = 0; /* a right size of section headers */
        mfi_cubin_resources(junk, (size_t)rand() % sizeof junk, "k", &r, &s, &l);
    }
    mfi_cubin_resources("", 0, "k", &r, &s, &l);
    cr_expect(r == -1 && s == -1 && l == -1);
}

/* ---- the disk cache ---- */

static char cache[64];

static void fresh_cache(void)
{
    snprintf(cache, sizeof cache, "/tmp/mathfuse-test-XXXXXX");
    cr_assert(mkdtemp(cache));
    setenv("MATHFUSE_CACHE_DIR", cache, 1);
    unsetenv("MATHFUSE_CACHE_LIMIT");
}

static void remove_cache(void)
{
    char command[256];
    snprintf(command, sizeof command, "chmod -R u+rwx %s; rm -rf %s", cache, cache);
    cr_expect_eq(system(command), 0);
}

static int files_in_cache(void)
{
    char command[256];
    int count = -1;
    snprintf(command, sizeof command, "find %s -type f | wc -l", cache);
    FILE *f = popen(command, "r");
    cr_expect_eq(fscanf(f, "%d", &count), 1);
    pclose(f);
    return count;
}

Test(jit_cache, gives_back_what_was_put, .init = fresh_cache, .fini = remove_cache)
{
    void *data;
    size_t bytes;
    cr_expect_eq(mfi_cache_get(&data, &bytes, "test", 1, 2), MF_E_MISSING);
    mfi_cache_put("test", 1, 2, "hello", 6);
    cr_assert_eq(mfi_cache_get(&data, &bytes, "test", 1, 2), MF_OK);
    cr_expect(bytes == 6 && !memcmp(data, "hello", 6));
    mf_free(data);
    cr_expect_eq(mfi_cache_get(&data, &bytes, "test", 2, 1), MF_E_MISSING);
    cr_expect_eq(mfi_cache_get(&data, &bytes, "other", 1, 2), MF_E_MISSING);
    mfi_cache_put("test", 3, 4, "", 0);
    cr_expect_eq(mfi_cache_get(&data, &bytes, "test", 3, 4), MF_OK);
    mf_free(data);
}

Test(jit_cache, damage_is_a_miss, .init = fresh_cache, .fini = remove_cache)
{
    static const char *const damage[] = {"truncate -s -1 %s/test-*",
                                         "truncate -s 10 %s/test-*",
                                         "truncate -s 0 %s/test-*",
                                         "printf x | dd of=$(ls %s/test-*) bs=1 seek=45 conv=notrunc status=none",
                                         "printf x | dd of=$(ls %s/test-*) bs=1 seek=2 conv=notrunc status=none",
                                         "echo more >> $(ls %s/test-*)"};
    for (size_t i = 0; i < MFI_COUNT(damage); i++) {
        char command[256];
        void *data;
        size_t bytes;
        mfi_cache_put("test", 1, 2, "hello world", 12);
        snprintf(command, sizeof command, damage[i], cache);
        cr_assert_eq(system(command), 0);
        cr_expect_eq(mfi_cache_get(&data, &bytes, "test", 1, 2), MF_E_MISSING, "%s", command);
        cr_expect_eq(files_in_cache(), 0, "%s: the damaged file stays", command);
    }
}

Test(jit_cache, bad_directories_are_silent)
{
    static const char *const places[] = {"/proc/self/nowhere", "/dev/null/x", "/dev/null"};
    void *data;
    size_t bytes;
    for (size_t i = 0; i < MFI_COUNT(places); i++) {
        setenv("MATHFUSE_CACHE_DIR", places[i], 1);
        mfi_cache_put("test", 1, 2, "hello", 6);
        cr_expect_eq(mfi_cache_get(&data, &bytes, "test", 1, 2), MF_E_MISSING);
    }
    unsetenv("MATHFUSE_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    mfi_cache_put("test", 1, 2, "hello", 6);
    cr_expect_eq(mfi_cache_get(&data, &bytes, "test", 1, 2), MF_E_MISSING);
}

Test(jit_cache, private_and_read_only, .init = fresh_cache, .fini = remove_cache)
{
    char inner[96];
    struct stat st;
    void *data;
    size_t bytes;
    snprintf(inner, sizeof inner, "%s/a/b", cache);
    setenv("MATHFUSE_CACHE_DIR", inner, 1);
    mfi_cache_put("test", 1, 2, "hello", 6);
    cr_assert_eq(stat(inner, &st), 0);
    cr_expect_eq(st.st_mode & 0777, 0700);
    chmod(inner, 0500);
    mfi_cache_put("test", 5, 6, "hello", 6);
    cr_expect_eq(mfi_cache_get(&data, &bytes, "test", 1, 2), MF_OK);
    mf_free(data);
}

Test(jit_cache, oldest_go_first, .init = fresh_cache, .fini = remove_cache)
{
    static char blob[1000];
    void *data;
    size_t bytes;
    setenv("MATHFUSE_CACHE_LIMIT", "10K", 1);
    for (uint64_t i = 0; i < 30; i++) {
        mfi_cache_put("test", 0, i, blob, sizeof blob);
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        mfi_cache_get(&data, &bytes, "test", 0, 0); /* stays, since it is in use */
        mf_free(data);
    }
    cr_expect_leq(files_in_cache(), 10);
    cr_expect_eq(mfi_cache_get(&data, &bytes, "test", 0, 29), MF_OK);
    mf_free(data);
    cr_expect_eq(mfi_cache_get(&data, &bytes, "test", 0, 0), MF_OK);
    mf_free(data);
    cr_expect_eq(mfi_cache_get(&data, &bytes, "test", 0, 1), MF_E_MISSING);
}

/* Each writer has its own content of its own length; a reader must see one of them whole. */
static void hammer(int seed)
{
    static unsigned char blob[70000];
    srand((unsigned)seed);
    for (;;) {
        size_t length = 1000 + (size_t)(rand() % 60000);
        void *data;
        size_t bytes;
        memset(blob, seed, length);
        mfi_cache_put("race", 7, 7, blob, length);
        if (mfi_cache_get(&data, &bytes, "race", 7, 7) != MF_OK)
            continue;
        unsigned char *p = data;
        for (size_t i = 0; i < bytes; i++)
            if (p[i] != p[0])
                _exit(9);
        mf_free(data);
    }
}

Test(jit_cache, races_and_kills, .init = fresh_cache, .fini = remove_cache)
{
    enum { WRITERS = 16, KILLS = 100 };
    pid_t writer[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        if (!(writer[i] = fork()))
            hammer(i + 1);
    srand(3);
    for (int k = 0; k < KILLS; k++) {
        int victim = rand() % WRITERS, how;
        nanosleep(&(struct timespec){0, 1000000 * (rand() % 20)}, NULL);
        kill(writer[victim], SIGKILL);
        waitpid(writer[victim], &how, 0);
        cr_expect(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL, "a reader saw a mixed file");
        if (!(writer[victim] = fork()))
            hammer(100 + k);
    }
    for (int i = 0; i < WRITERS; i++) {
        int how;
        kill(writer[i], SIGKILL);
        waitpid(writer[i], &how, 0);
        cr_expect(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL, "a reader saw a mixed file");
    }
    void *data;
    size_t bytes;
    mfi_cache_put("race", 7, 7, "end", 4);
    cr_assert_eq(mfi_cache_get(&data, &bytes, "race", 7, 7), MF_OK);
    cr_expect(bytes == 4);
    mf_free(data);
}
