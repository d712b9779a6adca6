/* A launch as device code for a user's kernel: what the kernel gets as arguments is written into the text. */
#include "emit.h"

#include <inttypes.h>

/* The address of a view's first element. */
static void address(mfi_text *out, const mfi_view *view, const char *const *slots)
{
    if (view->slot < 0)
        mfi_text_add(out, "nullptr");
    else
        mfi_text_add(out, "(char *)(%s) + %" PRId64 "ll", slots[view->slot],
                     view->offset * (int64_t)mf_dtype_size(view->dtype));
}

static void word(mfi_text *out, const mfi_problem *p, const mfi_words *w, int i, const char *const *slots,
                 const char *workspace)
{
    if (i == w->work)
        mfi_text_add(out, "%s", workspace);
    else if (i == w->a)
        address(out, &p->u.matmul.a, slots);
    else if (i == w->b)
        address(out, &p->u.matmul.b, slots);
    else if (i >= w->data && i < w->data + p->chain.operands)
        address(out, &p->chain.operand[i - w->data].view, slots);
    else if (i == w->data)
        mfi_text_add(out, "nullptr"); /* no operand: the array has one element all the same */
    else
        mfi_text_add(out, "%" PRId64 "ll", (int64_t)w->word[i]);
}

mf_status mfi_emit_device(mfi_device_code *out, const mfi_problem *p, const mfi_shape *l, int launch,
                          const mfi_words *words, const char *const *slots, const char *workspace)
{
    mfi_text text = {0}, shared = {0};
    *out = (mfi_device_code){mfi_emit_skeleton(l), NULL, l->threads, mfi_shape_grid(l, p, launch)};
    mfi_text_add(&text, "namespace code\n{\n\n");
    mfi_emit_types(&text, p, l);
    mfi_emit_shared(&shared, p, l, launch);
    mfi_text_add(&text,
                 "\n} // namespace code\n\n"
                 "constexpr int block_size = %d, shared_bytes = (int)(%s);\nconstexpr mf::i64 tiles = %" PRId64 ";\n"
                 "constexpr bool barriers = %s;\n\n"
                 "MF_DEVICE void run_tile(const args &p, mf::i64 tile, void *shared)\n{\n    using namespace code;\n"
                 "    (void)p, (void)shared;\n    const kernel_args a = {",
                 out->threads, shared.length ? shared.data : "0", out->tiles, shared.length ? "true" : "false");
    for (int i = 0; i < words->count; i++) {
        mfi_text_add(&text, i ? ", " : "");
        word(&text, p, words, i, slots, workspace);
    }
    mfi_text_add(&text, "};\n    ");
    mfi_emit_call(&text, p, l, launch, "(mf::u32)tile", "(mf::u32)tiles", "shared");
    mfi_text_add(&text, ";\n}\n");
    text.failed |= shared.failed;
    mfi_text_free(&shared);
    out->text = mfi_text_take(&text);
    return out->text ? MF_OK : MFI_NO_MEMORY(text.capacity);
}
