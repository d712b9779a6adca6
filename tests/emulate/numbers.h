/* Numbers of any type as complex doubles, and back. Include it after a header of mathfuse/device. */
#ifndef MF_TEST_NUMBERS_H
#define MF_TEST_NUMBERS_H

#include "expect.h"

using namespace mf;

template <class T> static T from(complex x)
{
    if constexpr (is_complex<T>)
        return T{(real_t<T>)x.real(), (real_t<T>)x.imag()};
    else
        return narrow<T>((compute_t<T>)x.real());
}
template <class T> static complex to(T x)
{
    auto w = widen(x);
    if constexpr (is_complex<T>)
        return complex(w.re, w.im);
    else
        return complex((double)w, 0);
}

#endif
