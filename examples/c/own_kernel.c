/* A kernel of one's own from C, compiled in process by NVRTC with mathfuse's headers: signals through a block FFT and back. Runs
 * where there is a GPU; elsewhere it is compiled for one that is not here. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "mathfuse/mathfuse.h"

enum { N = 512, SIGNALS = 8, THREADS = 128 };

static const char source[] =
    "#include \"mathfuse/device/fft.cuh\"\n"
    "using F = mf::fft::block<float, 512, mf::fft::forward>;\n"
    "using G = mf::fft::block<float, 512, mf::fft::inverse>;\n"
    "static_assert(F::threads == 128 && F::table_size <= 512, \"what the host assumes\");\n"
    "extern \"C\" __global__ void __launch_bounds__(F::threads) there_and_back(mf::c64 *signals, mf::c64 *table)\n"
    "{\n"
    "    MF_DYNAMIC_SHARED(unsigned char, shared);\n"
    "    for (int i = threadIdx.x; i < F::table_size; i += F::threads)\n"
    "        table[512 * blockIdx.x + i] = F::table_entry(i); // a table for each block\n"
    "    __syncthreads();\n"
    "    mf::c64 x[F::elements];\n"
    "    mf::c64 *mine = signals + ((long long)blockIdx.x * F::ffts + F::signal()) * 512;\n"
    "    F::load(x, mine);\n"
    "    F::run(x, shared, table + 512 * blockIdx.x);\n"
    "    G::run(x, shared, table + 512 * blockIdx.x);\n"
    "    G::store(x, mine);\n"
    "}\n";

static mf_status fail(mf_status status)
{
    fprintf(stderr, "%s: %s\n", mf_status_name(status), mf_error_message(status));
    return status;
}

static mf_status open_context(mf_context **context)
{
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    options.device = "cuda";
    if (mf_context_new(context, &options) == MF_OK)
        return MF_OK;
    options.device = "sm_90a";
    return mf_context_new(context, &options);
}

/* Neither direction scales, so the signals come back N times as large. */
static mf_status run(mf_context *context, mf_kernel *kernel, float *worst)
{
    static float x[2 * N * SIGNALS], y[2 * N * SIGNALS];
    void *signals = NULL, *table = NULL;
    for (int i = 0; i < 2 * N * SIGNALS; i++)
        x[i] = (float)(i * 7 % 11 - 5) / 8;
    mf_status status = mf_context_alloc(&signals, context, sizeof x);
    if (status == MF_OK)
        status = mf_context_alloc(&table, context, 8 * N * SIGNALS);
    if (status == MF_OK)
        status = mf_context_copy(context, signals, x, sizeof x);
    if (status == MF_OK) /* two signals a block; 16 KiB are what F needs and more */
        status = mf_kernel_launch(kernel, (int[]){SIGNALS / 2, 1, 1}, (int[]){THREADS, 1, 1}, 32768, NULL,
                                  (void *[]){&signals, &table});
    if (status == MF_OK)
        status = mf_context_copy(context, y, signals, sizeof y);
    for (int i = 0; i < 2 * N * SIGNALS; i++)
        *worst = fmaxf(*worst, fabsf(y[i] / N - x[i]));
    mf_context_release(context, signals);
    mf_context_release(context, table);
    return status;
}

int main(void)
{
    mf_context *context = NULL;
    mf_kernel *kernel = NULL;
    mf_kernel_info info;
    float worst = 0;
    mf_status status = open_context(&context);
    if (status == MF_OK)
        status = mf_kernel_new(&kernel, context, source, "there_and_back");
    if (status == MF_E_MISSING) {
        printf("not compiled: %s\n", mf_error_message(status));
        mf_context_free(context);
        return 0;
    }
    if (status == MF_OK)
        status = mf_kernel_describe(kernel, &info);
    if (status == MF_OK) {
        printf("%s for %s: %d registers, %d bytes of local memory, %zu bytes of machine code\n", info.name,
               mf_context_target(context), info.registers, info.spills, info.cubin_bytes);
        if (mf_context_can_run(context))
            status = run(context, kernel, &worst);
        printf("%s, largest error %.1e\n", mf_context_can_run(context) ? "ran" : "not run here", worst);
    }
    if (status != MF_OK)
        fail(status);
    mf_kernel_free(kernel);
    mf_context_free(context);
    return status != MF_OK || worst > 1e-5f;
}
