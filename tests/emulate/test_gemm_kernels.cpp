// gemm.cuh and tile.cuh through the emulator against products in double precision: types, shapes that fit no instruction,
// layouts, several steps along k with copies of every kind.
#include "mathfuse/device/emulate.h"
#include "mathfuse/device/gemm.cuh"
#include "numbers.h"
#include <algorithm>
#include <set>

using namespace mf;
using gemm::columns;
using gemm::rows;

enum kind { ORDINARY, ASYNC, BULK };

// d = a b by tiles of G; blocks along rows, then columns.
template <class G, kind KIND, class T, class S>
static void multiply(matrix_view<const T> a, matrix_view<const T> b, matrix_view<S> d)
{
    MF_DYNAMIC_SHARED(T, shared);
    __shared__ u64 counters[2];
    T *as = shared, *bs = shared + G::a_elements;
    i64 row = (i64)blockIdx.x * G::m, column = (i64)blockIdx.y * G::n;
    typename G::sum c[G::elements] = {};
    bulk<G::threads> copies_a(counters), copies_b(counters + 1);
    for (i64 k = 0; k < a.columns; k += G::k) {
        i64 ar = G::a_rows ? row : k, ac = G::a_rows ? k : row, br = G::b_rows ? k : column,
            bc = G::b_rows ? column : k;
        matrix_view<const T> at = {a.data, a.columns, a.rows, a.column_stride, a.row_stride};
        matrix_view<const T> bt = {b.data, b.columns, b.rows, b.column_stride, b.row_stride};
        const matrix_view<const T> &av = G::a_rows ? a : at, &bv = G::b_rows ? b : bt;
        if constexpr (KIND == ORDINARY) {
            G::a_tile::load(as, av, ar, ac);
            G::b_tile::load(bs, bv, br, bc);
        } else if constexpr (KIND == ASYNC) {
            G::a_tile::load_async(as, av, ar, ac);
            G::b_tile::template load_async<G::ldb % 4 == 0 ? 4 : 1>(bs, bv, br, bc);
            copy_commit();
            copy_wait<0>();
        } else {
            G::a_tile::load_bulk(as, av, ar, ac, copies_a);
            G::b_tile::load_bulk(bs, bv, br, bc, copies_b);
            copies_a.wait();
            copies_b.wait();
        }
        __syncthreads();
        G::run(c, as, bs);
        __syncthreads();
    }
    G::for_each(c, [](int, int, typename G::sum &x) { x = x + x; });
    G::store(c, d, row, column);
}

// ld: of the operands in memory; each is stored as its layout in shared memory is.
template <class G, kind KIND = ORDINARY, class T, class S>
static void expect_product(const char *what, int m, int n, int k, T, S, double tolerance)
{
    std::vector<T> a((size_t)(m * k)), b((size_t)(k * n));
    std::vector<S> d((size_t)(m * n), from<S>(7));
    for (T &x : a)
        x = from<T>(complex(random_number(), random_number()));
    for (T &x : b)
        x = from<T>(complex(random_number(), random_number()));
    matrix_view<const T> av = {a.data(), m, k, G::a_rows ? k : 1, G::a_rows ? 1 : m};
    matrix_view<const T> bv = {b.data(), k, n, G::b_rows ? n : 1, G::b_rows ? 1 : k};
    matrix_view<S> dv = {d.data(), m, n, n, 1};
    dim3 grid((unsigned)((m + G::m - 1) / G::m), (unsigned)((n + G::n - 1) / G::n));
    const char *error = emulate::launch(multiply<G, KIND, T, S>, grid, G::threads, (size_t)G::shared_bytes, av, bv, dv);
    EXPECT(!error, "%s: %s", what, error);
    double worst = 0;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            complex sum = 0;
            for (int l = 0; l < k; l++)
                sum += to(*av.at(i, l)) * to(*bv.at(l, j));
            worst = fmax(worst, std::abs(to(d[(size_t)(i * n + j)]) - 2.0 * sum));
        }
    EXPECT(worst <= tolerance, "%s %dx%dx%d: error %g", what, m, n, k, worst);
}

