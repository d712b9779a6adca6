/* mf_context_info: which libraries were found, where, and what is missing. */
#include "context_internal.h"
#include "loader.h"

static void library_text(mfi_text *out, const mfi_library_info *info)
{
    if (!info->found) {
        mfi_text_add(out, "  %-22s missing: %s\n", info->name, info->missing);
        return;
    }
    mfi_text_add(out, "  %-22s %-12s %s (%s)\n", info->name, info->version[0] ? info->version : "?", info->path,
                 info->how);
}

static void library_json(mfi_text *out, const mfi_library_info *info)
{
    const char *const keys[] = {"name", "version", "path", "how", "missing"};
    const char *const values[] = {info->name, info->version, info->path, info->how, info->missing};
    mfi_text_add(out, "{\"found\": %s", info->found ? "true" : "false");
    for (size_t i = 0; i < MFI_COUNT(keys); i++) {
        mfi_text_add(out, ", \"%s\": ", keys[i]);
        mfi_text_json(out, values[i]);
    }
    mfi_text_add(out, "}");
}

static void context_head(mfi_text *out, const mf_context *context, int json)
{
    const mfi_caps *c = context ? mfi_context_caps(context) : NULL;
    mfi_text_add(out, json ? "{\"mathfuse\": \"%s\"" : "mathfuse %s\n", mf_version());
    if (!c)
        return;
    if (json)
        mfi_text_add(out,
                     ", \"target\": \"%s\", \"can_run\": %s, \"threads\": %d, \"multiprocessors\": %d, "
                     "\"shared_bytes\": %zu, \"l2_bytes\": %zu",
                     c->arch, c->present ? "true" : "false", c->threads, c->multiprocessors, c->shared_bytes,
                     c->l2_bytes);
    else if (c->cuda)
        mfi_text_add(out, "target %s%s: %d multiprocessors, %zu KiB shared memory a block, %zu MiB L2\n", c->arch,
                     c->present ? "" : " (not on this machine)", c->multiprocessors, c->shared_bytes >> 10,
                     c->l2_bytes >> 20);
    else
        mfi_text_add(out, "target cpu: %d threads\n", c->threads);
}

mf_status mf_context_info(char **out, mf_context *context, int json)
{
    mfi_text text = {0};
    context_head(&text, context, json);
    mfi_text_add(&text, json ? ", \"libraries\": [" : "libraries\n");
    for (int i = 0; i < MFI_LIB_COUNT; i++) {
        const mfi_library_info *info = mfi_library_load((mfi_library)i);
        if (json) {
            mfi_text_add(&text, i ? ", " : "");
            library_json(&text, info);
        } else {
            library_text(&text, info);
        }
    }
    if (json)
        mfi_text_add(&text, "]}");
    *out = mfi_text_take(&text);
    return *out ? MF_OK : MFI_NO_MEMORY(text.length);
}
