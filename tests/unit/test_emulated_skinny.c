/* Products of few rows or columns: generated kernels emulated against the oracle in each layout; every configuration compiles
 * and keeps to registers; what is refused, and why. */
#define _GNU_SOURCE
#include <math.h>

#include "context_internal.h"
#include "emulated_kernel.h"
#include "jit_elf.h"
#include "loader.h"
#include "random_chain.h"

enum { EMULATED_BYTES = 227 * 1024 };

static void set_operands(mfi_words *words, const mfi_problem *p, char *const *slots)
{
    words->word[words->a] = slot_address(slots, &p->u.matmul.a);
    words->word[words->b] = slot_address(slots, &p->u.matmul.b);
    for (int i = 0; i < p->chain.operands; i++)
        words->word[words->data + i] = slot_address(slots, &p->chain.operand[i].view);
}

/* The kernel of that rank over w's memory, which the oracle's is compared with. False: it needs more than is emulated. */
static bool run_emulated(world *w, const mfi_caps *caps, int rank, int number)
{
    mfi_problem p = w->p;
    mfi_gemm_skinny g;
    mfi_words words;
    mfi_source source;
    mfi_bid bid = {0};
    char call[160], *aligned[ORACLE_SLOTS];
    cr_assert(mfi_gemm_skinny_choose(&g, &p, caps, rank, &bid), "%s", bid.detail);
    if (g.shared * (size_t)g.split > EMULATED_BYTES)
        return false;
    mfi_words_fill(&words, &g.layout, &p);
    for (int i = 0; i < w->buffers; i++) {
        aligned[i] = mfi_alloc_aligned(w->bytes[i]);
        memcpy(aligned[i], w->memory[i], w->bytes[i]);
    }
    set_operands(&words, &p, aligned);
    cr_assert_eq(mfi_emit_gemm_skinny(&source, &p, &g), MF_OK);
    snprintf(call, sizeof call, "return mf::emulate::launch(%s, grid, block, config::BYTES * config::SPLIT, a);",
             source.name);
    emulated_launcher launch = emulated_compile(source.text, call, number);
    cr_assert(launch, "does not compile:\n%s", source.text);
    const char *error = launch(words.word, (int)g.blocks, g.layout.threads);
    cr_expect(!error, "%s\n%s", error, source.text);
    for (int i = 0; i < w->buffers; i++) {
        memcpy(w->memory[i], aligned[i], w->bytes[i]);
        mfi_free_aligned(aligned[i]);
        cr_expect(i >= p.chain.operands || same_elements(w, i, p.chain.operand[i].view.dtype),
                  "%d x %d x %d split %d stages %d, %s", g.m, g.n, g.k, g.split, g.stages,
                  g.b_rows ? "k x n" : "n x k");
    }
    mf_free(source.text);
    return true;
}

/* Of a device with so little shared memory that clusters can be emulated. */
static mfi_caps small_caps(const mf_context *context)
{
    mfi_caps caps = *mfi_context_caps(context);
    caps.shared_bytes = (size_t)84 << 10;
    return caps;
}

static mf_context *open_target(const char *target)
{
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    mf_context *context;
    options.device = target;
    cr_assert_eq(mf_context_new(&context, &options), MF_OK);
    return context;
}

/* Rows of padding are NaN, and so is what lies behind each row. */
Test(emulated_skinny, products)
{
    static const product_case cases[] = {
        {MF_BF16, 16, 136, 328, false, false, false, true, 0}, /* k x n; k ends within a step */
        {MF_F16, 37, 264, 96, false, false, false, true, 0},
        {MF_BF16, 1, 77, 320, false, true, false, true, 0}, /* n x k, odd */
        {MF_F16, 64, 65, 584, false, true, false, true, 0},
        {MF_BF16, 130, 24, 328, false, true, false, true, 0}, /* few columns */
        {MF_F16, 136, 3, 256, true, true, false, true, 0},
    };
    if (!emulated_begin())
        cr_skip_test("there is no C++ compiler called c++");
    mf_context *context = open_target("sm_90a");
    mfi_caps caps = small_caps(context);
    int split = 0, whole = 0;
    for (int i = 0; i < (int)MFI_COUNT(cases); i++)
        for (int rank = i % 2; rank < MFI_GEMM_SKINNY_VARIANTS; rank += 3) {
            world w;
            mfi_gemm_skinny g;
            mfi_bid bid;
            random_product_of(&w, cases[i], 11 + (uint64_t)i);
            mfi_problem p = w.p;
            if (mfi_gemm_skinny_choose(&g, &p, &caps, rank, &bid) && run_emulated(&w, &caps, rank, i * 16 + rank))
                (*(g.split > 1 ? &split : &whole))++;
            free_world(&w);
        }
    cr_expect(split >= 4 && whole >= 2, "%d with clusters, %d without", split, whole);
    emulated_end();
    mf_context_free(context);
}

