/* A range of Nsight's timeline around each step. NVTX is headers only: without a profiler a call costs a comparison. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>

#if defined(MFI_WITH_CUDA) && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define WITH_NVTX 1
#endif

_Atomic int mfi_ranges = -1;

static int wanted(void)
{
    const char *text = getenv("MATHFUSE_NVTX");
    int on = text && text[0] && strcmp(text, "0") != 0;
#ifndef WITH_NVTX
    if (on)
        fprintf(stderr, "mathfuse: MATHFUSE_NVTX is set, but this build has no NVTX: no ranges\n");
    on = 0;
#endif
    return on;
}

void mfi_range_open(const char *provider, const char *kernel)
{
    if (mfi_ranges < 0)
        mfi_ranges = wanted();
    if (!mfi_ranges)
        return;
#ifdef WITH_NVTX
    char name[160];
    snprintf(name, sizeof name, "mathfuse %s: %s", provider, kernel);
    nvtxRangePushA(name);
#else
    (void)provider, (void)kernel;
#endif
}

void mfi_range_close(void)
{
#ifdef WITH_NVTX
    nvtxRangePop();
#endif
}
