/* mf_plan_device_header: the steps of a plan as one CUDA header. What the plan leaves to a library is planned anew without
 * it. Skeletons are pasted in, as only the public headers are on a user's include path. */
#include "emit.h"

#include "plan_internal.h"
#include "schedule.h"

#include <ctype.h>
#include <stdio.h>

enum { EXPRESSION = 64 };

typedef struct expressions {
    char (*text)[EXPRESSION];
    const char **slots;
} expressions;

static bool is_identifier(const char *name)
{
    if (!name || !(isalpha((unsigned char)name[0]) || name[0] == '_'))
        return false;
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_')
            return false;
    return true;
}

/* ---- pasting ---- */

static int embedded(const char *name, size_t length)
{
    for (int i = 0; i < mfi_embedded_count; i++)
        if (strlen(mfi_embedded_names[i]) == length && !memcmp(mfi_embedded_names[i], name, length))
            return i;
    return -1;
}

/* A header's text with those of src/device that it includes in their places; include guards drop repetitions. */
static void paste(mfi_text *out, const char *name, size_t length)
{
    static const char include[] = "#include \"";
    int index = embedded(name, length);
    for (const char *line = index < 0 ? "" : mfi_embedded_texts[index]; *line;) {
        size_t n = strcspn(line, "\n"), head = sizeof include - 1;
        if (!strncmp(line, "#include \"device/", head + 7))
            paste(out, line + head, strcspn(line + head, "\""));
        else
            mfi_text_add(out, "%.*s\n", (int)n, line);
        line += n + (line[n] != 0);
    }
}

/* ---- arguments ---- */

static mf_status name_slots(expressions *e, const mf_plan *plan)
{
    const mfi_schedule *s = plan->schedule;
    e->text = mfi_calloc((size_t)s->buffers + 1, sizeof *e->text);
    e->slots = mfi_calloc((size_t)s->buffers + 1, sizeof *e->slots);
    if (!e->text || !e->slots)
        return MFI_NO_MEMORY((size_t)s->buffers * EXPRESSION);
    for (int i = 0; i < s->buffers; i++) {
        if (i < s->inputs)
            snprintf(e->text[i], EXPRESSION, "p.input%d", i);
        else if (i < s->inputs + s->outputs)
            snprintf(e->text[i], EXPRESSION, "p.output%d", i - s->inputs);
        else
            snprintf(e->text[i], EXPRESSION, "(char *)p.workspace + %zu", s->buffer[i].offset);
        e->slots[i] = e->text[i];
    }
    return MF_OK;
}

static void arguments(mfi_text *out, const mf_plan *plan)
{
    const mfi_schedule *s = plan->schedule;
    mfi_text_add(out, "struct args {\n");
    for (int i = 0; i < s->inputs + s->outputs; i++) {
        char shape[160];
        bool input = i < s->inputs;
        mfi_shape_text(plan->binding[i].shape, plan->binding[i].ndim, shape);
        mfi_text_add(out, "    %s%s *%s%d; // %s %s\n", input ? "const " : "", mfi_emit_storage(s->buffer[i].dtype),
                     input ? "input" : "output", input ? i : i - s->inputs, mf_dtype_name(s->buffer[i].dtype), shape);
    }
    mfi_text_add(out, "    void *workspace; // workspace_bytes, aligned to 256\n};\n");
}

/* ---- steps ---- */

/* The first step that a kernel cannot call; NULL: none. */
static const mfi_step *library_step(const mf_plan *plan)
{
    for (int i = 0; i < plan->steps; i++)
        if (!plan->step[i].provider->device)
            return &plan->step[i];
    return NULL;
}

/* The same graph on those providers alone that have device functions; released by the caller. */
static mf_status without_libraries(mf_plan **out, const mf_plan *plan, const mfi_step *library)
{
    mf_plan_options options = MF_PLAN_OPTIONS_INIT;
    mfi_text providers = {0};
    for (int i = 0; i < mfi_provider_count; i++)
        if (mfi_providers[i]->device)
            mfi_text_add(&providers, providers.length ? ",%s" : "%s", mfi_providers[i]->name);
    options.flags = plan->flags;
    options.providers = providers.data;
    options.bindings = plan->binding;
    options.binding_count = plan->bindings;
    mf_status status =
        providers.failed ? MFI_NO_MEMORY(providers.capacity) : mfi_plan_make(out, plan->context, plan->graph, &options);
    mfi_text_free(&providers);
    return status == MF_OK
               ? status
               : mfi_prefix(status,
                            "step %d runs on %s (%s), a library that a kernel cannot call, and no generated "
                            "kernel can take its place: ",
                            (int)(library - plan->step) + 1, library->provider->name, library->bid.kernel);
}

/* A step's launches as device code; bytes that it keeps, in multiples of 256. */
static int needs(const mfi_step *step, size_t *kept)
{
    int launches = step->bid.launches;
    size_t bytes = 0;
    if (step->provider->device->needs)
        step->provider->device->needs(step->state, &launches, &bytes);
    *kept = (bytes + 255) / 256 * 256;
    return launches;
}

