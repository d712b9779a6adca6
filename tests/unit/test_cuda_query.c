/* What the CUDA providers take and refuse, and why: pure queries over hand-made problems and capabilities, no GPU
 * needed. Each refusal changes one thing of a problem that is taken. */
#include <criterion/criterion.h>
#include <math.h>

#include "provider.h"

extern const mfi_provider mfi_provider_cublaslt, mfi_provider_cufft, mfi_provider_cusolver;

static mfi_caps caps_of(int sm, const char *arch)
{
    mfi_caps c = {.cuda = true, .sm = sm, .multiprocessors = 132, .bytes_per_us = 4e6, .flops_per_us = 6e7};
    c.tensor_flops_per_us = 8e8;
    c.launch_us = 3;
    strcpy(c.arch, arch);
    for (int i = 0; i < MFI_LIB_COUNT; i++)
        c.library[i] = true;
    c.version[MFI_LIB_CUBLASLT] = c.version[MFI_LIB_CUBLAS] = 130100;
    c.version[MFI_LIB_CUFFT] = 12000;
    c.version[MFI_LIB_CUSOLVER] = 12004;
    return c;
}

/* A build without CUDA refuses everything with one reason; nothing here applies to it. */
static bool built(void)
{
    mfi_caps c = caps_of(90, "sm_90a");
    mfi_problem p = {.anchor = MFI_MATMUL};
    mfi_bid bid = {0};
    return mfi_provider_cublaslt.query(&p, &c, &bid) || bid.reason != MFI_R_NOT_BUILT;
}

/* ---- building ---- */

static const mfi_instr NONE = {.op = -1, .operand = -1, .a = -1, .b = -1, .c = -1, .ctype = MFI_F32, .from = MFI_F32};

static int16_t add_operand(mfi_problem *p, mf_dtype dtype, int64_t batch, int64_t m, int64_t n)
{
    mfi_operand *o = &p->chain.operand[p->chain.operands];
    memset(o, 0, sizeof *o);
    o->view = (mfi_view){.slot = (int16_t)(2 + p->chain.operands), .dtype = dtype, .alignment = 16};
    int64_t strides[3] = {batch, m, n};
    memcpy(o->view.strides, strides + 3 - p->ndim, (size_t)p->ndim * sizeof *strides);
    for (int d = 0; d < MF_MAX_DIMS; d++)
        o->extent[d] = -1;
    return (int16_t)p->chain.operands++;
}

static int16_t append(mfi_problem *p, mfi_instr in)
{
    p->chain.instr[p->chain.count] = in;
    return (int16_t)p->chain.count++;
}

static int16_t acc(mfi_problem *p)
{
    mfi_instr in = NONE;
    in.kind = MFI_ACC;
    return append(p, in);
}

static int16_t load(mfi_problem *p, mf_dtype dtype, int64_t batch, int64_t m, int64_t n)
{
    mfi_instr in = NONE;
    in.kind = MFI_LOAD;
    in.operand = add_operand(p, dtype, batch, m, n);
    return append(p, in);
}

static int16_t constant(mfi_problem *p, double value)
{
    mfi_instr in = NONE;
    in.kind = MFI_CONST;
    in.re = value;
    return append(p, in);
}

static int16_t apply(mfi_problem *p, mf_op op, int16_t a, int16_t b)
{
    mfi_instr in = NONE;
    in.kind = MFI_APPLY;
    in.op = (int16_t)op;
    in.a = a;
    in.b = b;
    return append(p, in);
}

static void store(mfi_problem *p, mf_dtype dtype, int64_t batch, int64_t m, int64_t n, int16_t a)
{
    mfi_instr in = NONE;
    in.kind = MFI_STORE;
    in.a = a;
    in.operand = add_operand(p, dtype, batch, m, n);
    append(p, in);
}

enum { M = 256, N = 512, K = 128 };

