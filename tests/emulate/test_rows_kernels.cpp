// solve_rows.cuh and the batches over it through the emulator: residuals against double precision, failures as data, every size,
// layout, type and number of lanes, matrices near the ends of the range.
#include "mathfuse/device/emulate.h"
#include "device/solve_rows_batch.cuh"
#include "systems.h"

template <solve_kind KIND, class T, int N, int R, int LANES, bool CONJUGATE = false, bool UNIT = false>
using rows_batch = solve_rows_batch<KIND, T, N, R, T, T, T, 1, THREADS, CONJUGATE, UNIT, LANES>;

template <class T, int N, int R, int LANES> static void expect_solves(bool columns, double size = 1)
{
    typedef rows_batch<SOLVE_LU, T, N, R, LANES> LU;
    typedef rows_batch<SOLVE_CHOLESKY, T, N, R, LANES> CHOLESKY;
    const double bound = 20 * N * epsilon<T>();
    batch<T> general(LU::groups + 2, N, R, columns);
    general.scale(size);
    general.template run<LU>(true);
    EXPECT(general.residual(false) < bound, "LU n=%d size %g: residual %g", N, size, general.residual(false));
    for (int info : general.info)
        EXPECT(info == 0, "LU n=%d: info %d", N, info);
    batch<T> definite(CHOLESKY::groups + 2, N, R, columns);
    definite.make_definite();
    definite.scale(size);
    definite.template run<CHOLESKY>(true);
    EXPECT(definite.residual(true) < bound, "Cholesky n=%d size %g: residual %g", N, size, definite.residual(true));
    for (int info : definite.info)
        EXPECT(info == 0, "Cholesky n=%d size %g: info %d", N, size, info);
}

// The factor, and the solution with it once it is known.
template <class T, int N, int LANES> static void expect_factor(bool columns)
{
    typedef rows_batch<SOLVE_CHOLESKY, T, N, 0, LANES> F;
    typedef rows_batch<SOLVE_WITH_FACTOR, T, N, 2, LANES> S;
    batch<T> m(F::groups + 1, N, 2, columns);
    m.make_definite();
    m.template run<F>(false);
    double worst = 0;
    auto l = [&](int k, int i, int j) { return to(m.x[(size_t)(k * N * N + (columns ? j * N + i : i * N + j))]); };
    for (int k = 0; k < m.items; k++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                complex sum = -m.full(k, i, j);
                for (int s = 0; s < N; s++)
                    sum += l(k, i, s) * std::conj(l(k, j, s));
                worst = fmax(worst, std::abs(sum) / (N + 1));
                EXPECT(j <= i || l(k, i, j) == 0.0, "n=%d: above the diagonal", N);
            }
    EXPECT(worst < 10 * N * epsilon<T>(), "factor n=%d: %g", N, worst);
    batch<T> solved = m;
    std::copy(m.x.begin(), m.x.begin() + (long)solved.a.size(), solved.a.begin());
    for (int k = 0; k < m.items; k++)
        for (int i = 0; i < N; i++)
            for (int j = i + 1; j < N; j++)
                solved.at(k, i, j) = from<T>(complex(NAN, NAN));
    solved.template run<S>(true);
    std::copy(m.a.begin(), m.a.end(), solved.a.begin());
    EXPECT(solved.residual(true) < 20 * N * epsilon<T>(), "with the factor n=%d: %g", N, solved.residual(true));
}

template <class T, int N, int LANES, bool UNIT> static void expect_triangles(bool columns)
{
    for (int upper = 0; upper < 2; upper++) {
        batch<T> m(130 / LANES, N, 2, columns);
        m.make_triangle(upper != 0, UNIT);
        if (upper)
            m.template run<rows_batch<SOLVE_UPPER, T, N, 2, LANES, false, UNIT>>(true);
        else
            m.template run<rows_batch<SOLVE_LOWER, T, N, 2, LANES, false, UNIT>>(true);
        m.complete_triangle(upper != 0, UNIT);
        EXPECT(m.residual(false) < 10 * N * epsilon<T>(), "triangle n=%d upper %d: %g", N, upper, m.residual(false));
    }
}

