/* The kernel of the tests of batches. Include it after the batch. */
#ifndef MF_TEST_BATCHES_H
#define MF_TEST_BATCHES_H

#include "numbers.h"

using namespace mf;

template <class B> static void kernel(typename B::args p)
{
    MF_DYNAMIC_SHARED(float, shared);
    B::run(p, blockIdx.x, shared);
}

#endif