/* Row-major A[M,K] B[K,N] without a chain. */
static mfi_problem matmul(mf_dtype dtype)
{
    mfi_problem p = {.anchor = MFI_MATMUL, .ndim = 2, .shape = {M, N}};
    p.u.matmul = (mfi_matmul){.m = M, .n = N, .k = K, .acc = mfi_compute_type(dtype)};
    p.u.matmul.a = (mfi_view){.slot = 0, .dtype = dtype, .alignment = 16, .strides = {K, 1}};
    p.u.matmul.b = (mfi_view){.slot = 1, .dtype = dtype, .alignment = 16, .strides = {N, 1}};
    return p;
}

static mfi_problem plain(mf_dtype dtype)
{
    mfi_problem p = matmul(dtype);
    store(&p, dtype, 0, N, 1, acc(&p));
    return p;
}

/* act(acc + bias) in bf16 */
static mfi_problem biased(int activation)
{
    mfi_problem p = matmul(MF_BF16);
    int16_t sum = apply(&p, MF_OP_ADD, acc(&p), load(&p, MF_BF16, 0, 0, 1));
    if (activation >= 0)
        sum = apply(&p, (mf_op)activation, sum, -1);
    store(&p, MF_BF16, 0, N, 1, sum);
    return p;
}

static void expect_from(const mfi_provider *provider, const mfi_problem *p, const mfi_caps *c, mfi_reason reason,
                        const char *what)
{
    mfi_bid bid = {0};
    bool taken = provider->query(p, c, &bid);
    cr_expect_eq(taken, reason == MFI_R_NONE, "%s: %s", what, taken ? "taken" : bid.detail);
    if (!taken)
        cr_expect_eq(bid.reason, reason, "%s: refused with %s (%s), expected %s", what, mfi_reason_name(bid.reason),
                     bid.detail, mfi_reason_name(reason));
    else
        cr_expect(bid.cost_us > 0 && bid.launches > 0 && bid.kernel[0], "%s: cost %g launches %d kernel \"%s\"", what,
                  bid.cost_us, bid.launches, bid.kernel);
}

static void expect(const mfi_problem *p, mfi_reason reason, const char *what)
{
    mfi_caps c = caps_of(90, "sm_90a");
    expect_from(&mfi_provider_cublaslt, p, &c, reason, what);
}

static void expect_kernel(const mfi_problem *p, const char *kernel)
{
    mfi_caps c = caps_of(90, "sm_90a");
    mfi_bid bid = {0};
    cr_expect(mfi_provider_cublaslt.query(p, &c, &bid), "%s: %s", kernel, bid.detail);
    cr_expect_str_eq(bid.kernel, kernel);
}

/* ---- matmul ---- */

Test(cuda_query, matmul_targets)
{
    static const struct {
        int sm;
        const char *arch;
    } targets[] = {{80, "sm_80"}, {90, "sm_90a"}, {100, "sm_100a"}};
    if (!built())
        cr_skip_test("built without CUDA");
    for (size_t i = 0; i < MFI_COUNT(targets); i++) {
        mfi_caps c = caps_of(targets[i].sm, targets[i].arch);
        mfi_problem p = biased(MF_OP_GELU);
        expect_from(&mfi_provider_cublaslt, &p, &c, MFI_R_NONE, targets[i].arch);
        c.cuda = false;
        expect_from(&mfi_provider_cublaslt, &p, &c, MFI_R_WRONG_TARGET, "on the CPU");
        c.cuda = true;
        c.library[MFI_LIB_CUBLASLT] = false;
        expect_from(&mfi_provider_cublaslt, &p, &c, MFI_R_NOT_FOUND, "without cuBLASLt");
    }
}

