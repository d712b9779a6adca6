// The kernel that fft_bench.cu measures: transform, filter, transform back, in one launch, four ways of feeding it.
#ifndef MF_BENCH_FFT_FUSED_CUH
#define MF_BENCH_FFT_FUSED_CUH

#include "mathfuse/device/fft.cuh"
#include "mathfuse/device/tile.cuh"

namespace bench
{

enum feed {
    once,    // a block does one group of signals
    persist, // as many blocks as are resident walk over the groups
    ahead,   // and load the next group into registers before they compute
    staged   // or copy it into shared memory asynchronously
};

template <int N, class C, feed FEED> struct fused {
    typedef mf::fft::block<float, N, mf::fft::forward, C> there;
    typedef mf::fft::block<float, N, mf::fft::inverse, C> back;
    static constexpr int stage_at = (there::shared_bytes + 15) / 16 * 16;
    static constexpr int shared_bytes = FEED == staged ? stage_at + there::ffts * N * 8 : there::shared_bytes;
};

// A thread copies the elements that it will read itself, so that no barrier is needed.
template <class F> MF_DEVICE void stage(mf::c64 *place, const mf::c64 *src)
{
    mf::c64 *to = place + F::lane();
    const mf::c64 *from = src + F::lane();
    F::for_each([&](int, mf::i64 offset) { mf::copy_async<8>(to + offset, from + offset); });
    mf::copy_commit();
}

// No __restrict__: the compiler would keep the filter and the roots in registers from group to group, more than there are.
// dst = inverse(h * forward(src)) for signals_of_a_block x groups signals; h holds the factor 1 / N.
template <int N, class C, feed FEED, int RESIDENT>
__global__ void __launch_bounds__(fused<N, C, FEED>::there::threads, RESIDENT)
    convolve(const mf::c64 *src, const mf::c64 *h, mf::c64 *dst, const mf::c64 *table, long long groups)
{
    typedef typename fused<N, C, FEED>::there F;
    typedef typename fused<N, C, FEED>::back G;
    MF_DYNAMIC_SHARED(unsigned char, shared);
    mf::c64 x[F::elements], next[F::elements];
    mf::c64 *place = (mf::c64 *)(shared + fused<N, C, FEED>::stage_at) + F::signal() * N;
    long long group = blockIdx.x, step = FEED == once ? groups : (long long)gridDim.x;
    auto offset = [&](long long g) { return (g * F::ffts + F::signal()) * N; };
    if (FEED == ahead && group < groups)
        F::load(next, src + offset(group));
    if (FEED == staged && group < groups)
        stage<F>(place, src + offset(group));
    for (; group < groups; group += step) {
        bool more = group + step < groups;
        if constexpr (FEED == ahead) {
            MF_UNROLL
            for (int i = 0; i < F::elements; i++)
                x[i] = next[i];
            if (more)
                F::load(next, src + offset(group + step));
        } else if constexpr (FEED == staged) {
            mf::copy_wait<0>();
            F::load(x, place);
            if (more)
                stage<F>(place, src + offset(group + step));
        } else {
            F::load(x, src + offset(group));
        }
        F::run(x, shared, table);
        F::multiply(x, h);
        G::run(x, shared, table);
        G::store(x, dst + offset(group));
    }
}

} // namespace bench

#endif
