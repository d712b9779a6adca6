/* Which tables of CPU loops this machine can run. */
#include "cpu_loops.h"

extern const mfi_loops mfi_loops_base;
#if defined(__x86_64__)
extern const mfi_loops mfi_loops_avx2, mfi_loops_avx512;

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

const mfi_loops *mfi_loops_at(int index)
{
    const mfi_loops *found[3];
    int count = 0;
#if defined(__x86_64__)
    if (has_avx512())
        found[count++] = &mfi_loops_avx512;
    if (has_avx2())
        found[count++] = &mfi_loops_avx2; /* F16C is there wherever AVX2 is */
#endif
    found[count++] = &mfi_loops_base;
    return index < count ? found[index] : NULL;
}
