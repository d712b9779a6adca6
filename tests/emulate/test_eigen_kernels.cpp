// eigen.cuh and the batches over it through the emulator: LAPACK's measures of eigenvalues and vectors on its kinds of matrices, every
// type and layout, sizes near the ends of the range, matrices that are not finite, and reruns.
#include "mathfuse/device/emulate.h"
#include "device/eigen_batch.cuh"
#include "batches.h"
#include "unitary.h"

static const int THREADS = 32;
static const double LIMIT = 30; // of LAPACK's test ratios

enum kind { RANDOM, POSITIVE, GRADED, PLUS_MINUS, RANK_ONE, ZERO, DIAGONAL, CLUSTER, KINDS };
static const char *const kind_name[KINDS] = {"random",   "positive", "graded",   "plus and minus one",
                                             "rank one", "zero",     "diagonal", "cluster"};

template <class T> struct batch {
    int items, n;
    bool upper, columns; // the triangle that is stored; by columns
    double size;
    std::vector<complex> full;
    std::vector<T> a, v;
    std::vector<real_t<T>> w;
    std::vector<int> info;

    batch(int items_, int n_, bool upper_, bool columns_, double size_)
        : items(items_), n(n_), upper(upper_), columns(columns_), size(size_), full((size_t)(items * n * n)),
          a(full.size(), from<T>(complex(NAN, NAN))), v(full.size(), from<T>(complex(7, 7))), w((size_t)(items * n), 7),
          info((size_t)items, 7)
    {
    }
    size_t at(int k, int i, int j) const { return (size_t)((k * n + i) * n + j); }
    T &stored(int k, int i, int j) { return a[columns ? at(k, j, i) : at(k, i, j)]; }

    // Sum over k of value[k] u_k u_k^H, for random orthonormal u.
    void spectrum(int item, const std::vector<double> &value)
    {
        std::vector<complex> u = random_unitary<T>(n, n);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                for (int k = 0; k < n; k++)
                    full[at(item, i, j)] +=
                        value[(size_t)k] * u[(size_t)(k * n + i)] * std::conj(u[(size_t)(k * n + j)]);
    }
    void fill(int item, kind what)
    {
        std::vector<double> value((size_t)n);
        for (int k = 0; k < n; k++)
            value[(size_t)k] = what == POSITIVE     ? 1 + k
                               : what == GRADED     ? pow(10, -(sizeof(real_t<T>) == 4 ? 7.0 : 15.0) * k / n)
                               : what == PLUS_MINUS ? (k % 2 ? 1 : -1)
                               : what == RANK_ONE   ? (k == 0 ? -1 : 0)
                               : what == CLUSTER    ? 1 + 1e-6 * k
                                                    : 0;
        if (what != RANDOM && what != DIAGONAL && what != ZERO)
            return spectrum(item, value);
        for (int i = 0; i < n; i++)
            for (int j = 0; j <= i; j++) {
                complex x(random_number(), is_complex<T> && i != j ? random_number() : 0);
                full[at(item, i, j)] = what == RANDOM || (what == DIAGONAL && i == j) ? x : 0;
                full[at(item, j, i)] = std::conj(full[at(item, i, j)]);
            }
    }
    // The triangle, rounded to T; what it stands for from it.
    void place()
    {
        for (int k = 0; k < items; k++)
            for (int i = 0; i < n; i++)
                for (int j = 0; j <= i; j++) {
                    T x = from<T>(size * full[at(k, i, j)]);
                    complex y = i == j ? complex(to(x).real(), 0) : to(x);
                    if (upper)
                        stored(k, j, i) = from<T>(std::conj(to(x)));
                    else
                        stored(k, i, j) = x;
                    full[at(k, i, j)] = y / size;
                    full[at(k, j, i)] = std::conj(y) / size;
                }
    }

    template <class B> void run(bool vectors = true)
    {
        typename B::args p = {};
        p.items = items, p.n = n, p.upper = upper != columns, p.conjugate = upper;
        p.a = a.data(), p.w = w.data(), p.v = vectors ? v.data() : nullptr, p.info = info.data();
        p.shape[0] = items;
        i64 strides[3] = {(i64)n * n, n, 1};
        for (int d = 0; d < 3; d++)
            p.a_stride[d] = p.v_stride[d] = strides[d];
        p.w_stride[0] = n, p.w_stride[1] = 1, p.info_stride[0] = 1;
        const char *error = emulate::launch(kernel<B>, (items + B::groups - 1) / B::groups, THREADS, B::BYTES, p);
        EXPECT(!error, "n=%d: %s", n, error);
    }

    complex vector(int k, int i, int j) const { return to(v[at(k, i, j)]); }
    double value(int k, int j) const { return (double)w[(size_t)(k * n + j)] / size; }

    // |A - V W V^H| / (n eps |A|) and |V^H V - I| / (n eps), in the 1-norm.
    void measure(int k, double &residual, double &orthogonality) const
    {
        double eps = sizeof(real_t<T>) == 4 ? 0x1p-23 : 0x1p-52, norm = 0;
        residual = orthogonality = 0;
        for (int j = 0; j < n; j++) {
            double column = 0, off = 0, whole = 0;
            for (int i = 0; i < n; i++) {
                complex sum = full[at(k, i, j)], dot = i == j ? -1 : 0;
                whole += std::abs(sum);
                for (int l = 0; l < n; l++) {
                    sum -= vector(k, i, l) * value(k, l) * std::conj(vector(k, j, l));
                    dot += std::conj(vector(k, l, i)) * vector(k, l, j);
                }
                column += std::abs(sum);
                off += std::abs(dot);
            }
            norm = fmax(norm, whole);
            residual = column <= residual ? residual : column; // NaN stays
            orthogonality = off <= orthogonality ? orthogonality : off;
        }
        residual /= norm > 0 ? n * eps * norm : 1;
        orthogonality /= n * eps;
    }
    void check(int k, const char *what) const
    {
        double residual, orthogonality;
        EXPECT(info[(size_t)k] == 0, "%s n=%d: info %d", what, n, info[(size_t)k]);
        measure(k, residual, orthogonality);
        EXPECT(residual <= LIMIT && orthogonality <= LIMIT, "%s n=%d of %d bytes, size %g: residual %.2f, vectors %.2f",
               what, n, (int)sizeof(T), size, residual, orthogonality);
        for (int j = 1; j < n; j++)
            EXPECT(value(k, j) >= value(k, j - 1), "%s n=%d: value %d is less than the one before", what, n, j);
    }
};