Test(cuda_query, matmul_epilogues)
{
    if (!built())
        cr_skip_test("built without CUDA");
    mfi_problem p = plain(MF_BF16);
    expect_kernel(&p, "cublasLtMatmul DEFAULT");
    p = biased(-1);
    expect_kernel(&p, "cublasLtMatmul BIAS");
    p = biased(MF_OP_GELU);
    expect_kernel(&p, "cublasLtMatmul GELU_BIAS");
    p = biased(MF_OP_RELU); /* keeps NaN where that was measured */
    expect_kernel(&p, "cublasLtMatmul RELU_BIAS");
    p.u.matmul.a.strides[0] = K + 1;
    expect(&p, MFI_R_NAN_EPILOGUE, "relu with rows of odd length");
    p = biased(MF_OP_RELU);
    mfi_caps other = caps_of(80, "sm_80");
    expect_from(&mfi_provider_cublaslt, &p, &other, MFI_R_NAN_EPILOGUE, "relu on sm_80");
    other = caps_of(90, "sm_90a");
    other.version[MFI_LIB_CUBLASLT] = 130200;
    expect_from(&mfi_provider_cublaslt, &p, &other, MFI_R_NAN_EPILOGUE, "relu with cuBLAS 13.2.0");
    p = biased(MF_OP_GELU_ERF);
    expect(&p, MFI_R_NO_EPILOGUE, "exact gelu");
    p = biased(MF_OP_TANH);
    expect(&p, MFI_R_NO_EPILOGUE, "tanh");

    p = matmul(MF_BF16); /* acc * s + b: alpha comes before the bias */
    int16_t scaled = apply(&p, MF_OP_MULTIPLY, acc(&p), constant(&p, 0.125));
    store(&p, MF_BF16, 0, N, 1, apply(&p, MF_OP_ADD, scaled, load(&p, MF_BF16, 0, 0, 1)));
    expect_kernel(&p, "cublasLtMatmul BIAS");

    p = matmul(MF_BF16); /* (acc + b) * s */
    int16_t sum = apply(&p, MF_OP_ADD, acc(&p), load(&p, MF_BF16, 0, 0, 1));
    store(&p, MF_BF16, 0, N, 1, apply(&p, MF_OP_MULTIPLY, sum, constant(&p, 0.125)));
    expect(&p, MFI_R_NO_EPILOGUE, "a scaled bias");

    p = matmul(MF_BF16); /* gelu(0.5 acc + r * 2 + b) */
    scaled = apply(&p, MF_OP_MULTIPLY, acc(&p), constant(&p, 0.5));
    int16_t residual = apply(&p, MF_OP_MULTIPLY, load(&p, MF_BF16, 0, N, 1), constant(&p, 2));
    sum = apply(&p, MF_OP_ADD, apply(&p, MF_OP_ADD, scaled, residual), load(&p, MF_BF16, 0, 0, 1));
    store(&p, MF_BF16, 0, N, 1, apply(&p, MF_OP_GELU, sum, -1));
    expect_kernel(&p, "cublasLtMatmul GELU_BIAS + C");

    p = matmul(MF_BF16); /* gelu(acc) + r */
    int16_t active = apply(&p, MF_OP_GELU, acc(&p), -1);
    store(&p, MF_BF16, 0, N, 1, apply(&p, MF_OP_ADD, active, load(&p, MF_BF16, 0, N, 1)));
    expect(&p, MFI_R_NO_EPILOGUE, "an addition after the activation");

    p = matmul(MF_BF16); /* acc * 0 would lose NaN */
    store(&p, MF_BF16, 0, N, 1, apply(&p, MF_OP_MULTIPLY, acc(&p), constant(&p, 0)));
    expect(&p, MFI_R_NO_EPILOGUE, "alpha = 0");

    p = matmul(MF_BF16);
    store(&p, MF_BF16, 0, N, 1, apply(&p, MF_OP_ADD, acc(&p), constant(&p, 1)));
    expect(&p, MFI_R_NO_EPILOGUE, "an added constant");

    p = matmul(MF_BF16);
    int16_t value = acc(&p);
    store(&p, MF_BF16, 0, N, 1, value);
    store(&p, MF_F32, 0, N, 1, value);
    expect(&p, MFI_R_NO_EPILOGUE, "two results");
}

