/* A chain's kernel as CUDA source: an argument struct, the chain, one instantiation of a skeleton of src/device. */
#include "emit.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char *word(bool value)
{
    return value ? "true" : "false";
}

static void reduce_shape(mfi_text *out, const mfi_shape *l, int launch)
{
    mfi_text_add(out, "mf::reduce_shape<%d, %d, %d, %s, %s, %d>", l->threads, l->lanes, l->items, word(l->cached),
                 word(l->columns), l->launches > 1 ? launch : -1);
}

void mfi_emit_shared(mfi_text *out, const mfi_problem *p, const mfi_shape *l, int launch)
{
    if (l->skeleton == MFI_SK_REDUCE && (l->columns || l->lanes > 32)) {
        reduce_shape(out, l, launch);
        mfi_text_add(out, "::scratch");
    } else if (p->anchor == MFI_MATMUL) {
        mfi_emit_gemm_shared(out, p, l);
    }
}

void mfi_emit_call(mfi_text *out, const mfi_problem *p, const mfi_shape *l, int launch, const char *block,
                   const char *blocks, const char *shared)
{
    if (l->skeleton == MFI_SK_MAP) {
        mfi_text_add(out, "mf::map<chain, %d, %d, %d, %d, %s>(a, %s, %s)", p->ndim, l->vector, l->threads, l->items,
                     word(l->tail), block, blocks);
    } else if (l->skeleton == MFI_SK_TILES) {
        mfi_text_add(out, "mf::map_tiles<chain, %d, %d>(a, %s)", p->ndim, l->tile_dim, block);
    } else if (l->skeleton == MFI_SK_REDUCE) {
        mfi_text_add(out, "mf::reduce<chain, %d, ", l->vector);
        reduce_shape(out, l, launch);
        mfi_text_add(out, ", %d, %d>(a, %s, %s)", p->ndim - p->nreduce, p->ndim, block, shared);
    } else {
        mfi_emit_gemm_call(out, p, l, block, shared);
    }
}

static const struct {
    const char *header, *prefix;
} kinds[] = {{"map", "map"},           {"map", "map"},           {"reduce_rows", "reduce"}, {"gemm_simple", "matmul"},
             {"gemm_tiles", "matmul"}, {"gemm_lanes", "matmul"}, {"gemm_small", "matmul"}};

const char *mfi_emit_skeleton(const mfi_shape *l)
{
    return kinds[l->skeleton].header;
}

void mfi_emit_types(mfi_text *out, const mfi_problem *p, const mfi_shape *l)
{
    mfi_emit_chain(out, p, l);
    if (p->anchor == MFI_MATMUL)
        mfi_text_add(out, "\ntypedef mf::gemm_args<%d, args> kernel_args;\n", p->ndim);
    else
        mfi_text_add(out, "\ntypedef args kernel_args;\n");
}

static void kernel_body(mfi_text *out, const mfi_problem *p, const mfi_shape *l, int launch)
{
    mfi_text shared = {0};
    mfi_emit_shared(&shared, p, l, launch);
    if (shared.length)
        mfi_text_add(out, "    __shared__ __align__(16) unsigned char shared[%s];\n", shared.data);
    out->failed |= shared.failed;
    mfi_text_free(&shared);
    mfi_text_add(out, "    mf::begin_kernel();\n    ");
    mfi_emit_call(out, p, l, launch, "blockIdx.x", "gridDim.x",
                  l->skeleton == MFI_SK_REDUCE && !l->columns && l->lanes <= 32 ? "nullptr" : "shared");
    mfi_text_add(out, ";\n");
}

mf_status mfi_emit(mfi_source *out, const mfi_problem *p, const mfi_shape *l, int launch)
{
    mfi_text text = {0}, all = {0}, body = {0};
    mfi_text_add(&text, "#include \"device/%s.cuh\"\n\nnamespace\n{\n\n", mfi_emit_skeleton(l));
    mfi_emit_types(&text, p, l);
    mfi_text_add(&text, "\n} // namespace\n\n");
    kernel_body(&body, p, l, launch);
    /* else the compiler spills for more blocks than these need */
    const char *resident = l->skeleton != MFI_SK_GEMM_LANES ? "" : l->threads <= 256 ? ", 2" : ", 1";
    *out = (mfi_source){.text = NULL};
    if (!text.failed && !body.failed) {
        /* the name stands for everything else in the text */
        uint64_t hash = XXH3_64bits_withSeed(body.data, body.length, XXH3_64bits(text.data, text.length));
        snprintf(out->name, sizeof out->name, "mf_%s_%016llx", kinds[l->skeleton].prefix, (unsigned long long)hash);
        mfi_text_add(&all,
                     "%sextern \"C\" __global__ void __launch_bounds__(%d%s) %s(const __grid_constant__ kernel_args "
                     "a)\n{\n%s}\n",
                     text.data, l->threads, resident, out->name, body.data);
        out->text = mfi_text_take(&all);
    }
    mfi_text_free(&text);
    mfi_text_free(&body);
    return out->text ? MF_OK : MFI_NO_MEMORY(all.capacity);
}
