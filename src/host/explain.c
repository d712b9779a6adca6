/* mf_plan_explain: what runs, and why; and the generated kernels of a plan. */
#include "plan_internal.h"
#include "schedule.h"

static int kernels_of(const mfi_step *step)
{
    mf_kernel_info info;
    int n = 0;
    while (step->provider->kernel && step->provider->kernel(step->state, n, &info) == MF_OK)
        n++;
    return n;
}

int mf_plan_kernels(const mf_plan *plan)
{
    int n = 0;
    plan = mfi_plan_current(plan);
    for (int i = 0; i < plan->steps; i++)
        n += kernels_of(&plan->step[i]);
    return n;
}

mf_status mf_plan_kernel(const mf_plan *plan, int index, mf_kernel_info *out)
{
    int i = index;
    plan = mfi_plan_current(plan);
    for (int s = 0; s < plan->steps && index >= 0; s++) {
        int n = kernels_of(&plan->step[s]);
        if (i < n)
            return plan->step[s].provider->kernel(plan->step[s].state, i, out);
        i -= n;
    }
    return mfi_fail(MF_E_INVALID, "kernel %d was asked for; the plan has %d generated kernels", index,
                    mf_plan_kernels(plan));
}

static mf_kernel_info first_kernel(const mfi_step *step)
{
    mf_kernel_info info = {.registers = -1, .shared = -1, .spills = -1};
    if (step->provider->kernel && step->provider->kernel(step->state, 0, &info) != MF_OK)
        info = (mf_kernel_info){.registers = -1, .shared = -1, .spills = -1};
    return info;
}

static void add_number(mfi_text *t, const char *key, int value)
{
    if (value < 0)
        mfi_text_add(t, ", \"%s\": null", key);
    else
        mfi_text_add(t, ", \"%s\": %d", key, value);
}

static void add_string(mfi_text *t, const char *key, const char *value)
{
    mfi_text_add(t, "\"%s\": ", key);
    mfi_text_json(t, value);
}

static void step_json(mfi_text *t, const mfi_step *step)
{
    static const char *const anchors[] = {"map",      "matmul", "fft",         "solve",
                                          "fft_pair", "factor", "matmul_pair", "together"};
    mfi_text problem = {0}, chain = {0};
    mfi_problem_text(step->problem, &problem);
    mfi_chain_text(step->problem, &chain);
    bool reduce = step->problem->anchor == MFI_MAP && step->problem->nreduce;
    mfi_text_add(t, "{");
    add_string(t, "anchor", reduce ? "reduce" : anchors[step->problem->anchor]);
    mfi_text_add(t, ", ");
    add_string(t, "problem", problem.data ? problem.data : "");
    mfi_text_add(t, ", ");
    add_string(t, "chain", chain.data ? chain.data : "");
    mfi_text_add(t, ", ");
    add_string(t, "provider", step->provider->name);
    mfi_text_add(t, ", ");
    add_string(t, "kernel", step->bid.kernel);
    mfi_text_add(t, ", \"variant\": %d, ", step->bid.variant);
    add_string(t, "identity", step->bid.identity);
    mfi_text_add(t, ", \"launches\": %d, \"bytes\": %lld, \"workspace\": %zu, \"estimate_us\": %.3f",
                 step->bid.launches, (long long)step->bid.bytes, step->bid.workspace, step->bid.cost_us);
    mf_kernel_info k = first_kernel(step);
    add_number(t, "registers", k.registers);
    add_number(t, "shared", k.shared);
    add_number(t, "spills", k.spills);
    mfi_text_add(t, ", \"refusals\": [");
    for (int i = 0; i < step->refusals; i++) {
        mfi_text_add(t, i ? ", {" : "{");
        add_string(t, "provider", step->refusal[i].provider->name);
        mfi_text_add(t, ", ");
        add_string(t, "reason", mfi_reason_name(step->refusal[i].reason));
        mfi_text_add(t, ", ");
        add_string(t, "detail", step->refusal[i].detail);
        mfi_text_add(t, "}");
    }
    mfi_text_add(t, "]}");
    mfi_text_free(&problem);
    mfi_text_free(&chain);
}

