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

MF_HOST_DEVICE constexpr bool is_power_of_2(int n)
{
    return (n & (n - 1)) == 0;
}

MF_HOST_DEVICE constexpr int log2_of(int n)
{
    int bits = 0;
    for (; n > 1; n /= 2)
        bits++;
    return bits;
}

// Of a composite radix: all of its smallest prime, whose cofactor then needs no roots; of a power of a prime, that prime.
MF_HOST_DEVICE constexpr int first_factor(int n)
{
    for (int p = 2; p * p <= n; p++)
        if (n % p == 0) {
            int power = p;
            while (n % (power * p) == 0)
                power *= p;
            return power < n ? power : p;
        }
    return n;
}

MF_HOST_DEVICE constexpr bool are_coprime(int a, int b)
{
    while (b > 0) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a == 1;
}

MF_HOST_DEVICE constexpr int inverse_modulo(int a, int n)
{
    for (int i = 1; i < n; i++)
        if (a * i % n == 1)
            return i;
    return 0;
}

MF_HOST_DEVICE constexpr int bits_reversed(int i, int n)
{
    int reversed = 0;
    for (; n > 1; n /= 2, i /= 2)
        reversed = reversed * 2 + i % 2;
    return reversed;
}

template <int DIR, int R, class T> MF_DEVICE void butterfly(cplx<T> (&v)[R]);

// 2 x - y in one operation: compilers make two additions of it.
MF_DEVICE float twice_less(float x, float y)
{
    return ::fmaf(2.0f, x, -y);
}
MF_DEVICE double twice_less(double x, double y)
{
    return ::fma(2.0, x, -y);
}

// a + w b and a - w b in six operations, w a forward root: the second from the first, as doubling is exact.
template <int DIR, class T> MF_DEVICE void combine(cplx<T> &a, cplx<T> &b, cplx<T> w)
{
    const T s = DIR == forward ? w.im : -w.im;
    cplx<T> sum = {a.re + w.re * b.re - s * b.im, a.im + w.re * b.im + s * b.re};
    b = cplx<T>{twice_less(a.re, sum.re), twice_less(a.im, sum.im)};
    a = sum;
}

// The same with root k of S, which the compiler knows: b turned by its tangent, or by its cotangent if that is smaller.
template <int DIR, int S, class T> MF_DEVICE void combine_fixed(cplx<T> &a, cplx<T> &b, int k)
{
    cplx<T> x = a, y = b;
    if (k == 0 || 4 * k == S) {
        y = times_fixed<DIR, S>(y, k);
        a = x + y;
        b = x - y;
        return;
    }
    const turn w = fixed_turn<S>(k);
    const double c = w.c, s = DIR * w.s;
    const bool steep = (s < 0 ? -s : s) > (c < 0 ? -c : c);
    const T scale = (T)(steep ? s : c), slope = (T)(steep ? c / s : s / c);
    y = steep ? cplx<T>{slope * y.re - y.im, slope * y.im + y.re} : cplx<T>{y.re - slope * y.im, y.im + slope * y.re};
    a = cplx<T>{x.re + scale * y.re, x.im + scale * y.im};
    b = cplx<T>{x.re - scale * y.re, x.im - scale * y.im};
}

// Powers of two by halves, of elements in the order of their bits reversed: the level that makes transforms of S.
template <int DIR, int R, int S, class T> MF_DEVICE void levels_from(cplx<T> (&v)[R])
{
    MF_UNROLL
    for (int k = 0; k < S / 2; k++) {
        MF_UNROLL
        for (int i = 0; i < R; i += S) {
            combine_fixed<DIR, S>(v[i + k], v[i + k + S / 2], k);
        }
    }
    if constexpr (S < R)
        levels_from<DIR, R, 2 * S>(v);
}
// With elements k times w^k first: power[i] is w^(2^i).
template <int DIR, int R, int S, class T> MF_DEVICE void levels_from(cplx<T> (&v)[R], const cplx<T> *power)
{
    const cplx<T> w = power[log2_of(R / S)];
    MF_UNROLL
    for (int k = 0; k < (S + 3) / 4; k++) {
        const cplx<T> u = times_fixed<forward, S>(w, k);
        MF_UNROLL
        for (int i = k; i < R; i += S) {
            combine<DIR>(v[i], v[i + S / 2], u);
            if constexpr (S >= 4)
                combine<DIR>(v[i + S / 4], v[i + 3 * S / 4], cplx<T>{u.im, -u.re});
        }
    }
    if constexpr (S < R)
        levels_from<DIR, R, 2 * S>(v, power);
}

