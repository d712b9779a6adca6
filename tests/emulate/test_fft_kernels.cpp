// fft.cuh through the emulator against transforms by their definition: lengths, layouts, directions, types, real signals.
#include "mathfuse/device/emulate.h"
#include "mathfuse/device/fft.cuh"
#include "expect.h"

using mf::cplx;
using mf::fft::config;
using mf::fft::forward;
using mf::fft::inverse;

template <class F, class S> static void transform(const cplx<S> *src, cplx<S> *dst, const cplx<typename F::real> *table)
{
    MF_DYNAMIC_SHARED(unsigned char, shared);
    cplx<typename F::real> x[F::elements];
    mf::i64 signal = (mf::i64)blockIdx.x * F::ffts + F::signal();
    F::load(x, src + signal * F::size);
    F::run(x, shared, table);
    F::store(x, dst + signal * F::size);
}

// Transform, multiply, transform back, with no exchange between the two.
template <class F, class G, class T>
static void convolve(const cplx<T> *src, const cplx<T> *h, cplx<T> *dst, const cplx<T> *table)
{
    MF_DYNAMIC_SHARED(unsigned char, shared);
    cplx<T> x[F::elements];
    mf::i64 signal = (mf::i64)blockIdx.x * F::ffts + F::signal();
    F::load(x, src + signal * F::size);
    F::run(x, shared, table);
    F::multiply(x, h);
    G::run(x, shared, table);
    G::store(x, dst + signal * F::size);
}

template <class R>
static void real_there(const typename R::real *src, cplx<typename R::real> *bins, const cplx<typename R::real> *table)
{
    MF_DYNAMIC_SHARED(unsigned char, shared);
    cplx<typename R::real> x[R::elements];
    mf::i64 signal = (mf::i64)blockIdx.x * R::ffts + R::signal();
    R::load_real(x, src + signal * R::size);
    R::run(x, shared, table);
    R::store_bins(x, bins + signal * (R::size / 2 + 1));
}

template <class R>
static void real_back(const cplx<typename R::real> *bins, typename R::real *dst, const cplx<typename R::real> *table)
{
    MF_DYNAMIC_SHARED(unsigned char, shared);
    cplx<typename R::real> x[R::elements];
    mf::i64 signal = (mf::i64)blockIdx.x * R::ffts + R::signal();
    R::load_bins(x, bins + signal * (R::size / 2 + 1));
    R::run(x, shared, table);
    R::store_real(x, dst + signal * R::size);
}

// As vector, aligned as the kernels' tables and signals must be.
template <class T> struct aligned {
    T *p;
    explicit aligned(size_t count) : p((T *)aligned_alloc(256, (count * sizeof(T) + 256) / 256 * 256)) {}
    aligned(const aligned &) = delete;
    ~aligned() { free(p); }
};

template <class F> struct table_of : aligned<cplx<typename F::real>> {
    table_of() : aligned<cplx<typename F::real>>(F::table_size)
    {
        for (int i = 0; i < F::table_size; i++)
            this->p[i] = F::table_entry(i);
    }
};

// Relative error over some bins of one signal.
template <class S> static double error_of(const cplx<S> *src, const cplx<S> *dst, int n, int direction)
{
    std::vector<complex> x((size_t)n);
    for (int i = 0; i < n; i++)
        x[(size_t)i] = {(double)mf::widen(src[i].re), (double)mf::widen(src[i].im)};
    double error = 0, size = 0;
    for (int k = 0; k<n; k += n> 512 ? 61 : 1) {
        complex want = bin_of(x, k, direction), got = {(double)mf::widen(dst[k].re), (double)mf::widen(dst[k].im)};
        error += std::norm(got - want);
        size += std::norm(want);
    }
    return sqrt(error / size);
}

