/* A batch of small systems that tests make, solve through the emulator and look at. Include it after the batch. */
#ifndef MF_TEST_SYSTEMS_H
#define MF_TEST_SYSTEMS_H

#include "batches.h"

template <class T> static complex random_complex()
{
    return complex(random_number(), is_complex<T> ? random_number() : 0);
}

static const int THREADS = 128;

template <class T> struct batch {
    int items, n, nrhs;
    bool columns; // stored by columns
    std::vector<T> a, b, x;
    std::vector<int> info;

    batch(int items_, int n_, int nrhs_, bool columns_)
        : items(items_), n(n_), nrhs(nrhs_), columns(columns_), a((size_t)(items * n * n)),
          b((size_t)(items * n * nrhs)), x((size_t)(items * n * (n > nrhs ? n : nrhs)), from<T>(complex(7, 7))),
          info((size_t)items, -1)
    {
        for (T &v : a)
            v = from<T>(random_complex<T>());
        for (T &v : b)
            v = from<T>(random_complex<T>());
    }
    T &at(int item, int i, int j) { return a[(size_t)(item * n * n + (columns ? j * n + i : i * n + j))]; }

    // Hermitian with a large diagonal, in the lower triangle; NaN above it, which nobody is to read into a result.
    void make_definite()
    {
        for (int k = 0; k < items; k++)
            for (int i = 0; i < n; i++) {
                at(k, i, i) = from<T>(complex(n + 1 + random_number(), 0));
                for (int j = i + 1; j < n; j++)
                    at(k, i, j) = from<T>(complex(NAN, NAN));
            }
    }
    void scale(double size)
    {
        for (T &v : a)
            v = from<T>(size * to(v));
        for (T &v : b)
            v = from<T>(size * to(v));
    }

    // A triangle of modest condition; NaN in the rest, and on a diagonal of ones.
    void make_triangle(bool upper, bool unit)
    {
        for (int k = 0; k < items; k++)
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++) {
                    if (i == j)
                        at(k, i, j) = from<T>(complex(unit ? NAN : 2 + random_number(), 0));
                    else if ((j > i) != upper)
                        at(k, i, j) = from<T>(complex(NAN, NAN));
                    else if (unit)
                        at(k, i, j) = from<T>(to(at(k, i, j)) / (double)n);
                }
    }
    // As the whole matrix that it stands for.
    void complete_triangle(bool upper, bool unit)
    {
        for (int k = 0; k < items; k++)
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++)
                    if (i == j && unit)
                        at(k, i, j) = from<T>(complex(1, 0));
                    else if (i != j && (j > i) != upper)
                        at(k, i, j) = T();
    }
    complex full(int k, int i, int j) { return j <= i ? to(at(k, i, j)) : std::conj(to(at(k, j, i))); }

    template <class B, int COUNT = THREADS> void run(bool rhs)
    {
        typename B::args p = {};
        p.items = items, p.n = n, p.nrhs = nrhs;
        p.a = a.data(), p.b = rhs ? b.data() : nullptr, p.x = x.data(), p.info = info.data();
        p.shape[0] = items;
        i64 as[3] = {(i64)n * n, columns ? 1 : n, columns ? n : 1}, bs[3] = {(i64)n * nrhs, nrhs, 1};
        for (int d = 0; d < 3; d++) {
            p.a_stride[d] = as[d];
            p.b_stride[d] = bs[d];
            p.x_stride[d] = rhs ? bs[d] : as[d];
        }
        p.info_stride[0] = 1;
        const char *error = emulate::launch(kernel<B>, (items + B::groups - 1) / B::groups, COUNT, B::BYTES, p);
        EXPECT(!error, "n=%d: %s", n, error);
    }

    // Largest |A x - b| beside |A| |x|, of items that did not fail.
    double residual(bool definite)
    {
        double worst = 0;
        for (int k = 0; k < items; k++)
            for (int i = 0; i < n && info[(size_t)k] == 0; i++)
                for (int r = 0; r < nrhs; r++) {
                    complex sum = -to(b[(size_t)((k * n + i) * nrhs + r)]);
                    double scale = std::abs(sum);
                    for (int j = 0; j < n; j++) {
                        complex product =
                            (definite ? full(k, i, j) : to(at(k, i, j))) * to(x[(size_t)((k * n + j) * nrhs + r)]);
                        sum += product;
                        scale += std::abs(product);
                    }
                    worst = fmax(worst, std::abs(sum) / scale);
                    if (std::abs(sum) != std::abs(sum))
                        worst = INFINITY;
                }
        return worst;
    }
};

template <class T> static double epsilon()
{
    return sizeof(real_t<T>) == 4 ? 1.2e-7 : 2.3e-16;
}

#endif