template <class T, int N> static void expect_kinds(int n, bool upper, bool columns, double size = 1)
{
    typedef eigen_batch<T, N, T, real_t<T>, T, 1, THREADS> B;
    batch<T> b(KINDS, n, upper, columns, size);
    for (int k = 0; k < KINDS; k++)
        b.fill(k, (kind)k);
    b.place();
    b.template run<B>();
    for (int k = 0; k < KINDS; k++)
        b.check(k, kind_name[k]);
}

// The same bits whatever lies beside a matrix, and without vectors.
static void expect_reruns()
{
    typedef eigen_batch<float, 12, float, float, float, 1, THREADS> B;
    batch<float> b(9, 11, false, false, 1), alone(1, 11, false, false, 1);
    for (int k = 0; k < 9; k++)
        b.fill(k, k % 2 ? GRADED : RANDOM);
    b.place();
    b.run<B>();
    std::vector<float> values = b.w;
    b.w.assign(b.w.size(), 7);
    b.run<B>(false);
    EXPECT(b.w == values, "values without vectors");
    alone.a.assign(b.a.begin() + 4 * 121, b.a.begin() + 5 * 121);
    alone.run<B>();
    for (int i = 0; i < 121; i++)
        EXPECT(alone.v[(size_t)i] == b.v[(size_t)(4 * 121 + i)], "element %d of vectors depends on the neighbours", i);
}

static void expect_special()
{
    typedef eigen_batch<float, 8, float, float, float, 1, THREADS> B;
    batch<float> b(5, 7, false, false, 1);
    for (int k = 0; k < 5; k++)
        b.fill(k, RANDOM);
    b.place();
    b.stored(1, 3, 2) = NAN;
    b.stored(3, 0, 0) = -INFINITY;
    b.run<B>();
    const int want[5] = {0, -1, 0, -1, 0};
    for (int k = 0; k < 5; k++) {
        EXPECT(b.info[(size_t)k] == want[k], "matrix %d: info %d", k, b.info[(size_t)k]);
        for (int i = 0; i < 7 && want[k]; i++)
            EXPECT(b.value(k, i) != b.value(k, i) && b.vector(k, i, i) != b.vector(k, i, i), "matrix %d: a number", k);
        if (!want[k])
            b.check(k, "beside NaN");
    }
}

int main()
{
    for (int t = 0; t < 4; t++) {
        expect_kinds<float, 8>(7, t & 1, t & 2);
        expect_kinds<double, 8>(8, t & 1, t & 2);
        expect_kinds<c64, 8>(6, t & 1, t & 2);
        expect_kinds<c128, 8>(8, t & 1, t & 2);
    }
    for (int n = 1; n <= 4; n++) {
        expect_kinds<float, 4>(n, false, false);
        expect_kinds<c128, 4>(n, false, false);
    }
    expect_kinds<double, 1>(1, false, false);
    expect_kinds<float, 20>(17, false, false);
#ifndef MF_EMULATE_FEW // sanitizers are slow, and see nothing new in larger ones
    expect_kinds<float, 32>(32, false, false);
    expect_kinds<float, 48>(40, false, false);
    expect_kinds<float, 64>(64, false, false);
    expect_kinds<double, 32>(29, false, false);
    expect_kinds<c64, 24>(24, false, false);
#endif
    expect_kinds<float, 12>(12, false, false, 0x1p-130);
    expect_kinds<float, 12>(12, false, false, 0x1p123);
    expect_kinds<double, 12>(12, false, false, 0x1p-1000);
    expect_kinds<double, 12>(12, false, false, 0x1p1019);
    expect_kinds<c64, 12>(12, false, false, 0x1p-100);
    expect_reruns();
    expect_special();
    return finish("eigen");
}