template <class T, class MATH, int M, int N, int K, int THREADS, class A, class B>
static void expect_type(const char *what, int m, int n, int k, double tolerance)
{
    typedef gemm::block<T, M, N, K, THREADS, MATH, A, B> G;
    typedef typename G::sum sum;
    expect_product<G>(what, m, n, k, T{}, sum{}, tolerance);
}

template <class T, class MATH> static void expect_layouts(const char *what, double tolerance)
{
    expect_type<T, MATH, 32, 32, 16, 128, rows, rows>(what, 64, 64, 32, tolerance);
    expect_type<T, MATH, 32, 32, 16, 128, rows, columns>(what, 40, 33, 21, tolerance);
    expect_type<T, MATH, 32, 32, 16, 64, columns, rows>(what, 31, 65, 16, tolerance);
    expect_type<T, MATH, 32, 32, 16, 32, columns, columns>(what, 32, 32, 50, tolerance);
    expect_type<T, MATH, 19, 35, 11, 96, rows, rows>(what, 40, 70, 30, tolerance); // no multiple of anything
    expect_type<T, MATH, 5, 3, 2, 32, columns, rows>(what, 11, 7, 5, tolerance);
}

static void expect_copies()
{
    typedef gemm::block<float, 32, 64, 16, 128, gemm::plain> F;
    expect_product<F, ASYNC>("asynchronous", 64, 64, 48, 0.0f, 0.0f, 1e-5);
    expect_product<F, ASYNC>("asynchronous, beyond the ends", 40, 100, 20, 0.0f, 0.0f, 1e-5);
    typedef gemm::block<bf16, 32, 64, 32, 128> H;
    expect_product<H, BULK>("bulk", 64, 128, 96, bf16{}, 0.0f, 1e-5);
    expect_product<H, BULK>("bulk, beyond the ends", 40, 72, 40, bf16{}, 0.0f, 1e-5);
    expect_product<H, BULK>("result rounded", 32, 64, 32, bf16{}, f16{}, 5e-3);
}

// What was not waited for is not there.
static void early(const float *src, float *dst)
{
    __shared__ __align__(16) float s[64];
    copy_async<4>(s + threadIdx.x, src + threadIdx.x);
    copy_commit();
    copy_async<4>(s + 32 + threadIdx.x, src + 32 + threadIdx.x);
    copy_commit();
    copy_wait<1>();
    dst[threadIdx.x] = s[threadIdx.x];
    dst[32 + threadIdx.x] = s[32 + threadIdx.x];
    copy_wait<0>();
    dst[64 + threadIdx.x] = s[32 + threadIdx.x];
}

static void expect_early_reads_to_show()
{
    float src[64], dst[96];
    for (int i = 0; i < 64; i++)
        src[i] = (float)i;
    const char *error = emulate::launch(early, 2, 32, 0, src, dst);
    EXPECT(!error, "%s", error);
    for (int i = 0; i < 32; i++) {
        EXPECT(dst[i] == (float)i, "the first group: %g", (double)dst[i]);
        EXPECT(dst[32 + i] != dst[32 + i], "the second group came early: %g", (double)dst[32 + i]);
        EXPECT(dst[64 + i] == (float)(32 + i), "the second group: %g", (double)dst[64 + i]);
    }
}

// ---- banks ----

// Stands for an operand in shared memory: remembers which bytes a lane loads.
template <class T, int LD, bool ALONG_K> struct recorder {
    static constexpr bool along_k = ALONG_K, full = false;
    static constexpr int ld = LD;
    std::vector<int> *loads;
    T get(int outer, int kk) const
    {
        loads->push_back((ALONG_K ? outer * LD + kk : kk * LD + outer) * (int)sizeof(T));
        return T{};
    }
};

// Lanes [first, last) load 4-byte words at once: how many different ones lie in the worst bank?
static int worst_bank(const std::vector<int> *lanes, size_t load, int first, int last, int bytes)
{
    std::set<int> words[32];
    size_t most = 0;
    for (int lane = first; lane < last; lane++)
        for (int byte = 0; byte < bytes; byte += 4) {
            int word = (lanes[lane][load] + byte) / 4;
            words[word % 32].insert(word);
            most = std::max(most, words[word % 32].size());
        }
    return (int)most;
}

