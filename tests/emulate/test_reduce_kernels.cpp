// reduce.cuh through the emulator against loops in double precision: operators, groups of lanes, softmax and variance in
// one pass.
#include "mathfuse/device/emulate.h"
#include "mathfuse/device/reduce.cuh"
#include "expect.h"

using namespace mf;

// dst[thread]: the reduction over its group of LANES.
template <class Op, int LANES, int THREADS, class T> static void groups(const T *src, T *dst)
{
    __shared__ T scratch[THREADS / 32];
    dst[threadIdx.x] = group_reduce<Op, LANES, THREADS>(src[threadIdx.x], scratch);
    dst[THREADS + threadIdx.x] = group_reduce<Op, LANES, THREADS>(src[THREADS + threadIdx.x], scratch);
}

template <class Op, int LANES, int THREADS, class T, class F> static void expect_groups(const char *what, F &&reference)
{
    std::vector<T> src(2 * THREADS), dst(2 * THREADS);
    for (T &x : src)
        x = (T)(random_number() * 8);
    src[5] = same<T, float> || same<T, double> ? (T)NAN : (T)5; // of the first group alone
    const char *error = emulate::launch(groups<Op, LANES, THREADS, T>, 1, THREADS, 0, src.data(), dst.data());
    EXPECT(!error, "%s: %s", what, error);
    for (int i = 0; i < 2 * THREADS; i++) {
        const T *group = src.data() + i / LANES * LANES;
        double want = (double)group[0];
        for (int k = 1; k < LANES; k++)
            want = reference(want, (double)group[k]);
        bool good = want != want ? dst[(size_t)i] != dst[(size_t)i]
                                 : fabs((double)dst[(size_t)i] - want) <= 1e-5 * (1 + fabs(want));
        EXPECT(good, "%s over %d of %d, thread %d: %g, not %g", what, LANES, THREADS, i, (double)dst[(size_t)i], want);
    }
}

template <int LANES, int THREADS> static void expect_operators()
{
    expect_groups<op_sum, LANES, THREADS, float>("sum", [](double x, double y) { return x + y; });
    expect_groups<op_sum, LANES, THREADS, i64>("integer sum", [](double x, double y) { return x + y; });
    expect_groups<op_max, LANES, THREADS, float>("max", [](double x, double y) { return x != x || x > y ? x : y; });
    expect_groups<op_min, LANES, THREADS, double>("min", [](double x, double y) { return x != x || x < y ? x : y; });
    expect_groups<op_any, LANES, THREADS, i32>("any", [](double x, double y) { return x != 0 || y != 0; });
    expect_groups<op_all, LANES, THREADS, i32>("all", [](double x, double y) { return x != 0 && y != 0; });
    expect_groups<op_prod, LANES, THREADS, double>("prod", [](double x, double y) { return x * y; });
}

template <class T> static void row_softmax(const T *x, T *y, int n)
{
    __shared__ softmax_moments<T> scratch[4];
    softmax_moments<T> s = softmax_moments<T>::identity();
    const T *row = x + blockIdx.x * n;
    for (int i = (int)threadIdx.x; i < n; i += 128)
        s.add(row[i]);
    s = block_reduce<softmax_moments<T>, 128>(s, scratch);
    for (int i = (int)threadIdx.x; i < n; i += 128)
        y[(int)blockIdx.x * n + i] = m_exp(row[i] - s.maximum) / s.sum;
}

template <class T> static void expect_softmax(int n, double scale, double tolerance)
{
    std::vector<T> x((size_t)n), y((size_t)n);
    for (T &v : x)
        v = (T)(random_number() * scale);
    const char *error = emulate::launch(row_softmax<T>, 1, 128, 0, x.data(), y.data(), n);
    EXPECT(!error, "%s", error);
    double most = -INFINITY, sum = 0;
    for (T v : x)
        most = fmax(most, (double)v);
    for (T v : x)
        sum += exp((double)v - most);
    for (int i = 0; i < n; i++) {
        double want = exp((double)x[(size_t)i] - most) / sum;
        EXPECT(fabs((double)y[(size_t)i] - want) <= tolerance, "softmax of %d: %g, not %g", n, (double)y[(size_t)i],
               want);
    }
}

template <class T> static void row_moments(const T *x, T *out, int n)
{
    __shared__ variance_moments<T> scratch[4];
    variance_moments<T> s = variance_moments<T>::identity();
    for (int i = (int)threadIdx.x; i < n; i += 128)
        s.add(x[i]);
    s = block_reduce<variance_moments<T>, 128>(s, scratch);
    if (threadIdx.x == 0) {
        out[0] = s.count;
        out[1] = s.mean;
        out[2] = s.squares / s.count;
    }
}

// A mean far from zero, where the difference of squares would leave nothing of the variance.
template <class T> static void expect_moments(int n, double mean, double tolerance)
{
    std::vector<T> x((size_t)n);
    T out[3];
    double sum = 0, squares = 0;
    for (T &v : x) {
        v = (T)(mean + random_number());
        sum += (double)v;
    }
    for (T v : x)
        squares += ((double)v - sum / n) * ((double)v - sum / n);
    const char *error = emulate::launch(row_moments<T>, 1, 128, 0, x.data(), out, n);
    EXPECT(!error, "%s", error);
    EXPECT((int)out[0] == n, "count %g", (double)out[0]);
    EXPECT(fabs((double)out[1] - sum / n) <= tolerance * fabs(mean), "mean %g, not %g", (double)out[1], sum / n);
    EXPECT(fabs((double)out[2] - squares / n) <= 1e-3 * squares / n, "variance %g, not %g", (double)out[2],
           squares / n);
}

int main()
{
    expect_operators<4, 64>();
    expect_operators<32, 32>();
    expect_operators<64, 256>();
    expect_operators<256, 256>();
    expect_softmax<float>(1000, 20, 1e-6);
    expect_softmax<float>(5, 300, 1e-6); // most threads see nothing
    expect_softmax<double>(333, 2000, 1e-14);
    expect_moments<float>(1000, 1000, 1e-6);
    expect_moments<double>(77, 1e6, 1e-13);
    return finish("reduce kernels");
}
