/* What systems and decompositions of small matrices in batches have in common: a unit of one kernel, and its first argument words. */
#include "emit.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

mf_status mfi_emit_batch(mfi_source *out, const char *name, const char *skeleton, const mfi_text *types, int threads,
                         int resident)
{
    mfi_text text = {0};
    char blocks[16] = "";
    if (resident)
        snprintf(blocks, sizeof blocks, ", %d", resident);
    *out = (mfi_source){.text = NULL};
    mfi_text_add(&text, "#include \"device/%s.cuh\"\n\nnamespace\n{\n\n%s\n} // namespace\n\n", skeleton,
                 types->data ? types->data : "");
    if (!text.failed && !types->failed) {
        snprintf(out->name, sizeof out->name, "mf_%s_%016llx", name,
                 (unsigned long long)XXH3_64bits(text.data, text.length));
        mfi_text_add(
            &text,
            "extern \"C\" __global__ void __launch_bounds__(%d%s) %s(const __grid_constant__ batch::args a)\n{\n"
            "    MF_DYNAMIC_SHARED(uint4, shared);\n    batch::run(a, blockIdx.x, shared);\n}\n",
            threads, blocks, out->name);
        out->text = mfi_text_take(&text);
    }
    size_t capacity = text.capacity;
    mfi_text_free(&text);
    return out->text ? MF_OK : MFI_NO_MEMORY(capacity);
}

void mfi_words_batch(mfi_words *w, const mfi_problem *p, const int64_t *sizes, size_t count, int addresses)
{
    w->count = 0;
    for (size_t i = 0; i < count; i++)
        w->word[w->count++] = (uint64_t)sizes[i];
    w->data = w->count;
    for (int i = 0; i < addresses; i++)
        w->word[w->count++] = 0;
    for (int d = 0; d < (p->ndim > 0 ? p->ndim : 1); d++)
        w->word[w->count++] = p->ndim > 0 ? (uint64_t)p->shape[d] : 1;
}
