/* Which of cuBLASLt's algorithms runs a step: those that its heuristic gives, less those known to be harmful. */
#include "cublaslt_state.h"

#ifdef MFI_WITH_CUDA

enum { FEW = 16, HOPPER_ALGORITHM = 66 };

static uint32_t config(const mfi_lt_library *lt, const cublasLtMatmulAlgo_t *algo,
                       cublasLtMatmulAlgoConfigAttributes_t what)
{
    uint32_t value = 0;
    size_t written = 0;
    lt->cublasLtMatmulAlgoConfigGetAttribute(algo, what, &value, sizeof value, &written);
    return value;
}

/* Does RELU keep NaN in this family of kernels? Counted on an H200 with cuBLAS 13.1.0 over 1100 products of f16, bf16
 * and f32: these kept it in every run (66: 2402, 55: 822, 13: 627, 12: 180, 11: 117); 20, 23 and 24 lost it in many. */
static bool relu_keeps_nan(uint32_t family)
{
    static const uint32_t families[] = {11, 12, 13, 55, 66};
    for (size_t i = 0; i < MFI_COUNT(families); i++)
        if (families[i] == family)
            return true;
    return false;
}

/* Wrong results and hangs of one family of kernels on sm_90 and newer, by version. */
static bool harmful(const mfi_lt_state *s, const mfi_caps *c, const cublasLtMatmulAlgo_t *algo)
{
    const mfi_lt_spec *p = &s->spec;
    int64_t v = s->lt->version;
    bool before_fix = v < 130101 || (v >= 130200 && v < 130202);
    uint32_t family = config(s->lt, algo, CUBLASLT_ALGO_CONFIG_ID);
    if (p->epilogue.activation == MFI_LT_RELU && !relu_keeps_nan(family))
        return true;
    if (c->sm < 90 || family != HOPPER_ALGORITHM)
        return false;
    const mfi_lt_matrix *all[] = {&p->left, &p->right, &p->d, p->c.view ? &p->c : &p->d, p->aux.view ? &p->aux : &p->d};
    for (size_t i = 0; i < MFI_COUNT(all); i++)
        if (before_fix && all[i]->ld * (int64_t)mf_dtype_size(all[i]->view->dtype) > INT32_MAX)
            return true;
    if (before_fix && p->fp8 && p->c.view)
        return true;
    uint32_t split = config(s->lt, algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    return split > 1 && p->inner % split != 0; /* every version: no fixed one is known by its number */
}

static mf_status preferences(const mfi_lt_state *s, cublasLtMatmulPreferenceOpaque_t *out, uint64_t workspace)
{
    const mfi_lt_library *lt = s->lt;
    const mfi_lt_spec *p = &s->spec;
    uint32_t c = p->c.view ? p->c.alignment : p->d.alignment;
    /* Split-K sums rounded to a 16-bit result lose the accumulator's precision. */
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        const void *value;
        size_t bytes;
    } settings[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &p->left.alignment, sizeof c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &p->right.alignment, sizeof c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &p->d.alignment, sizeof c},
    };
    MF_TRY(
        mfi_lt_check(lt, lt->cublasLtMatmulPreferenceInit_internal(out, sizeof *out), "cublasLtMatmulPreferenceInit"));
    for (size_t i = 0; i < MFI_COUNT(settings); i++)
        MF_TRY(mfi_lt_check(
            lt, lt->cublasLtMatmulPreferenceSetAttribute(out, settings[i].what, settings[i].value, settings[i].bytes),
            "setting a preference"));
    return MF_OK;
}

/* Everything that the heuristic is told; addresses in it are the same ones in every description. */
static XXH128_hash_t key_of(const mfi_lt_state *s, const cublasLtMatmulPreferenceOpaque_t *preference, int asked)
{
    const struct {
        const void *data;
        size_t bytes;
    } parts[] = {{&s->desc, sizeof s->desc}, {&s->left, sizeof s->left}, {&s->right, sizeof s->right},
                 {&s->c, sizeof s->c},       {&s->d, sizeof s->d},       {preference, sizeof *preference},
                 {&asked, sizeof asked}};
    XXH3_state_t hash;
    XXH3_128bits_reset(&hash);
    for (size_t i = 0; i < MFI_COUNT(parts); i++)
        XXH3_128bits_update(&hash, parts[i].data, parts[i].bytes);
    return XXH3_128bits_digest(&hash);
}

