/* Calling cuBLASLt: one handle a context; a step keeps descriptors, layouts and the algorithm that cublaslt_choose.c
 * gave. */
#include "cublaslt_state.h"
#include "loader.h"

#ifdef MFI_WITH_CUDA

mf_status mfi_lt_check(const mfi_lt_library *lt, cublasStatus_t result, const char *call)
{
    if (result == CUBLAS_STATUS_SUCCESS)
        return MF_OK;
    return mfi_fail(MF_E_LIBRARY, "cuBLASLt: %s in %s",
                    lt->cublasLtGetStatusName ? lt->cublasLtGetStatusName(result) : "an error", call);
}

/* Names of CUDA 12.8 and 12.9, which older headers lack: CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
 * CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F. */
enum { A_SCALE_MODE = 31, B_SCALE_MODE = 32, OUTER_VECTOR = 3 };

/* ---- the handle ---- */

static void drop_library(void *object)
{
    mfi_lt_library *lt = object;
    if (lt->handle)
        lt->cublasLtDestroy(lt->handle);
    for (int i = 0; i < MFI_LT_REMEMBERED; i++)
        mf_free(lt->memory[i]);
    pthread_mutex_destroy(&lt->lock);
    mf_free(lt);
}

static mf_status make_library(void **out, mf_context *context)
{
    mfi_lt_library *lt = mfi_calloc(1, sizeof *lt);
    if (!lt)
        return MFI_NO_MEMORY(sizeof *lt);
    const char *missing = NULL;
#define LOAD(name)                                                                                                     \
    do {                                                                                                               \
        void *symbol_ = mfi_library_symbol(MFI_LIB_CUBLASLT, #name);                                                   \
        memcpy(&lt->name, &symbol_, sizeof symbol_);                                                                   \
        missing = symbol_ ? missing : #name;                                                                           \
    } while (0);
    LT_FUNCTIONS(LOAD)
#undef LOAD
    lt->version = mfi_library_load(MFI_LIB_CUBLASLT)->number;
    mf_status status = MF_OK;
    if (missing)
        status = mfi_fail(MF_E_MISSING, "cuBLASLt has no %s: %s", missing, mfi_library_load(MFI_LIB_CUBLASLT)->missing);
    if (status == MF_OK)
        status = mfi_context_make_current(context);
    if (status == MF_OK)
        status = mfi_lt_check(lt, lt->cublasLtCreate(&lt->handle), "cublasLtCreate");
    if (status != MF_OK) {
        mf_free(lt);
        return status;
    }
    pthread_mutex_init(&lt->lock, NULL);
    *out = lt;
    return MF_OK;
}

/* ---- descriptors ---- */

static cudaDataType_t cuda_type(mf_dtype d)
{
    static const cudaDataType_t types[MF_DTYPE_COUNT] = {
        [MF_F16] = CUDA_R_16F, [MF_BF16] = CUDA_R_16BF, [MF_F32] = CUDA_R_32F,      [MF_F64] = CUDA_R_64F,
        [MF_C64] = CUDA_C_32F, [MF_C128] = CUDA_C_64F,  [MF_E4M3] = CUDA_R_8F_E4M3, [MF_E5M2] = CUDA_R_8F_E5M2,
        [MF_I8] = CUDA_R_8I,   [MF_I32] = CUDA_R_32I,
    };
    return types[d];
}

static void set_scalars(mfi_lt_state *s, mfi_ctype acc)
{
    const mfi_lt_epilogue *e = &s->spec.epilogue;
    static const cudaDataType_t scale_types[MFI_CTYPE_COUNT] = {[MFI_F32] = CUDA_R_32F,
                                                                [MFI_F64] = CUDA_R_64F,
                                                                [MFI_C64] = CUDA_C_32F,
                                                                [MFI_C128] = CUDA_C_64F,
                                                                [MFI_I32] = CUDA_R_32I};
    bool single = acc == MFI_F32 || acc == MFI_C64;
    s->scale_type = scale_types[acc];
    s->compute = !single ? CUBLAS_COMPUTE_64F : s->spec.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    if (acc == MFI_I32) {
        s->compute = CUBLAS_COMPUTE_32I;
        s->alpha.i = 1;
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (single) {
            s->alpha.f[i] = (float)e->alpha[i];
            s->beta.f[i] = (float)e->beta[i];
        } else {
            s->alpha.d[i] = e->alpha[i];
            s->beta.d[i] = e->beta[i];
        }
    }
}

static mf_status describe_layout(const mfi_lt_library *lt, cublasLtMatrixLayoutOpaque_t *out, const mfi_lt_matrix *x,
                                 int64_t batch)
{
    int32_t count = (int32_t)batch;
    MF_TRY(mfi_lt_check(lt,
                        lt->cublasLtMatrixLayoutInit_internal(out, sizeof *out, cuda_type(x->view->dtype),
                                                              (uint64_t)x->rows, (uint64_t)x->columns, x->ld),
                        "cublasLtMatrixLayoutInit"));
    if (batch == 1)
        return MF_OK;
    MF_TRY(mfi_lt_check(
        lt, lt->cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
        "setting the batch count"));
    return mfi_lt_check(lt,
                        lt->cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                             &x->batch_stride, sizeof x->batch_stride),
                        "setting the batch stride");
}

