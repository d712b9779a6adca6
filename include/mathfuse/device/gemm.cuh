// Matrix products of a block: c += a b, a and b in shared memory, c in the registers of its threads.
//
//     using G = mf::gemm::block<mf::bf16, 64, 64, 32, 128>;      // 64 x 64 += 64 x 32 times 32 x 64 by 128 threads
//     __shared__ __align__(16) mf::bf16 a[G::a_elements], b[G::b_elements];
//     G::sum c[G::elements] = {};
//     G::a_tile::load(a, view_of_a, row, k);                     // tile.cuh; any other way of filling it will do
//     G::b_tile::load(b, view_of_b, k, column);
//     __syncthreads();
//     G::run(c, a, b);                                           // all threads; a barrier before a and b change
//     G::for_each(c, [&](int row, int column, float &x) { x = mf::gelu(x); });
//     G::store(c, view_of_d, row, column);                       // rounded once, what lies outside of d is dropped
//
// Any M, N, K: the instructions' multiples are padded with zeros in registers. Element (row, k) of a lies at
// a[row * lda + k], or a[k * lda + row] in layout `columns`; (k, column) of b at b[k * ldb + column], or
// b[column * ldb + k]. lda and ldb are such that no two lanes meet in a bank. Sums: f32 for f16, bf16 and f32, else T.
//
// Arithmetic: `tensor` for f16, bf16, f64, c128 (tensor cores, products exact); for f32 and c64 `plain` (multiply-adds),
// `tf32` (operands rounded to 11 bits) or `tf32x3` (split in two: error near that of f32).
#ifndef MATHFUSE_DEVICE_GEMM_CUH
#define MATHFUSE_DEVICE_GEMM_CUH

#include "mathfuse/device/gemm_atom.cuh"
#include "mathfuse/device/tile.cuh"

namespace mf
{
namespace gemm
{

struct rows {
};
struct columns {
};

template <class T> struct default_math {
    typedef plain type;
};
template <> struct default_math<f16> {
    typedef tensor type;
};
template <> struct default_math<bf16> {
    typedef tensor type;
};
template <> struct default_math<double> {
    typedef tensor type;
};
template <> struct default_math<c128> {
    typedef tensor type;
};

MF_HOST_DEVICE constexpr int round_up(int n, int unit)
{
    return (n + unit - 1) / unit * unit;
}

// Elements from one line to the next. INNER: length of a line. ALONG_K: lines run along k, so that lanes of a fragment
// lie in eight lines.
template <class T, class MATH> MF_HOST_DEVICE constexpr int leading(int inner, bool along_k)
{
    if (sizeof(T) == 2)
        return round_up(inner, 16) + 8;
    if (same<MATH, plain>)
        return along_k ? inner | 1 : round_up(inner, 2);
    if (sizeof(T) == 4 && !along_k)
        return round_up(inner, 16) + 8;
    if (sizeof(T) == 16 && !along_k)
        return round_up(inner, 8) + 2;
    return round_up(inner, 8) + 4;
}

// Warps down the rows, of `warps`: fewest products for the busiest warp, then fewest fragments.
MF_HOST_DEVICE constexpr int warps_down(int warps, int atoms_m, int atoms_n)
{
    int best = 1;
    long long least = -1;
    for (int down = 1; down <= warps; down++) {
        if (warps % down)
            continue;
        int m = (atoms_m + down - 1) / down, n = (atoms_n * down + warps - 1) / warps;
        long long cost = (long long)m * n * 4096 + m + n;
        if (least < 0 || cost < least) {
            least = cost;
            best = down;
        }
    }
    return best;
}

template <class T, int M, int N, int K, int THREADS = 128, class MATH = typename default_math<T>::type,
          class A_LAYOUT = rows, class B_LAYOUT = rows>
struct block {
    static_assert(THREADS % 32 == 0, "whole warps");
    typedef atom<T, MATH> unit;
    typedef typename unit::sum sum;
    static constexpr int m = M, n = N, k = K, threads = THREADS;
    static constexpr bool a_rows = same<A_LAYOUT, rows>, b_rows = same<B_LAYOUT, rows>;
    static constexpr int lda = leading<T, MATH>(a_rows ? K : M, a_rows),
                         ldb = leading<T, MATH>(b_rows ? N : K, !b_rows);
    static constexpr int a_elements = (a_rows ? M : K) * lda, b_elements = (b_rows ? K : N) * ldb;
    static constexpr int shared_bytes = (a_elements + b_elements) * (int)sizeof(T);