static void expect_failures()
{
    batch<float> m(9, 24, 1, false);
    for (int i = 0; i < 24; i++) // column 3 of matrix 2 is 0; matrix 4 has a NaN
        m.at(2, i, 3) = 0;
    m.at(4, 5, 1) = NAN;
    for (int j = 0; j < 24; j++)
        m.at(7, 20, j) = m.at(7, 21, j) = 0;
    m.run<rows_batch<SOLVE_LU, float, 24, 1, 16>>(true);
    const int want[9] = {0, 0, 4, 0, 0, 0, 0, 23, 0};
    for (int k = 0; k < 9; k++) {
        EXPECT(m.info[(size_t)k] == want[k], "LU of matrix %d: info %d", k, m.info[(size_t)k]);
        float x = m.x[(size_t)(k * 24)];
        EXPECT((x != x) == (want[k] || k == 4), "LU of matrix %d: %g", k, (double)x);
    }
    batch<float> d(9, 24, 1, false);
    d.make_definite();
    d.at(1, 5, 5) = -1;
    d.at(3, 0, 0) = NAN;
    d.at(5, 23, 23) = 0;
    d.at(6, 17, 17) = -1;
    d.at(6, 19, 19) = -1;
    d.run<rows_batch<SOLVE_CHOLESKY, float, 24, 1, 16>>(true);
    const int info[9] = {0, 6, 0, 1, 0, 24, 18, 0, 0};
    for (int k = 0; k < 9; k++)
        EXPECT(d.info[(size_t)k] == info[k], "Cholesky of matrix %d: info %d", k, d.info[(size_t)k]);
    EXPECT(d.residual(true) < 1e-5, "the others: %g", d.residual(true));
    batch<double> t(5, 9, 1, false);
    t.at(1, 6, 6) = 0;
    t.run<rows_batch<SOLVE_UPPER, double, 9, 1, 8>>(true);
    EXPECT(t.info[1] == 7 && t.x[9] != t.x[9] && t.info[0] == 0, "a triangle with a zero: info %d", t.info[1]);
}

// Rows that need another order, which no rounding blurs.
static void expect_pivoting()
{
    batch<float> m(9, 20, 1, false);
    for (int k = 0; k < 9; k++)
        for (int i = 0; i < 20; i++)
            for (int j = 0; j < 20; j++)
                m.at(k, i, j) = (float)(j == (i + k) % 20 ? 1 << (k + 1) : 0);
    m.run<rows_batch<SOLVE_LU, float, 20, 1, 16>>(true);
    for (int k = 0; k < 9; k++)
        for (int i = 0; i < 20; i++)
            EXPECT(m.info[(size_t)k] == 0 &&
                       m.x[(size_t)(k * 20 + (i + k) % 20)] * (float)(1 << (k + 1)) == m.b[(size_t)(k * 20 + i)],
                   "permutation %d: unknown %d", k, i);
}

int main()
{
    for (int columns = 0; columns < 2; columns++) {
        expect_solves<float, 1, 1, 4>(columns);
        expect_solves<float, 3, 1, 4>(columns);
        expect_solves<float, 8, 2, 4>(columns);
        expect_solves<float, 16, 1, 8>(columns);
        expect_solves<float, 32, 1, 16>(columns);
        expect_solves<double, 16, 1, 16>(columns);
        expect_solves<c64, 7, 1, 4>(columns);
        expect_solves<c128, 20, 2, 32>(columns);
        expect_factor<float, 8, 4>(columns);
        expect_factor<double, 18, 16>(columns);
        expect_factor<c64, 11, 8>(columns);
        expect_triangles<float, 12, 8, false>(columns);
        expect_triangles<c64, 8, 4, false>(columns);
        expect_triangles<double, 16, 8, true>(columns);
    }
    expect_solves<float, 12, 1, 8>(false, 1e-38);
    expect_solves<float, 12, 1, 8>(false, 1e36);
    expect_solves<double, 12, 1, 8>(false, 1e-300);
    expect_failures();
    expect_pivoting();
#ifndef MF_EMULATE_FEW // the same code at other sizes, which takes minutes to compile with a sanitizer
    for (int columns = 0; columns < 2; columns++) {
        expect_solves<float, 17, 3, 16>(columns);
        expect_solves<float, 64, 1, 32>(columns);
        expect_solves<double, 10, 2, 8>(columns);
        expect_factor<float, 36, 32>(columns);
        expect_triangles<float, 37, 32, false>(columns);
    }
    expect_solves<float, 50, 1, 32>(false);
    expect_solves<double, 40, 1, 32>(false);
    expect_solves<c64, 12, 1, 8>(false, 1e-37);
    expect_solves<c64, 12, 1, 8>(false, 1e36);
#endif
    return finish("rows");
}
