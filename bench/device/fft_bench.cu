// Measures FFT x filter x inverse FFT in one launch, several variants for each length, against cuFFT with a pointwise
// kernel between and against a copy; checks each result against cuFFT's. Prints a table, and JSON to the file named first.
//
//     nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Iinclude -Ibench/device --split-compile=0 \
//          bench/device/fft_bench.cu -lcufft -o fft_bench && ./fft_bench results.json
#include <cuda_runtime.h>
#include <cufft.h>
#include <stdio.h>
#include <stdlib.h>
#include <algorithm>
#include <functional>
#include <string>
#include <vector>
#include "fft_fused.cuh"

using bench::ahead;
using bench::once;
using bench::persist;
using bench::staged;
using mf::c64;
using mf::fft::config;
using mf::fft::radices;

static const long long points = 1ll << 26;

static void check(cudaError_t e, const char *what)
{
    if (e != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

static void check_fft(cufftResult r, const char *what)
{
    if (r != CUFFT_SUCCESS) {
        fprintf(stderr, "%s: cuFFT error %d\n", what, (int)r);
        exit(1);
    }
}
#define CHECK_FFT(call) check_fft(call, #call)

static __global__ void fill(c64 *x, long long count, float scale)
{
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (long long)gridDim.x * blockDim.x) {
        unsigned long long s = ((unsigned long long)i + 1) * 0x9e3779b97f4a7c15ull;
        s ^= s >> 29;
        s *= 0xbf58476d1ce4e5b9ull;
        s ^= s >> 32;
        x[i] = c64{((float)(unsigned)s * 0x1p-31f - 1) * scale, ((float)(unsigned)(s >> 32) * 0x1p-31f - 1) * scale};
    }
}

// Two points a thread, h repeated along the signals: the best a separate pass can do.
static __global__ void pointwise(float4 *x, const float4 *h, int half_n, long long pairs)
{
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < pairs;
         i += (long long)gridDim.x * blockDim.x) {
        float4 a = x[i], b = h[i % half_n];
        x[i] = make_float4(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x, a.z * b.z - a.w * b.w, a.z * b.w + a.w * b.z);
    }
}

static __global__ void copy(const float4 *src, float4 *dst, long long count)
{
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (long long)gridDim.x * blockDim.x)
        dst[i] = src[i];
}

static __global__ void difference(const c64 *x, const c64 *ref, long long count, double *sums)
{
    double e = 0, n = 0;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (long long)gridDim.x * blockDim.x) {
        double re = (double)x[i].re - ref[i].re, im = (double)x[i].im - ref[i].im;
        e += re * re + im * im;
        n += (double)ref[i].re * ref[i].re + (double)ref[i].im * ref[i].im;
    }
    atomicAdd(sums, e);
    atomicAdd(sums + 1, n);
}

// The median of `repeats` timed runs, in microseconds, after warming up.
static double measure(const std::function<void()> &run, int repeats = 21)
{
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = -3; i < repeats; i++) {
        CHECK(cudaEventRecord(begin));
        run();
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 0)
            times.push_back(ms);
    }
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    std::sort(times.begin(), times.end());
    return 1e3 * times[times.size() / 2];
}

struct device {
    c64 *src, *dst, *ref, *h;
    double *sums;
    int multiprocessors;
    std::string json;
    double copy_us, cufft_us, best_us;
    std::string best;
};

static double error_of(device &d)
{
    double sums[2];
    CHECK(cudaMemset(d.sums, 0, sizeof sums));
    difference<<<1024, 256>>>(d.dst, d.ref, points, d.sums);
    CHECK(cudaMemcpy(sums, d.sums, sizeof sums, cudaMemcpyDeviceToHost));
    return sqrt(sums[0] / sums[1]);
}

