/* Transforms as device code: a launch that fills the table of roots, and one that transforms. */
#include "emit.h"

static mf_status table_code(mfi_device_code *out, const mfi_problem *p, const mfi_fft_shape *s, const char *table)
{
    mfi_words words = {.count = 1};
    mfi_device_unit u = {.skeleton = "fft_chain", .threads = s->threads, .words = &words};
    u.tiles = mfi_ceil_div(s->table, s->threads);
    mfi_emit_fft_transforms(&u.types, p, s);
    mfi_text_add(&u.types, "struct kernel_args {\n    void *table;\n};\n");
    mfi_text_add(&u.call,
                 "mf::fft_fill_table<first>((mf::cplx<first::real> *)a.table, tile * block_size + (int)threadIdx.x)");
    mfi_device_place(&u, 0, NULL, table);
    return mfi_emit_device_unit(out, &u, NULL);
}

mf_status mfi_emit_fft_device(mfi_device_code *out, const mfi_problem *p, const mfi_fft_shape *s,
                              const mfi_fft_words *words, int launch, const char *const *slots, const char *table)
{
    mfi_fft_parts parts = mfi_fft_parts_of(p);
    mfi_device_unit u = {.skeleton = "fft_chain",
                         .threads = s->threads,
                         .tiles = s->blocks,
                         .words = &words->words,
                         .doubles = words->scale,
                         .doubles_end = words->scale + 2};
    if (launch == 0)
        return table_code(out, p, s, table);
    mfi_emit_fft_types(&u.types, p, s);
    mfi_text_add(&u.shared_bytes, "code::first::shared_bytes");
    mfi_emit_fft_call(&u.call, p, s, "(mf::u32)tile");
    mfi_device_place(&u, words->table, NULL, table);
    if (!parts.before)
        mfi_device_place(&u, words->in, parts.first ? &parts.first->u.fft.in : &p->u.fft.in, NULL);
    else
        mfi_device_operands(&u, words->before, &parts.before->chain, true);
    if (parts.first)
        mfi_device_operands(&u, words->middle, &parts.first->chain, true);
    mfi_device_operands(&u, words->last, &p->chain, false);
    return mfi_emit_device_unit(out, &u, slots);
}
