// Arguments of generated matrix products.
#ifndef MF_DEVICE_GEMM_ARGS_CUH
#define MF_DEVICE_GEMM_ARGS_CUH

#include "device/chain.cuh"

namespace mf
{

// The product's own arguments, before those of the chain. Strides: batch dims, then rows, columns.
template <int ND, class C> struct gemm_args {
    i64 k;
    void *a, *b;
    i64 a_stride[ND], b_stride[ND];
    C chain;
};

// Moves to product `batch`: its coordinates in p, its factors.
template <int ND, class A, class I, class TA, class TB>
MF_DEVICE void gemm_batch(const A &a, i64 batch, point<I, ND> &p, const TA *&from_a, const TB *&from_b)
{
    MF_UNROLL
    for (int d = ND - 3; d >= 0; d--) {
        i64 c = batch % a.chain.shape[d];
        batch /= a.chain.shape[d];
        p.c[d] = (I)c;
        from_a += c * a.a_stride[d];
        from_b += c * a.b_stride[d];
    }
}

} // namespace mf

#endif
