// svd.cuh and the batches over it through the emulator: LAPACK's measures of values and vectors on its kinds of matrices, every type,
// tall and wide, singular ones whose vectors are made up, sizes near the ends of the range, matrices that are not finite, reruns.
#include "mathfuse/device/emulate.h"
#include "device/svd_batch.cuh"
#include "batches.h"
#include "unitary.h"

static const int THREADS = 32;
static const double LIMIT = 30; // of LAPACK's test ratios

enum kind { RANDOM, GRADED, FLAT, HALF_RANK, RANK_ONE, ZERO, KINDS };
static const char *const kind_name[KINDS] = {"random", "graded", "all ones", "half of the rank", "rank one", "zero"};

template <class T> struct batch {
    int items, m, n, k;
    bool columns; // stored by columns
    double size;
    std::vector<complex> full;
    std::vector<T> a, u, v;
    std::vector<real_t<T>> s;
    std::vector<int> info;

    batch(int items_, int m_, int n_, bool columns_, double size_)
        : items(items_), m(m_), n(n_), k(m < n ? m : n), columns(columns_), size(size_), full((size_t)(items * m * n)),
          a(full.size()), u((size_t)(items * m * k), from<T>(complex(7, 7))),
          v((size_t)(items * k * n), from<T>(complex(7, 7))), s((size_t)(items * k), 7), info((size_t)items, 7)
    {
    }
    size_t at(int item, int i, int j) const { return (size_t)((item * m + i) * n + j); }
    T &stored(int item, int i, int j) { return a[columns ? (size_t)((item * n + j) * m + i) : at(item, i, j)]; }

    void fill(int item, kind what)
    {
        std::vector<complex> left = random_unitary<T>(m, k), right = random_unitary<T>(n, k);
        const double range = sizeof(real_t<T>) == 4 ? 7 : 15;
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) {
                complex sum = 0;
                for (int l = 0; l < k; l++) {
                    double value = what == GRADED      ? pow(10, -range * l / k)
                                   : what == HALF_RANK ? (l < (k + 1) / 2)
                                   : what == RANK_ONE  ? (l == 0)
                                                       : (what != ZERO);
                    sum += left[(size_t)(l * m + i)] * value * std::conj(right[(size_t)(l * n + j)]);
                }
                if (what == RANDOM)
                    sum = complex(random_number(), is_complex<T> ? random_number() : 0);
                stored(item, i, j) = from<T>(size * sum);
                full[at(item, i, j)] = to(stored(item, i, j)) / size;
            }
    }

    template <class B> void run(bool vectors)
    {
        typename B::args p = {};
        const bool wide = m < n;
        p.items = items, p.m = wide ? n : m, p.n = k, p.conjugate = p.conjugate_left = wide, p.conjugate_right = !wide;
        p.along_rows = wide != columns;
        p.a = a.data(), p.s = s.data(), p.info = info.data(), p.shape[0] = items;
        i64 as[3] = {(i64)m * n, columns ? 1 : n, columns ? m : 1};
        i64 us[3] = {(i64)m * k, k, 1}, vs[3] = {(i64)k * n, 1, n}; // rows of V^H are columns of V
        for (int d = 0; d < 3; d++) {
            p.a_stride[d] = as[d ? wide ? 3 - d : d : 0];
            p.left_stride[d] = wide ? vs[d] : us[d];
            p.right_stride[d] = wide ? us[d] : vs[d];
        }
        if (vectors)
            p.left = wide ? v.data() : u.data(), p.right = wide ? u.data() : v.data();
        p.s_stride[0] = k, p.s_stride[1] = 1, p.info_stride[0] = 1;
        const char *error = emulate::launch(kernel<B>, (items + B::groups - 1) / B::groups, THREADS, B::BYTES, p);
        EXPECT(!error, "%dx%d: %s", m, n, error);
    }

    complex left(int item, int i, int l) const { return to(u[(size_t)((item * m + i) * k + l)]); }
    complex right(int item, int l, int j) const { return to(v[(size_t)((item * k + l) * n + j)]); }
    double value(int item, int l) const { return (double)s[(size_t)(item * k + l)] / size; }

    // |A - U S V^H| / (max(m, n) eps |A|), |U^H U - I| / (m eps) and |V^H V - I| / (n eps), in the 1-norm.
    void measure(int item, double (&ratio)[3]) const
    {
        double eps = sizeof(real_t<T>) == 4 ? 0x1p-23 : 0x1p-52, norm = 0;
        auto most = [](double &x, double y) { x = y <= x ? x : y; }; // NaN stays
        ratio[0] = ratio[1] = ratio[2] = 0;
        for (int j = 0; j < n; j++) {
            double whole = 0, off = 0;
            for (int i = 0; i < m; i++) {
                complex rest = full[at(item, i, j)];
                whole += std::abs(rest);
                for (int l = 0; l < k; l++)
                    rest -= left(item, i, l) * value(item, l) * right(item, l, j);
                off += std::abs(rest);
            }
            most(norm, whole);
            most(ratio[0], off);
        }
        for (int l = 0; l < k; l++) {
            double off[2] = {0, 0};
            for (int o = 0; o < k; o++) {
                complex du = l == o ? -1 : 0, dv = du;
                for (int i = 0; i < m; i++)
                    du += std::conj(left(item, i, o)) * left(item, i, l);
                for (int j = 0; j < n; j++)
                    dv += right(item, o, j) * std::conj(right(item, l, j));
                off[0] += std::abs(du);
                off[1] += std::abs(dv);
            }
            most(ratio[1], off[0]);
            most(ratio[2], off[1]);
        }
        ratio[0] /= norm > 0 ? (m > n ? m : n) * eps * norm : 1;
        ratio[1] /= m * eps;
        ratio[2] /= n * eps;
    }
    void check(int item, const char *what) const
    {
        double ratio[3];
        EXPECT(info[(size_t)item] == 0, "%s %dx%d: info %d", what, m, n, info[(size_t)item]);
        measure(item, ratio);
        EXPECT(ratio[0] <= LIMIT && ratio[1] <= LIMIT && ratio[2] <= LIMIT,
               "%s %dx%d of %d bytes, size %g: residual %.2f, left %.2f, right %.2f", what, m, n, (int)sizeof(T), size,
               ratio[0], ratio[1], ratio[2]);
        for (int l = 0; l < k; l++)
            EXPECT(value(item, l) >= 0 && (l == 0 || value(item, l) <= value(item, l - 1)), "%s %dx%d: value %d is %g",
                   what, m, n, l, value(item, l));
    }
};