/* Addresses that are part of the operation descriptor; NULL: none. */
typedef struct addresses {
    const void *vector, *aux, *scale[2], *result_scale, *largest;
} addresses;

static cublasStatus_t set_addresses(const mfi_lt_state *s, cublasLtMatmulDescOpaque_t *out, const addresses *at)
{
    const mfi_lt_library *lt = s->lt;
    const mfi_lt_matrix *aux = &s->spec.aux;
    const struct {
        cublasLtMatmulDescAttributes_t what;
        const void *value;
        bool wanted;
    } settings[] = {
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at->vector, at->vector},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &at->aux, at->aux},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux->ld, at->aux},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &aux->batch_stride, at->aux && s->spec.batch > 1},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &at->scale[0], at->scale[0]},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &at->scale[1], at->scale[1]},
        {CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, &at->result_scale, at->result_scale},
        {CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, &at->largest, at->largest},
    };
    cublasStatus_t result = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < MFI_COUNT(settings) && !result; i++)
        if (settings[i].wanted)
            result = lt->cublasLtMatmulDescSetAttribute(out, settings[i].what, settings[i].value, sizeof(int64_t));
    return result;
}

static cublasLtEpilogue_t epilogue_of(const mfi_lt_epilogue *e)
{
    static const cublasLtEpilogue_t plain[4][2] = {
        {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS},
        {CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS},
        {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS},
        {CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU},
    };
    bool biased = e->bias >= 0;
    if (e->kind == MFI_LT_SUM_LEFT || e->kind == MFI_LT_SUM_RIGHT)
        return e->kind == MFI_LT_SUM_LEFT ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
    if (e->kind == MFI_LT_SUM_RESULT)
        return CUBLASLT_EPILOGUE_DGELU_BGRAD;
    if (e->aux >= 0 && e->activation == MFI_LT_GELU)
        return biased ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return plain[e->activation][biased];
}

