/* What the emulation tests share: expectations, random numbers, transforms by their definition in double precision. */
#ifndef MF_TEST_EXPECT_H
#define MF_TEST_EXPECT_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <complex>
#include <vector>

static int failures;

#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            failures++;                                                                                                \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);                                                     \
            printf(__VA_ARGS__);                                                                                       \
            printf("\n");                                                                                              \
        }                                                                                                              \
    } while (0)

typedef std::complex<double> complex;

static inline double random_number()
{
    static unsigned long long state = 1;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(state >> 11) * 0x1p-53 - 0.5;
}

/* Bin k of the transform of n numbers. */
static inline complex bin_of(const std::vector<complex> &x, int k, int direction)
{
    const double pi = 3.14159265358979323846;
    int n = (int)x.size();
    complex sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[(size_t)i] * std::polar(1.0, direction * 2 * pi * (double)((long long)i * k % n) / n);
    return sum;
}

static inline int finish(const char *name)
{
    printf("%s: %s\n", name, failures ? "FAILED" : "passed");
    return failures != 0;
}

#endif
