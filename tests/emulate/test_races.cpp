// emulate.h's checked mode: races between barriers and shared accesses out of bounds are found, and none in fft.cuh,
// reduce.cuh or the benchmark's kernel. Compiled with -fsanitize=thread, linked without.
#include "mathfuse/device/emulate.h"
#include "mathfuse/device/fft.cuh"
#include "mathfuse/device/reduce.cuh"
#include "fft_fused.cuh"
#include "expect.h"

using mf::c64;
using mf::emulate::launch;

__global__ void reversal(int which, int *out)
{
    __shared__ int fixed[64];
    MF_DYNAMIC_SHARED(int, dynamic);
    int t = (int)threadIdx.x;
    if (which == 0) { // static shared memory, no barrier
        fixed[t] = t;
        out[t] = fixed[63 - t];
    } else if (which == 1) { // dynamic
        dynamic[t] = t;
        out[t] = dynamic[63 - t];
    } else if (which == 2) { // a warp's barrier is not enough across warps
        dynamic[t] = t;
        __syncwarp();
        out[t] = dynamic[63 - t];
    } else if (which == 3) { // written again before all have read
        dynamic[t] = t;
        __syncthreads();
        int x = dynamic[63 - t];
        dynamic[t] = x;
        out[t] = x;
    } else if (which == 4) { // global memory
        out[t / 2] = t;
    } else if (which == 5) { // out of bounds
        dynamic[t + 1] = t;
    } else if (which == 6) { // right: the warp's barrier within a warp, then the block's
        dynamic[t] = t;
        __syncwarp();
        int x = dynamic[t ^ 31];
        __syncwarp();
        dynamic[t] = x;
        __syncthreads();
        out[t] = dynamic[63 - t];
    }
}

static void test_reports()
{
    static const char *const want[] = {"race", "race", "race", "race", "race", "byte 256 of 256", nullptr};
    int out[64];
    for (int i = 0; i < 7; i++) {
        const char *message = launch(reversal, 1, 64, 256, i, out);
        EXPECT(want[i] ? message && strstr(message, want[i]) : !message, "case %d: %s", i,
               message ? message : "nothing reported");
    }
}

template <class F> static std::vector<c64> table_of()
{
    std::vector<c64> table((size_t)F::table_size + 2);
    for (int i = 0; i < F::table_size; i++)
        table[(size_t)i] = F::table_entry(i);
    return table;
}

// Two groups for each block, so that what one leaves behind meets the next.
template <int N, class C, bench::feed FEED> static void check_fused()
{
    typedef bench::fused<N, C, FEED> use;
    typedef typename use::there F;
    std::vector<c64> table = table_of<F>();
    const int groups = 4, points = groups * F::ffts * N;
    std::vector<c64> src((size_t)points), dst((size_t)points), h((size_t)N, c64{1.0f / N, 0});
    for (c64 &x : src)
        x = c64{(float)random_number(), (float)random_number()};
    const char *wrong = launch(bench::convolve<N, C, FEED, 1>, FEED == bench::once ? groups : 2, F::threads,
                               use::shared_bytes, src.data(), h.data(), dst.data(), table.data(), (long long)groups);
    EXPECT(!wrong, "n = %d: %s", N, wrong);
    for (int i = 0; i < points && !failures; i++)
        EXPECT(fabsf(src[(size_t)i].re - dst[(size_t)i].re) < 1e-6f, "n = %d, element %d", N, i);
}

template <class R> __global__ void real_kernel(const float *src, c64 *bins, const c64 *table)
{
    MF_DYNAMIC_SHARED(unsigned char, shared);
    c64 x[R::elements];
    R::load_real(x, src + R::signal() * R::size);
    R::run(x, shared, table);
    R::store_bins(x, bins + R::signal() * (R::size / 2 + 1));
}

template <int N> static void check_real()
{
    typedef mf::fft::real_forward<float, N> R;
    std::vector<c64> table = table_of<R>(), bins((size_t)(R::ffts * (N / 2 + 1)));
    std::vector<float> src((size_t)(R::ffts * N), 1.0f);
    const char *wrong = launch(real_kernel<R>, 1, R::threads, R::shared_bytes, src.data(), bins.data(), table.data());
    EXPECT(!wrong, "real, n = %d: %s", N, wrong);
}

__global__ void sums(float *out)
{
    __shared__ float scratch[4];
    for (int i = 0; i < 3; i++) {
        float sum = mf::block_reduce<mf::op_sum, 128>((float)threadIdx.x, scratch);
        if (threadIdx.x == 0)
            out[i] = sum;
    }
}

int main()
{
    using mf::fft::config;
    test_reports();
    float out[3];
    const char *wrong = launch(sums, 1, 128, 0, out);
    EXPECT(!wrong && out[2] == 8128, "%s", wrong ? wrong : "wrong sum");
    check_fused<64, config<8, 4>, bench::persist>();
    check_fused<256, config<16, 8>, bench::ahead>();
    check_fused<1024, config<32, 4>, bench::once>();
    check_fused<1024, config<16, 2>, bench::staged>();
    check_fused<4096, config<16, 1, true>, bench::staged>();
    check_fused<1000, config<10, 1>, bench::persist>();
    check_fused<143, config<11, 2>, bench::persist>();
    check_fused<97, mf::fft::default_config<float, 97>, bench::persist>();
    check_fused<128, config<8, 16, false, mf::fft::by_length, true>, bench::persist>();
    check_fused<143, config<11, 4, false, mf::fft::by_length, true>, bench::persist>();
    check_real<512>();
    check_real<1001>();
    return finish("races");
}