template <int R, class T> MF_DEVICE void reverse_bits(cplx<T> (&v)[R])
{
    cplx<T> u[R];
    MF_UNROLL
    for (int i = 0; i < R; i++) {
        u[i] = v[bits_reversed(i, R)];
    }
    MF_UNROLL
    for (int i = 0; i < R; i++) {
        v[i] = u[i];
    }
}

// Odd primes: sums and differences of opposite elements give real products only. Up to 5, those of the differences are
// relative to the first, by which their sum is multiplied where it is used: with more of them, that costs accuracy.
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
    for (int k = 1; k <= H; k++) {
        const double unit = R <= 5 ? fixed_turn<R>(k).s : 1;
        cplx<T> even = first, odd = {T(0), T(0)};
        MF_UNROLL
        for (int j = 0; j < H; j++) {
            turn w = fixed_turn<R>(k * (j + 1));
            const T c = (T)w.c, s = (T)(w.s / unit);
            even = cplx<T>{even.re + c * sum[j].re, even.im + c * sum[j].im};
            odd = j == 0 && R <= 5 ? difference[0]
                                   : cplx<T>{odd.re + s * difference[j].re, odd.im + s * difference[j].im};
        }
        const T scale = (T)(DIR * unit);
        v[k] = cplx<T>{even.re - scale * odd.im, even.im + scale * odd.re};
        v[R - k] = cplx<T>{even.re + scale * odd.im, even.im - scale * odd.re};
    }
}

// R = A B without a common factor: element A b + B a (modulo R) is a, b of a plane, bin k is (k mod A, k mod B) of its
// transform. No roots between.
template <int DIR, int A, int B, class T> MF_DEVICE void butterfly_plane(cplx<T> (&v)[A * B])
{
    constexpr int R = A * B, TO_A = B * inverse_modulo(B % A, A), TO_B = A * inverse_modulo(A % B, B);
    cplx<T> y[R];
    MF_UNROLL
    for (int b = 0; b < B; b++) {
        cplx<T> u[A];
        MF_UNROLL
        for (int a = 0; a < A; a++) {
            u[a] = v[(A * b + B * a) % R];
        }
        butterfly<DIR, A>(u);
        MF_UNROLL
        for (int a = 0; a < A; a++) {
            y[a * B + b] = u[a];
        }
    }
    MF_UNROLL
    for (int a = 0; a < A; a++) {
        cplx<T> u[B];
        MF_UNROLL
        for (int b = 0; b < B; b++) {
            u[b] = y[a * B + b];
        }
        butterfly<DIR, B>(u);
        MF_UNROLL
        for (int b = 0; b < B; b++) {
            v[(TO_A * a + TO_B * b) % R] = u[b];
        }
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
    if constexpr (R > 1 && is_power_of_2(R)) {
        reverse_bits(v);
        levels_from<DIR, R, 2>(v);
    } else if constexpr (R > 1 && A == R) {
        butterfly_prime<DIR, R>(v);
    } else if constexpr (R > 1 && are_coprime(A, R / A)) {
        butterfly_plane<DIR, A, R / A>(v);
    } else if constexpr (R > 1) {
        butterfly_composite<DIR, A, R / A>(v);
    }
}

// butterfly of elements k times w^k, where power[i] is w^(2^i); a power of two.
template <int DIR, int R, class T> MF_DEVICE void butterfly_times(cplx<T> (&v)[R], const cplx<T> *power)
{
    reverse_bits(v);
    levels_from<DIR, R, 2>(v, power);
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

MF_HOST_DEVICE constexpr bool is_smooth(int n)
{
    for (int p = 2; p <= largest_prime; p++)
        while (n % p == 0)
            n /= p;
    return n == 1;
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