template <class F, class S = typename F::real> static void check_block(double tolerance)
{
    const int blocks = 2, signals = blocks * F::ffts, n = F::size;
    table_of<F> table;
    aligned<cplx<S>> src((size_t)(signals * n)), dst((size_t)(signals * n));
    for (int i = 0; i < signals * n; i++)
        src.p[i] = {mf::narrow<S>((typename F::real)random_number()), mf::narrow<S>((typename F::real)random_number())};
    const char *wrong =
        mf::emulate::launch(transform<F, S>, blocks, F::threads, F::shared_bytes, src.p, dst.p, table.p);
    EXPECT(!wrong, "n = %d: %s", n, wrong);
    for (int s : {0, signals - 1}) {
        double error = error_of(src.p + s * n, dst.p + s * n, n, F::direction);
        EXPECT(error < tolerance, "n = %d, direction %d, %zu bytes, %d elements, signal %d: error %g", n, F::direction,
               sizeof(S), F::elements, s, error);
    }
}

template <int N> static void check_length()
{
    check_block<mf::fft::block<float, N, forward>>(4e-7);
    check_block<mf::fft::block<double, N, inverse>>(2e-14);
}

template <int N, class C> static void check_config()
{
    check_block<mf::fft::block<float, N, forward, C>>(4e-7);
    check_block<mf::fft::block<float, N, inverse, C>>(4e-7);
}

template <int N, class T> static void check_convolution(double tolerance)
{
    typedef mf::fft::block<T, N, forward> F;
    typedef mf::fft::block<T, N, inverse> G;
    table_of<F> table;
    aligned<cplx<T>> src((size_t)(F::ffts * N)), h(N), dst((size_t)(F::ffts * N));
    for (int i = 0; i < F::ffts * N; i++)
        src.p[i] = {(T)random_number(), (T)random_number()};
    for (int k = 0; k < N; k++) { // a shift by 3, scaled
        mf::fft::turn w = mf::fft::turn_of(3 * k, N);
        h.p[k] = {(T)(w.c / N), (T)(-w.s / N)};
    }
    const char *wrong =
        mf::emulate::launch(convolve<F, G, T>, 1, F::threads, F::shared_bytes, src.p, h.p, dst.p, table.p);
    EXPECT(!wrong, "n = %d: %s", N, wrong);
    for (int s = 0; s < F::ffts; s++)
        for (int i = 0; i < N; i++) {
            cplx<T> want = src.p[s * N + i], got = dst.p[s * N + (i + 3) % N];
            double error = hypot((double)(want.re - got.re), (double)(want.im - got.im));
            if (error > tolerance) {
                EXPECT(error <= tolerance, "n = %d, signal %d, element %d: error %g", N, s, i, error);
                return;
            }
        }
}

template <int N, class T> static void check_real(double tolerance)
{
    typedef mf::fft::real_forward<T, N> F;
    typedef mf::fft::real_inverse<T, N> G;
    const int bins = N / 2 + 1;
    table_of<F> table;
    aligned<T> src((size_t)(F::ffts * N)), dst((size_t)(F::ffts * N));
    aligned<cplx<T>> mid((size_t)(F::ffts * bins));
    for (int i = 0; i < F::ffts * N; i++)
        src.p[i] = (T)random_number();
    const char *wrong = mf::emulate::launch(real_there<F>, 1, F::threads, F::shared_bytes, src.p, mid.p, table.p);
    EXPECT(!wrong, "n = %d: %s", N, wrong);
    std::vector<complex> x(src.p + (F::ffts - 1) * N, src.p + F::ffts * N);
    double error = 0, size = 0;
    for (int k = 0; k < bins; k += k + 2 < bins && N > 512 ? 2 : 1) {
        complex want = bin_of(x, k, forward),
                got = {(double)mid.p[(F::ffts - 1) * bins + k].re, (double)mid.p[(F::ffts - 1) * bins + k].im};
        error += std::norm(got - want);
        size += std::norm(want);
    }
    EXPECT(sqrt(error / size) < tolerance, "real, n = %d: error %g", N, sqrt(error / size));
    for (int s = 0; s < F::ffts; s++) { // what must not matter
        mid.p[s * bins].im = 7;
        if (N % 2 == 0)
            mid.p[s * bins + N / 2].im = 5;
    }
    wrong = mf::emulate::launch(real_back<G>, 1, G::threads, G::shared_bytes, mid.p, dst.p, table.p);
    EXPECT(!wrong, "n = %d: %s", N, wrong);
    for (int i = 0; i < F::ffts * N; i++)
        if (fabs((double)dst.p[i] / N - (double)src.p[i]) > 4 * tolerance) {
            EXPECT(false, "real, n = %d there and back: element %d is %g, not %g", N, i, (double)dst.p[i] / N,
                   (double)src.p[i]);
            return;
        }
}

