// A user's own kernel over mathfuse's device headers: each signal is transformed, filtered and transformed back in one
// launch, and its energy is summed on the way.
//
// On a GPU:       nvcc -std=c++17 -O3 -arch=sm_90 -I include examples/device/block_fft.cu -o block_fft && ./block_fft
// Without a GPU:  g++ -std=c++17 -O2 -I include -include mathfuse/device/emulate.h -x c++ examples/device/block_fft.cu -o block_fft
#include <stdio.h>
#include <stdlib.h>
#include "mathfuse/device/fft.cuh"
#include "mathfuse/device/reduce.cuh"

constexpr int N = 1024;
using F = mf::fft::block<float, N, mf::fft::forward>;
using G = mf::fft::block<float, N, mf::fft::inverse>;

// Blocks of F::threads take F::ffts signals each. `filter` holds the factor 1 / N, as neither transform scales.
__global__ void filter_signals(const mf::c64 *src, const mf::c64 *filter, const mf::c64 *table, mf::c64 *dst,
                               float *energy)
{
    MF_DYNAMIC_SHARED(unsigned char, shared);
    __shared__ float partial[F::threads / 32];
    mf::c64 x[F::elements];
    long long signal = (long long)blockIdx.x * F::ffts + F::signal();
    F::load(x, src + signal * N);
    F::run(x, shared, table);
    F::multiply(x, filter);
    G::run(x, shared, table);
    G::store(x, dst + signal * N);

    float sum = 0;
    for (int i = 0; i < F::elements; i++)
        sum += x[i].re * x[i].re + x[i].im * x[i].im;
    sum = mf::group_reduce<mf::op_sum, F::lanes, F::threads>(sum, partial);
    if (F::lane() == 0)
        energy[signal] = sum;
}

constexpr int signals = 8 * F::ffts, blocks = signals / F::ffts;

static bool launch(const mf::c64 *src, const mf::c64 *filter, const mf::c64 *table, mf::c64 *dst, float *energy)
{
#ifdef __CUDACC__
    filter_signals<<<blocks, F::threads, F::shared_bytes>>>(src, filter, table, dst, energy);
    cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess)
        fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return error == cudaSuccess;
#else
    const char *error =
        mf::emulate::launch(filter_signals, blocks, F::threads, F::shared_bytes, src, filter, table, dst, energy);
    if (error)
        fprintf(stderr, "%s\n", error);
    return !error;
#endif
}

template <class T> static T *allocate(size_t count) // memory that both sides see
{
    void *p = nullptr;
#ifdef __CUDACC__
    if (cudaMallocManaged(&p, count * sizeof(T)) != cudaSuccess)
        p = nullptr;
#else
    p = aligned_alloc(256, (count * sizeof(T) + 255) / 256 * 256);
#endif
    if (!p)
        exit(2);
    return (T *)p;
}

static void release(void *p)
{
#ifdef __CUDACC__
    cudaFree(p);
#else
    free(p);
#endif
}

int main()
{
    mf::c64 *src = allocate<mf::c64>((size_t)signals * N), *dst = allocate<mf::c64>((size_t)signals * N);
    mf::c64 *filter = allocate<mf::c64>(N), *table = allocate<mf::c64>(F::table_size);
    float *energy = allocate<float>(signals);
    for (int i = 0; i < F::table_size; i++)
        table[i] = F::table_entry(i);
    // Signal s is two tones, in bins s + 1 and N / 2 + s; the filter keeps the lower half of the bins.
    for (int s = 0; s < signals; s++)
        for (int i = 0; i < N; i++) {
            mf::fft::turn low = mf::fft::turn_of((long long)i * (s + 1), N),
                          high = mf::fft::turn_of((long long)i * (N / 2 + s), N);
            src[s * N + i] = mf::c64{(float)(low.c + high.c), (float)(low.s + high.s)};
        }
    for (int k = 0; k < N; k++)
        filter[k] = mf::c64{k < N / 2 ? 1.0f / N : 0.0f, 0.0f};

    float worst = launch(src, filter, table, dst, energy) ? 0 : 1;
    for (int s = 0; s < signals; s++) {
        for (int i = 0; i < N; i++) {
            mf::fft::turn low = mf::fft::turn_of((long long)i * (s + 1), N);
            float re = dst[s * N + i].re - (float)low.c, im = dst[s * N + i].im - (float)low.s;
            worst = re * re + im * im > worst ? re * re + im * im : worst;
        }
        if (energy[s] < 0.999f * N || energy[s] > 1.001f * N)
            worst = 1;
    }
    release(src);
    release(dst);
    release(filter);
    release(table);
    release(energy);
    printf("%d signals of %d, largest squared error %.2e: %s\n", signals, N, worst, worst < 1e-10f ? "right" : "wrong");
    return worst < 1e-10f ? 0 : 1;
}
