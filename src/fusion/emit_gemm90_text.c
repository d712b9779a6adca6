/* The text of products on sm_90a: the chain, its operands, what is stored, one instance of gemm_sm90.cuh. */
#include "emit.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char *word(bool value)
{
    return value ? "true" : "false";
}

/* An element of an operand as it is computed with; row, column: NULL where it does not vary along them. */
static void element(mfi_text *out, const mfi_problem *p, int operand, const char *batch, const char *row,
                    const char *column)
{
    const mfi_view *v = &p->chain.operand[operand].view;
    const char *const at[3] = {batch, row, column};
    int terms = 0;
    mfi_text_add(out, "mf::widen(((const %s *)a.data[%d])[", mfi_emit_storage(v->dtype), operand);
    for (int i = p->ndim == 3 ? 0 : 1, d = 0; i < 3; i++, d++)
        if (v->strides[d] && at[i])
            mfi_text_add(out, "%s(mf::i64)(%s) * a.stride[%d][%d]", terms++ ? " + " : "", at[i], operand, d);
    mfi_text_add(out, terms ? "])" : "0])");
}

static void vector_function(mfi_text *out, const mfi_problem *p, const mfi_gemm90 *g, mfi_port port)
{
    bool down = port == MFI_PORT_DOWN, one = port == MFI_PORT_SCALAR;
    mfi_text_add(out, "    static MF_DEVICE float %s(const args &a, int port%s%s)\n    {\n",
                 one    ? "scalar"
                 : down ? "m_vector"
                        : "n_vector",
                 one ? "" : ", mf::i32 at", g->batched ? ", mf::i32 batch" : "");
    for (int o = 0; o < p->chain.operands; o++)
        if (g->port[o] == port) {
            mfi_text_add(out, "        if (port == %d)\n            return ", g->number[o]);
            element(out, p, o, "batch", down ? "at" : NULL, down || one ? NULL : "at");
            mfi_text_add(out, ";\n");
        }
    mfi_text_add(out, "        return 0;\n    }\n");
}

static void take_port(mfi_text *out, const mfi_problem *p, const mfi_gemm90 *g, int o)
{
    switch (g->port[o]) {
    case MFI_PORT_SCALAR:
        mfi_text_add(out, "        x.x%d.v[0] = y.x%d.v[0] = in.scalar[%d];\n", o, o, g->number[o]);
        break;
    case MFI_PORT_ACROSS:
        mfi_text_add(out, "        x.x%d.v[0] = in.across[%d][0];\n        y.x%d.v[0] = in.across[%d][1];\n", o,
                     g->number[o], o, g->number[o]);
        break;
    case MFI_PORT_DOWN:
        mfi_text_add(out, "        x.x%d.v[0] = y.x%d.v[0] = in.down[%d];\n", o, o, g->number[o]);
        break;
    case MFI_PORT_TILE:
        mfi_text_add(out, "        x.x%d.v[0] = in.tile[0][0];\n        y.x%d.v[0] = in.tile[0][1];\n", o, o);
        break;
    case MFI_PORT_DIRECT:
        mfi_text_add(out,
                     "        x.x%d.v[0] = y.x%d.v[0] = {};\n        if (in.row < in.rows && in.col < in.cols) {\n"
                     "            x.x%d.v[0] = ",
                     o, o, o);
        element(out, p, o, "in.batch", "in.row", "in.col");
        mfi_text_add(out, ";\n            y.x%d.v[0] = ", o);
        element(out, p, o, "in.batch", "in.row", "in.col + 1");
        mfi_text_add(out, ";\n        }\n");
        break;
    case MFI_PORT_NONE:
        break;
    }
}

static void epilogue(mfi_text *out, const mfi_problem *p, const mfi_gemm90 *g)
{
    mfi_text_add(out,
                 "typedef args epilogue_args;\n\nstruct epilogue : mf::epilogue_none {\n"
                 "    typedef epilogue_args args;\n    typedef %s tile_type;\n"
                 "    static constexpr int n_vectors = %d, m_vectors = %d, scalars = %d, tiles = %d;\n",
                 mfi_emit_storage(g->tile < 0 ? MF_BF16 : p->chain.operand[g->tile].view.dtype), g->across, g->down,
                 g->scalars, g->tile >= 0);
    if (g->buffers == 0) {
        const int d = g->result[0];
        mfi_text_add(out, "    static MF_DEVICE mf::u32 *out(const args &a, mf::i32 row%s)\n    {\n",
                     g->batched ? ", mf::i32 batch" : "");
        mfi_text_add(out, "        return (mf::u32 *)a.data[%d] + row * a.stride[%d][%d]", d, d, p->ndim - 2);
        if (g->batched)
            mfi_text_add(out, " + batch * a.stride[%d][0]", d);
        mfi_text_add(out, ";\n    }\n");
    }
    if (g->largest >= 0)
        mfi_text_add(
            out,
            "    static MF_DEVICE mf::u32 *largest(const args &a)\n    {\n        return (mf::u32 *)a.data[%d];\n"
            "    }\n",
            g->largest);
    vector_function(out, p, g, MFI_PORT_SCALAR);
    vector_function(out, p, g, MFI_PORT_ACROSS);
    vector_function(out, p, g, MFI_PORT_DOWN);
    mfi_text_add(out, "};\n\n");
}

