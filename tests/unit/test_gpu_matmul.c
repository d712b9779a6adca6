/* Matrix products on the GPU, cuBLASLt and generated kernels called directly, against double-precision loops. One test: CUDA starts once. */
#include "gpu_harness.h"

extern const mfi_provider mfi_provider_cublaslt, mfi_provider_generated, mfi_provider_ref;
static const mfi_provider *provider;

typedef enum layout { ROWS, COLUMNS, PADDED, EVERY_OTHER, BACKWARDS, LAYOUTS } layout;
enum { PLAIN, SCALED, BIAS, GELU, GELU_BIAS, RESIDUAL, EVERYTHING, RELU, AUX, SCALES };

typedef struct matmul_case {
    mf_dtype in, out;
    int64_t batch, m, n, k;
    layout a, b;
    int epilogue;
    bool shared_b;
    double tolerance;
} matmul_case;

static int64_t lay_out(mfi_view *v, layout how, int64_t batch, int64_t rows, int64_t columns)
{
    int64_t padded = how == PADDED ? columns + 8 : columns;
    v->strides[0] = rows * padded;
    v->strides[1] = padded;
    v->strides[2] = 1;
    if (how == COLUMNS) {
        v->strides[1] = 1;
        v->strides[2] = rows;
    } else if (how == EVERY_OTHER) {
        v->strides[0] *= 2;
        v->strides[1] *= 2;
        v->strides[2] = 2;
    } else if (how == BACKWARDS) {
        v->offset = (rows - 1) * padded;
        v->strides[1] = -padded;
    }
    return batch * (v->strides[0] ? v->strides[0] : 1) + 16;
}

