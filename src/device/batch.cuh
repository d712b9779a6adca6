// Where the matrices of a batch lie.
#ifndef MF_DEVICE_BATCH_CUH
#define MF_DEVICE_BATCH_CUH

#include "mathfuse/device/types.cuh"

namespace mf
{

// Of matrix `number`, in elements.
template <int ND> MF_DEVICE i64 batch_offset(const i64 (&shape)[ND], const i64 *stride, i64 number)
{
    i64 at = 0;
    for (int d = ND - 1; d >= 0; d--) {
        at += number % shape[d] * stride[d];
        number /= shape[d];
    }
    return at;
}

} // namespace mf
#endif
