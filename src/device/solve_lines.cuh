// A matrix of a batch as lines of shared memory, for the groups of threads of solve_rows_batch.cuh and solve_tiles_batch.cuh.
#ifndef MF_DEVICE_SOLVE_LINES_CUH
#define MF_DEVICE_SOLVE_LINES_CUH

#include "mathfuse/device/tile.cuh"
#include "device/solve_batch.cuh"

namespace mf
{

// GROUP: line(k) and vector of solve_rows.cuh, a multiple of 16 bytes between lines. N x N elements, by `threads` threads.
template <solve_kind KIND, class T, class TA, int N, int ND, class GROUP> struct solve_lines {
    static constexpr int vector = GROUP::vector;

    // Is any of the elements (i, j) .. (i, j + count - 1) used?
    static MF_DEVICE bool wanted(int i, int j, int count)
    {
        return KIND == SOLVE_LU || (KIND == SOLVE_UPPER ? j + count - 1 >= i : j <= i);
    }
    static MF_DEVICE bool wanted_across(int i, int j, int count)
    {
        return KIND == SOLVE_LU || (KIND == SOLVE_UPPER ? i <= j : i + count - 1 >= j);
    }

    // The matrix as lines of shared memory, of its rows, or of its columns where those lie side by side: then `true`.
    template <int THREADS> static MF_DEVICE bool fetch(const solve_args<ND> &p, const TA *a, const GROUP &g, int thread)
    {
        const i64 rs = p.a_stride[ND], cs = p.a_stride[ND + 1];
        const bool across = rs == 1 && cs != 1;
        const i64 pitch = across ? cs : rs;
        if constexpr (same<TA, T> && N % vector == 0) {
            if ((across || cs == 1) && (((u64)a | (u64)pitch * sizeof(T)) & 15) == 0) {
                copy<THREADS>(a, pitch, across, g, thread);
                return across;
            }
        }
        for (int e = thread; e < N * N; e += THREADS) {
            int k = e / N, m = e % N;
            if (across ? wanted_across(m, k, 1) : wanted(k, m, 1))
                g.line(k)[m] = convert<T>(widen(a[k * pitch + m * (across ? 1 : cs)]));
        }
        return across;
    }

  private:
    template <int THREADS> static MF_DEVICE void copy(const TA *a, i64 pitch, bool across, const GROUP &g, int thread)
    {
        constexpr int words = N / vector, step = THREADS / words; // lines that all threads copy at a time
        constexpr bool steady = THREADS % words == 0;
        const TA *from = a + thread / words * pitch + thread % words * vector;
        MF_UNROLL
        for (int s = 0; s < (N * words + THREADS - 1) / THREADS; s++) {
            const int e = thread + s * THREADS;
            const int k = steady ? thread / words + s * step : e / words, m = (steady ? thread : e) % words * vector;
            if (((N * words) % THREADS == 0 || e < N * words) &&
                (across ? wanted_across(m, k, vector) : wanted(k, m, vector)))
                copy_async<16>(g.line(k) + m, steady ? from : a + k * pitch + m);
            from += step * pitch;
        }
        copy_commit();
    }
};

} // namespace mf
#endif
