// emulate.h itself: indices, barriers, exchanges between lanes, atomics, shared memory, tiles, and what it reports.
#include "mathfuse/device/emulate.h"
#include "mathfuse/device/reduce.cuh"
#include "mathfuse/device/tile.cuh"
#include "mathfuse/device/mma.cuh"
#include "expect.h"

using mf::emulate::launch;

__global__ void indices(int *seen)
{
    int block = (int)(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
    int thread = (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
    seen[block * (int)(blockDim.x * blockDim.y * blockDim.z) + thread]++;
}

static void test_indices()
{
    int seen[2 * 3 * 2 * 4 * 3 * 5] = {};
    const char *wrong = launch(indices, dim3(2, 3, 2), dim3(4, 3, 5), 0, seen);
    EXPECT(!wrong, "%s", wrong);
    for (int n : seen)
        EXPECT(n == 1, "ran %d times", n);
    wrong = launch(indices, 1, 2048, 0, seen);
    EXPECT(wrong && strstr(wrong, "1024"), "%s", wrong ? wrong : "nothing reported");
}

// Reversal through shared memory, static and dynamic, then votes at barriers.
__global__ void barriers(const int *src, int *dst, int *votes)
{
    __shared__ int fixed[96];
    MF_DYNAMIC_SHARED(int, dynamic);
    int t = (int)threadIdx.x, n = (int)blockDim.x;
    fixed[t] = src[t];
    __syncthreads();
    dynamic[t] = fixed[n - 1 - t];
    __syncthreads();
    dst[t] = dynamic[t] + dynamic[(t + 1) % n];
    int count = __syncthreads_count(t % 3 == 0), all = __syncthreads_and(t < 96), any = __syncthreads_or(t == 200);
    if (t == 0) {
        votes[0] = count;
        votes[1] = all;
        votes[2] = any;
    }
}

static void test_barriers()
{
    int src[96], dst[96], votes[3];
    for (int i = 0; i < 96; i++)
        src[i] = i * i;
    const char *wrong = launch(barriers, 2, 96, sizeof src, src, dst, votes);
    EXPECT(!wrong, "%s", wrong);
    for (int i = 0; i < 96; i++)
        EXPECT(dst[i] == src[95 - i] + src[95 - (i + 1) % 96], "element %d is %d", i, dst[i]);
    EXPECT(votes[0] == 32 && votes[1] && !votes[2], "%d %d %d", votes[0], votes[1], votes[2]);
}

__global__ void lanes(int *out)
{
    int t = (int)threadIdx.x;
    unsigned full = 0xffffffffu;
    int *mine = out + t * 12;
    mine[0] = __shfl_sync(full, t, 5);
    mine[1] = __shfl_sync(full, t, 9, 8);
    mine[2] = __shfl_up_sync(full, t, 3);
    mine[3] = __shfl_down_sync(full, t, 3, 16);
    mine[4] = __shfl_xor_sync(full, t, 6);
    mine[5] = (int)__ballot_sync(full, t % 2);
    mine[6] = __any_sync(full, t == 40);
    mine[7] = __all_sync(full, t < 64);
    mine[8] = (int)__match_any_sync(full, t / 8);
    mine[9] = mine[10] = -1;
    if (t % 2) // two halves of a warp, each on its own
        mine[9] = __shfl_sync(0xaaaaaaaau, t, 31);
    else
        mine[9] = __shfl_sync(0x55555555u, t, 0);
    __syncwarp();
    double wide = __shfl_xor_sync(full, t * 0.5, 1);
    mine[10] = (int)(2 * wide);
    mine[11] = (int)mf::block_reduce<mf::op_sum, 64>((mf::i32)t, (mf::i32 *)(void *)(mf::emulate::now.shared));
}

static void test_lanes()
{
    int out[64 * 12];
    const char *wrong = launch(lanes, 1, 64, 64, out);
    EXPECT(!wrong, "%s", wrong);
    for (int t = 0; t < 64; t++) {
        int base = t / 32 * 32, lane = t % 32;
        int want[12] = {base + 5,
                        base + lane / 8 * 8 + 1,
                        lane >= 3 ? t - 3 : t,
                        lane % 16 + 3 < 16 ? t + 3 : t,
                        t ^ 6,
                        (int)0xaaaaaaaau,
                        t >= 32,
                        1,
                        (int)(0xffu << (lane / 8 * 8)),
                        t % 2 ? base + 31 : base,
                        t ^ 1,
                        2016};
        for (int i = 0; i < 12; i++)
            EXPECT(out[t * 12 + i] == want[i], "thread %d, result %d: %d, not %d", t, i, out[t * 12 + i], want[i]);
    }
}

__global__ void atomics(unsigned *counter, float *sum, int *largest)
{
    atomicInc(counter, 9u);
    atomicAdd(sum, 0.5f);
    atomicMax(largest, (int)threadIdx.x);
    atomicCAS(counter + 1, threadIdx.x, threadIdx.x + 1);
}

static void test_atomics()
{
    unsigned counter[2] = {0, 0};
    float sum = 0;
    int largest = -1;
    const char *wrong = launch(atomics, 3, 64, 0, counter, &sum, &largest);
    EXPECT(!wrong, "%s", wrong);
    EXPECT(counter[0] == 192 % 10 && counter[1] == 64 && sum == 96 && largest == 63, "%u %u %g %d", counter[0],
           counter[1], sum, largest);
}

// A ragged tile, loaded with conversion or asynchronously, stored transposed.
__global__ void tiles(const float *src, float *dst, int rows, int columns, int row, int column)
{
    typedef mf::tile<float, 16, 24, 96, 28> wide;
    typedef mf::tile<float, 24, 16, 96, 28, false> turned;
    MF_DYNAMIC_SHARED(float, shared);
    mf::matrix_view<const float> from = {src, rows, columns, columns, 1};
    mf::matrix_view<float> to = {dst, 24, 16, 16, 1};
    float *other = shared + wide::bytes / 4;
    wide::load(shared, from, row, column);
    wide::load_async<4>(other, from, row, column);
    mf::copy_commit();
    mf::copy_wait<0>();
    __syncthreads();
    turned::for_each([&](int r, int c) {
        if (to.has(r, c))
            *to.at(r, c) = shared[c * 28 + r] + other[c * 28 + r];
    });
}

static void test_tiles()
{
    const int rows = 21, columns = 40;
    alignas(16) float src[rows * columns];
    float dst[24 * 16];
    for (int i = 0; i < rows * columns; i++)
        src[i] = (float)i;
    const char *wrong =
        launch(tiles, 1, 96, 2 * mf::tile<float, 16, 24, 96, 28>::bytes, src, dst, rows, columns, 8, 24);
    EXPECT(!wrong, "%s", wrong);
    for (int r = 0; r < 24; r++)
        for (int c = 0; c < 16; c++) {
            float want = 8 + c < rows && 24 + r < columns ? 2 * src[(8 + c) * columns + 24 + r] : 0;
            EXPECT(dst[r * 16 + c] == want, "(%d, %d) is %g, not %g", r, c, dst[r * 16 + c], want);
        }
}

// a (16 x K) times b (K x 8), fragments gathered by the documented places.
template <class T> __global__ void product(const T *a, const T *b, float *d)
{
    int l = (int)threadIdx.x;
    mf::u32 x[4], y[2];
    float sum[4] = {1, 1, 1, 1};
    if constexpr (sizeof(T) == 2) {
        for (int i = 0; i < 4; i++)
            memcpy(x + i, a + (l / 4 + i % 2 * 8) * 16 + l % 4 * 2 + i / 2 * 8, 4);
        for (int i = 0; i < 2; i++)
            memcpy(y + i, b + l / 4 * 16 + l % 4 * 2 + i * 8, 4);
        mf::mma<T>(sum, x, y);
    } else {
        for (int i = 0; i < 4; i++)
            memcpy(x + i, a + (l / 4 + i % 2 * 8) * 8 + l % 4 + i / 2 * 4, 4);
        for (int i = 0; i < 2; i++)
            memcpy(y + i, b + l / 4 * 8 + l % 4 + i * 4, 4);
        mf::mma_tf32(sum, x, y);
    }
    for (int i = 0; i < 4; i++)
        d[(l / 4 + i / 2 * 8) * 8 + l % 4 * 2 + i % 2] = sum[i];
}

template <class T, int K> static void test_product()
{
    alignas(4) T a[16 * K], b[8 * K]; // b by columns
    float d[16 * 8];
    for (T &x : a)
        x = mf::narrow<T>((float)(rand() % 17 - 8));
    for (T &x : b)
        x = mf::narrow<T>((float)(rand() % 17 - 8));
    const char *wrong = launch(product<T>, 1, 32, 0, a, b, d);
    EXPECT(!wrong, "%s", wrong);
    for (int r = 0; r < 16; r++)
        for (int c = 0; c < 8; c++) {
            float want = 1;
            for (int k = 0; k < K; k++)
                want += mf::widen(a[r * K + k]) * mf::widen(b[c * K + k]);
            EXPECT(d[r * 8 + c] == want, "k = %d, (%d, %d) is %g, not %g", K, r, c, d[r * 8 + c], want);
        }
}

__global__ void faulty(int which, int *out)
{
    int t = (int)threadIdx.x;
    if (which == 0 && t == 7)
        __syncthreads();
    if (which == 1 && t == 7)
        return;
    if (which == 2 && t == 7)
        __shfl_sync(0xffffffffu, t, 0);
    if (which == 3)
        out[t] = t == 7 ? __shfl_sync(0x0000ffffu, t, 0) : __shfl_sync(0xffffffffu, t, 0);
    if (which == 4 && t == 7)
        __syncwarp(0x1);
    if (which == 5)
        out[t] = t < 16 ? __shfl_sync(0x0000ffffu, t, 20) : 0;
    if (which == 6 && t == 7)
        __trap();
    __syncthreads();
}

static void test_reports()
{
    static const struct {
        const char *first, *second;
    } want[] = {{"divergence", "thread 7 at __syncthreads"},
                {"divergence", "thread 7 has returned"},
                {"divergence", "thread 7 at __shfl_sync"},
                {"mask 0000ffff", "mask ffffffff"},
                {"leaves it out", "__syncwarp"},
                {"reads lane 20", "0000ffff"},
                {"__trap", "thread 7"}};
    int out[64];
    for (int i = 0; i < 7; i++) {
        const char *message = launch(faulty, dim3(2), dim3(64), 0, i, out);
        EXPECT(message && strstr(message, want[i].first) && strstr(message, want[i].second), "fault %d: %s", i,
               message ? message : "nothing reported");
    }
    const char *message = launch(faulty, 2, 64, 0, 99, out); // the next launch is as good as ever
    EXPECT(!message, "%s", message);
}

int main()
{
    test_indices();
    test_barriers();
    test_lanes();
    test_atomics();
    test_tiles();
    test_product<mf::f16, 16>();
    test_product<mf::bf16, 16>();
    test_product<float, 8>();
    test_reports();
    return finish("emulation");
}