Test(cuda_query, matmul_operands_of_the_chain)
{
    if (!built())
        cr_skip_test("built without CUDA");
    mfi_problem p = biased(-1);
    p.chain.operand[0].view.dtype = MF_F32;
    expect(&p, MFI_R_DTYPE, "an f32 bias for a bf16 result");
    p = biased(-1);
    p.chain.operand[0].view.alignment = 8;
    expect(&p, MFI_R_ALIGNMENT, "a bias at 8 bytes");
    p = biased(-1);
    p.chain.operand[0].view.strides[1] = 2;
    expect(&p, MFI_R_LAYOUT, "a strided bias");
    p = biased(-1);
    p.chain.operand[0].view.strides[0] = 1;
    p.chain.operand[0].view.strides[1] = 0;
    expect(&p, MFI_R_NO_EPILOGUE, "a bias along m, row-major");
    p.chain.operand[1].view.strides[0] = 1; /* the same with a column-major result */
    p.chain.operand[1].view.strides[1] = M;
    expect_kernel(&p, "cublasLtMatmul BIAS");
    p = biased(-1);
    p.chain.operand[0].view.strides[1] = 0;
    expect(&p, MFI_R_NO_EPILOGUE, "a scalar bias");
    p = biased(-1);
    p.chain.operand[0].extent[1] = N - 1;
    expect(&p, MFI_R_NO_EPILOGUE, "a zero-padded bias");
    p = biased(-1);
    p.chain.instr[p.chain.count - 1].saturate = 1;
    expect(&p, MFI_R_NO_EPILOGUE, "a saturating store");
}

Test(cuda_query, matmul_square_bias_axis)
{
    if (!built())
        cr_skip_test("built without CUDA");
    mfi_problem p = biased(-1); /* square: only strides tell the axis */
    p.u.matmul.m = p.u.matmul.n = p.shape[0] = p.shape[1] = N;
    expect(&p, MFI_R_NONE, "along n");
    p.chain.operand[0].view.strides[0] = 1;
    p.chain.operand[0].view.strides[1] = 0;
    expect(&p, MFI_R_NO_EPILOGUE, "along m");
}

Test(cuda_query, matmul_dtypes)
{
    static const mf_dtype good[] = {MF_F16, MF_BF16, MF_F32, MF_F64}, bad[] = {MF_I32, MF_I64, MF_BOOL};
    if (!built())
        cr_skip_test("built without CUDA");
    for (size_t i = 0; i < MFI_COUNT(good); i++) {
        mfi_problem p = plain(good[i]);
        expect(&p, MFI_R_NONE, mf_dtype_name(good[i]));
    }
    for (size_t i = 0; i < MFI_COUNT(bad); i++) {
        mfi_problem p = plain(bad[i]);
        expect(&p, MFI_R_DTYPE, mf_dtype_name(bad[i]));
    }
    mfi_problem p = plain(MF_BF16);
    p.u.matmul.b.dtype = MF_F16;
    expect(&p, MFI_R_DTYPE, "mixed operands");
    p = plain(MF_BF16);
    p.chain.operand[0].view.dtype = MF_F32;
    expect(&p, MFI_R_NONE, "bf16 to f32");
    p = plain(MF_F32);
    p.chain.operand[0].view.dtype = MF_BF16;
    expect(&p, MFI_R_DTYPE, "f32 to bf16");
    p = plain(MF_F32);
    p.u.matmul.acc = MFI_F64;
    expect(&p, MFI_R_COMPUTE, "f32 summed in f64");
    p = plain(MF_F32);
    p.u.matmul.compute = MF_COMPUTE_TF32;
    mfi_caps old = caps_of(75, "sm_75");
    expect_from(&mfi_provider_cublaslt, &p, &old, MFI_R_COMPUTE, "TF32 on sm_75");
}

