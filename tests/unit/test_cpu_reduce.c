/* CPU chains at size: accuracy of sums, splits over threads that change no bit, in-place runs, odd addresses; and
 * packing. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "chain_oracle.h"

static mfi_instr instr(mfi_instr_kind kind, mfi_ctype ctype)
{
    return (mfi_instr){.kind = (uint8_t)kind,
                       .ctype = (uint8_t)ctype,
                       .from = (uint8_t)ctype,
                       .operand = -1,
                       .a = -1,
                       .b = -1,
                       .c = -1};
}

static int add(mfi_problem *p, mfi_instr in)
{
    p->chain.instr[p->chain.count] = in;
    return p->chain.count++;
}

static int add_operand(mfi_problem *p, int slot, mf_dtype dtype, const int64_t *strides)
{
    mfi_operand *o = &p->chain.operand[p->chain.operands];
    o->view = (mfi_view){.slot = (int16_t)slot, .dtype = dtype, .alignment = 1};
    memcpy(o->view.strides, strides, (size_t)p->ndim * sizeof *strides);
    for (int d = 0; d < MF_MAX_DIMS; d++)
        o->extent[d] = -1;
    return p->chain.operands++;
}

static int load(mfi_problem *p, int slot, mf_dtype dtype, const int64_t *strides)
{
    mfi_instr in = instr(MFI_LOAD, mfi_compute_type(dtype));
    in.operand = (int16_t)add_operand(p, slot, dtype, strides);
    return add(p, in);
}

static void store(mfi_problem *p, int a, int slot, mf_dtype dtype, const int64_t *strides)
{
    mfi_instr in = instr(MFI_STORE, (mfi_ctype)p->chain.instr[a].ctype);
    in.operand = (int16_t)add_operand(p, slot, dtype, strides);
    in.a = (int16_t)a;
    add(p, in);
}

static int apply(mfi_problem *p, mf_op op, mfi_ctype type, int a, int b)
{
    mfi_instr in = instr(MFI_APPLY, type);
    in.op = (int16_t)op;
    in.a = (int16_t)a;
    in.b = (int16_t)b;
    return add(p, in);
}

static int reduce(mfi_problem *p, mf_reduce_op op, mfi_ctype type, int a)
{
    mfi_instr in = instr(MFI_REDUCE, type);
    in.reduce = (uint8_t)op;
    in.a = (int16_t)a;
    return add(p, in);
}

static mfi_problem rows(int64_t m, int64_t n)
{
    return (mfi_problem){.ndim = 2, .nreduce = 1, .shape = {m, n}};
}

static void run(const mfi_problem *p, void *const *slots, int threads)
{
    mfi_cpu_chain *chain;
    cr_assert_eq(mfi_cpu_chain_new(&chain, p), MF_OK);
    if (threads)
        mfi_cpu_chain_run_all(chain, slots, NULL, threads);
    else
        mfi_cpu_chain_run(chain, slots, 0, p->nreduce ? mfi_problem_rows(p) : mfi_problem_points(p), NULL);
    mfi_cpu_chain_free(chain);
}

static double noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

/* Sums of m rows of n, laid out by rows or by columns: near the exact sum, and the same bits on any number of threads.
 */
static void check_sums(mf_dtype dtype, int64_t m, int64_t n, bool columns, double tolerance)
{
    const int64_t by_row[] = {n, 1}, by_column[] = {1, m}, out[] = {1, 0};
    mfi_problem p = rows(m, n);
    mfi_ctype type = mfi_compute_type(dtype);
    store(&p, reduce(&p, MF_SUM, type, load(&p, 0, dtype, columns ? by_column : by_row)), 1, dtype, out);
    size_t size = mf_dtype_size(dtype);
    char *x = malloc((size_t)(m * n) * size), *y[3];
    double *exact = calloc((size_t)m, sizeof *exact), *lost = calloc((size_t)m, sizeof *lost);
    uint64_t state = 3;
    for (int64_t i = 0; i < m * n; i++)
        write_element(x + (size_t)i * size, dtype, noise(&state), false);
    for (int64_t r = 0; r < m; r++)
        for (int64_t j = 0; j < n; j++) { /* Kahan's sum */
            double v = creal(read_element(x + (size_t)(columns ? j * m + r : r * n + j) * size, dtype)) - lost[r];
            double s = exact[r] + v;
            lost[r] = (s - exact[r]) - v;
            exact[r] = s;
        }
    for (int threads = 0; threads < 3; threads++) {
        y[threads] = malloc((size_t)m * size);
        run(&p, (void *[]){x, y[threads]}, threads);
    }
    for (int64_t r = 0; r < m; r++) {
        double have = creal(read_element(y[0] + (size_t)r * size, dtype));
        cr_expect_leq(fabs(have - exact[r]) / exact[r], tolerance, "%s %lld of %lld, columns %d: %.17g, exact %.17g",
                      mf_dtype_name(dtype), (long long)r, (long long)n, columns, have, exact[r]);
    }
    cr_expect(!memcmp(y[0], y[1], (size_t)m * size) && !memcmp(y[0], y[2], (size_t)m * size), "threads change the sum");
    for (int threads = 0; threads < 3; threads++)
        free(y[threads]);
    free(x), free(exact), free(lost);
}