template <class T, int M, int N> static void expect_kinds(int m, int n, bool columns, double size = 1)
{
    typedef svd_batch<T, M, N, true, T, real_t<T>, T, 1, THREADS> B;
    typedef svd_batch<T, M, N, false, T, real_t<T>, T, 1, THREADS> V;
    const double eps = sizeof(real_t<T>) == 4 ? 0x1p-23 : 0x1p-52;
    batch<T> b(KINDS, m, n, columns, size);
    for (int k = 0; k < KINDS; k++)
        b.fill(k, (kind)k);
    b.template run<B>(true);
    for (int k = 0; k < KINDS; k++)
        b.check(k, kind_name[k]);
    std::vector<real_t<T>> values = b.s;
    b.template run<V>(false);
    for (int k = 0; k < KINDS; k++)
        for (int l = 0; l < b.k; l++) {
            double with = (double)values[(size_t)(k * b.k + l)] / size;
            EXPECT(fabs(b.value(k, l) - with) <= LIMIT * eps * (double)values[(size_t)(k * b.k)] / size,
                   "%s %dx%d: value %d is %g alone, %g with vectors", kind_name[k], m, n, l, b.value(k, l), with);
        }
}

// The same bits whatever lies beside a matrix.
static void expect_reruns()
{
    typedef svd_batch<float, 12, 8, true, float, float, float, 1, THREADS> B;
    batch<float> b(9, 11, 7, false, 1), alone(1, 11, 7, false, 1);
    for (int k = 0; k < 9; k++)
        b.fill(k, k % 2 ? HALF_RANK : RANDOM);
    b.run<B>(true);
    alone.a.assign(b.a.begin() + 4 * 77, b.a.begin() + 5 * 77);
    alone.run<B>(true);
    for (int i = 0; i < 77; i++)
        EXPECT(alone.u[(size_t)i] == b.u[(size_t)(4 * 77 + i)], "element %d of U depends on the neighbours", i);
}

static void expect_special()
{
    typedef svd_batch<float, 8, 8, true, float, float, float, 1, THREADS> B;
    batch<float> b(5, 8, 7, false, 1);
    for (int k = 0; k < 5; k++)
        b.fill(k, RANDOM);
    b.stored(1, 3, 2) = NAN;
    b.stored(3, 7, 6) = -INFINITY;
    b.run<B>(true);
    const int want[5] = {0, -1, 0, -1, 0};
    for (int k = 0; k < 5; k++) {
        EXPECT(b.info[(size_t)k] == want[k], "matrix %d: info %d", k, b.info[(size_t)k]);
        for (int i = 0; i < 7 && want[k]; i++)
            EXPECT(b.value(k, i) != b.value(k, i) && b.left(k, i, i) != b.left(k, i, i) &&
                       b.right(k, i, i) != b.right(k, i, i),
                   "matrix %d: a number", k);
        if (!want[k])
            b.check(k, "beside NaN");
    }
}

int main()
{
    for (int columns = 0; columns < 2; columns++) {
        expect_kinds<float, 8, 8>(8, 8, columns);
        expect_kinds<double, 8, 6>(7, 5, columns);
        expect_kinds<c64, 8, 4>(4, 8, columns);
        expect_kinds<c128, 6, 6>(6, 5, columns);
        expect_kinds<float, 20, 3>(3, 18, columns);
    }
    for (int n = 1; n <= 4; n++) {
        expect_kinds<float, 4, 4>(n, n, false);
        expect_kinds<c128, 4, 4>(n, n, false);
        expect_kinds<double, 5, 4>(5, n, false);
    }
    expect_kinds<double, 1, 1>(1, 1, false);
#ifndef MF_EMULATE_FEW // sanitizers are slow, and see nothing new in larger ones
    expect_kinds<float, 32, 32>(32, 32, false);
    expect_kinds<double, 16, 16>(16, 16, false);
    expect_kinds<double, 32, 32>(32, 32, false);
    expect_kinds<float, 64, 12>(60, 12, false);
    expect_kinds<float, 64, 64>(64, 64, false);
#endif
    expect_kinds<float, 12, 12>(12, 12, false, 0x1p-126);
    expect_kinds<float, 12, 12>(12, 12, false, 0x1p123);
    expect_kinds<double, 12, 12>(12, 12, false, 0x1p-1000);
    expect_kinds<double, 12, 12>(12, 12, false, 0x1p1019);
    expect_kinds<c64, 12, 12>(12, 12, false, 0x1p-100);
    expect_reruns();
    expect_special();
    return finish("svd");
}