Test(cuda_query, matmul_fp8)
{
    if (!built())
        cr_skip_test("built without CUDA");
    mfi_problem p = plain(MF_E4M3);
    p.chain.operand[0].view.dtype = MF_BF16;
    expect_kernel(&p, "cublasLtMatmul DEFAULT, copy"); /* k must be contiguous */
    p.u.matmul.b.strides[0] = 1;
    p.u.matmul.b.strides[1] = K;
    expect_kernel(&p, "cublasLtMatmul DEFAULT");
    mfi_caps old = caps_of(80, "sm_80");
    expect_from(&mfi_provider_cublaslt, &p, &old, MFI_R_DTYPE, "fp8 on sm_80");
    mfi_problem q = p;
    q.u.matmul.k = K - 8;
    expect(&q, MFI_R_SIZE, "fp8 with k = 120");
    q = p;
    q.u.matmul.a.alignment = 8;
    expect(&q, MFI_R_ALIGNMENT, "fp8 at 8 bytes");
    q = p;
    q.u.matmul.a.dtype = q.u.matmul.b.dtype = MF_E5M2;
    expect(&q, MFI_R_DTYPE, "two e5m2");
    q.u.matmul.b.dtype = MF_E4M3;
    expect(&q, MFI_R_NONE, "e5m2 by e4m3");
    q = p;
    q.chain.operand[0].view.dtype = MF_E4M3;
    expect(&q, MFI_R_NO_EPILOGUE, "an fp8 result that does not saturate");
    q.chain.instr[1].saturate = 1;
    expect(&q, MFI_R_NONE, "an fp8 result");
}

/* act(acc + bias) and the sum before it, both stored */
static mfi_problem kept(mf_op activation, int64_t rows)
{
    mfi_problem p = matmul(MF_BF16);
    int16_t sum = apply(&p, MF_OP_ADD, acc(&p), load(&p, MF_BF16, 0, 0, 1));
    store(&p, MF_BF16, 0, rows, 1, sum);
    store(&p, MF_BF16, 0, N, 1, apply(&p, activation, sum, -1));
    return p;
}

Test(cuda_query, matmul_value_before_gelu)
{
    if (!built())
        cr_skip_test("built without CUDA");
    mfi_problem p = kept(MF_OP_GELU, N);
    expect_kernel(&p, "cublasLtMatmul GELU_AUX_BIAS");
    p = kept(MF_OP_RELU, N);
    expect(&p, MFI_R_NO_EPILOGUE, "the value before relu");
    p = kept(MF_OP_GELU, N + 4);
    expect(&p, MFI_R_ALIGNMENT, "rows that are no multiple of 8 elements");
    p = kept(MF_OP_GELU, N);
    p.chain.operand[1].view.dtype = MF_F32;
    expect(&p, MFI_R_DTYPE, "an f32 value before a bf16 result");
    p.chain.instr[3].a = 0; /* the product without the bias */
    expect(&p, MFI_R_NO_EPILOGUE, "another value than the one before gelu");
}

Test(cuda_query, matmul_scales_in_memory)
{
    if (!built())
        cr_skip_test("built without CUDA");
    for (int count = 1; count <= 3; count++) {
        mfi_problem p = matmul(MF_E4M3);
        p.u.matmul.b.strides[0] = 1;
        p.u.matmul.b.strides[1] = K;
        int16_t value = acc(&p);
        for (int i = 0; i < count; i++)
            value = apply(&p, MF_OP_MULTIPLY, value, load(&p, MF_F32, 0, 0, 0));
        value = apply(&p, MF_OP_ADD, value, load(&p, MF_BF16, 0, 0, 1));
        store(&p, MF_BF16, 0, N, 1, value);
        expect(&p, count == 3 ? MFI_R_NO_EPILOGUE : MFI_R_NONE, "scales in memory");
        mfi_problem q = p;
        q.chain.operand[0].view.alignment = 4;
        expect(&q, count == 3 ? MFI_R_NO_EPILOGUE : MFI_R_ALIGNMENT, "a scale at 4 bytes");
        q = p;
        q.u.matmul.a.dtype = q.u.matmul.b.dtype = MF_BF16;
        expect(&q, MFI_R_NO_EPILOGUE, "scales of bf16 operands");
    }
}