template <int N> static void check_thread()
{
    cplx<double> x[N];
    std::vector<complex> in((size_t)N);
    for (int i = 0; i < N; i++) {
        in[(size_t)i] = {random_number(), random_number()};
        x[i] = {in[(size_t)i].real(), in[(size_t)i].imag()};
    }
    mf::fft::thread<double, N, forward>::run(x);
    for (int k = 0; k < N; k++)
        EXPECT(std::abs(bin_of(in, k, forward) - complex(x[k].re, x[k].im)) < 1e-13 * N, "thread, n = %d, bin %d", N,
               k);
}

template <int... N> static void check_lengths()
{
    (check_length<N>(), ...);
}
template <int... N> static void check_threads()
{
    (check_thread<N>(), ...);
}

int main()
{
    check_threads<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 22, 24, 25, 26, 27, 30, 32, 64>();
    check_lengths<1, 2, 4, 8, 16, 64, 256, 1024, 8192>(); // powers of two
#ifndef MF_EMULATE_FEW // the same code at other sizes, which takes minutes to compile with a sanitizer
    check_lengths<3, 5, 7, 11, 13, 32, 128, 512, 2048, 4096>();
#endif
    check_lengths<6, 12, 15, 60, 100, 143, 1000, 1001, 1536, 2310, 5000>(); // other smooth ones
    check_lengths<17, 97, 94, 1013>();                                      // Bluestein
    check_block<mf::fft::block<float, 16384, forward>>(4e-7);
    check_block<mf::fft::block<float, 12288, inverse>>(4e-7);
    check_config<64, config<4, 16>>();
    check_config<1024, config<32, 4>>();
    check_config<1024, config<16, 2, true>>();
    check_config<1024, config<16, 1, false, mf::fft::radices<16, 4, 16>>>();
    check_config<4096, config<8>>();
    check_config<8192, config<16, 1, true>>();
    check_config<1000, config<10, 1, true>>();
    using mf::fft::by_length;
    check_config<128, config<16, 16, false, by_length, true>>(); // signals beside each other
    check_config<1024, config<16, 4, true, by_length, true>>();
    check_config<60, config<6, 8, false, by_length, true>>();
    check_config<17, config<16, 4, false, by_length, true>>();
    check_block<mf::fft::block<float, 256, forward>, mf::f16>(6e-4);
    check_block<mf::fft::block<float, 1000, inverse>, mf::bf16>(5e-3);
    check_convolution<1, float>(1e-6);
    check_convolution<8, float>(1e-6);
    check_convolution<256, float>(1e-6);
    check_convolution<1000, double>(1e-14);
    check_convolution<143, float>(1e-6);
    check_convolution<1013, float>(3e-6);
    check_convolution<16384, float>(2e-6);
    check_real<2, double>(1e-15);
    check_real<8, float>(4e-7);
    check_real<128, float>(4e-7);
    check_real<1000, double>(1e-14);
    check_real<2048, float>(4e-7);
    check_real<16384, float>(4e-7);
    check_real<194, double>(1e-14);
    check_real<15, float>(4e-7);
    check_real<1001, float>(4e-7);
    return finish("fft kernels");
}
