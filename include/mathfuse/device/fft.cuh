// Fourier transforms inside a kernel: one thread's, or a block's, of any length that fits; complex and real.
//
//     using F = mf::fft::block<float, 1024, mf::fft::forward>;   // F::threads threads, F::ffts signals per block
//     using G = mf::fft::block<float, 1024, mf::fft::inverse>;
//     MF_DYNAMIC_SHARED(unsigned char, shared);                  // F::shared_bytes
//     mf::c64 x[F::elements];
//     F::load(x, src + signal * 1024);                           // this thread's elements: F::index(i) for each i
//     F::run(x, shared, table);
//     F::multiply(x, filter);                                    // or anything else: x[i] is now bin F::index(i)
//     G::run(x, shared, table);                                  // starts from the same layout: no exchange in between
//     G::store(x, dst + signal * 1024);
//
// `table`: F::table_size complex numbers, the same for both directions, filled once by F::table_entry(i) (on the host,
// or by a kernel of its own); computed in double precision. Neither direction scales. All threads of the block call
// run.
//
// real_forward and real_inverse take and give real signals (fft_real.cuh); thread is a transform in one thread's registers.
#ifndef MATHFUSE_DEVICE_FFT_CUH
#define MATHFUSE_DEVICE_FFT_CUH

#include "mathfuse/device/fft_block.cuh"
#include "mathfuse/device/fft_real.cuh"

#endif
