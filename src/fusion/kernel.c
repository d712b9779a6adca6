/* mf_kernel: a user's own kernel, through the same compiler and cache as generated ones. */
#include "cuda_api.h"
#include "fusion.h"

#include <stdatomic.h>

struct mf_kernel {
    mf_context *context;
    mfi_module *module;
    size_t head;          /* bytes before the user's source */
    atomic_size_t shared; /* dynamic shared memory that launches may ask for so far */
};

enum { FREELY_SHARED = 48 << 10, MAX_THREADS = 1024 }; /* more shared memory has to be asked for first */

mf_status mf_kernel_new(mf_kernel **out, mf_context *context, const char *source, const char *name)
{
    *out = NULL;
    MF_REQUIRE(context && source && name, MF_E_INVALID, "mf_kernel_new: context, source or name is NULL");
    const mfi_caps *caps = mfi_context_caps(context);
    MF_REQUIRE(
        caps->cuda, MF_E_DEVICE,
        "kernels are compiled for GPUs; this context is for the CPU: open \"cuda\" or a target such as \"sm_90a\", or "
        "compile the kernel with mathfuse/device/emulate.h");
    mf_kernel *k = mfi_calloc(1, sizeof *k);
    if (!k)
        return MFI_NO_MEMORY(sizeof *k);
    atomic_init(&k->shared, FREELY_SHARED);
    /* The name tells apart kernels of one source; messages count lines as the user does. */
    mfi_text text = {0};
    mfi_text_add(&text, "// %s\n#line 1 \"%s.cu\"\n", name, name);
    k->head = text.length;
    mfi_text_add(&text, "%s", source);
    mf_status status =
        text.failed ? MFI_NO_MEMORY(strlen(source)) : mfi_jit_compile(&k->module, context, name, text.data, true);
    mfi_text_free(&text);
    if (status != MF_OK) {
        mf_free(k);
        return status == MF_E_CUDA ? mfi_prefix(status, "the source needs extern \"C\" __global__ void %s(…): ", name)
                                   : status;
    }
    k->context = context;
    mfi_context_retain(context);
    *out = k;
    return MF_OK;
}

void mf_kernel_free(mf_kernel *k)
{
    if (!k)
        return;
    mf_context_free(k->context); /* which owns the module */
    mf_free(k);
}

/* More dynamic shared memory than every block may have is granted to the function once. */
static mf_status allow_shared(mf_kernel *k, size_t shared)
{
    const mfi_caps *caps = mfi_context_caps(k->context);
    if (shared <= atomic_load(&k->shared))
        return MF_OK;
    MF_REQUIRE(shared <= caps->shared_bytes, MF_E_INVALID,
               "kernel %s: %zu bytes of shared memory were asked for; a block on %s has at most %zu", k->module->name,
               shared, caps->arch, caps->shared_bytes);
    MF_TRY(mfi_cuda_function_shared(k->module->function, shared));
    atomic_store(&k->shared, shared);
    return MF_OK;
}

mf_status mf_kernel_launch(mf_kernel *k, const int grid[3], const int block[3], size_t shared, void *stream,
                           void **args)
{
    MF_REQUIRE(k && grid && block, MF_E_INVALID, "mf_kernel_launch: kernel, grid or block is NULL");
    MF_REQUIRE(k->module->function, MF_E_STATE, "kernel %s was compiled for %s, which is not on this machine",
               k->module->name, mfi_context_caps(k->context)->arch);
    bool positive = true;
    for (int d = 0; d < 3; d++)
        positive &= grid[d] >= 1 && block[d] >= 1;
    MF_REQUIRE(
        positive && (int64_t)block[0] * block[1] * block[2] <= MAX_THREADS, MF_E_INVALID,
        "kernel %s: grid (%d, %d, %d), block (%d, %d, %d); extents start at 1 and a block has at most %d threads",
        k->module->name, grid[0], grid[1], grid[2], block[0], block[1], block[2], MAX_THREADS);
    MF_TRY(mfi_context_make_current(k->context));
    MF_TRY(allow_shared(k, shared));
    return mfi_cuda_launch(k->module->function, grid, block, shared, stream, args, false);
}

mf_status mf_kernel_describe(const mf_kernel *k, mf_kernel_info *out)
{
    MF_REQUIRE(k && out, MF_E_INVALID, "mf_kernel_describe: kernel or out is NULL");
    const mfi_module *m = k->module;
    *out = (mf_kernel_info){m->name, m->source + k->head, m->cubin, m->cubin_bytes, m->registers, m->shared, m->spills};
    return MF_OK;
}
