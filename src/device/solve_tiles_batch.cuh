// Batches of systems of 33 to 128 unknowns: blocks of one or several groups of solve_tiles.cuh, a matrix each.
#ifndef MF_DEVICE_SOLVE_TILES_BATCH_CUH
#define MF_DEVICE_SOLVE_TILES_BATCH_CUH

#include "mathfuse/device/solve_tiles.cuh"
#include "device/solve_lines.cuh"

namespace mf
{

// As solve_batch, for exactly N unknowns and R right-hand sides, a matrix for WARPS warps; with more than one they are the block.
template <solve_kind KIND, class T, int N, int R, class TA, class TB, class TX, int ND, int THREADS, bool CONJUGATE,
          bool UNIT, int WARPS>
struct solve_tiles_batch {
    static_assert(KIND == SOLVE_CHOLESKY || KIND == SOLVE_LU, "matrices that are factored");
    static_assert(WARPS == 1 || THREADS == 32 * WARPS, "warps meet at block barriers");
    typedef solve::tiles<T, N, R, WARPS> group;
    typedef solve_args<ND> args;
    typedef solve_item item;
    static constexpr int groups = THREADS / group::threads;
    static constexpr int BYTES = groups * group::elements * (int)sizeof(T);

    static MF_DEVICE T turned(T x)
    {
        if constexpr (CONJUGATE)
            return solve::conjugate_of(x);
        else
            return x;
    }

    // Its rows are the lines' columns: the lines hold its adjoint.
    static MF_DEVICE void store_factor(const args &p, TX *x, const group &g, bool failed)
    {
        const i64 rs = p.x_stride[ND], cs = p.x_stride[ND + 1];
        for (int e = group::thread(); e < N * N; e += group::threads) {
            int i = cs == 1 ? e / N : e % N, j = cs == 1 ? e % N : e / N;
            T l = failed ? solve::nan_number<T>() : turned(solve::conjugate_of(g.line(j)[i]));
            x[i * rs + j * cs] = narrow<TX>(convert<compute_t<TX>>(j <= i ? l : T()));
        }
    }

    static MF_DEVICE void store_sides(const args &p, TX *x, const group &g, bool failed)
    {
        constexpr int sides = R > 0 ? R : 1;
        for (int e = group::thread(); e < N * R; e += group::threads) {
            int i = e / sides, r = e % sides;
            x[i * p.x_stride[ND] + r * p.x_stride[ND + 1]] =
                narrow<TX>(convert<compute_t<TX>>(failed ? solve::nan_number<T>() : g.side(i)[r]));
        }
    }

    static MF_DEVICE void fetch_sides(const args &p, const TB *b, const group &g)
    {
        constexpr int sides = R > 0 ? R : 1;
        for (int e = group::thread(); e < N * R; e += group::threads) {
            int i = e / sides, r = e % sides;
            g.side(i)[r] = convert<T>(widen(b[i * p.b_stride[ND] + r * p.b_stride[ND + 1]]));
        }
    }

    static MF_DEVICE void run(const args &p, i64 block, void *shared)
    {
        const int part = (int)threadIdx.x / group::threads;
        const i64 number = block * groups + part;
        const bool here = number < p.items;
        const item at = solve_locate(p, here ? number : 0);
        group g((T *)shared + part * group::elements);
        const bool across = solve_lines<KIND, T, TA, N, ND, group>::template fetch<group::threads>(
            p, (const TA *)p.a + at.a, g, group::thread());
        fetch_sides(p, (const TB *)p.b + at.b, g);
        copy_wait<0>();
        group::sync();
        int info;
        if constexpr (KIND == SOLVE_LU)
            info = g.lu(across);
        else
            info = g.template cholesky<CONJUGATE>(across);
        if constexpr (R > 0)
            g.finish();
        if (p.x && here) {
            if constexpr (R > 0)
                store_sides(p, (TX *)p.x + at.x, g, info != 0);
            else
                store_factor(p, (TX *)p.x + at.x, g, info != 0);
        }
        if (p.info && here && group::thread() == 0)
            ((i32 *)p.info)[at.info] = info;
    }
};

} // namespace mf
#endif
