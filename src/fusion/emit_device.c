/* A launch as device code for a user's kernel: what the kernel gets as arguments is written into the text. */
#include "emit.h"

#include <inttypes.h>

void mfi_device_place(mfi_device_unit *u, int at, const mfi_view *view, const char *text)
{
    u->word[u->replaced++] = (mfi_device_word){at, view, text};
}

void mfi_device_operands(mfi_device_unit *u, int at, const mfi_chain *chain, bool through)
{
    for (int o = 0; o < chain->operands; o++)
        if (mfi_chain_reaches_memory(chain, o, through))
            mfi_device_place(u, at + o, &chain->operand[o].view, NULL);
        else
            mfi_device_place(u, at + o, NULL, "nullptr");
    if (chain->operands == 0) /* the array has one element all the same */
        mfi_device_place(u, at, NULL, "nullptr");
}

/* The address of a view's first element. */
static void address(mfi_text *out, const mfi_view *view, const char *const *slots)
{
    if (view->slot < 0)
        mfi_text_add(out, "nullptr");
    else
        mfi_text_add(out, "(char *)(%s) + %" PRId64 "ll", slots[view->slot],
                     view->offset * (int64_t)mf_dtype_size(view->dtype));
}

static void word(mfi_text *out, const mfi_device_unit *u, int i, const char *const *slots)
{
    double value;
    for (int k = 0; k < u->replaced; k++)
        if (u->word[k].at == i) {
            if (u->word[k].view)
                address(out, u->word[k].view, slots);
            else
                mfi_text_add(out, "%s", u->word[k].text);
            return;
        }
    memcpy(&value, &u->words->word[i], sizeof value);
    if (i >= u->doubles && i < u->doubles_end)
        mfi_text_add(out, "%a", value);
    else
        mfi_text_add(out, "%" PRId64 "ll", (int64_t)u->words->word[i]);
}

mf_status mfi_emit_device_unit(mfi_device_code *out, mfi_device_unit *u, const char *const *slots)
{
    mfi_text text = {0};
    bool shared = u->shared_bytes.length > 0;
    *out = (mfi_device_code){u->skeleton, NULL, u->threads, u->tiles};
    mfi_text_add(&text,
                 "namespace code\n{\n\n%s\n} // namespace code\n\n"
                 "constexpr int block_size = %d, shared_bytes = (int)(%s);\nconstexpr mf::i64 tiles = %" PRId64 ";\n"
                 "constexpr bool barriers = %s;\n\n"
                 "MF_DEVICE void run_tile(const args &p, mf::i64 tile, void *shared)\n{\n    using namespace code;\n"
                 "    (void)p, (void)shared;\n    const kernel_args a = {",
                 u->types.data ? u->types.data : "", u->threads, shared ? u->shared_bytes.data : "0", u->tiles,
                 shared ? "true" : "false");
    for (int i = 0; i < u->words->count; i++) {
        mfi_text_add(&text, i ? ", " : "");
        word(&text, u, i, slots);
    }
    mfi_text_add(&text, "};\n    %s;\n}\n", u->call.data ? u->call.data : "");
    text.failed |= u->types.failed || u->call.failed || u->shared_bytes.failed;
    mfi_text_free(&u->types);
    mfi_text_free(&u->call);
    mfi_text_free(&u->shared_bytes);
    out->text = mfi_text_take(&text);
    return out->text ? MF_OK : MFI_NO_MEMORY(text.capacity);
}

mf_status mfi_emit_device(mfi_device_code *out, const mfi_problem *p, const mfi_shape *l, int launch,
                          const mfi_words *words, const char *const *slots, const char *workspace)
{
    mfi_device_unit u = {
        .skeleton = mfi_emit_skeleton(l), .threads = l->threads, .tiles = mfi_shape_grid(l, p, launch), .words = words};
    mfi_emit_types(&u.types, p, l);
    mfi_emit_shared(&u.shared_bytes, p, l, launch);
    mfi_emit_call(&u.call, p, l, launch, "(mf::u32)tile", "(mf::u32)tiles", "shared");
    mfi_device_place(&u, words->work, NULL, workspace);
    if (p->anchor == MFI_MATMUL) {
        mfi_device_place(&u, words->a, &p->u.matmul.a, NULL);
        mfi_device_place(&u, words->b, &p->u.matmul.b, NULL);
    }
    mfi_device_operands(&u, words->data, &p->chain, false);
    return mfi_emit_device_unit(out, &u, slots);
}