Test(cpu_reduce, sums_are_accurate_and_do_not_depend_on_threads)
{
    const int64_t shapes[][2] = {{1, 1000003}, {3, 400000}, {700, 1500}, {5000, 37}, {64, 20000}, {1, 1}, {2, 131072}};
    for (size_t i = 0; i < MFI_COUNT(shapes); i++)
        for (int columns = 0; columns < 2; columns++) {
            check_sums(MF_F32, shapes[i][0], shapes[i][1], columns, 5e-7);
            check_sums(MF_F64, shapes[i][0], shapes[i][1], columns, 2e-15);
        }
    check_sums(MF_F16, 40, 3000, false, 1e-3);
    check_sums(MF_BF16, 40, 3000, true, 8e-3);
}

/* softmax: two reductions and a last pass; rows long enough to be split. In place. */
static void softmax(int64_t m, int64_t n, bool columns)
{
    const int64_t by_row[] = {n, 1}, by_column[] = {1, m};
    const int64_t *strides = columns ? by_column : by_row;
    mfi_problem p = rows(m, n);
    int x = load(&p, 0, MF_F32, strides);
    int e = apply(&p, MF_OP_EXP, MFI_F32, apply(&p, MF_OP_SUBTRACT, MFI_F32, x, reduce(&p, MF_MAX, MFI_F32, x)), -1);
    store(&p, apply(&p, MF_OP_DIVIDE, MFI_F32, e, reduce(&p, MF_SUM, MFI_F32, e)), 0, MF_F32, strides);
    size_t bytes = (size_t)(m * n) * sizeof(float);
    float *source = malloc(bytes), *y[3];
    uint64_t state = 9;
    for (int64_t i = 0; i < m * n; i++)
        source[i] = (float)(20 * noise(&state) - 10);
    for (int threads = 0; threads < 3; threads++) {
        y[threads] = malloc(bytes);
        memcpy(y[threads], source, bytes);
        run(&p, (void *[]){y[threads]}, threads);
    }
    for (int64_t r = 0; r < m; r += 1 + m / 5) {
        double sum = 0, top = -INFINITY;
        int64_t step = columns ? m : 1, at = columns ? r : r * n;
        for (int64_t j = 0; j < n; j++)
            top = fmax(top, (double)source[at + j * step]);
        for (int64_t j = 0; j < n; j++)
            sum += exp((double)source[at + j * step] - top);
        for (int64_t j = 0; j < n; j++) {
            double want = exp((double)source[at + j * step] - top) / sum;
            cr_assert_leq(fabs((double)y[0][at + j * step] - want), 2e-6 * want, "row %lld, %lld", (long long)r,
                          (long long)j);
        }
    }
    cr_expect(!memcmp(y[0], y[1], bytes) && !memcmp(y[0], y[2], bytes));
    for (int threads = 0; threads < 3; threads++)
        free(y[threads]);
    free(source);
}

Test(cpu_reduce, softmax_in_place)
{
    softmax(3, 200000, false);
    softmax(500, 77, false);
    softmax(90, 1300, false);
    softmax(90, 9000, true);
    softmax(3000, 5, true);
}