template <int N, class C, bench::feed FEED, int RESIDENT> static void variant(device &d, const char *name)
{
    typedef bench::fused<N, C, FEED> use;
    typedef typename use::there F;
    std::vector<c64> host(F::table_size + 1);
    for (int i = 0; i < F::table_size; i++)
        host[i] = F::table_entry(i);
    c64 *table;
    CHECK(cudaMalloc(&table, host.size() * sizeof(c64)));
    CHECK(cudaMemcpy(table, host.data(), host.size() * sizeof(c64), cudaMemcpyHostToDevice));
    auto kernel = bench::convolve<N, C, FEED, RESIDENT>;
    if (use::shared_bytes > 227 * 1024)
        return;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, use::shared_bytes));
    int resident = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, F::threads, use::shared_bytes));
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, kernel));
    long long groups = points / ((long long)N * F::ffts), most = (long long)resident * d.multiprocessors;
    unsigned blocks = (unsigned)(FEED == once ? groups : std::min(groups, most));
    auto run = [&] { kernel<<<blocks, F::threads, use::shared_bytes>>>(d.src, d.h, d.dst, table, groups); };
    CHECK(cudaMemset(d.dst, 0xff, points * sizeof(c64)));
    run();
    CHECK(cudaGetLastError());
    double error = error_of(d), us = measure(run);
    bool right = error < 1e-6;
    static const char *const feeds[] = {"once", "persist", "ahead", "staged"};
    printf("%6d  %-34s %-8s %5d %5d %6d %4d %4zu %9.1f %7.3f %7.3f  %.1e%s\n", N, name, feeds[FEED], F::threads,
           F::ffts, use::shared_bytes, resident, (size_t)attributes.numRegs, us, us / d.copy_us, d.cufft_us / us, error,
           right ? "" : "  WRONG");
    char row[512];
    snprintf(row, sizeof row,
             "{\"n\": %d, \"variant\": \"%s\", \"feed\": \"%s\", \"threads\": %d, \"ffts\": %d, \"shared\": %d, "
             "\"resident\": %d, "
             "\"registers\": %d, \"local\": %zu, \"us\": %.2f, \"copies\": %.4f, \"over_cufft\": %.4f, \"error\": "
             "%.3e, \"right\": %s}",
             N, name, feeds[FEED], F::threads, F::ffts, use::shared_bytes, resident, attributes.numRegs,
             attributes.localSizeBytes, us, us / d.copy_us, d.cufft_us / us, error, right ? "true" : "false");
    d.json += (d.json.empty() ? "" : ",\n    ") + std::string(row);
    if (right && us < d.best_us) {
        d.best_us = us;
        d.best = std::string(name) + ", " + feeds[FEED];
    }
    CHECK(cudaFree(table));
}

// cuFFT, pointwise, cuFFT: the result that variants are checked against and their peer.
static void peer(device &d, int n)
{
    fill<<<256, 256>>>(d.h, n, 1.0f / (float)n);
    cufftHandle plan;
    CHECK_FFT(cufftPlan1d(&plan, n, CUFFT_C2C, (int)(points / n)));
    auto run = [&] {
        CHECK_FFT(cufftExecC2C(plan, (cufftComplex *)d.src, (cufftComplex *)d.ref, CUFFT_FORWARD));
        pointwise<<<d.multiprocessors * 8, 256>>>((float4 *)d.ref, (const float4 *)d.h, n / 2, points / 2);
        CHECK_FFT(cufftExecC2C(plan, (cufftComplex *)d.ref, (cufftComplex *)d.ref, CUFFT_INVERSE));
    };
    d.cufft_us = measure(run);
    CHECK_FFT(cufftDestroy(plan));
    d.best_us = 1e30;
    d.best = "none right";
    printf("%6d  %-34s %-8s %5s %5s %6s %4s %4s %9.1f %7.3f %7.3f\n", n, "cuFFT, pointwise, cuFFT", "", "", "", "", "",
           "", d.cufft_us, d.cufft_us / d.copy_us, 1.0);
}

static void summary(device &d, int n)
{
    printf("%6d  best: %s: %.1f us, %.2f copies, %.2f x cuFFT\n\n", n, d.best.c_str(), d.best_us, d.best_us / d.copy_us,
           d.cufft_us / d.best_us);
    fflush(stdout);
}

#define VARIANT(n, feed, resident, ...) variant<n, config<__VA_ARGS__>, feed, resident>(d, #__VA_ARGS__ " x" #resident)

static void small_lengths(device &d)
{
    peer(d, 64);
    VARIANT(64, once, 4, 8, 16);
    VARIANT(64, persist, 4, 8, 16);
    VARIANT(64, ahead, 4, 8, 16);
    VARIANT(64, once, 8, 8, 16);
    VARIANT(64, once, 2, 8, 32);
    VARIANT(64, once, 4, 16, 32);
    VARIANT(64, once, 4, 4, 16);
    summary(d, 64);
    peer(d, 256);
    VARIANT(256, once, 4, 16, 8);
    VARIANT(256, persist, 4, 16, 8);
    VARIANT(256, ahead, 4, 16, 8);
    VARIANT(256, staged, 4, 16, 8);
    VARIANT(256, once, 6, 16, 8);
    VARIANT(256, once, 8, 16, 8);
    VARIANT(256, once, 2, 16, 16);
    VARIANT(256, once, 4, 8, 4);
    summary(d, 256);
    peer(d, 1024);
    VARIANT(1024, once, 4, 16, 2);
    VARIANT(1024, persist, 4, 16, 2);
    VARIANT(1024, ahead, 4, 16, 2);
    VARIANT(1024, staged, 4, 16, 2);
    VARIANT(1024, once, 6, 16, 2);
    VARIANT(1024, once, 16, 16, 1);
    VARIANT(1024, once, 3, 32, 4);
    VARIANT(1024, staged, 3, 32, 4);
    VARIANT(1024, once, 4, 8, 2);
    summary(d, 1024);
}

