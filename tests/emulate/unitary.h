/* Random orthonormal vectors. Include it after a header of mathfuse/device. */
#ifndef MF_TEST_UNITARY_H
#define MF_TEST_UNITARY_H

#include "numbers.h"

/* Element i of vector k at [k * length + i]; `count` of them, made orthogonal to those before twice over. */
template <class T> static std::vector<complex> random_unitary(int length, int count)
{
    std::vector<complex> u((size_t)(length * count));
    auto at = [&](int k, int i) -> complex & { return u[(size_t)(k * length + i)]; };
    for (int k = 0; k < count; k++) {
        for (int i = 0; i < length; i++)
            at(k, i) = complex(random_number(), is_complex<T> ? random_number() : 0);
        for (int twice = 0; twice < 2; twice++)
            for (int l = 0; l <= k; l++) {
                complex dot = 0;
                for (int i = 0; i < length; i++)
                    dot += std::conj(at(l, i)) * at(k, i);
                for (int i = 0; i < length; i++)
                    at(k, i) = l < k ? at(k, i) - dot * at(l, i) : at(k, i) / sqrt(dot.real());
            }
    }
    return u;
}

#endif