static double gelu(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static mfi_problem matmul_problem(const matmul_case *c, slot *slots, int *count)
{
    mfi_problem p = {.anchor = MFI_MATMUL, .ndim = 3, .shape = {c->batch, c->m, c->n}};
    mfi_matmul *mm = &p.u.matmul;
    mfi_ctype t = mfi_compute_type(c->in);
    *mm = (mfi_matmul){.m = c->m, .n = c->n, .k = c->k, .acc = t};
    mm->a = (mfi_view){.slot = 0, .dtype = c->in, .alignment = 16};
    mm->b = (mfi_view){.slot = 1, .dtype = c->in, .alignment = 16};
    make(&slots[0], c->in, lay_out(&mm->a, c->a, c->batch, c->m, c->k));
    make(&slots[1], c->in, lay_out(&mm->b, c->b, c->batch, c->k, c->n));
    bool scaled = c->epilogue == SCALES; /* by two values in memory, in place of the bias and the residual */
    make(&slots[2], scaled ? MF_F32 : c->out, scaled ? 1 : c->n);
    make(&slots[3], scaled ? MF_F32 : c->out, scaled ? 1 : c->batch * c->m * c->n);
    make(&slots[4], c->out, c->batch * c->m * c->n);
    *count = 5;
    if (c->epilogue == AUX)
        make(&slots[(*count)++], c->out, c->batch * c->m * c->n);
    if (c->shared_b)
        mm->b.strides[0] = 0;
    const int64_t full[] = {c->m * c->n, c->n, 1}, vector[] = {0, 0, 1};
    int e = c->epilogue, value = append(&p, MFI_ACC, t, -1, -1, -1);
    if (e == SCALED || e == EVERYTHING) {
        int s = append(&p, MFI_CONST, t, -1, -1, -1);
        p.chain.instr[s].re = 0.5;
        value = append(&p, MFI_APPLY, t, MF_OP_MULTIPLY, value, s);
    }
    for (int i = 2; e == SCALES && i < 4; i++) {
        int s = operand(&p, MFI_LOAD, t, i, MF_F32, (int64_t[]){0, 0, 0}, -1);
        value = append(&p, MFI_APPLY, t, MF_OP_MULTIPLY, value, s);
    }
    if (e == RESIDUAL || e == EVERYTHING) {
        int r = operand(&p, MFI_LOAD, t, 3, c->out, full, -1);
        value = append(&p, MFI_APPLY, t, MF_OP_ADD, value, r);
    }
    if (e == BIAS || e == GELU_BIAS || e == EVERYTHING || e == RELU || e == AUX) {
        int b = operand(&p, MFI_LOAD, t, 2, c->out, vector, -1);
        value = append(&p, MFI_APPLY, t, MF_OP_ADD, value, b);
    }
    if (e == AUX)
        operand(&p, MFI_STORE, t, 5, c->out, full, value);
    if (e == GELU || e == GELU_BIAS || e == EVERYTHING || e == AUX)
        value = append(&p, MFI_APPLY, t, MF_OP_GELU, value, -1);
    if (e == RELU)
        value = append(&p, MFI_APPLY, t, MF_OP_RELU, value, -1);
    operand(&p, MFI_STORE, t, 4, c->out, full, value);
    p.chain.instr[p.chain.count - 1].saturate = c->out == MF_E4M3;
    return p;
}

static void check_matmul(const matmul_case *c, const mfi_problem *p, const slot *slots, const char *what)
{
    const mfi_matmul *mm = &p->u.matmul;
    double worst = 0;
    int e = c->epilogue;
    for (int64_t i = 0; i < c->batch * c->m * c->n; i++) {
        int64_t batch = i / c->n / c->m, row = i / c->n % c->m, column = i % c->n;
        double complex sum = 0;
        double size = 0;
        for (int64_t k = 0; k < c->k; k++) {
            double complex x = get(&slots[0], at(&mm->a, 3, (int64_t[]){batch, row, k}));
            double complex y = get(&slots[1], at(&mm->b, 3, (int64_t[]){batch, k, column}));
            sum += x * y;
            size += cabs(x * y);
        }
        sum *= e == SCALED || e == EVERYTHING ? 0.5 : 1;
        sum += e == RESIDUAL || e == EVERYTHING ? get(&slots[3], i) : 0;
        sum += e == BIAS || e == GELU_BIAS || e == EVERYTHING || e == RELU || e == AUX ? get(&slots[2], column) : 0;
        sum *= e == SCALES ? get(&slots[2], 0) * get(&slots[3], 0) : 1;
        double aux = e == AUX ? cabs(get(&slots[5], i) - sum) / (size + 1) : 0;
        worst = aux > worst || aux != aux ? aux : worst;
        if (e == GELU || e == GELU_BIAS || e == EVERYTHING || e == AUX)
            sum = gelu(creal(sum));
        if (e == RELU)
            sum = fmax(creal(sum), 0);
        double error = cabs(get(&slots[4], i) - sum) / (size + 1);
        worst = error > worst || error != error ? error : worst;
    }
    bool approximate =
        c->epilogue == GELU || c->epilogue == GELU_BIAS || c->epilogue == EVERYTHING || c->epilogue == AUX;
    double allowed = approximate ? fmax(c->tolerance, 6e-6) : c->tolerance; /* its tanh is an approximation */
    cr_expect(worst <= allowed, "%s: error %.3g, allowed %.3g", what, worst, allowed);
}

static void matmul(const matmul_case *c)
{
    slot slots[MAX_SLOTS];
    int count;
    char what[160];
    snprintf(what, sizeof what, "matmul %s>%s %lldx%lldx%lldx%lld a%d b%d epilogue %d%s", mf_dtype_name(c->in),
             mf_dtype_name(c->out), (long long)c->batch, (long long)c->m, (long long)c->n, (long long)c->k, c->a, c->b,
             c->epilogue, c->shared_b ? " shared" : "");
    mfi_bid bid = {0};
    mfi_problem p = matmul_problem(c, slots, &count);
    bool loses_nan = !provider->query(&p, mfi_context_caps(context), &bid) && bid.reason == MFI_R_NAN_EPILOGUE;
    if (!loses_nan && run(provider, &p, mfi_context_caps(context), slots, count, 4, what))
        check_matmul(c, &p, slots, what);
    release(slots, count);
}

static void matmuls(void)
{
    static const struct {
        mf_dtype in, out;
        double tolerance;
    } types[] = {{MF_F16, MF_F16, 1e-3}, {MF_BF16, MF_BF16, 8e-3}, {MF_BF16, MF_F32, 1e-6}, {MF_F16, MF_F32, 1e-6},
                 {MF_F32, MF_F32, 2e-6}, {MF_F64, MF_F64, 1e-14},  {MF_C64, MF_C64, 2e-6},  {MF_C128, MF_C128, 1e-14}};
    for (size_t t = 0; t < MFI_COUNT(types); t++) {
        bool single = types[t].in == MF_F64 || mfi_is_complex(types[t].in);
        for (int e = 0; e <= RELU; e++)
            if (!single || e == PLAIN || e == SCALED || e == RESIDUAL || (e == BIAS && types[t].in == MF_F64))
                matmul(
                    &(matmul_case){types[t].in, types[t].out, 1, 48, 72, 40, ROWS, ROWS, e, false, types[t].tolerance});
        for (int a = 0; a < LAYOUTS; a++)
            for (int b = 0; b < LAYOUTS; b++)
                matmul(&(matmul_case){types[t].in, types[t].out, 3, 33, 20, 17, (layout)a, (layout)b,
                                      single ? PLAIN : GELU_BIAS, a == b, types[t].tolerance});
        static const int64_t edges[][3] = {{1, 1, 1}, {1, 64, 64}, {64, 1, 64}, {64, 64, 1}, {1, 8, 300}, {5, 3, 2}};
        for (size_t i = 0; i < MFI_COUNT(edges); i++)
            matmul(&(matmul_case){types[t].in, types[t].out, 1, edges[i][0], edges[i][1], edges[i][2], ROWS, ROWS,
                                  single ? PLAIN : BIAS, false, types[t].tolerance});
    }
    for (int b = ROWS; b <= COLUMNS; b++) /* fp8: k contiguous in b, or made so */
        for (int e = 0; e < 2; e++)
            matmul(
                &(matmul_case){MF_E4M3, MF_BF16, 1, 64, 32, 96, ROWS, (layout)b, e ? SCALES : GELU_BIAS, false, 8e-3});
    static const int narrow[] = {PLAIN, SCALED, GELU, SCALES};
    for (size_t i = 0; i < MFI_COUNT(narrow); i++)
        matmul(&(matmul_case){MF_E4M3, MF_E4M3, 1, 64, 32, 96, ROWS, COLUMNS, narrow[i], false, 0.07});
    static const int64_t kept[][4] = {{1, 48, 72, 40}, {1, 256, 512, 128}, {3, 32, 64, 48}};
    for (size_t i = 0; i < MFI_COUNT(kept); i++) /* gelu and the value before it */
        for (int t = 0; t < 2; t++)
            matmul(&(matmul_case){types[t].in, types[t].out, kept[i][0], kept[i][1], kept[i][2], kept[i][3], ROWS, ROWS,
                                  AUX, false, types[t].tolerance});
}

/* Row 5 of a has a NaN: row 5 of the result, and nothing else, must be NaN. */
static void activation_of_nan(int epilogue, mf_dtype dtype, int64_t m, int64_t n, int64_t k)
{
    matmul_case c = {dtype, dtype, 1, m, n, k, ROWS, ROWS, epilogue, false, 0};
    slot slots[MAX_SLOTS];
    int count;
    char what[160];
    mfi_bid bid = {0};
    mfi_problem p = matmul_problem(&c, slots, &count);
    snprintf(what, sizeof what, "%s of NaN, %s %lldx%lldx%lld", epilogue == RELU ? "relu" : "gelu",
             mf_dtype_name(dtype), (long long)m, (long long)n, (long long)k);
    put(&slots[0], 5 * k, NAN);
    if (!provider->query(&p, mfi_context_caps(context), &bid))
        fprintf(stderr, "%s: refused: %s\n", what, bid.detail);
    else if (run(provider, &p, mfi_context_caps(context), slots, count, 4, what))
        for (int64_t i = 0; i < m * n; i++)
            cr_expect_eq(isnan(creal(get(&slots[4], i))) != 0, i / n == 5, "%s: row %d column %d: %g", what,
                         (int)(i / n), (int)(i % n), creal(get(&slots[4], i)));
    release(slots, count);
}

static void activations_of_nan(void)
{
    static const mf_dtype dtypes[] = {MF_F16, MF_BF16, MF_F32};
    static const int64_t shapes[][3] = {{64, 64, 64}, {33, 17, 9}, {8, 8, 8}, {512, 256, 512}, {6, 1000, 100}};
    for (size_t t = 0; t < MFI_COUNT(dtypes); t++)
        for (size_t i = 0; i < MFI_COUNT(shapes); i++) {
            activation_of_nan(RELU, dtypes[t], shapes[i][0], shapes[i][1], shapes[i][2]);
            activation_of_nan(GELU_BIAS, dtypes[t], shapes[i][0], shapes[i][1], shapes[i][2]);
        }
}

Test(gpu, matmul)
{
    bool gpu = open_context(MFI_MATMUL);
    const mfi_provider *const providers[] = {gpu ? &mfi_provider_cublaslt : &mfi_provider_ref, &mfi_provider_generated};
    for (int i = 0; i < (gpu ? 2 : 1); i++) {
        provider = providers[i];
        matmuls();
        activations_of_nan();
    }
    mf_context_free(context);
}
