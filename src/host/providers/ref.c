/* The reference provider: every step on the CPU in portable C, and the CPU's provider for maps. */
#include "ref.h"
#include "matmul_cpu.h"

typedef struct ref_state {
    const mfi_problem *p;
    int threads;
    mfi_cpu_chain *chain; /* MAP */
    void *inner;          /* the others */
} ref_state;

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    /* shares of the roofline as measured on a 2-core x86-64 with AVX2; libraries reach 0.5 to 0.9 */
    static const struct {
        double efficiency;
        const char *kernel;
    } how[MFI_ANCHOR_COUNT] = {
        [MFI_MAP] = {0.7, "chain"},    [MFI_MATMUL] = {0.03, "loops"},         [MFI_FFT] = {0.2, "portable FFT"},
        [MFI_SOLVE] = {0.03, "loops"}, [MFI_FFT_PAIR] = {0.2, "portable FFT"}, [MFI_FACTOR] = {0.003, "loops in f64"},
    };
    MF_REFUSE_UNLESS(!c->cuda, WRONG_TARGET, "ref runs on the CPU, the target is %s", c->arch);
    MF_REFUSE_UNLESS(how[p->anchor].kernel, NOT_ANCHOR, "one product at a time");
    MF_REFUSE_UNLESS(!mfi_fft_is_narrow(p), LAYOUT, "it stores all terms, the step keeps %lld",
                     (long long)p->shape[p->ndim - 1]);
    MF_REFUSE_UNLESS(p->anchor != MFI_MATMUL || !p->chain.phases || p->nreduce, NO_EPILOGUE,
                     "a reduction beside the product");
    if (p->anchor == MFI_FFT_PAIR && !mfi_fft_pair_query(p, c, bid))
        return false;
    mfi_bid_roofline(bid, p, c, how[p->anchor].efficiency, 1);
    if (p->anchor == MFI_SOLVE) /* what a matrix costs besides its arithmetic */
        bid->cost_us += 0.1 * (double)mfi_problem_points(p) / c->threads;
    strcpy(bid->kernel, how[p->anchor].kernel);
    if (p->anchor == MFI_MATMUL) {
        mfi_matmul_layout layout;
        (void)mfi_matmul_plan(&layout, p, true, c->threads, 0);
        bid->workspace = layout.workspace;
    }
    return true;
}

static void destroy(void *state)
{
    ref_state *s = state;
    if (!s)
        return;
    if (s->inner && s->p->anchor == MFI_MATMUL)
        mfi_matmul_cpu_free(s->inner);
    else if (s->inner && s->p->anchor == MFI_FFT)
        mfi_fft_cpu_free(s->inner);
    else if (s->inner && s->p->anchor == MFI_FFT_PAIR)
        mfi_fft_pair_free(s->inner);
    else if (s->inner && s->p->anchor == MFI_FACTOR)
        mfi_ref_factor_free(s->inner);
    else if (s->inner)
        mfi_ref_solve_free(s->inner);
    mfi_cpu_chain_free(s->chain);
    mf_free(s);
}

static mf_status prepare(void **state, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    (void)context;
    (void)bid;
    ref_state *s = mfi_calloc(1, sizeof *s);
    *state = NULL;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->p = p;
    s->threads = c->threads;
    mf_status status = MF_OK;
    if (p->anchor == MFI_MAP)
        status = mfi_cpu_chain_new(&s->chain, p);
    else if (p->anchor == MFI_MATMUL)
        status = mfi_matmul_cpu_new(&s->inner, p, &mfi_loops_gemm, NULL, true, c->threads, 0);
    else if (p->anchor == MFI_FFT)
        status = mfi_fft_cpu_new(&s->inner, p, &mfi_ref_fft_engine, c->threads, false);
    else if (p->anchor == MFI_FFT_PAIR)
        status = mfi_fft_pair_new(&s->inner, p, &mfi_ref_fft_engine, c->threads);
    else if (p->anchor == MFI_FACTOR)
        status = mfi_ref_factor_new(&s->inner, p, c->threads);
    else
        status = mfi_ref_solve_new(&s->inner, p, c->threads);
    if (status != MF_OK) {
        destroy(s);
        return status;
    }
    *state = s;
    return MF_OK;
}

static mf_status run(void *state, const mfi_run *run)
{
    const ref_state *s = state;
    switch (s->p->anchor) {
    case MFI_MATMUL:
        return mfi_matmul_cpu_run(s->inner, run);
    case MFI_FFT:
        return mfi_fft_cpu_run(s->inner, run);
    case MFI_FFT_PAIR:
        return mfi_fft_pair_run(s->inner, run);
    case MFI_SOLVE:
        return mfi_ref_solve_run(s->inner, run);
    case MFI_FACTOR:
        return mfi_ref_factor_run(s->inner, run);
    default:
        if (mfi_problem_rows(s->p) > 0)
            mfi_cpu_chain_run_all(s->chain, run->slots, NULL, s->threads);
        return MF_OK;
    }
}

const mfi_provider mfi_provider_ref = {"ref", query, prepare, run, destroy, NULL, NULL, NULL};
