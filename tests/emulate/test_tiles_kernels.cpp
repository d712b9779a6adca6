// solve_tiles.cuh and the batches over it through the emulator: residuals against double precision, failures as data, sizes that do
// and do not fill a panel, layouts, types and numbers of warps, rows in every order, matrices near the ends of the range.
#include "mathfuse/device/emulate.h"
#include "device/solve_tiles_batch.cuh"
#include "systems.h"

template <int WARPS> constexpr int threads_of = WARPS == 1 ? 64 : 32 * WARPS;

template <solve_kind KIND, class T, int N, int R, int WARPS, bool CONJUGATE = false>
using tiles_batch = solve_tiles_batch<KIND, T, N, R, T, T, T, 1, threads_of<WARPS>, CONJUGATE, false, WARPS>;

template <class T, int N, int R, int WARPS> static void expect_solves(bool columns, double size = 1)
{
    const double bound = 20 * N * epsilon<T>();
    batch<T> general(3, N, R, columns);
    general.scale(size);
    general.template run<tiles_batch<SOLVE_LU, T, N, R, WARPS>, threads_of<WARPS>>(true);
    EXPECT(general.residual(false) < bound, "LU n=%d size %g: residual %g", N, size, general.residual(false));
    for (int info : general.info)
        EXPECT(info == 0, "LU n=%d: info %d", N, info);
    batch<T> definite(3, N, R, columns);
    definite.make_definite();
    definite.scale(size);
    definite.template run<tiles_batch<SOLVE_CHOLESKY, T, N, R, WARPS>, threads_of<WARPS>>(true);
    EXPECT(definite.residual(true) < bound, "Cholesky n=%d size %g: residual %g", N, size, definite.residual(true));
    for (int info : definite.info)
        EXPECT(info == 0, "Cholesky n=%d size %g: info %d", N, size, info);
}

template <class T, int N, int WARPS, bool CONJUGATE> static void expect_factor(bool columns)
{
    batch<T> m(2, N, 1, columns);
    m.make_definite();
    m.template run<tiles_batch<SOLVE_CHOLESKY, T, N, 0, WARPS, CONJUGATE>, threads_of<WARPS>>(false);
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
}

template <int N, int WARPS> static void expect_failures()
{
    batch<float> m(7, N, 1, false);
    for (int i = 0; i < N; i++) // column 21 of matrix 2 is 0; matrix 4 has a NaN; two rows of matrix 6 are 0
        m.at(2, i, 21) = 0;
    m.at(4, 5, 1) = NAN;
    for (int j = 0; j < N; j++)
        m.at(6, 20, j) = m.at(6, N - 3, j) = 0;
    m.run<tiles_batch<SOLVE_LU, float, N, 1, WARPS>, threads_of<WARPS>>(true);
    const int want[7] = {0, 0, 22, 0, 0, 0, N - 1};
    for (int k = 0; k < 7; k++) {
        EXPECT(m.info[(size_t)k] == want[k], "LU of matrix %d: info %d", k, m.info[(size_t)k]);
        float x = m.x[(size_t)(k * N)];
        EXPECT((x != x) == (want[k] || k == 4), "LU of matrix %d: %g", k, (double)x);
    }
    batch<float> d(7, N, 1, false);
    d.make_definite();
    d.at(1, 5, 5) = -1;
    d.at(3, 0, 0) = NAN;
    d.at(5, N - 1, N - 1) = 0;
    d.at(6, 33, 33) = d.at(6, 17, 17) = -1;
    d.run<tiles_batch<SOLVE_CHOLESKY, float, N, 1, WARPS>, threads_of<WARPS>>(true);
    const int info[7] = {0, 6, 0, 1, 0, N, 18};
    for (int k = 0; k < 7; k++) {
        float x = d.x[(size_t)(k * N)];
        EXPECT(d.info[(size_t)k] == info[k], "Cholesky of matrix %d: info %d", k, d.info[(size_t)k]);
        EXPECT((x != x) == (info[k] != 0), "Cholesky of matrix %d: %g", k, (double)x);
    }
    EXPECT(d.residual(true) < 1e-5, "the others: %g", d.residual(true));
}

// Rows that need another order, which no rounding blurs: turned, backwards, and scattered.
template <int N, int WARPS> static void expect_pivoting()
{
    const int steps[4] = {1, N - 1, 5, 17};
    for (int s = 0; s < 4; s++) {
        batch<float> m(3, N, 1, false);
        auto place = [&](int k, int i) { return (i * steps[s] + 7 * k) % N; };
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < N; i++)
                for (int j = 0; j < N; j++)
                    m.at(k, i, j) = (float)(j == place(k, i) ? 1 << (i % 9 + 1) : 0);
        m.run<tiles_batch<SOLVE_LU, float, N, 1, WARPS>, threads_of<WARPS>>(true);
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < N; i++)
                EXPECT(m.info[(size_t)k] == 0 &&
                           m.x[(size_t)(k * N + place(k, i))] * (float)(1 << (i % 9 + 1)) == m.b[(size_t)(k * N + i)],
                       "permutation %d of %d, %d: unknown %d", k, N, s, i);
    }
}

int main()
{
    for (int columns = 0; columns < 2; columns++) {
        expect_solves<float, 64, 1, 1>(columns);
        expect_solves<float, 128, 1, 4>(columns);
        expect_factor<float, 64, 1, false>(columns);
    }
    expect_solves<float, 33, 3, 1>(false);
    expect_solves<c128, 36, 2, 4>(true);
    expect_solves<double, 70, 1, 8>(false, 1e-300);
    expect_solves<c64, 40, 1, 2>(false, 1e-37);
    expect_failures<61, 2>();
    expect_failures<100, 4>();
    expect_pivoting<59, 2>();
    expect_pivoting<97, 8>();
#ifndef MF_EMULATE_FEW // the same code at other sizes, which takes minutes to compile with a sanitizer
    for (int columns = 0; columns < 2; columns++) {
        expect_solves<double, 64, 1, 2>(columns);
        expect_factor<c64, 48, 2, false>(columns);
    }
    expect_solves<float, 50, 9, 1>(false);
    expect_solves<float, 60, 4, 2>(true);
    expect_solves<float, 81, 2, 4>(true);
    expect_solves<double, 100, 1, 8>(false);
    expect_solves<c64, 63, 1, 2>(false);
    expect_solves<c128, 64, 1, 8>(false);
    expect_solves<float, 40, 1, 1>(false, 1e-38);
    expect_solves<float, 40, 1, 1>(false, 1e35);
    expect_factor<double, 90, 8, false>(false);
    expect_factor<float, 121, 4, false>(false);
    expect_failures<64, 1>();
    expect_pivoting<64, 1>();
    expect_pivoting<43, 1>();
    expect_pivoting<128, 4>();
#endif
    return finish("tiles");
}