Test(cuda_query, matmul_layouts)
{
    if (!built())
        cr_skip_test("built without CUDA");
    mfi_problem p = plain(MF_F32);
    p.u.matmul.a.strides[0] = 1;
    p.u.matmul.a.strides[1] = M;
    expect(&p, MFI_R_NONE, "a transposed");
    p = plain(MF_F32);
    p.u.matmul.a.strides[0] = K + 5;
    expect(&p, MFI_R_NONE, "padded rows");
    p = plain(MF_F32);
    p.u.matmul.a.strides[1] = 2;
    p.u.matmul.a.strides[0] = 2 * K;
    expect_kernel(&p, "cublasLtMatmul DEFAULT, copy"); /* every other column */
    mfi_caps c = caps_of(90, "sm_90a");
    c.library[MFI_LIB_NVRTC] = false;
    expect_from(&mfi_provider_cublaslt, &p, &c, MFI_R_NOT_FOUND, "a copy without NVRTC");
    p = plain(MF_F32);
    p.u.matmul.a.strides[0] = -K;
    expect_kernel(&p, "cublasLtMatmul DEFAULT, copy"); /* rows backwards */
    p = plain(MF_F32);
    p.u.matmul.a.strides[0] = 0;
    expect_kernel(&p, "cublasLtMatmul DEFAULT, copy"); /* one row repeated */
    p = plain(MF_F32);
    p.chain.operand[0].view.strides[1] = 2;
    expect(&p, MFI_R_LAYOUT, "every other column of the result");
    p = plain(MF_F32);
    p.u.matmul.a.alignment = 2;
    expect(&p, MFI_R_ALIGNMENT, "less than an element");
    p = plain(MF_F32);
    p.u.matmul.m = p.shape[0] = 1;
    p.u.matmul.a.strides[0] = 0;
    expect(&p, MFI_R_NONE, "one row, any stride");
    p = plain(MF_F32);
    p.u.matmul.k = 1;
    p.u.matmul.a.strides[1] = 77;
    expect(&p, MFI_R_NONE, "k = 1, any stride");
    p = plain(MF_F32);
    p.u.matmul.k = 0;
    expect(&p, MFI_R_EMPTY, "k = 0");
    p = plain(MF_F32);
    p.u.matmul.n = p.shape[1] = 0;
    expect(&p, MFI_R_EMPTY, "n = 0");
    p = plain(MF_F32);
    p.u.matmul.m = p.shape[0] = (int64_t)1 << 32;
    expect(&p, MFI_R_SIZE, "2^32 rows");
}

static mfi_problem batched(int64_t batch, int64_t a, int64_t b)
{
    mfi_problem p = {.anchor = MFI_MATMUL, .ndim = 3, .shape = {batch, M, N}};
    p.u.matmul = (mfi_matmul){.m = M, .n = N, .k = K, .acc = MFI_F32};
    p.u.matmul.a = (mfi_view){.slot = 0, .dtype = MF_F32, .alignment = 16, .strides = {a, K, 1}};
    p.u.matmul.b = (mfi_view){.slot = 1, .dtype = MF_F32, .alignment = 16, .strides = {b, N, 1}};
    store(&p, MF_F32, M * N, N, 1, acc(&p));
    return p;
}

Test(cuda_query, matmul_batches)
{
    mfi_caps c = caps_of(90, "sm_90a");
    mfi_bid bid = {0};
    if (!built())
        cr_skip_test("built without CUDA");
    mfi_problem p = batched(7, M * K, K * N);
    cr_expect(mfi_provider_cublaslt.query(&p, &c, &bid) && bid.launches == 1, "one call: %d", bid.launches);
    p = batched(7, M * K, 0);
    cr_expect(mfi_provider_cublaslt.query(&p, &c, &bid) && bid.launches == 1, "b repeated: %d", bid.launches);
    p = batched(7, -M * K, K * N);
    cr_expect(mfi_provider_cublaslt.query(&p, &c, &bid) && bid.launches == 7, "backwards: %d", bid.launches);
    p = batched(100000, M * K, 0);
    expect(&p, MFI_R_LAYOUT, "more matrices than calls allow");
}