static void middle_lengths(device &d)
{
    peer(d, 4096);
    VARIANT(4096, once, 2, 16, 1);
    VARIANT(4096, once, 3, 16, 1);
    VARIANT(4096, persist, 3, 16, 1);
    VARIANT(4096, ahead, 2, 16, 1);
    VARIANT(4096, staged, 3, 16, 1);
    VARIANT(4096, once, 3, 16, 1, true);
    VARIANT(4096, staged, 3, 16, 1, true);
    VARIANT(4096, once, 4, 16, 1, true);
    VARIANT(4096, once, 3, 32, 1);
    VARIANT(4096, staged, 3, 32, 1);
    VARIANT(4096, once, 2, 8, 1);
    summary(d, 4096);
}

static void large_lengths(device &d)
{
    peer(d, 8192);
    VARIANT(8192, once, 1, 32, 1, true);
    VARIANT(8192, once, 2, 32, 1, true);
    VARIANT(8192, once, 2, 32, 1, false);
    VARIANT(8192, persist, 2, 32, 1, true);
    VARIANT(8192, staged, 2, 32, 1, true);
    VARIANT(8192, once, 2, 16, 1, true);
    VARIANT(8192, once, 2, 16, 1, false);
    VARIANT(8192, staged, 2, 16, 1, true);
    summary(d, 8192);
    peer(d, 16384);
    VARIANT(16384, once, 1, 32, 1, true);
    VARIANT(16384, once, 1, 32, 1, false);
    VARIANT(16384, persist, 1, 32, 1, true);
    VARIANT(16384, staged, 1, 32, 1, true);
    VARIANT(16384, once, 1, 32, 1, true, radices<16, 32, 32>);
    VARIANT(16384, once, 1, 32, 1, true, radices<16, 16, 8, 8>);
    VARIANT(16384, staged, 1, 32, 1, true, radices<16, 16, 8, 8>);
    VARIANT(16384, once, 1, 16, 1, true);
    VARIANT(16384, staged, 1, 16, 1, true);
    summary(d, 16384);
}

int main(int argc, char **argv)
{
    device d = {};
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    d.multiprocessors = properties.multiProcessorCount;
    for (c64 **p : {&d.src, &d.dst, &d.ref})
        CHECK(cudaMalloc(p, points * sizeof(c64)));
    CHECK(cudaMalloc(&d.h, 16384 * sizeof(c64)));
    CHECK(cudaMalloc(&d.sums, 2 * sizeof(double)));
    fill<<<1024, 256>>>(d.src, points, 1.0f);
    double memcpy_us =
        measure([&] { CHECK(cudaMemcpyAsync(d.dst, d.src, points * sizeof(c64), cudaMemcpyDeviceToDevice)); });
    double kernel_us =
        measure([&] { copy<<<d.multiprocessors * 16, 512>>>((const float4 *)d.src, (float4 *)d.dst, points / 2); });
    d.copy_us = std::min(memcpy_us, kernel_us);
    printf("%s, %d multiprocessors; %lld points c64\ncopy: cudaMemcpy %.1f us, kernel %.1f us (%.0f GB/s)\n\n",
           properties.name, d.multiprocessors, points, memcpy_us, kernel_us, 2e-3 * (double)(points * 8) / d.copy_us);
    printf("%6s  %-34s %-8s %5s %5s %6s %4s %4s %9s %7s %7s  %s\n", "n", "elements, signals, split, radices", "feed",
           "thr", "ffts", "shared", "res", "regs", "us", "copies", "xcuFFT", "error");
    small_lengths(d);
    middle_lengths(d);
    large_lengths(d);
    if (argc > 1) {
        FILE *f = fopen(argv[1], "w");
        if (!f) {
            perror(argv[1]);
            return 1;
        }
        fprintf(f, "{\"device\": \"%s\", \"points\": %lld, \"copy_us\": %.2f,\n \"rows\": [\n    %s]}\n",
                properties.name, points, d.copy_us, d.json.c_str());
        fclose(f);
    }
    return 0;
}