/* What the chain reads at two neighbours, and where the first is. */
static void take(mfi_text *out, const mfi_problem *p, const mfi_gemm90 *g)
{
    mfi_text_add(
        out, "    template <class E>\n    static MF_DEVICE void take(const args &a, const mf::epilogue_ports<E> &in, "
             "float v0, float v1, chain<1>::inputs &x, chain<1>::inputs &y, chain<1>::point &p)\n    {\n"
             "        x.acc[0] = v0;\n        y.acc[0] = v1;\n");
    mfi_text_add(out, "%s        p.c[%d] = in.row;\n        p.c[%d] = in.col;\n",
                 g->batched ? "        p.c[0] = in.batch;\n" : "", p->ndim - 2, p->ndim - 1);
    if (g->twin)
        mfi_text_add(out, "        x.acc1[0] = in.twin[0];\n        y.acc1[0] = in.twin[1];\n");
    for (int o = 0; o < p->chain.operands; o++)
        take_port(out, p, g, o);
    mfi_text_add(out, "    }\n");
}

/* Two neighbours' values, as they are stored. */
static void finish(mfi_text *out, const mfi_problem *p, const mfi_gemm90 *g)
{
    const char *rows = g->rows ? ", w" : "";
    mfi_text_add(out,
                 "    template <class E>\n    static MF_DEVICE void finish(const args &a, const "
                 "mf::epilogue_ports<E> &in, float v0, float v1, mf::u32 (&bits)[COUNT][2], %s)\n    {\n"
                 "        chain<1>::inputs x, y;\n        chain<1>::point p;\n        take(a, in, v0, v1, x, y, p);\n"
                 "        const chain<1>::results r = chain<1>::values(a, p, x%s);\n        p.c[%d]++;\n"
                 "        const chain<1>::results s = chain<1>::values(a, p, y%s);\n",
                 g->rows ? "const row &w" : "mf::u32 &largest", rows, p->ndim - 1, rows);
    for (int i = 0, value = 0, n = 0; i < p->chain.count; i++) {
        const mfi_instr *in = &p->chain.instr[i];
        bool saturate;
        if (in->kind != MFI_STORE || mfi_is_row_store(p, in))
            continue;
        (void)mfi_emit_stored(&p->chain, in, &saturate);
        if (in->axis)
            mfi_text_add(out, "        mf::largest2(largest, in, r.r%d, s.r%d);\n", value, value);
        else
            mfi_text_add(out, "        mf::pack2<%s, %s>(bits[%d], r.r%d, s.r%d);\n",
                         mfi_emit_storage(p->chain.operand[in->operand].view.dtype), word(saturate), n++, value, value);
        value++;
    }
    mfi_text_add(out, "    }\n");
}

/* Which values are reduced in each phase, and the chain's functions for it. */
static void reductions(mfi_text *out, const mfi_problem *p, const mfi_gemm90 *g)
{
    mfi_text_add(out,
                 "    typedef chain<1>::row row;\n    static constexpr int PHASES = %d, VALUES = %d;\n"
                 "    static MF_HOST_DEVICE constexpr int values(int phase)\n    {\n        return ",
                 p->chain.phases, g->values);
    for (int phase = 0; phase < p->chain.phases; phase++) {
        int values = 0;
        for (int i = 0; i < p->chain.count; i++)
            values += p->chain.instr[i].kind == MFI_REDUCE && p->chain.instr[i].level == phase + 1;
        mfi_text_add(out, "phase == %d ? %d : ", phase, values);
    }
    mfi_text_add(
        out,
        "0;\n    }\n    template <int P> static MF_DEVICE void start(row &w) { chain<1>::start(mf::phase<P>(), w); }\n"
        "    template <int P, class E>\n    static MF_DEVICE void add(const args &a, const mf::epilogue_ports<E> "
        "&in, float v0, float v1, row &w)\n    {\n%s"
        "        chain<1>::inputs x, y;\n        chain<1>::point p;\n        take(a, in, v0, v1, x, y, p);\n"
        "        chain<1>::add(mf::phase<P>(), a, p, x, 0, w);\n        p.c[%d]++;\n"
        "        chain<1>::add(mf::phase<P>(), a, p, y, 0, w);\n    }\n",
        p->u.matmul.n % g->bn ? "        if (in.col >= in.cols)\n            return;\n" : "", p->ndim - 1);
    mfi_text_add(out, "    template <int P, class F> static MF_DEVICE void across(row &w, F &f) { "
                      "chain<1>::across(mf::phase<P>(), w, f); }\n"
                      "    template <class E> static MF_DEVICE chain<1>::point place(const mf::epilogue_ports<E> &in)\n"
                      "    {\n        chain<1>::point p;\n");
    mfi_text_add(out, "%s        p.c[%d] = in.row;\n        p.c[%d] = 0;\n        return p;\n    }\n",
                 g->batched ? "        p.c[0] = in.batch;\n" : "", p->ndim - 2, p->ndim - 1);
    mfi_text_add(
        out,
        "    template <int P, class E>\n    static MF_DEVICE void derive(const args &a, const "
        "mf::epilogue_ports<E> &in, row &w)\n    {\n        chain<1>::derive(mf::phase<P>(), a, place(in), w);\n"
        "    }\n    template <class E>\n    static MF_DEVICE void finish_row(const args &a, const "
        "mf::epilogue_ports<E> &in, const row &w)\n    {\n        chain<1>::finish_row(a, place(in), w);\n    }\n");
}