/* A query takes up to 0.3 ms; plans of the same product differ in what surrounds it. */
static mf_status ask_heuristic(mfi_lt_state *s, cublasLtMatmulPreferenceOpaque_t *preference, int asked, int *count)
{
    mfi_lt_library *lt = s->lt;
    XXH128_hash_t key = key_of(s, preference, asked);
    mfi_lt_found **slot = &lt->memory[key.low64 % MFI_LT_REMEMBERED];
    pthread_mutex_lock(&lt->lock);
    bool known = *slot && XXH128_isEqual((*slot)->key, key);
    if (known) {
        *count = (*slot)->count;
        memcpy(s->algorithm, (*slot)->result, sizeof s->algorithm);
    }
    pthread_mutex_unlock(&lt->lock);
    if (known)
        return MF_OK;
    cublasStatus_t result = lt->cublasLtMatmulAlgoGetHeuristic(lt->handle, &s->desc, &s->left, &s->right,
                                                               s->spec.c.view || s->wide_c ? &s->c : &s->d, &s->d,
                                                               preference, asked, s->algorithm, count);
    if (result != CUBLAS_STATUS_NOT_SUPPORTED)
        MF_TRY(mfi_lt_check(lt, result, "cublasLtMatmulAlgoGetHeuristic"));
    mfi_lt_found *own = mfi_calloc(1, sizeof *own);
    if (!own)
        return MF_OK;
    own->key = key;
    memcpy(own->result, s->algorithm, sizeof own->result);
    own->count = *count;
    pthread_mutex_lock(&lt->lock);
    mfi_lt_found *old = *slot;
    *slot = own;
    pthread_mutex_unlock(&lt->lock);
    mf_free(old);
    return MF_OK;
}

/* The library's order is its guess; variant 0 is its first. */
static mf_status use_variant(mfi_lt_state *s, mfi_bid *bid)
{
    MF_REQUIRE(bid->variant < s->algorithms, MF_E_INVALID,
               "cuBLASLt offers %d algorithms here, number %d was asked for", s->algorithms, bid->variant);
    s->algorithm[0] = s->algorithm[bid->variant];
    const cublasLtMatmulAlgo_t *a = &s->algorithm[0].algo;
    snprintf(
        bid->identity, sizeof bid->identity, "algorithm %u tile %u stages %u split %u cluster %u swizzle %u custom %u",
        config(s->lt, a, CUBLASLT_ALGO_CONFIG_ID), config(s->lt, a, CUBLASLT_ALGO_CONFIG_TILE_ID),
        config(s->lt, a, CUBLASLT_ALGO_CONFIG_STAGES_ID), config(s->lt, a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
        config(s->lt, a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID), config(s->lt, a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
        config(s->lt, a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION));
    return MF_OK;
}

mf_status mfi_lt_choose(mfi_lt_state *s, const mfi_caps *c, mfi_bid *bid)
{
    size_t workspace = mfi_lt_workspace_limit(c);
    cublasLtMatmulPreferenceOpaque_t preference;
    int found = 0;
    memset(&preference, 0, sizeof preference);
    MF_TRY(preferences(s, &preference, workspace));
    MF_TRY(ask_heuristic(s, &preference, bid->variant ? MFI_LT_CANDIDATES : FEW, &found));
    for (int i = 0; i < found; i++)
        if (s->algorithm[i].state == CUBLAS_STATUS_SUCCESS && s->algorithm[i].workspaceSize <= workspace &&
            !harmful(s, c, &s->algorithm[i].algo))
            s->algorithm[s->algorithms++] = s->algorithm[i];
    MF_REQUIRE(s->algorithms > 0, MF_E_UNSUPPORTED, "cuBLASLt offered %d algorithms for this matmul and none is usable",
               found);
    return use_variant(s, bid);
}
#endif
