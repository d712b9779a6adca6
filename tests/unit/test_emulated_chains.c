/* Generated kernels run on the CPU, through the host compiler and emulate.h: random chains against the oracle. */
#define _GNU_SOURCE
#include <math.h>

#include "context_internal.h"
#include "emulated_kernel.h"
#include "random_chain.h"

static bool run_emulated(world *w, const mfi_caps *caps, int number, const char *what)
{
    mfi_problem p = w->p;
    mfi_shape layout;
    mfi_words words;
    mfi_shape_choose(&layout, &p, caps);
    mfi_words_fill(&words, &layout, &p);
    void *workspace = mfi_alloc_aligned(mfi_shape_workspace(&layout, &p) + 1);
    char *aligned[ORACLE_SLOTS];
    for (int i = 0; i < w->buffers; i++) {
        aligned[i] = mfi_alloc_aligned(w->bytes[i]);
        memcpy(aligned[i], w->memory[i], w->bytes[i]);
    }
    for (int i = 0; i < p.chain.operands; i++)
        words.word[words.data + i] = slot_address(aligned, &p.chain.operand[i].view);
    if (p.anchor == MFI_MATMUL) {
        words.word[words.a] = slot_address(aligned, &p.u.matmul.a);
        words.word[words.b] = slot_address(aligned, &p.u.matmul.b);
    }
    words.word[words.work] = (uint64_t)(uintptr_t)workspace;
    bool good = true;
    for (int k = 0; k < layout.launches && good; k++) {
        mfi_source source;
        cr_assert_eq(mfi_emit(&source, &p, &layout, k), MF_OK);
        char call[160];
        snprintf(call, sizeof call, "return mf::emulate::launch(%s, grid, block, 0, a);", source.name);
        emulated_launcher launch = emulated_compile(source.text, call, number * 16 + k);
        cr_expect(launch, "%s: does not compile:\n%s", what, source.text);
        const char *error = launch ? launch(words.word, (int)mfi_shape_grid(&layout, &p, k), layout.threads) : NULL;
        cr_expect(!error, "%s: %s", what, error);
        good = launch && !error;
        mf_free(source.text);
    }
    for (int i = 0; i < w->buffers; i++) {
        memcpy(w->memory[i], aligned[i], w->bytes[i]);
        mfi_free_aligned(aligned[i]);
        good = good && (i >= p.chain.operands || same_elements(w, i, p.chain.operand[i].view.dtype));
    }
    mfi_free_aligned(workspace);
    cr_expect(good, "%s", what);
    return good;
}

/* Without domains: products; those after the first PRODUCT_CASES as for a device so small that large tiles pay. */
static void emulate_all(const domain *domains, int count, uint64_t seed)
{
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    mf_context *context;
    if (!emulated_begin())
        cr_skip_test("there is no C++ compiler called c++");
    options.device = "sm_90a";
    cr_assert_eq(mf_context_new(&context, &options), MF_OK);
    for (int i = 0; i < count; i++) {
        world w;
        mfi_caps caps = *mfi_context_caps(context);
        if (!domains && i >= PRODUCT_CASES)
            caps.multiprocessors = 1;
        char *what = domains ? random_world(&w, &domains[i], i, seed) : NULL;
        if (!domains)
            random_product(&w, i % PRODUCT_CASES);
        run_emulated(&w, &caps, i, what ? what : "product");
        mf_free(what);
        free_world(&w);
    }
    emulated_end();
    mf_context_free(context);
}

Test(emulated_chains, maps)
{
    static const domain domains[] = {{1, 0, {4096}}, {1, 0, {5001}}, {2, 0, {70, 64}}, {3, 0, {2, 130, 70}}};
    emulate_all(domains, (int)MFI_COUNT(domains), 21);
}

Test(emulated_chains, rows)
{
    static const domain domains[] = {{2, 1, {37, 5}},    {2, 1, {9, 1000}}, {2, 1, {5, 8192}},
                                     {3, 2, {6, 5, 40}}, {2, 1, {3, 0}},    {2, 1, {2, 40000}}};
    emulate_all(domains, (int)MFI_COUNT(domains), 22);
}

Test(emulated_chains, matrix_products)
{
    emulate_all(NULL, 2 * PRODUCT_CASES, 0);
}