static size_t workspace_bytes(const mf_plan *plan)
{
    size_t all = plan->workspace, kept;
    for (int i = 0; i < plan->steps; i++) {
        needs(&plan->step[i], &kept);
        all += kept;
    }
    return all;
}

static mf_status stages(mfi_text *headers, mfi_text *out, const mf_plan *plan, int threads, const expressions *e)
{
    char workspace[EXPRESSION], kept[EXPRESSION];
    const mfi_device_memory memory = {e->slots, workspace, kept};
    size_t offset = plan->workspace;
    int number = 0;
    snprintf(workspace, sizeof workspace, "(char *)p.workspace + %zu", plan->temporaries);
    for (int i = 0; i < plan->steps; i++) {
        size_t bytes;
        int launches = needs(&plan->step[i], &bytes);
        snprintf(kept, sizeof kept, "(char *)p.workspace + %zu", offset);
        offset += bytes;
        for (int k = 0; k < launches; k++) {
            mfi_device_code code;
            char header[96];
            mf_status status = plan->step[i].provider->device->code(plan->step[i].state, k, threads, &memory, &code);
            if (status != MF_OK)
                return mfi_prefix(status, "step %d as a device function: ", i + 1);
            snprintf(header, sizeof header, "device/%s.cuh", code.skeleton);
            paste(headers, header, strlen(header));
            number++;
            mfi_text_add(out, "\n// ");
            mfi_problem_text(plan->step[i].problem, out);
            mfi_text_add(out, "\nnamespace step%d\n{\n%s} // namespace step%d\n", number, code.text, number);
            mf_free(code.text);
        }
    }
    mfi_text_add(out, "\nconstexpr int steps = %d;\n%s", number,
                 number == 1 ? "using step1::barriers;\nusing step1::block_size;\nusing step1::run_tile;\nusing "
                               "step1::shared_bytes;\nusing step1::tiles;\n"
                             : "");
    return MF_OK;
}

/* library: the step of the plan asked for that this one does without, or NULL. */
static mf_status write_header(mfi_text *out, const mf_plan *plan, const mfi_step *library, const char *name,
                              int threads)
{
    expressions e = {0};
    mfi_text body = {0};
    mf_status status = name_slots(&e, plan);
    mfi_text_add(out,
                 "// A plan of mathfuse %s for %s as device functions. For each step:\n"
                 "// all block_size threads of a block call run_tile(args, tile, shared) for tiles 0 ... tiles - 1.\n",
                 mf_version(), plan->caps->arch);
    if (library)
        mfi_text_add(out,
                     "// The plan itself calls %s (%s), which a kernel cannot: generated kernels take its place.\n",
                     library->provider->name, library->bid.kernel);
    mfi_text_add(out, "#ifndef MATHFUSE_PLAN_%s\n#define MATHFUSE_PLAN_%s\n\n", name, name);
    mfi_text_add(&body, "\nnamespace %s\n{\n\n", name);
    arguments(&body, plan);
    mfi_text_add(&body, "constexpr long long workspace_bytes = %zu;\n", workspace_bytes(plan));
    if (status == MF_OK)
        status = stages(out, &body, plan, threads, &e);
    mfi_text_add(out, "%s\n} // namespace %s\n\n#endif\n", body.data ? body.data : "", name);
    out->failed |= body.failed;
    mfi_text_free(&body);
    mf_free(e.text);
    mf_free((void *)e.slots);
    return status;
}

mf_status mf_plan_device_header(char **out, const mf_plan *plan, const char *name, int threads)
{
    mfi_text text = {0};
    *out = NULL;
    MF_REQUIRE(plan, MF_E_INVALID, "mf_plan_device_header: plan is NULL");
    plan = mfi_plan_current(plan);
    MF_REQUIRE(is_identifier(name), MF_E_INVALID, "the name of a device header is a C++ identifier, not \"%s\"",
               name ? name : "(null)");
    MF_REQUIRE(plan->caps->cuda, MF_E_UNSUPPORTED,
               "this plan is for the CPU, which runs no kernels; plan with target=\"cuda\" or \"sm_90a\"");
    MF_REQUIRE(plan->launches > 0, MF_E_UNSUPPORTED, "this plan launches nothing: its outputs have no elements");
    const mfi_step *library = library_step(plan);
    mf_plan *own = NULL;
    if (library)
        MF_TRY(without_libraries(&own, plan, library));
    mf_status status = write_header(&text, own ? own : plan, library, name, threads);
    if (own)
        mfi_plan_release(own);
    if (status != MF_OK) {
        mfi_text_free(&text);
        return status;
    }
    *out = mfi_text_take(&text);
    return *out ? MF_OK : MFI_NO_MEMORY(text.capacity);
}