/* What a later phase reads again is one value for a whole block here, another for the next. */
Test(cpu_reduce, kept_values_that_are_scalars_of_their_blocks)
{
    enum { M = 3, A = 4, B = 2048 };
    const int64_t in[] = {A, 1, 0}, out[] = {A * B, B, 1};
    mfi_problem p = {.ndim = 3, .nreduce = 2, .shape = {M, A, B}};
    int e = apply(&p, MF_OP_SQUARE, MFI_F32, load(&p, 0, MF_F32, in), -1);
    store(&p, apply(&p, MF_OP_DIVIDE, MFI_F32, e, reduce(&p, MF_SUM, MFI_F32, e)), 1, MF_F32, out);
    float x[M * A], *y = malloc(sizeof(float) * M * A * B);
    for (int i = 0; i < M * A; i++)
        x[i] = (float)(i % A + 1);
    run(&p, (void *[]){x, y}, 1);
    for (int i = 0; i < M * A * B; i++) {
        float v = x[i / B];
        cr_assert_eq(y[i], v * v / (30 * B), "%d: %g", i, (double)y[i]);
    }
    free(y);
}

Test(cpu_reduce, nan_and_empty_rows)
{
    const int64_t strides[] = {5, 1}, out[] = {1, 0};
    const float x[10] = {1, 2, NAN, 4, 5, INFINITY, 1, -INFINITY, 2, 3};
    const mf_reduce_op ops[] = {MF_MAX, MF_MIN, MF_SUM, MF_PROD};
    for (int k = 0; k < 4; k++) {
        float y[2] = {7, 7};
        mfi_problem p = rows(2, 5);
        store(&p, reduce(&p, ops[k], MFI_F32, load(&p, 0, MF_F32, strides)), 1, MF_F32, out);
        run(&p, (void *[]){(void *)(uintptr_t)x, y}, 2);
        cr_expect(isnan(y[0]), "%g", y[0]);
        cr_expect(k == 0 ? y[1] == INFINITY : k == 1 || k == 3 ? y[1] == -INFINITY : isnan(y[1]), "%d: %g", k, y[1]);
        p.shape[1] = 0;
        if (k >= 2) {
            run(&p, (void *[]){(void *)(uintptr_t)x, y}, 2);
            cr_expect_eq(y[0], k - 2);
            cr_expect_eq(y[1], k - 2);
        }
    }
    double infinite[3] = {INFINITY, 1, 2}, total = 0;
    mfi_problem p = rows(1, 3);
    store(&p, reduce(&p, MF_SUM, MFI_F64, load(&p, 0, MF_F64, strides)), 1, MF_F64, out);
    run(&p, (void *[]){infinite, &total}, 1);
    cr_expect_eq(total, INFINITY);
}

Test(cpu_reduce, maps_in_place_and_at_odd_addresses)
{
    enum { N = 100000 };
    const int64_t one[] = {1};
    char *memory = malloc(4 * N + 8);
    for (int odd = 0; odd < 3; odd++) {
        mfi_problem p = {.ndim = 1, .shape = {N}};
        int x = load(&p, 0, MF_F32, one);
        store(&p, apply(&p, MF_OP_ADD, MFI_F32, apply(&p, MF_OP_SQUARE, MFI_F32, x, -1), x), 0, MF_F32, one);
        for (int i = 0; i < N; i++)
            memcpy(memory + odd + 4 * i, &(float){(float)(i % 1000)}, 4);
        run(&p, (void *[]){memory + odd}, 2);
        for (int i = 0; i < N; i++) {
            float y, want = (float)(i % 1000) * (float)(i % 1000) + (float)(i % 1000);
            memcpy(&y, memory + odd + 4 * i, 4);
            cr_assert_eq(y, want);
        }
    }
    free(memory);
}

/* Two outputs over the two inputs: the second needs what the first would overwrite. */
Test(cpu_reduce, outputs_that_exchange_inputs)
{
    enum { N = 3000 };
    static float a[N], b[N];
    const int64_t one[] = {1};
    mfi_problem p = {.ndim = 1, .shape = {N}};
    int x = load(&p, 0, MF_F32, one), y = load(&p, 1, MF_F32, one);
    store(&p, y, 0, MF_F32, one);
    store(&p, x, 1, MF_F32, one);
    for (int i = 0; i < N; i++)
        a[i] = (float)i, b[i] = (float)-i;
    run(&p, (void *[]){a, b}, 1);
    for (int i = 0; i < N; i++)
        cr_assert(a[i] == (float)-i && b[i] == (float)i);
}