static mf_status describe_operation(const mfi_lt_state *s, cublasLtMatmulDescOpaque_t *out, const addresses *at)
{
    const mfi_lt_library *lt = s->lt;
    cublasLtEpilogue_t epilogue = epilogue_of(&s->spec.epilogue);
    cublasOperation_t ta = s->spec.left.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t tb = s->spec.right.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t result = lt->cublasLtMatmulDescInit_internal(out, sizeof *out, s->compute, s->scale_type);
    if (!result)
        result = lt->cublasLtMatmulDescSetAttribute(out, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    if (!result)
        result = lt->cublasLtMatmulDescSetAttribute(out, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    if (!result)
        result = lt->cublasLtMatmulDescSetAttribute(out, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    const int32_t outer = OUTER_VECTOR;
    for (int i = 0; i < 2 && !result && s->spec.epilogue.outer; i++)
        result = lt->cublasLtMatmulDescSetAttribute(
            out, (cublasLtMatmulDescAttributes_t)(i ? B_SCALE_MODE : A_SCALE_MODE), &outer, sizeof outer);
    if (!result)
        result = set_addresses(s, out, at);
    return mfi_lt_check(lt, result, "describing the operation");
}

static mf_status describe(mfi_lt_state *s)
{
    const mfi_lt_spec *p = &s->spec;
    MF_TRY(describe_layout(s->lt, &s->left, &p->left, p->batch));
    MF_TRY(describe_layout(s->lt, &s->right, &p->right, p->batch));
    MF_TRY(describe_layout(s->lt, &s->d, &p->d, p->batch));
    if (p->c.view)
        MF_TRY(describe_layout(s->lt, &s->c, &p->c, p->batch));
    if (s->wide_c) { /* not read, but its type is part of what the library knows */
        mfi_view view = {.dtype = MF_BF16};
        mfi_lt_matrix c = p->d;
        c.view = &view;
        MF_TRY(describe_layout(s->lt, &s->c, &c, p->batch));
    }
    /* The heuristic reads alignments off these addresses: this one is aligned as the query demands, not better. */
    static const _Alignas(32) char somewhere[32];
    addresses at = {0};
    if (s->vector)
        at.vector = somewhere + 16;
    if (s->result_scale)
        at.result_scale = somewhere + 16;
    if (s->largest)
        at.largest = somewhere + 16;
    if (p->aux.view)
        at.aux = somewhere + 16;
    for (int i = 0; i < 2; i++)
        if (s->scale[i])
            at.scale[i] = somewhere + 16;
    return describe_operation(s, &s->desc, &at);
}

/* ---- the provider ---- */

static mf_status prepare_copy(mfi_lt_state *s, int which, const mfi_problem *p, const mfi_caps *c, mf_context *context)
{
    const mfi_lt_copy *copy = &s->spec.copy[which];
    mfi_problem map;
    if (!copy->source)
        return MF_OK;
    mfi_pass_copy(&map, p->ndim, copy->shape, copy->source, NULL, &copy->packed, 1, 0);
    return mfi_pass_new(&s->copies[which], &map, c, context);
}

static const mfi_view *operand_view(const mfi_problem *p, int operand)
{
    return operand >= 0 ? &p->chain.operand[operand].view : NULL;
}

mf_status mfi_lt_prepare(void **out, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    static const char owner;
    void *lt = NULL;
    mfi_lt_state *s = mfi_calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    mf_status status = MF_OK;
    if (!mfi_lt_describe(&s->spec, p, c, bid))
        status = mfi_fail(MF_E_UNSUPPORTED, "cuBLASLt: %s", bid->detail);
    const mfi_lt_epilogue *e = &s->spec.epilogue;
    bool largest = e->kind == MFI_LT_LARGEST;
    s->vector = operand_view(p, e->bias >= 0 || largest ? e->bias : e->beside);
    s->largest = operand_view(p, largest ? e->beside : -1);
    s->result_scale = operand_view(p, e->result_scale);
    for (int i = 0; i < 2; i++)
        s->scale[i] = operand_view(p, e->scale[i]);
    s->wide_c = s->spec.d.view && mfi_lt_is_fp8(s->spec.d.view->dtype);
    set_scalars(s, p->u.matmul.acc);
    for (int i = 0; i < 2 && status == MF_OK; i++)
        status = prepare_copy(s, i, p, c, context);
    if (status == MF_OK && c->present) {
        status = mfi_context_object(context, &owner, make_library, drop_library, &lt);
        s->lt = lt;
        if (status == MF_OK)
            status = mfi_context_make_current(context);
        if (status == MF_OK)
            status = describe(s);
        if (status == MF_OK)
            status = mfi_lt_choose(s, c, bid);
        if (status == MF_OK)
            bid->workspace = s->spec.packed_bytes + s->algorithm[0].workspaceSize;
    }
    if (status != MF_OK) {
        mfi_lt_destroy(s);
        return status;
    }
    *out = s;
    return MF_OK;
}

static void *address(const mfi_lt_matrix *x, const mfi_run *run, int64_t shift)
{
    char *base = x->packed ? (char *)run->workspace + x->workspace : run->slots[x->view->slot];
    return base + (x->view->offset + shift) * (int64_t)mf_dtype_size(x->view->dtype);
}

static mf_status run_copies(const mfi_lt_state *s, const mfi_run *run)
{
    const mfi_lt_matrix *packed[] = {&s->spec.left, &s->spec.right};
    for (int i = 0; i < 2; i++) {
        if (!s->copies[i])
            continue;
        void *slots[] = {run->slots[s->spec.copy[i].source->slot], (char *)run->workspace + packed[i]->workspace};
        MF_TRY(mfi_pass_run(s->copies[i], slots, NULL, run));
    }
    return MF_OK;
}

/* Offsets of the matrices at call number `call` of the looped batch dims. */
static void shifts(const mfi_lt_spec *p, int64_t call, int64_t *left, int64_t *right, int64_t *c, int64_t *d)
{
    *left = *right = *c = *d = 0;
    for (int i = 0; i < p->loops; i++) {
        int64_t at = call % p->loop_shape[i];
        call /= p->loop_shape[i];
        *left += at * p->left.loop_stride[i];
        *right += at * p->right.loop_stride[i];
        *c += at * p->c.loop_stride[i];
        *d += at * p->d.loop_stride[i];
    }
}

static const void *vector_address(const mfi_view *v, const mfi_run *run)
{
    return v ? (const char *)run->slots[v->slot] + v->offset * (int64_t)mf_dtype_size(v->dtype) : NULL;
}

mf_status mfi_lt_run(void *state_, const mfi_run *run)
{
    const mfi_lt_state *s = state_;
    const mfi_lt_spec *p = &s->spec;
    const mfi_lt_library *lt = s->lt;
    cublasLtMatmulDescOpaque_t own, *desc = (cublasLtMatmulDescOpaque_t *)&s->desc;
    void *workspace = (char *)run->workspace + p->packed_bytes;
    MF_TRY(run_copies(s, run));
    const addresses at = {vector_address(s->vector, run),
                          p->aux.view ? address(&p->aux, run, 0) : NULL,
                          {vector_address(s->scale[0], run), vector_address(s->scale[1], run)},
                          vector_address(s->result_scale, run),
                          vector_address(s->largest, run)};
    if (at.vector || at.aux || at.scale[0] || at.result_scale ||
        at.largest) { /* runs at the same time have a descriptor each, on their stacks */
        MF_TRY(describe_operation(s, &own, &at));
        desc = &own;
    }
    cublasLtMatrixLayoutOpaque_t *layout_left = (cublasLtMatrixLayoutOpaque_t *)&s->left,
                                 *layout_right = (cublasLtMatrixLayoutOpaque_t *)&s->right,
                                 *layout_d = (cublasLtMatrixLayoutOpaque_t *)&s->d,
                                 *layout_c = p->c.view || s->wide_c ? (cublasLtMatrixLayoutOpaque_t *)&s->c : layout_d;
    for (int64_t call = 0; call < p->calls; call++) {
        int64_t left, right, c, d;
        shifts(p, call, &left, &right, &c, &d);
        void *result = address(&p->d, run, d);
        /* Not read where beta is 0; an fp8 result in place of a bf16 C is refused, so there it is no address. */
        const void *added = p->c.view ? address(&p->c, run, c) : s->wide_c ? NULL : result;
        MF_TRY(mfi_lt_check(lt,
                            lt->cublasLtMatmul(lt->handle, desc, &s->alpha, address(&p->left, run, left), layout_left,
                                               address(&p->right, run, right), layout_right, &s->beta, added, layout_c,
                                               result, layout_d, &s->algorithm[0].algo, workspace,
                                               s->algorithm[0].workspaceSize, run->stream),
                            "cublasLtMatmul"));
    }
    return MF_OK;
}

void mfi_lt_destroy(void *state_)
{
    mfi_lt_state *s = state_;
    if (!s)
        return;
    mfi_pass_free(s->copies[0]);
    mfi_pass_free(s->copies[1]);
    mf_free(s);
}

int mfi_lt_variants(const mfi_problem *p, const mfi_caps *c)
{
    (void)p;
    return c->present ? MFI_LT_CANDIDATES : 1;
}

mf_status mfi_lt_kernel(void *state_, int index, mf_kernel_info *out)
{
    const mfi_lt_state *s = state_;
    return mfi_pass_kernel(s->copies, 2, index, out);
}
#else

mf_status mfi_lt_prepare(void **out, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    (void)p, (void)c, (void)context, (void)bid;
    *out = NULL;
    return mfi_fail(MF_E_UNSUPPORTED, "this build has no cuBLASLt");
}

mf_status mfi_lt_run(void *state, const mfi_run *run)
{
    (void)state, (void)run;
    return mfi_fail(MF_E_UNSUPPORTED, "this build has no cuBLASLt");
}

void mfi_lt_destroy(void *state)
{
    (void)state;
}

mf_status mfi_lt_kernel(void *state, int index, mf_kernel_info *out)
{
    (void)state, (void)index, (void)out;
    return mfi_fail(MF_E_UNSUPPORTED, "this build has no cuBLASLt");
}

int mfi_lt_variants(const mfi_problem *p, const mfi_caps *c)
{
    (void)p, (void)c;
    return 1;
}
#endif