Test(cuda_query, matmul_known_bugs)
{
    if (!built())
        cr_skip_test("built without CUDA");
    mfi_bid bid = {0};
    mfi_problem p = biased(-1);
    p.u.matmul.m = p.shape[0] = 1;
    expect_kernel(&p, "cublasLtMatmul BIAS");
    mfi_caps c = caps_of(90, "sm_90a");
    c.version[MFI_LIB_CUBLASLT] = 120803; /* a bias with m = 1 is wrong there: it is added as a matrix */
    cr_expect(mfi_provider_cublaslt.query(&p, &c, &bid), "%s", bid.detail);
    cr_expect_str_eq(bid.kernel, "cublasLtMatmul DEFAULT + C");
}

/* ---- fft ---- */

static mfi_problem fft(mf_fft_kind kind, int64_t batch, int64_t n)
{
    int64_t bins = n / 2 + 1, in = kind == MF_IRFFT ? bins : n, out = kind == MF_RFFT ? bins : n;
    mfi_problem p = {.anchor = MFI_FFT, .ndim = 2, .shape = {batch, out}};
    p.u.fft = (mfi_fft){.kind = kind, .naxes = 1, .n = {n}, .in_shape = {in}, .in_extent = {in}, .scale = 1};
    p.u.fft.in = (mfi_view){.slot = 0, .dtype = kind == MF_RFFT ? MF_F32 : MF_C64, .alignment = 16, .strides = {in, 1}};
    store(&p, kind == MF_IRFFT ? MF_F32 : MF_C64, 0, out, 1, acc(&p));
    return p;
}

static void expect_fft(const mfi_problem *p, const char *kernel)
{
    mfi_caps c = caps_of(90, "sm_90a");
    mfi_bid bid = {0};
    cr_expect(mfi_provider_cufft.query(p, &c, &bid), "%s: %s", kernel, bid.detail);
    cr_expect_str_eq(bid.kernel, kernel);
}

Test(cuda_query, fft)
{
    if (!built())
        cr_skip_test("built without CUDA");
    mfi_problem p = fft(MF_FFT, 100, 1024);
    expect_fft(&p, "cufft C2C");
    p.u.fft.scale = 0.5;
    expect_fft(&p, "cufft C2C, scale");
    p = fft(MF_FFT, 100, 1024);
    p.u.fft.in_extent[0] = 1000;
    expect_fft(&p, "cufft C2C, copy in");
    p = fft(MF_FFT, 100, 1024);
    p.u.fft.in.dtype = MF_F32;
    p.u.fft.scale = 0.5; /* folded into the copy */
    expect_fft(&p, "cufft C2C, copy in");
    p = fft(MF_FFT, 100, 1024);
    p.u.fft.in.strides[1] = -1;
    expect_fft(&p, "cufft C2C, copy in");
    p = fft(MF_FFT, 100, 1024);
    p.u.fft.in.alignment = 4;
    expect_fft(&p, "cufft C2C, copy in");
    p = fft(MF_FFT, 100, 1024);
    p.chain.operand[0].view.strides[1] = 3;
    p.chain.operand[0].view.strides[0] = 3 * 1024;
    expect_fft(&p, "cufft C2C");
    p = fft(MF_FFT, 100, 1024); /* along the outer axis of memory */
    p.u.fft.in.strides[0] = p.chain.operand[0].view.strides[0] = 1;
    p.u.fft.in.strides[1] = p.chain.operand[0].view.strides[1] = 100;
    expect_fft(&p, "cufft C2C");
    p = fft(MF_RFFT, 100, 1023);
    expect_fft(&p, "cufft R2C");
    p = fft(MF_IRFFT, 100, 1024);
    expect_fft(&p, "cufft C2R, copy in");
}