/* ---- packing ---- */

static void check_pack(mf_dtype dtype, mfi_ctype ctype, int64_t a, int64_t b, int64_t c, const int64_t *strides,
                       int64_t extent)
{
    const int64_t shape[] = {a, b, c}, extents[] = {-1, -1, extent};
    int64_t size = (int64_t)mf_dtype_size(dtype), wide = (int64_t)mfi_ctype_size(ctype), low = 0, high = 0;
    for (int d = 0; d < 3; d++)
        *(strides[d] < 0 ? &low : &high) += strides[d] * (shape[d] - 1);
    mfi_view view = {
        .slot = 0, .dtype = dtype, .alignment = 1, .offset = -low, .strides = {strides[0], strides[1], strides[2]}};
    size_t bytes = (size_t)((high - low + 1) * size);
    char *memory = malloc(bytes), *copy = malloc(bytes), *packed = malloc((size_t)(a * b * c * wide));
    world w = {.random = 4};
    for (size_t at = 0; at < bytes; at += (size_t)size)
        fill_element(&w, memory + at, dtype);
    void *slots[] = {memory};
    mfi_pack(packed, ctype, &view, slots, 3, shape, extent >= 0 ? extents : NULL);
    bool good = true;
    for (int64_t i = 0; i < a * b * c; i++) {
        int64_t z = i % c, y = i / c % b, x = i / c / b;
        char want[16];
        double complex v =
            read_element(memory + (x * strides[0] + y * strides[1] + z * strides[2] - low) * size, dtype);
        write_element(want, mfi_ctype_dtype(ctype), extent >= 0 && z >= extent ? 0 : v, false);
        good &= !memcmp(want, packed + i * wide, (size_t)wide);
    }
    cr_expect(good, "pack %s to %s, %lldx%lldx%lld", mf_dtype_name(dtype), mfi_ctype_name(ctype), (long long)a,
              (long long)b, (long long)c);
    if (extent < 0) {
        memcpy(copy, memory, bytes);
        for (int64_t i = 0; i < a * b * c; i++)
            memset(memory + (i / c / b * strides[0] + i / c % b * strides[1] + i % c * strides[2] - low) * size, 0x55,
                   (size_t)size);
        mfi_unpack(&view, slots, 3, shape, packed, ctype);
        cr_expect(!memcmp(copy, memory, bytes), "unpack %s from %s", mf_dtype_name(dtype), mfi_ctype_name(ctype));
    }
    free(memory), free(copy), free(packed);
}

Test(cpu_reduce, packing)
{
    static const struct {
        mf_dtype dtype;
        mfi_ctype ctype;
    } types[] = {{MF_F32, MFI_F32},   {MF_F64, MFI_F64}, {MF_BF16, MFI_F32}, {MF_F16, MFI_F32}, {MF_C64, MFI_C64},
                 {MF_C128, MFI_C128}, {MF_F32, MFI_C64}, {MF_F16, MFI_C64},  {MF_I32, MFI_F64}, {MF_E4M3, MFI_F32}};
    for (size_t t = 0; t < MFI_COUNT(types); t++) {
        mf_dtype d = types[t].dtype;
        mfi_ctype c = types[t].ctype;
        bool real_to_complex = c >= MFI_C64 && !mfi_is_complex(d);
        check_pack(d, c, 2, 3, 5, (const int64_t[]){15, 5, 1}, -1);
        check_pack(d, c, 2, 70, 90, (const int64_t[]){6300, 1, 70}, -1);
        check_pack(d, c, 40, 3, 130, (const int64_t[]){-1, 5200, 40}, -1);
        check_pack(d, c, 3, 50, 40, (const int64_t[]){4000, -80, 2}, -1);
        check_pack(d, c, 2, 3, 50, (const int64_t[]){150, 50, 1}, 31);
        check_pack(d, c, 2, 60, 50, (const int64_t[]){3000, 1, 60}, 31);
        if (!real_to_complex)
            check_pack(d, c, 3, 300, 200, (const int64_t[]){60000, 1, 300}, -1);
    }
}
