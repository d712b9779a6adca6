/* The clock of what runs on the host, by itself: a test has one of its own. */
#include "tune_data.h"

#include <time.h>

double mfi_tune_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}
