// Batches of small dense systems: blocks of several groups of solve_rows.cuh, a matrix each.
#ifndef MF_DEVICE_SOLVE_ROWS_BATCH_CUH
#define MF_DEVICE_SOLVE_ROWS_BATCH_CUH

#include "mathfuse/device/solve_rows.cuh"
#include "device/solve_lines.cuh"

namespace mf
{

// As solve_batch, for exactly N unknowns and R right-hand sides, a matrix for LANES threads.
template <solve_kind KIND, class T, int N, int R, class TA, class TB, class TX, int ND, int THREADS, bool CONJUGATE,
          bool UNIT, int LANES>
struct solve_rows_batch {
    typedef solve::rows<T, N, R, LANES> group;
    typedef solve_args<ND> args;
    typedef solve_item item;
    static constexpr int groups = THREADS / LANES, vector = group::vector;
    static constexpr int BYTES = groups * group::elements * (int)sizeof(T);
    static constexpr bool lower = KIND == SOLVE_CHOLESKY || KIND == SOLVE_WITH_FACTOR || KIND == SOLVE_LOWER;

    static MF_DEVICE void turn(T (&a)[group::slots][group::columns])
    {
        MF_UNROLL
        for (int p = 0; p < group::slots; p++) {
            MF_UNROLL
            for (int j = 0; j < group::columns; j++)
                a[p][j] = solve::conjugate_of(a[p][j]);
        }
    }

    template <solve::part WHICH>
    static MF_DEVICE void take(const group &g, T (&a)[group::slots][group::columns], bool across)
    {
        g.template take<WHICH>(a, across);
        if constexpr (CONJUGATE && is_complex<T>)
            turn(a);
    }

    // The rows of a factor into the lines.
    static MF_DEVICE void leave_factor(group &g, const T (&a)[group::slots][group::columns], bool failed)
    {
        __syncwarp();
        MF_UNROLL
        for (int s = 0; s < group::slots; s++) {
            MF_UNROLL
            for (int c = 0; c < group::columns / vector; c++) {
                pack<T, vector> q;
                MF_UNROLL
                for (int e = 0; e < vector; e++) {
                    const int j = c * vector + e;
                    const T l = j < smaller(N, LANES * (s + 1)) ? a[s][j] : T();
                    q.v[e] = failed && j <= group::row(s) ? solve::nan_number<T>()
                             : CONJUGATE                  ? solve::conjugate_of(l)
                                                          : l;
                }
                if (group::row(s) < N)
                    store_pack<16>(g.line(group::row(s)) + c * vector, q);
            }
        }
        __syncwarp();
    }

    // And to memory.
    static MF_DEVICE void store_factor(const args &p, TX *x, const group &g)
    {
        const i64 rs = p.x_stride[ND], cs = p.x_stride[ND + 1];
        if constexpr (same<TX, T> && N % vector == 0) {
            if (cs == 1 && (((u64)x | (u64)rs * sizeof(T)) & 15) == 0) {
                constexpr int words = N / vector;
                MF_UNROLL
                for (int s = 0; s < (N * words + LANES - 1) / LANES; s++) {
                    int e = group::lane() + s * LANES, i = e / words, j = e % words * vector;
                    if ((N * words) % LANES == 0 || e < N * words) {
                        pack<T, vector> q;
                        load_pack<16>(q, g.line(i) + j);
                        store_pack<16>(x + i * rs + j, q);
                    }
                }
                return;
            }
        }
        for (int e = group::lane(); e < N * N; e += LANES) {
            int i = cs == 1 ? e / N : e % N, j = cs == 1 ? e % N : e / N;
            x[i * rs + j * cs] = narrow<TX>(convert<compute_t<TX>>(g.line(i)[j]));
        }
    }

    static MF_DEVICE int solve_triangle(group &g, T (&a)[group::slots][group::columns],
                                        T (&b)[group::slots][group::sides], bool across)
    {
        T d[group::slots];
        int info = UNIT ? 0 : g.diagonal_info();
        take<lower ? solve::LOWER_PART : solve::UPPER_PART>(g, a, across);
        g.template divide_rows<UNIT>(a, b, d);
        if constexpr (CONJUGATE && is_complex<T> && !UNIT) {
            MF_UNROLL
            for (int s = 0; s < group::slots; s++)
                d[s] = solve::conjugate_of(d[s]);
        }
        group::template substitute<lower, true>(a, b, d);
        if constexpr (KIND == SOLVE_WITH_FACTOR) {
            g.template take<solve::UPPER_PART>(a, !across);
            if constexpr (!CONJUGATE)
                turn(a);
            g.template divide_rows<UNIT>(a, b, d);
            if constexpr (!CONJUGATE) {
                MF_UNROLL
                for (int s = 0; s < group::slots; s++)
                    d[s] = solve::conjugate_of(d[s]);
            }
            group::template substitute<false, true>(a, b, d);
        }
        return info;
    }

    static MF_DEVICE void run(const args &p, i64 block, void *shared)
    {
        const i64 number = block * groups + threadIdx.x / LANES;
        const bool here = number < p.items;
        const item at = solve_locate(p, here ? number : 0);
        group g((T *)shared + threadIdx.x / LANES * group::elements);
        const bool across =
            solve_lines<KIND, T, TA, N, ND, group>::template fetch<LANES>(p, (const TA *)p.a + at.a, g, group::lane());
        T a[group::slots][group::columns], b[group::slots][group::sides];
        MF_UNROLL
        for (int s = 0; s < group::slots; s++) {
            MF_UNROLL
            for (int r = 0; r < R; r++)
                b[s][r] = group::row(s) < N
                              ? convert<T>(widen(
                                    ((const TB *)p.b)[at.b + group::row(s) * p.b_stride[ND] + r * p.b_stride[ND + 1]]))
                              : T();
        }
        copy_wait<0>();
        __syncwarp();
        int info = 0;
        if constexpr (KIND == SOLVE_CHOLESKY) {
            real_t<T> inverse[group::slots];
            take<solve::LOWER_PART>(g, a, across);
            __syncwarp();
            info = g.cholesky(a, b, inverse);
            if constexpr (R > 0)
                g.finish_cholesky(a, b, inverse);
        } else if constexpr (KIND == SOLVE_LU) {
            take<solve::WHOLE>(g, a, across);
            __syncwarp();
            info = g.lu(a, b);
            g.finish_lu(a, b);
        } else {
            info = solve_triangle(g, a, b, across);
        }
        store(p, at, g, a, b, info, here);
    }

    static MF_DEVICE void store(const args &p, const item &at, group &g, T (&a)[group::slots][group::columns],
                                T (&b)[group::slots][group::sides], int info, bool here)
    {
        if constexpr (R == 0) {
            leave_factor(g, a, info != 0);
            if (p.x && here)
                store_factor(p, (TX *)p.x + at.x, g);
        } else if (p.x && here) {
            MF_UNROLL
            for (int s = 0; s < group::slots; s++) {
                MF_UNROLL
                for (int r = 0; r < R; r++)
                    if (group::row(s) < N)
                        ((TX *)p.x)[at.x + group::row(s) * p.x_stride[ND] + r * p.x_stride[ND + 1]] =
                            narrow<TX>(convert<compute_t<TX>>(info ? solve::nan_number<T>() : b[s][r]));
            }
        }
        if (p.info && here && group::lane() == 0)
            ((i32 *)p.info)[at.info] = info;
    }
};

} // namespace mf
#endif
