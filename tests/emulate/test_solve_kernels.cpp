// solve.cuh and the batches over it through the emulator: residuals against double precision, failures as data, every size, layout
// and type.
#include "mathfuse/device/emulate.h"
#include "device/solve_batch.cuh"
#include "systems.h"

template <class T, int N, int R> static void expect_solves(int n, int nrhs, bool columns)
{
    typedef solve_batch<SOLVE_LU, T, N, R, T, T, T, 1, THREADS, false, false> LU;
    typedef solve_batch<SOLVE_CHOLESKY, T, N, R, T, T, T, 1, THREADS, false, false> CHOLESKY;
    batch<T> general(LU::groups + 2, n, nrhs, columns);
    general.template run<LU>(true);
    EXPECT(general.residual(false) < 20 * n * epsilon<T>(), "LU n=%d: residual %g", n, general.residual(false));
    for (int info : general.info)
        EXPECT(info == 0, "LU n=%d: info %d", n, info);
    batch<T> definite(CHOLESKY::groups + 2, n, nrhs, columns);
    definite.make_definite();
    definite.template run<CHOLESKY>(true);
    EXPECT(definite.residual(true) < 20 * n * epsilon<T>(), "Cholesky n=%d: residual %g", n, definite.residual(true));
}

template <class T, int N> static void expect_factor(int n, bool columns)
{
    typedef solve_batch<SOLVE_CHOLESKY, T, N, 0, T, T, T, 1, THREADS, false, false> F;
    batch<T> m(F::groups + 1, n, 1, columns);
    m.make_definite();
    m.template run<F>(false);
    double worst = 0;
    auto l = [&](int k, int i, int j) { return to(m.x[(size_t)(k * n * n + (columns ? j * n + i : i * n + j))]); };
    for (int k = 0; k < m.items; k++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                complex sum = -m.full(k, i, j);
                for (int s = 0; s < n; s++)
                    sum += l(k, i, s) * std::conj(l(k, j, s));
                worst = fmax(worst, std::abs(sum) / (n + 1));
                EXPECT(j <= i || l(k, i, j) == 0.0, "n=%d: above the diagonal", n);
            }
    EXPECT(worst < 10 * n * epsilon<T>(), "factor n=%d: %g", n, worst);
}

template <class T, int N, bool UNIT> static void expect_triangles(int n)
{
    for (int upper = 0; upper < 2; upper++) {
        typedef solve_batch<SOLVE_LOWER, T, N, 2, T, T, T, 1, THREADS, false, UNIT> L;
        typedef solve_batch<SOLVE_UPPER, T, N, 2, T, T, T, 1, THREADS, false, UNIT> U;
        batch<T> m(5, n, 2, false);
        m.make_triangle(upper != 0, UNIT);
        if (upper)
            m.template run<U>(true);
        else
            m.template run<L>(true);
        m.complete_triangle(upper != 0, UNIT);
        EXPECT(m.residual(false) < 10 * n * epsilon<T>(), "triangle n=%d upper %d: %g", n, upper, m.residual(false));
    }
}

static void expect_failures()
{
    typedef solve_batch<SOLVE_LU, float, 8, 1, float, float, float, 1, THREADS, false, false> LU;
    typedef solve_batch<SOLVE_CHOLESKY, float, 8, 1, float, float, float, 1, THREADS, false, false> CHOLESKY;
    batch<float> m(6, 8, 1, false);
    for (int i = 0; i < 8; i++) // column 3 of matrix 2 is 0; matrix 4 has a NaN
        m.at(2, i, 3) = 0;
    m.at(4, 5, 1) = NAN;
    m.run<LU>(true);
    const int want[6] = {0, 0, 4, 0, 0, 0};
    for (int k = 0; k < 6; k++)
        EXPECT(m.info[(size_t)k] == want[k], "LU of matrix %d: info %d", k, m.info[(size_t)k]);
    for (int k = 0; k < 6; k++)
        EXPECT((m.x[(size_t)(k * 8)] != m.x[(size_t)(k * 8)]) == (k == 2 || k == 4), "LU of matrix %d: %g", k,
               (double)m.x[(size_t)(k * 8)]);
    batch<float> d(6, 8, 1, false);
    d.make_definite();
    d.at(1, 5, 5) = -1;
    d.at(3, 0, 0) = NAN;
    d.run<CHOLESKY>(true);
    const int info[6] = {0, 6, 0, 1, 0, 0};
    for (int k = 0; k < 6; k++)
        EXPECT(d.info[(size_t)k] == info[k], "Cholesky of matrix %d: info %d", k, d.info[(size_t)k]);
    EXPECT(d.residual(true) < 1e-5, "the others: %g", d.residual(true));
}

int main()
{
    for (int columns = 0; columns < 2; columns++) {
        expect_solves<float, 1, 1>(1, 1, columns);
        expect_solves<float, 4, 1>(3, 1, columns);
        expect_solves<float, 8, 2>(8, 2, columns);
        expect_solves<float, 20, 4>(17, 3, columns);
        expect_solves<double, 12, 2>(10, 2, columns);
        expect_solves<c64, 8, 1>(7, 1, columns);
        expect_solves<c128, 20, 2>(20, 2, columns);
        expect_factor<float, 8>(8, columns);
        expect_factor<double, 20>(18, columns);
        expect_factor<c64, 12>(11, columns);
    }
    expect_triangles<float, 12, false>(11);
    expect_triangles<c64, 8, false>(8);
    expect_triangles<double, 16, true>(16);
    expect_failures();
#ifndef MF_EMULATE_FEW // the same code at other sizes, which takes minutes to compile with a sanitizer
    for (int columns = 0; columns < 2; columns++) {
        expect_solves<float, 32, 1>(32, 1, columns);
        expect_solves<double, 16, 1>(16, 1, columns);
    }
    expect_solves<float, 64, 1>(50, 1, false);
    expect_solves<double, 40, 1>(40, 1, false);
    expect_factor<float, 64>(64, false);
    expect_triangles<float, 40, false>(37);
#endif
    return finish("solve");
}
