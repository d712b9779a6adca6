/* What the tests of batches share: their kernel, and numbers of any type as complex doubles and back. Include it after the batch. */
#ifndef MF_TEST_BATCHES_H
#define MF_TEST_BATCHES_H

#include "expect.h"

using namespace mf;

template <class B> static void kernel(typename B::args p)
{
    MF_DYNAMIC_SHARED(float, shared);
    B::run(p, blockIdx.x, shared);
}

template <class T> static T from(complex x)
{
    if constexpr (is_complex<T>)
        return T{(real_t<T>)x.real(), (real_t<T>)x.imag()};
    else
        return (T)x.real();
}
template <class T> static complex to(T x)
{
    if constexpr (is_complex<T>)
        return complex(x.re, x.im);
    else
        return complex((double)x, 0);
}

#endif