/* What is stored of two neighbours. */
static void results(mfi_text *out, const mfi_problem *p, const mfi_gemm90 *g)
{
    mfi_text_add(out,
                 "struct results {\n    static constexpr int COUNT = %d, WIDEST = %d;\n"
                 "    static constexpr bool LARGEST = %s;\n",
                 g->results, mfi_gemm90_widest(g, p), word(g->largest >= 0));
    mfi_text_add(out, "    static MF_HOST_DEVICE constexpr int size(int i)\n    {\n        return ");
    for (int r = 0; r < g->results; r++) {
        if (r + 1 < g->results)
            mfi_text_add(out, "i == %d ? ", r);
        mfi_text_add(out, "%zu%s", mf_dtype_size(p->chain.operand[g->result[r]].view.dtype),
                     r + 1 < g->results ? " : " : "");
    }
    mfi_text_add(out, ";\n    }\n");
    take(out, p, g);
    if (g->rows)
        reductions(out, p, g);
    finish(out, p, g);
    mfi_text_add(out, "};\n\n");
}

static void kernel_text(mfi_text *out, const mfi_problem *p, const mfi_gemm90 *g)
{
    mfi_text_add(out,
                 "struct kernel_args {\n    mf::tensor_map a, b, t, d[%d]%s;\n    mf::gemm90_args<epilogue> p;\n};\n\n"
                 "typedef mf::gemm90_config<%s, results, %d, %d, %d, %d, %s, %s, %s, %d, %s, %s, %d> config;\n\n",
                 g->results, g->twin ? ", b2" : "", mfi_emit_storage(p->u.matmul.a.dtype), g->bm, g->bn, g->stages,
                 g->cluster, word(g->pingpong), word(g->a_mn), word(g->b_mn), g->buffers, word(g->twin),
                 word(g->batched), g->wide);
}

mf_status mfi_emit_gemm90(mfi_source *out, const mfi_problem *p, const mfi_gemm90 *g)
{
    mfi_text text = {0};
    *out = (mfi_source){.text = NULL};
    mfi_text_add(&text, "#include \"device/gemm_sm90.cuh\"\n#include \"device/chain.cuh\"\n"
                        "#include \"mathfuse/device/elementwise.cuh\"\n\nnamespace\n{\n\n");
    mfi_emit_chain(&text, p, &g->layout);
    mfi_text_add(&text, "\n");
    epilogue(&text, p, g);
    results(&text, p, g);
    kernel_text(&text, p, g);
    mfi_text_add(&text, "} // namespace\n\n");
    if (!text.failed) {
        snprintf(out->name, sizeof out->name, "mf_gemm_%016llx",
                 (unsigned long long)XXH3_64bits(text.data, text.length));
        mfi_text_add(
            &text,
            "extern \"C\" __global__ void __cluster_dims__(%d, 1, 1) __launch_bounds__(mf::GEMM90_THREADS, 1)\n"
            "    %s(const __grid_constant__ kernel_args k)\n{\n"
            "    extern __shared__ __align__(1024) unsigned char memory[];\n"
            "    mf::gemm90<config, epilogue>(memory, k.a, k.b, k.%s, k.d, k.t, k.p);\n}\n",
            g->wide ? g->wide : g->cluster, out->name, g->twin ? "b2" : "b");
        out->text = mfi_text_take(&text);
    }
    mfi_text_free(&text);
    return out->text ? MF_OK : MFI_NO_MEMORY(text.capacity);
}
