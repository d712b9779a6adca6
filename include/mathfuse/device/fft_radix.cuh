// What fft.cuh is built from: roots of unity, butterflies held in registers, and how a length is split into radices.
// Compiles with NVRTC, nvcc and a host C++17 compiler.
#ifndef MATHFUSE_DEVICE_FFT_RADIX_CUH
#define MATHFUSE_DEVICE_FFT_RADIX_CUH

#include "mathfuse/device/types.cuh"

namespace mf
{
namespace fft
{

constexpr int forward = -1, inverse = 1; // the sign of the exponent; neither direction scales

// ---- roots of unity ----

struct turn {
    double c, s;
};

// 2 pi a / n, brought into the first octant: the angle is pi p / (4 n), then swapped and negated as the flags say.
struct octant {
    i64 p;
    bool swap, negate_c, negate_s;
};

MF_HOST_DEVICE constexpr octant octant_of(i64 a, i64 n)
{
    octant o = {8 * (a % n), false, false, false};
    if (o.p > 4 * n) {
        o.p = 8 * n - o.p;
        o.negate_s = true;
    }
    if (o.p > 2 * n) {
        o.p = 4 * n - o.p;
        o.negate_c = true;
    }
    if (o.p > n) {
        o.p = 2 * n - o.p;
        o.swap = true;
    }
    return o;
}

MF_HOST_DEVICE constexpr turn in_full(octant o, double c, double s)
{
    double x = o.swap ? s : c, y = o.swap ? c : s;
    return turn{o.negate_c ? -x : x, o.negate_s ? -y : y};
}

constexpr double quarter_pi = 0.78539816339744830962;

// Cosine and sine of 2 pi a / n when the compiler knows a and n: the series, to the last place of a double.
MF_HOST_DEVICE constexpr turn turn_at(i64 a, i64 n)
{
    octant o = octant_of(a, n);
    double x = quarter_pi * (double)o.p / (double)n, c = 0, s = 0, term = 1;
    constexpr int last = 22;
    double terms[last + 1] = {};
    for (int i = 0; i <= last; i++) {
        terms[i] = term;
        term = term * x / (i + 1);
    }
    for (int i = last / 2; i >= 0; i--) // the small ones first
        c += i % 2 ? -terms[2 * i] : terms[2 * i];
    for (int i = last / 2 - 1; i >= 0; i--)
        s += i % 2 ? -terms[2 * i + 1] : terms[2 * i + 1];
    return in_full(o, c, s);
}

// The same at run time, for tables: exact reduction, then the double-precision functions.
MF_HOST_DEVICE turn turn_of(i64 a, i64 n)
{
    octant o = octant_of(a, n);
    double x = quarter_pi * (double)o.p / (double)n;
    return in_full(o, ::cos(x), ::sin(x));
}

// ---- complex products ----

template <int DIR, class T> MF_DEVICE cplx<T> times_root(cplx<T> x, cplx<T> w) // w is a forward root
{
    if constexpr (DIR == forward)
        return cplx<T>{x.re * w.re - x.im * w.im, x.re * w.im + x.im * w.re};
    else
        return cplx<T>{x.re * w.re + x.im * w.im, x.im * w.re - x.re * w.im};
}

template <int N> struct turns {
    turn at[N];
};
template <int N> MF_HOST_DEVICE constexpr turns<N> all_turns()
{
    turns<N> all = {};
    for (int a = 0; a < N; a++)
        all.at[a] = turn_at(a, N);
    return all;
}

// 2 pi a / N where unrolling makes `a` known to the compiler, which then sees two constants.
template <int N> MF_DEVICE turn fixed_turn(int a)
{
    constexpr turns<N> all = all_turns<N>();
    return all.at[a % N];
}

// x e^(DIR 2 pi i a / N), `a` known likewise
template <int DIR, int N, class T> MF_DEVICE cplx<T> times_fixed(cplx<T> x, int a)
{
    a %= N;
    if (a == 0)
        return x;
    if (2 * a == N)
        return -x;
    if (4 * a == N || 4 * a == 3 * N)
        return (4 * a == N) == (DIR == forward) ? cplx<T>{x.im, -x.re} : cplx<T>{-x.im, x.re};
    turn w = fixed_turn<N>(a);
    T c = (T)w.c, s = (T)(DIR * w.s);
    return cplx<T>{x.re * c - x.im * s, x.re * s + x.im * c};
}

// ---- butterflies: v becomes its transform, in natural order ----

MF_HOST_DEVICE constexpr int first_factor(int n)
{
    if (n % 4 == 0 && n > 4)
        return 4;
    for (int p = 2; p * p <= n; p++)
        if (n % p == 0)
            return n == 4 ? 4 : p;
    return n;
}

template <int DIR, int R, class T> MF_DEVICE void butterfly(cplx<T> (&v)[R]);

template <int DIR, class T> MF_DEVICE void butterfly_4(cplx<T> (&v)[4])
{
    cplx<T> a = v[0] + v[2], b = v[0] - v[2], c = v[1] + v[3], d = times_fixed<DIR, 4>(v[1] - v[3], 1);
    v[0] = a + c;
    v[1] = b + d;
    v[2] = a - c;
    v[3] = b - d;
}

// Odd primes: sums and differences of opposite elements give real products only.
template <int DIR, int R, class T> MF_DEVICE void butterfly_prime(cplx<T> (&v)[R])
{
    constexpr int H = (R - 1) / 2;
    cplx<T> sum[H], difference[H], first = v[0];
    MF_UNROLL
    for (int j = 0; j < H; j++) {
        sum[j] = v[j + 1] + v[R - 1 - j];
        difference[j] = v[j + 1] - v[R - 1 - j];
        v[0] = v[0] + sum[j];
    }
    MF_UNROLL
    for (int k = 0; k < H; k++) {
        cplx<T> even = first, odd = {T(0), T(0)};
        MF_UNROLL
        for (int j = 0; j < H; j++) {
            turn w = fixed_turn<R>((k + 1) * (j + 1));
            T c = (T)w.c, s = (T)(DIR * w.s);
            even = cplx<T>{even.re + c * sum[j].re, even.im + c * sum[j].im};
            odd = cplx<T>{odd.re + s * difference[j].re, odd.im + s * difference[j].im};
        }
        v[k + 1] = cplx<T>{even.re - odd.im, even.im + odd.re};
        v[R - 1 - k] = cplx<T>{even.re + odd.im, even.im - odd.re};
    }
}

// R = A B: A-point transforms of the elements that lie B apart, roots, B-point transforms.
template <int DIR, int A, int B, class T> MF_DEVICE void butterfly_composite(cplx<T> (&v)[A * B])
{
    cplx<T> y[A * B];
    MF_UNROLL
    for (int n = 0; n < B; n++) {
        cplx<T> u[A];
        MF_UNROLL
        for (int k = 0; k < A; k++) {
            u[k] = v[k * B + n];
        }
        butterfly<DIR, A>(u);
        MF_UNROLL
        for (int k = 0; k < A; k++) {
            y[k * B + n] = times_fixed<DIR, A * B>(u[k], n * k);
        }
    }
    MF_UNROLL
    for (int k = 0; k < A; k++) {
        cplx<T> u[B];
        MF_UNROLL
        for (int n = 0; n < B; n++) {
            u[n] = y[k * B + n];
        }
        butterfly<DIR, B>(u);
        MF_UNROLL
        for (int n = 0; n < B; n++) {
            v[k + A * n] = u[n];
        }
    }
}

template <int DIR, int R, class T> MF_DEVICE void butterfly(cplx<T> (&v)[R])
{
    constexpr int A = first_factor(R);
    if constexpr (R == 2) {
        cplx<T> a = v[0];
        v[0] = a + v[1];
        v[1] = a - v[1];
    } else if constexpr (R == 4) {
        butterfly_4<DIR>(v);
    } else if constexpr (R > 4 && A == R) {
        butterfly_prime<DIR, R>(v);
    } else if constexpr (R == 3) {
        butterfly_prime<DIR, 3>(v);
    } else if constexpr (R > 1) {
        butterfly_composite<DIR, A, R / A>(v);
    }
}

// butterfly where only the first and the last element are not zero
template <int DIR, int R, class T> MF_DEVICE void butterfly_of_ends(cplx<T> (&v)[R])
{
    const cplx<T> first = v[0], last = v[R - 1];
    MF_UNROLL
    for (int k = 0; k < R; k++)
        v[k] = first + times_fixed<DIR, R>(last, (R - 1) * k);
}

// ---- lengths ----

constexpr int max_radix = 32, largest_prime = 13;

MF_HOST_DEVICE constexpr bool is_power_of_2(int n)
{
    return (n & (n - 1)) == 0;
}

MF_HOST_DEVICE constexpr bool is_smooth(int n)
{
    for (int p = 2; p <= largest_prime; p++)
        while (n % p == 0)
            n /= p;
    return n == 1;
}

MF_HOST_DEVICE constexpr int log2_of(int n)
{
    int bits = 0;
    for (; n > 1; n /= 2)
        bits++;
    return bits;
}

// The length whose passes are run: n, or for a large prime factor the power of two of a circular convolution.
MF_HOST_DEVICE constexpr int work_length(int n)
{
    int m = 1;
    while (m < 2 * n - 1)
        m *= 2;
    return is_smooth(n) ? n : m;
}

struct radix_list {
    int count, radix[14];
    bool exact; // every radix divides the elements of a thread
};

MF_HOST_DEVICE constexpr int largest_divisor(int n, int limit, int of)
{
    for (int d = limit; d > 1; d--)
        if (n % d == 0 && (of == 0 || of % d == 0))
            return d;
    return 1;
}

// Powers of two: as few passes as E allows, of nearly equal radices, the larger ones first.
MF_HOST_DEVICE constexpr radix_list power_of_2_radices(int n, int e)
{
    int bits = log2_of(n), most = log2_of(e), passes = (bits + most - 1) / (most > 0 ? most : 1);
    radix_list list = {passes > 0 ? passes : 1, {1}, true};
    for (int i = 0, left = bits; i < passes; i++) {
        int b = (left + passes - i - 1) / (passes - i);
        list.radix[i] = 1 << b;
        left -= b;
    }
    return list;
}

// Other lengths: divisors of E, then what remains, in the middle, where threads may be idle at no other cost.
MF_HOST_DEVICE constexpr radix_list smooth_radices(int n, int e)
{
    radix_list list = {0, {}, true};
    int rest = n, d = 1;
    while ((d = largest_divisor(rest, e, e)) > 1) {
        list.radix[list.count++] = d;
        rest /= d;
    }
    while (rest > 1) {
        d = largest_divisor(rest, 16, 0);
        int at = list.count > 0 ? 1 : 0;
        for (int i = list.count; i > at; i--)
            list.radix[i] = list.radix[i - 1];
        list.radix[at] = d;
        list.count++;
        list.exact = false;
        rest /= d;
    }
    return list;
}

MF_HOST_DEVICE constexpr radix_list radices_of(int n, int e)
{
    return is_power_of_2(n) && is_power_of_2(e) ? power_of_2_radices(n, e) : smooth_radices(n, e);
}

// Elements a thread holds by default. Powers of two: measured or derived for occupancy; others: few exact passes.
MF_HOST_DEVICE constexpr int default_elements(int n, bool wide)
{
    if (is_power_of_2(n)) {
        if (n <= 8)
            return n;
        if (n <= 64 || n == 512)
            return n == 16 ? 4 : 8;
        return n < 8192 ? 16 : n == 8192 && wide ? 16 : 32;
    }
    int best = n, best_cost = 1 << 30;
    for (int e = 2; e <= (wide ? 16 : 32); e++) {
        if (n % e != 0 || n / e > 1024)
            continue;
        radix_list list = smooth_radices(n, e);
        int off = e > 12 ? e - 12 : 12 - e;
        int ends = (e % list.radix[0] != 0) + (e % list.radix[list.count - 1] != 0);
        int cost = 12 * (list.count + ends) + (list.exact ? 0 : 4) + off;
        if (cost < best_cost) {
            best_cost = cost;
            best = e;
        }
    }
    return best;
}

} // namespace fft
} // namespace mf

#endif