Test(cuda_query, fft_refusals)
{
    mfi_caps c = caps_of(90, "sm_90a");
    if (!built())
        cr_skip_test("built without CUDA");
    mfi_problem p = fft(MF_FFT, 0, 64);
    expect_from(&mfi_provider_cufft, &p, &c, MFI_R_EMPTY, "no signals");
    p = fft(MF_IRFFT, 4, 64);
    c.library[MFI_LIB_NVRTC] = false;
    expect_from(&mfi_provider_cufft, &p, &c, MFI_R_NOT_FOUND, "C2R without NVRTC");
    p = fft(MF_FFT, 4, 64);
    expect_from(&mfi_provider_cufft, &p, &c, MFI_R_NONE, "C2C without NVRTC");
    c.library[MFI_LIB_CUFFT] = false;
    expect_from(&mfi_provider_cufft, &p, &c, MFI_R_NOT_FOUND, "no cuFFT");
    c = caps_of(90, "sm_90a");
    p = fft(MF_FFT, 4, 64);
    p.chain.instr[p.chain.count++] = p.chain.instr[1];
    p.chain.instr[1] = NONE;
    p.chain.instr[1].kind = MFI_APPLY;
    p.chain.instr[1].op = MF_OP_CONJUGATE;
    p.chain.instr[1].a = 0;
    p.chain.instr[2].a = 1;
    expect_from(&mfi_provider_cufft, &p, &c, MFI_R_NO_EPILOGUE, "a conjugate");
    expect_from(&mfi_provider_cublaslt, &p, &c, MFI_R_NOT_ANCHOR, "a matmul provider");
}

/* ---- solve ---- */

static mfi_problem solve(mfi_solver solver, int64_t batch, int64_t n)
{
    mfi_problem p = {.anchor = MFI_SOLVE, .ndim = 1, .shape = {batch}};
    mfi_view matrix = {.dtype = MF_F64, .alignment = 16, .strides = {n * n, n, 1}};
    p.u.solve =
        (mfi_solve){.solver = solver, .n = n, .nrhs = n, .ctype = MFI_F64, .a = matrix, .b = matrix, .x = matrix};
    p.u.solve.b.slot = (int16_t)(solver == MFI_CHOLESKY ? -1 : 1);
    p.u.solve.x.slot = 2;
    p.u.solve.info.slot = -1;
    return p;
}

Test(cuda_query, solvers)
{
    if (!built())
        cr_skip_test("built without CUDA");
    for (int solver = 0; solver < MFI_SOLVER_COUNT; solver++) {
        mfi_caps c = caps_of(90, "sm_90a");
        mfi_problem p = solve((mfi_solver)solver, 10, 16);
        expect_from(&mfi_provider_cusolver, &p, &c, MFI_R_NONE, "a batch");
        p.u.solve.ctype = MFI_I32;
        expect_from(&mfi_provider_cusolver, &p, &c, MFI_R_DTYPE, "integers");
        p = solve((mfi_solver)solver, 0, 16);
        expect_from(&mfi_provider_cusolver, &p, &c, MFI_R_EMPTY, "no matrices");
        p = solve((mfi_solver)solver, 1, 16);
        c.library[MFI_LIB_CUBLAS] = false;
        expect_from(&mfi_provider_cusolver, &p, &c, MFI_R_NOT_FOUND, "no cuBLAS");
    }
    mfi_caps c = caps_of(90, "sm_90a");
    mfi_problem p = solve(MFI_LU_SOLVE, 1, 50000);
    expect_from(&mfi_provider_cusolver, &p, &c, MFI_R_KNOWN_BUG, "LU of n = 50000");
    p = solve(MFI_CHOLESKY, 1, 50000);
    expect_from(&mfi_provider_cusolver, &p, &c, MFI_R_NONE, "Cholesky of n = 50000");
}
