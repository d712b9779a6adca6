/* Plans as device functions and code for others, from C. Needs NVRTC, no GPU; without NVRTC only refusals are tested. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "mathfuse/mathfuse.h"

static mf_plan *plan_for(mf_context **context, const char *device)
{
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    mf_graph *g;
    mf_plan *plan;
    options.device = device;
    cr_assert_eq(mf_context_new(context, &options), MF_OK);
    cr_assert_eq(mf_graph_new(&g), MF_OK);
    mf_node x = mf_graph_input(g, MF_F16, 2, (int64_t[]){40, 96}), y = mf_graph_input(g, MF_F16, 1, (int64_t[]){96});
    mf_graph_output(g, mf_graph_gelu(g, mf_graph_add(g, x, y)));
    mf_status status = mf_plan_new(&plan, *context, g, NULL);
    mf_graph_free(g);
    if (status != MF_OK) {
        cr_assert(strstr(mf_error_message(status), "NVRTC") || strstr(mf_error_message(status), "built without CUDA"),
                  "%s", mf_error_message(status));
        fprintf(stderr, "skipped: %s\n", mf_error_message(status));
        plan = NULL;
    }
    return plan;
}

Test(device_header, a_plan_of_one_step)
{
    mf_context *context;
    mf_plan *plan = plan_for(&context, "sm_90a");
    char *text = NULL;
    void *code = NULL;
    size_t bytes = 0;
    if (plan) {
        cr_assert_eq(mf_plan_device_header(&text, plan, "layer", 0), MF_OK);
        cr_expect(strstr(text, "namespace layer\n"));
        cr_expect(strstr(text, "const mf::f16 *input0; // f16 (40, 96)"));
        cr_expect(strstr(text, "mf::f16 *output0; // f16 (40, 96)"));
        cr_expect(!strstr(text, "#include \"device/"), "nothing that only the library has is included");
        cr_expect_eq(mf_compile(&code, &bytes, MF_CUBIN, "sm_80", "header", text), MF_OK, "%s",
                     mf_error_message(MF_E_COMPILE));
        mf_free(code);
        mf_free(text);
        cr_expect_eq(mf_plan_device_header(&text, plan, "2nd", 0), MF_E_INVALID);
        cr_expect_null(text);
        cr_expect_eq(mf_plan_device_header(&text, plan, "layer", 48), MF_E_INVALID);
        cr_expect_null(text);
    }
    mf_plan_free(plan);
    mf_context_free(context);
}

Test(device_header, a_plan_for_the_cpu_has_none)
{
    mf_context *context;
    mf_plan *plan = plan_for(&context, "cpu");
    char *text;
    cr_expect_eq(mf_plan_device_header(&text, plan, "layer", 0), MF_E_UNSUPPORTED);
    cr_expect_null(text);
    mf_plan_free(plan);
    mf_context_free(context);
}

Test(device_header, code_of_every_kind)
{
    static const char source[] = "#include \"mathfuse/device/elementwise.cuh\"\n"
                                 "extern \"C\" __device__ float f(float x) { return mf::gelu(x); }\n";
    void *code;
    size_t bytes;
    cr_expect_eq(mf_compile(&code, &bytes, MF_PTX, NULL, "f", source), MF_E_INVALID);
    mf_status status = mf_compile(&code, &bytes, MF_PTX, "sm_90", "f", source);
    if (status == MF_E_MISSING)
        return;
    cr_assert_eq(status, MF_OK, "%s", mf_error_message(status));
    cr_expect(strstr(code, ".target sm_90") && ((char *)code)[bytes - 1] == 0);
    mf_free(code);
    cr_assert_eq(mf_compile(&code, &bytes, MF_LTOIR, "sm_90", "f", source), MF_OK);
    cr_expect(bytes > 100);
    mf_free(code);
    cr_assert_eq(mf_compile(&code, &bytes, MF_CUBIN, "sm_90", "f", source), MF_OK);
    cr_expect(!memcmp(code, "\177ELF", 4));
    mf_free(code);
    cr_expect_eq(mf_compile(&code, &bytes, MF_CUBIN, "sm_90", "f", "nonsense"), MF_E_COMPILE);
    cr_expect_null(code);
}