// Scalar loads: 128 bytes go at once, 32, 16 or 8 lanes.
template <class T> static void expect_lanes(const char *what, const std::vector<int> *lanes)
{
    constexpr int together = 128 / (sizeof(T) < 4 ? 4 : (int)sizeof(T));
    for (size_t load = 0; load < lanes[0].size(); load++)
        for (int first = 0; first < 32; first += together)
            EXPECT(worst_bank(lanes, load, first, first + together, (int)sizeof(T)) == 1, "%s, load %zu, lanes from %d",
                   what, load, first);
}

template <class T, class MATH, int M, int N, int K, class A, class B> static void expect_no_conflicts(const char *what)
{
    typedef gemm::block<T, M, N, K, 128, MATH, A, B> G;
    std::vector<int> a[32], b[32];
    for (int lane = 0; lane < 32; lane++) {
        typename G::unit::a_fragment x;
        typename G::unit::b_fragment y;
        G::unit::load_a(x, recorder<T, G::lda, G::a_rows>{&a[lane]}, 0, 0, lane);
        G::unit::load_b(y, recorder<T, G::ldb, !G::b_rows>{&b[lane]}, 0, 0, lane);
    }
    if (sizeof(T) > 2) {
        expect_lanes<T>(what, a);
        expect_lanes<T>(what, b);
        return;
    }
    for (int ld : {G::lda, G::ldb}) { // matrices of eight lines, 16 bytes of each
        std::vector<int> lines[8];
        for (int line = 0; line < 8; line++)
            lines[line] = {line * ld * 2};
        EXPECT(worst_bank(lines, 0, 0, 8, 16) == 1, "%s: lines of %d", what, ld);
    }
}

template <class T, class MATH, int M, int N, int K> static void expect_no_conflicts_in_any_layout(const char *what)
{
    expect_no_conflicts<T, MATH, M, N, K, rows, rows>(what);
    expect_no_conflicts<T, MATH, M, N, K, rows, columns>(what);
    expect_no_conflicts<T, MATH, M, N, K, columns, rows>(what);
    expect_no_conflicts<T, MATH, M, N, K, columns, columns>(what);
}

template <class T, class MATH> static void expect_free_banks(const char *what)
{
    expect_no_conflicts_in_any_layout<T, MATH, 64, 64, 32>(what);
    expect_no_conflicts_in_any_layout<T, MATH, 128, 32, 16>(what);
    expect_no_conflicts_in_any_layout<T, MATH, 33, 20, 11>(what);
    expect_no_conflicts_in_any_layout<T, MATH, 48, 96, 40>(what);
}

int main()
{
    expect_free_banks<bf16, gemm::tensor>("bf16");
    expect_free_banks<float, gemm::plain>("f32");
    expect_free_banks<float, gemm::tf32x3>("tf32");
    expect_free_banks<double, gemm::tensor>("f64");
    expect_free_banks<double, gemm::plain>("f64, plain");
    expect_free_banks<c64, gemm::plain>("c64");
    expect_free_banks<c64, gemm::tf32>("c64, tf32");
    expect_free_banks<c128, gemm::tensor>("c128");
    expect_layouts<f16, gemm::tensor>("f16", 1e-5);
    expect_layouts<bf16, gemm::tensor>("bf16", 1e-5);
    expect_layouts<float, gemm::plain>("f32", 1e-5);
    expect_copies();
    expect_early_reads_to_show();
#ifndef MF_EMULATE_CHECK // the same accesses, and slow there
    expect_layouts<float, gemm::tf32>("tf32", 1e-2);
    expect_layouts<float, gemm::tf32x3>("tf32x3", 1e-5);
    expect_layouts<double, gemm::tensor>("f64", 1e-14);
    expect_layouts<double, gemm::plain>("f64, plain", 1e-14);
    expect_layouts<c64, gemm::plain>("c64", 1e-5);
    expect_layouts<c64, gemm::tf32x3>("c64, tf32x3", 1e-5);
    expect_layouts<c128, gemm::tensor>("c128", 1e-13);
    expect_layouts<i32, gemm::plain>("i32", 0);
    expect_layouts<f16, gemm::plain>("f16, plain", 1e-5);
#endif
    return finish("gemm kernels");
}
