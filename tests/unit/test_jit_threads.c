/* A context's kernels, wanted by several threads at once. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>

#include "context_internal.h"
#include "fusion.h"

static bool can_compile(void)
{
    void *cubin;
    size_t bytes;
    mf_status status = mfi_jit_build(&cubin, &bytes, MF_CUBIN, NULL, "sm_80", "probe", "", NULL);
    mf_free(cubin);
    if (status != MF_OK)
        fprintf(stderr, "skipped: %s\n", mf_error_message(status));
    return status == MF_OK;
}

typedef struct wish {
    mf_context *context;
    const char *source;
    mfi_module *module;
    mf_status status;
} wish;

static void *compile_wish(void *argument)
{
    wish *w = argument;
    w->status = mfi_jit_compile(&w->module, w->context, "f", w->source, true);
    return NULL;
}

/* Threads want three kernels, and others one that is wrong: each kernel is one module, and each who asked for the wrong one is
 * told so. */
Test(jit_threads, each_kernel_is_compiled_once)
{
    enum { THREADS = 16, KERNELS = 4 };
    static const char *const sources[KERNELS] = {"extern \"C\" __global__ void f(int *p) { *p = 11; }",
                                                 "extern \"C\" __global__ void f(int *p) { *p = 12; }",
                                                 "extern \"C\" __global__ void f(int *p) { *p = 13; }",
                                                 "extern \"C\" __global__ void f(int *p) { *p = wrong; }"};
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    mf_context *context;
    wish wishes[THREADS];
    pthread_t thread[THREADS];
    options.device = "sm_80";
    if (!can_compile())
        return;
    cr_assert_eq(mf_context_new(&context, &options), MF_OK);
    for (int i = 0; i < THREADS; i++) {
        wishes[i] = (wish){.context = context, .source = sources[i % KERNELS]};
        cr_assert_eq(pthread_create(&thread[i], NULL, compile_wish, &wishes[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        bool wrong = i % KERNELS == KERNELS - 1;
        cr_expect_eq(wishes[i].status, wrong ? MF_E_COMPILE : MF_OK);
        cr_expect_eq(wishes[i].module, wrong ? NULL : wishes[i % KERNELS].module);
        cr_expect(wrong || wishes[i].module->registers > 0);
    }
    cr_expect_neq(wishes[0].module, wishes[1].module);
    mf_context_free(context);
}