static void expect_registers(const world *w, const mf_context *context, int rank)
{
    const mfi_caps *caps = mfi_context_caps(context);
    mfi_problem p = w->p;
    mfi_gemm_skinny g;
    mfi_source source;
    mfi_bid bid = {0};
    void *cubin = NULL;
    size_t bytes = 0;
    char *log = NULL;
    int registers = -1, shared = -1, local = -1;
    if (!mfi_gemm_skinny_choose(&g, &p, caps, rank, &bid)) {
        cr_expect(rank > 3 && bid.reason == MFI_R_SIZE, "rank %d: %s", rank, bid.detail);
        return;
    }
    cr_expect_leq((g.shared + 1024) * (size_t)g.resident, caps->shared_bytes + 1024);
    cr_expect(g.split == 1 || caps->sm >= 90);
    cr_assert_eq(mfi_emit_gemm_skinny(&source, &p, &g), MF_OK);
    mf_status status = mfi_jit_build(&cubin, &bytes, MF_CUBIN, &log, caps->arch, source.name, source.text, NULL);
    cr_assert_eq(status, MF_OK, "%s\n%s", mf_error_message(status), source.text);
    mfi_cubin_resources(cubin, bytes, source.name, &registers, &shared, &local);
    cr_expect(local == 0 && registers > 0 && registers * 256 * g.resident <= 65536,
              "%s %d x %d x %d across %d split %d: %d registers, %d bytes of local memory", caps->arch, g.m, g.n, g.k,
              g.across, g.split, registers, local);
    mf_free(source.text);
    mf_free(cubin);
    mf_free(log);
}

Test(emulated_skinny, configurations_keep_to_registers)
{
    static const char *const targets[] = {"sm_80", "sm_90a"};
#ifndef MFI_WITH_CUDA
    cr_skip_test("built without CUDA");
#endif
    if (!mfi_library_load(MFI_LIB_NVRTC)->found)
        cr_skip_test("NVRTC compiles the kernels");
    for (int t = 0; t < 2; t++) {
        mf_context *context = open_target(targets[t]);
        for (int layout = 0; layout < 2; layout++) {
            world w;
            random_product_of(&w, (product_case){MF_BF16, 64, 1024, 512, false, layout, false, true, 0}, 3);
            for (int rank = 0; rank < MFI_GEMM_SKINNY_VARIANTS; rank++)
                expect_registers(&w, context, rank);
            free_world(&w);
        }
        mf_context_free(context);
    }
}

static void expect_refusal(product_case of, mfi_reason reason, const mfi_caps *caps)
{
    world w;
    mfi_gemm_skinny g;
    mfi_bid bid = {0};
    random_product_of(&w, of, 1);
    cr_expect(!mfi_gemm_skinny_choose(&g, &w.p, caps, 0, &bid));
    cr_expect_eq(bid.reason, reason, "%s", bid.detail);
    free_world(&w);
}

Test(emulated_skinny, refusals)
{
    mf_context *context = open_target("sm_90a");
    const mfi_caps *caps = mfi_context_caps(context);
    expect_refusal((product_case){MF_F32, 8, 64, 64, false, false, false, true, 0}, MFI_R_DTYPE, caps);
    expect_refusal((product_case){MF_BF16, 72, 80, 64, false, false, false, true, 0}, MFI_R_SIZE, caps);
    expect_refusal((product_case){MF_BF16, 8, 64, 0, false, false, false, true, 0}, MFI_R_SIZE, caps);
    expect_refusal((product_case){MF_BF16, 8, 64, 36, false, false, false, true, 0}, MFI_R_LAYOUT, caps);
    expect_refusal((product_case){MF_BF16, 8, 60, 64, false, false, false, true, 0}, MFI_R_LAYOUT, caps);
    expect_refusal((product_case){MF_BF16, 8, 64, 64, true, false, false, true, 0}, MFI_R_LAYOUT, caps);
    expect_refusal((product_case){MF_BF16, 8, 64, 64, false, false, false, false, 0}, MFI_R_LAYOUT, caps);
    expect_refusal((product_case){MF_BF16, 8, 64, 64, false, false, true, true, 0}, MFI_R_LAYOUT, caps);
    mf_context_free(context);
}
