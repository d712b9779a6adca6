// qr.cuh and the batches over it through the emulator: A = Q R and orthogonality against double precision, signs as LAPACK's, every
// shape, layout and type, sizes near the ends of the range, and matrices that are not finite.
#include "mathfuse/device/emulate.h"
#include "device/qr_batch.cuh"
#include "batches.h"

static const int THREADS = 128;

template <class T> struct batch {
    int items, m, n, columns, rows; // of Q; of R
    bool transposed;
    std::vector<T> a, q, r;
    std::vector<int> info;

    batch(int items_, int m_, int n_, bool full, bool transposed_, double size)
        : items(items_), m(m_), n(n_), columns(full      ? m_
                                               : m_ < n_ ? m_
                                                         : n_),
          rows(columns), transposed(transposed_), a((size_t)(items * m * n)),
          q((size_t)(items * m * columns), from<T>(complex(7, 7))),
          r((size_t)(items * rows * n), from<T>(complex(7, 7))), info((size_t)items, 7)
    {
        for (T &x : a)
            x = from<T>(size * complex(random_number(), is_complex<T> ? random_number() : 0));
    }
    T &at(int k, int i, int j) { return a[(size_t)(k * m * n + (transposed ? j * m + i : i * n + j))]; }
    complex q_at(int k, int i, int j) { return to(q[(size_t)((k * m + i) * columns + j)]); }
    complex r_at(int k, int i, int j) { return to(r[(size_t)((k * rows + i) * n + j)]); }

    template <class B> void run()
    {
        typename B::args p = {};
        p.items = items, p.m = m, p.n = n, p.inner = columns;
        p.a = a.data(), p.q = q.data(), p.r = r.data(), p.info = info.data();
        p.shape[0] = items;
        i64 as[3] = {(i64)m * n, transposed ? 1 : n, transposed ? m : 1}, qs[3] = {(i64)m * columns, columns, 1},
            rs[3] = {(i64)rows * n, n, 1};
        for (int d = 0; d < 3; d++) {
            p.a_stride[d] = as[d];
            p.q_stride[d] = qs[d];
            p.r_stride[d] = rs[d];
        }
        p.info_stride[0] = 1;
        const char *error = emulate::launch(kernel<B>, (items + B::groups - 1) / B::groups, THREADS, B::BYTES, p);
        EXPECT(!error, "%dx%d: %s", m, n, error);
    }

    void check(double size, const char *what)
    {
        const double bound = 10 * (m + n) * (sizeof(real_t<T>) == 4 ? 1.2e-7 : 2.3e-16);
        double off = 0, product = 0;
        for (int k = 0; k < items; k++) {
            EXPECT(info[(size_t)k] == 0, "%s %dx%d: info %d", what, m, n, info[(size_t)k]);
            for (int i = 0; i < columns; i++)
                for (int j = 0; j < columns; j++) {
                    complex sum = i == j ? -1 : 0;
                    for (int l = 0; l < m; l++)
                        sum += std::conj(q_at(k, l, i)) * q_at(k, l, j);
                    off = fmax(off, std::abs(sum) == std::abs(sum) ? std::abs(sum) : INFINITY);
                }
            for (int i = 0; i < m; i++)
                for (int j = 0; j < n; j++) {
                    complex sum = -to(at(k, i, j)) / size;
                    for (int l = 0; l < columns; l++)
                        sum += q_at(k, i, l) * r_at(k, l, j) / size;
                    product = fmax(product, std::abs(sum) == std::abs(sum) ? std::abs(sum) : INFINITY);
                }
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < n && j < i; j++)
                    EXPECT(r_at(k, i, j) == 0.0, "%s: below the diagonal", what);
            bool opposite = m == 1 || (r_at(k, 0, 0).real() > 0) != (to(at(k, 0, 0)).real() > 0);
            EXPECT(opposite && fabs(r_at(k, 0, 0).imag()) <= bound * size, "%s %dx%d: R[0][0] = %g%+gi from %g", what,
                   m, n, r_at(k, 0, 0).real(), r_at(k, 0, 0).imag(), to(at(k, 0, 0)).real());
        }
        EXPECT(off < bound && product < bound, "%s %dx%d: Q^H Q off by %g, Q R by %g", what, m, n, off, product);
    }
};

template <class T, int M, int C> static void expect_qr(int m, int n, bool full, bool transposed, double size = 1)
{
    typedef qr_batch<T, M, C, T, T, T, 1, THREADS> B;
    batch<T> b(B::groups + 1, m, n, full, transposed, size);
    b.template run<B>();
    b.check(size, full ? "complete" : "reduced");
}

static void expect_special()
{
    typedef qr_batch<float, 8, 8, float, float, float, 1, THREADS> B;
    batch<float> b(5, 8, 8, false, false, 1);
    b.at(1, 3, 2) = NAN;
    b.at(3, 0, 0) = INFINITY;
    for (int i = 0; i < 8; i++) // a column of zeros, and one that is reduced already
        b.at(4, i, 2) = 0, b.at(4, i, 0) = i == 0 ? 2.0f : 0.0f;
    b.run<B>();
    const int want[5] = {0, -1, 0, -1, 0};
    for (int k = 0; k < 5; k++) {
        EXPECT(b.info[(size_t)k] == want[k], "matrix %d: info %d", k, b.info[(size_t)k]);
        bool nan = b.q[(size_t)(k * 64)] != b.q[(size_t)(k * 64)] && b.r[(size_t)(k * 64)] != b.r[(size_t)(k * 64)];
        EXPECT(nan == (want[k] != 0), "matrix %d: Q[0][0] = %g", k, (double)b.q[(size_t)(k * 64)]);
    }
    EXPECT(b.r_at(4, 0, 0) == 2.0 && b.q_at(4, 0, 0) == 1.0, "nothing to reflect: R %g, Q %g", b.r_at(4, 0, 0).real(),
           b.q_at(4, 0, 0).real());
    double worst = 0;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) {
            complex sum = -to(b.at(4, i, j));
            for (int l = 0; l < 8; l++)
                sum += b.q_at(4, i, l) * b.r_at(4, l, j);
            worst = fmax(worst, std::abs(sum));
        }
    EXPECT(worst < 1e-5, "a matrix with a column of zeros: off by %g", worst);
}

int main()
{
    for (int t = 0; t < 2; t++) {
        expect_qr<float, 1, 1>(1, 1, false, t);
        expect_qr<float, 4, 3>(3, 3, false, t);
        expect_qr<float, 16, 16>(16, 16, false, t);
        expect_qr<float, 20, 7>(18, 7, false, t);
        expect_qr<float, 20, 20>(18, 7, true, t);
        expect_qr<float, 8, 20>(5, 20, false, t);
        expect_qr<double, 12, 12>(11, 9, false, t);
        expect_qr<c64, 8, 8>(8, 6, true, t);
        expect_qr<c128, 10, 12>(10, 12, false, t);
    }
    expect_qr<float, 40, 40>(40, 33, false, false);
    expect_qr<double, 64, 40>(64, 40, false, false);
    expect_qr<float, 12, 12>(12, 10, false, false, 1e-38);
    expect_qr<float, 12, 12>(12, 10, false, false, 1e37);
    expect_qr<double, 12, 12>(12, 10, false, false, 1e-300);
    expect_qr<c64, 8, 8>(8, 8, false, false, 1e-37);
    expect_special();
    return finish("qr");
}