    typedef tile<T, a_rows ? M : K, a_rows ? K : M, THREADS, lda> a_tile;
    typedef tile<T, b_rows ? K : N, b_rows ? N : K, THREADS, ldb> b_tile;

    static constexpr int all_m = (M + unit::m - 1) / unit::m, all_n = (N + unit::n - 1) / unit::n;
    static constexpr int warps = THREADS / 32, down = warps_down(warps, all_m, all_n), across = warps / down;
    static constexpr int atoms_m = (all_m + down - 1) / down, atoms_n = (all_n + across - 1) / across;
    static constexpr int elements = atoms_m * atoms_n * unit::sums; // of a thread
    static constexpr bool full_m = M % (unit::m * down) == 0, full_n = N % (unit::n * across) == 0,
                          full_k = K % unit::k == 0;

    static MF_DEVICE int lane() { return (int)threadIdx.x % 32; }
    static MF_DEVICE int first_row() { return (int)threadIdx.x / 32 / across * (atoms_m * unit::m); }
    static MF_DEVICE int first_column() { return (int)threadIdx.x / 32 % across * (atoms_n * unit::n); }
    // Of c[i] in the tile.
    static MF_DEVICE int row(int i)
    {
        return first_row() + i / unit::sums / atoms_n * unit::m + unit::row(lane(), i % unit::sums);
    }
    static MF_DEVICE int column(int i)
    {
        return first_column() + i / unit::sums % atoms_n * unit::n + unit::column(lane(), i % unit::sums);
    }
    static MF_DEVICE bool valid(int i) { return (full_m || row(i) < M) && (full_n || column(i) < N); }

    // Where fragments come from: element (outer, k) of an operand.
    template <int LD, bool ALONG_K, int LIMIT, bool FULL> struct source {
        static constexpr int ld = LD;
        static constexpr bool along_k = ALONG_K, full = FULL && full_k;
        const T *data;
        MF_DEVICE const T *at(int outer, int kk) const { return data + (ALONG_K ? outer * LD + kk : kk * LD + outer); }
        MF_DEVICE T get(int outer, int kk) const
        {
            return full || ((FULL || outer < LIMIT) && (full_k || kk < K)) ? *at(outer, kk) : T{};
        }
    };

    static MF_DEVICE void run(sum (&c)[elements], const T *a, const T *b)
    {
        const source<lda, a_rows, M, full_m> from_a = {a};
        const source<ldb, !b_rows, N, full_n> from_b = {b};
        int r0 = first_row(), c0 = first_column();
        MF_UNROLL_BY_4
        for (int k0 = 0; k0 < K; k0 += unit::k) {
            typename unit::a_fragment x[atoms_m];
            typename unit::b_fragment y[atoms_n];
            MF_UNROLL
            for (int i = 0; i < atoms_m; i++)
                unit::load_a(x[i], from_a, r0 + i * unit::m, k0, lane());
            MF_UNROLL
            for (int j = 0; j < atoms_n; j++)
                unit::load_b(y[j], from_b, c0 + j * unit::n, k0, lane());
            MF_UNROLL
            for (int i = 0; i < atoms_m; i++) {
                MF_UNROLL
                for (int j = 0; j < atoms_n; j++)
                    unit::multiply(c, (i * atoms_n + j) * unit::sums, x[i], y[j]);
            }
        }
    }

    // f(row, column, c[i]) for each element of the tile that the thread holds.
    template <class F> static MF_DEVICE void for_each(sum (&c)[elements], F &&f)
    {
        MF_UNROLL
        for (int i = 0; i < elements; i++) {
            if (valid(i))
                f(row(i), column(i), c[i]);
        }
    }
    template <class S>
    static MF_DEVICE void store(const sum (&c)[elements], const matrix_view<S> &dst, i64 at_row, i64 at_column)
    {
        MF_UNROLL
        for (int i = 0; i < elements; i++) {
            if (valid(i) && dst.has(at_row + row(i), at_column + column(i)))
                *dst.at(at_row + row(i), at_column + column(i)) = narrow<S>(c[i]);
        }
    }
};

} // namespace gemm
} // namespace mf

#endif