static void explain_json(mfi_text *t, const mf_plan *plan)
{
    mfi_text_add(t, "{");
    add_string(t, "target", plan->caps->arch);
    mfi_text_add(t, ", \"tuned\": %s", plan->choice.steps ? "true" : "false");
    mfi_text_add(t, ", \"launches\": %d, \"bytes\": %lld, \"workspace\": %zu, \"steps\": [", plan->launches,
                 (long long)plan->bytes, plan->workspace);
    for (int i = 0; i < plan->steps; i++) {
        mfi_text_add(t, i ? ", " : "");
        step_json(t, &plan->step[i]);
    }
    mfi_text_add(t, "]}");
}

static void buffer_text(mfi_text *t, const mfi_schedule *s, int i)
{
    static const char *const kinds[] = {"input", "output", "temporary"};
    const mfi_buffer *b = &s->buffer[i];
    int number = i < s->inputs ? i : i < s->inputs + s->outputs ? i - s->inputs : i - s->inputs - s->outputs;
    char shape[160];
    mfi_shape_text(b->shape, b->ndim, shape);
    mfi_text_add(t, "  x%-3d %s %d: %s %s\n", i, kinds[b->kind], number, mf_dtype_name(b->dtype), shape);
}

static void step_text(mfi_text *t, const mfi_step *step, int number)
{
    mfi_text_add(t, "step %d: ", number);
    mfi_problem_text(step->problem, t);
    mfi_text_add(t, "\n  runs on %s: %s%s%s, %d launch%s, %.3g MB, %zu B workspace, estimated %.1f us\n",
                 step->provider->name, step->bid.kernel, step->bid.variant ? ", " : "",
                 step->bid.variant ? step->bid.identity : "", step->bid.launches, step->bid.launches == 1 ? "" : "es",
                 (double)step->bid.bytes * 1e-6, step->bid.workspace, step->bid.cost_us);
    if (step->problem->chain.count) {
        mfi_text_add(t, "  ");
        mfi_chain_text(step->problem, t);
        mfi_text_add(t, "\n");
    }
    mf_kernel_info k = first_kernel(step);
    if (k.registers >= 0)
        mfi_text_add(t, "  %d registers, %d B static shared memory, %d B local memory\n", k.registers, k.shared,
                     k.spills);
    for (int i = 0; i < step->refusals; i++)
        if (step->refusal[i].reason != MFI_R_WRONG_TARGET)
            mfi_text_add(t, "  not %s: %s (%s)\n", step->refusal[i].provider->name,
                         mfi_reason_text(step->refusal[i].reason), step->refusal[i].detail);
}

static void explain_text(mfi_text *t, const mf_plan *plan)
{
    mfi_text_add(t, "plan for %s%s: %d step%s, %d launch%s, %.3g MB moved, %zu B workspace\n", plan->caps->arch,
                 plan->choice.steps ? " (tuned)" : "", plan->steps, plan->steps == 1 ? "" : "s", plan->launches,
                 plan->launches == 1 ? "" : "es", (double)plan->bytes * 1e-6, plan->workspace);
    for (int i = 0; i < plan->schedule->buffers;
         i++) /* what was joined into one needs no memory for what passed between */
        if (plan->schedule->buffer[i].kind != MFI_BUF_TEMP || mfi_schedule_uses(plan->schedule, i))
            buffer_text(t, plan->schedule, i);
    for (int i = 0; i < plan->steps; i++)
        step_text(t, &plan->step[i], i + 1);
}

mf_status mf_plan_explain(char **out, const mf_plan *plan, int json)
{
    mfi_text text = {0};
    *out = NULL;
    MF_REQUIRE(plan, MF_E_INVALID, "mf_plan_explain: plan is NULL");
    plan = mfi_plan_current(plan);
    if (json)
        explain_json(&text, plan);
    else
        explain_text(&text, plan);
    *out = mfi_text_take(&text);
    return *out ? MF_OK : MFI_NO_MEMORY(text.length);
}
