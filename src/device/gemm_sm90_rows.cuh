// Reductions along whole rows of the result, for gemm_sm90.cuh: rms_norm(A B), a scale for each row of an 8-bit result.
//
// The blocks of a cluster lie side by side over the same rows. The sums stay in registers while each thread reduces what it has
// of its rows, the four threads of a row exchange that by shuffles, and every block tells all blocks of the cluster, itself
// included. What a block is told lies in two buffers that take turns: a block writes into one again only after a round in which
// it has heard from all threads of the others, which have read it by then.
//
// What is stored, R, has besides the members of one_result, and with a row in place of `largest`,
//   row                                   values of a row
//   PHASES, VALUES, values(P)             rounds of reductions; the most values of a round, and those of round P
//   start<P>(row), add<P>(args, ports, v0, v1, row), across<P>(row, f), derive<P>(args, ports, row)
//                                         as a chain's; of add, columns beyond the result are none
//   finish_row(args, ports, row)          stores what is one value of a row
#ifndef MATHFUSE_GEMM_SM90_ROWS_CUH
#define MATHFUSE_GEMM_SM90_ROWS_CUH

#include "device/gemm_sm90_chain.cuh"
#include "mathfuse/device/reduce.cuh"

namespace mf
{

// Over the four threads that share rows. Each of them keeps, of all rows, the one that it speaks for.
struct gemm90_quad {
    float *mine;
    bool speaks;
    int next;

    template <class Op, int> MF_DEVICE float over(float x)
    {
        x = warp_reduce<Op, 4>(x);
        mine[next] = speaks ? x : mine[next];
        next++;
        return x;
    }
};

// Bytes that a block tells in a round of COUNT values.
template <class C, int COUNT> MF_HOST_DEVICE constexpr u32 gemm90_told_bytes()
{
    return COUNT * C::GROUP_ROWS * 4;
}

// Over the blocks, in their order, of one row.
template <class C, int COUNT> struct gemm90_heard {
    u32 from;

    template <class Op, int> MF_DEVICE float over(float)
    {
        float all = float_of(load_shared(from));
        MF_UNROLL
        for (int block = 1; block < C::WIDE; block++)
            all = Op::combine(all, float_of(load_shared(from + block * gemm90_told_bytes<C, COUNT>())));
        from += C::GROUP_ROWS * 4;
        return all;
    }
};

// Tells every other block of the cluster what this warpgroup has of its rows, of which this thread speaks for `row`; -1: for
// none. `told`: where the blocks' values lie, its own among them.
template <class C, int COUNT>
MF_DEVICE void gemm90_tell(u32 told, u32 heard, u32 w, i32 row, i32 side, const float (&mine)[COUNT])
{
    constexpr u32 bytes = gemm90_told_bytes<C, COUNT>();
    const u32 own = told + (u32)side * bytes;
    MF_UNROLL
    for (int i = 0; i < COUNT && row >= 0; i++)
        store_shared(own + (i * C::GROUP_ROWS + row) * 4, bits_of(mine[i]));
    async_fence();
    named_barrier(1 + w, 128);
    if (threadIdx.x % 128 == 0) {
        barrier_arrive_bytes(heard, bytes * (C::WIDE - 1));
        for (u32 block = 0; block < C::WIDE; block++)
            if (block != (u32)side)
                copy_remote(cluster_address(own, block), own, bytes, cluster_address(heard, block));
    }
}

// What a thread has of its rows in chunks I on.
template <class C, class E, int P, int I, class W>
MF_DEVICE void gemm90_add_chunks(const W &walk, const gemm90_vectors<C, E> &vectors, const float *across,
                                 const gemm90_place &place, u32 done, const float (&acc)[C::BLOCKS][C::BN / 2],
                                 gemm90_row_values<C> &rows)
{
    if constexpr (I < C::CHUNKS) {
        constexpr int block = I / C::CHUNKS_ACROSS, column = I % C::CHUNKS_ACROSS * C::CHUNK_COLS;
        const ring_position at = ring_at<W::at::RING>(done + I);
        if constexpr (E::tiles > 0)
            barrier_wait(walk.tile_full(place.w, at.slot), at.parity);
        MF_UNROLL
        for (int pair = 0; pair < C::CHUNK_COLS / 16; pair++) {
            u32 tile[4];
            if constexpr (E::tiles > 0)
                matrix_load(tile, chunk_matrix<C::CHUNK_COLS * 2>(walk.chunk(place.w, at.slot, W::at::TILE_PART),
                                                                  place.warp, place.lane, pair));
            MF_UNROLL
            for (int i = 0; i < 4; i++) {
                const int first = column + pair * 16;
                const float *v = acc[block] + first / 2 + i * 2;
                const auto ports =
                    gemm90_ports<C, E, block>(walk.p, vectors, across, place, first + i / 2 * 8, i % 2, tile[i], v);
                C::R::template add<P>(walk.p.epilogue, ports, v[0], v[1], rows.row[block][i % 2]);
            }
        }
        gemm90_add_chunks<C, E, P, I + 1>(walk, vectors, across, place, done, acc, rows);
    }
}

// Phases P on. `round` counts exchanges.
template <class C, class E, class W, int P = 0>
MF_DEVICE void gemm90_reduce(const W &walk, const gemm90_vectors<C, E> &vectors, const float *across,
                             const gemm90_place &place, u32 done, float (&acc)[C::BLOCKS][C::BN / 2],
                             gemm90_row_values<C> &rows, u32 &round)
{
    constexpr int count = C::R::values(P), own = C::BLOCKS * 2;
    const u32 slot = round % 2, first = place.warp * 16 + place.lane / 4;
    float mine[count];
    MF_UNROLL
    for (int i = 0; i < own; i++)
        C::R::template start<P>(rows.row[i / 2][i % 2]);
    gemm90_add_chunks<C, E, P, 0>(walk, vectors, across, place, done, acc, rows);
    MF_UNROLL
    for (int i = 0; i < count; i++)
        mine[i] = 0;
    MF_UNROLL
    for (int i = 0; i < own; i++) {
        gemm90_quad quad = {mine, place.lane % 4 == (u32)i, 0};
        C::R::template across<P>(rows.row[i / 2][i % 2], quad);
    }
    if constexpr (C::WIDE > 1) {
        const u32 told = walk.told(place.w, slot), heard = walk.heard(place.w, slot), speaks = place.lane % 4;
        gemm90_tell<C>(told, heard, place.w, speaks < own ? (i32)(speaks / 2 * 64 + speaks % 2 * 8 + first) : -1,
                       walk.side, mine);
        barrier_wait(heard, round / 2 & 1);
        MF_UNROLL
        for (int i = 0; i < own; i++) {
            gemm90_heard<C, count> all = {told + (i / 2 * 64 + i % 2 * 8 + first) * 4};
            C::R::template across<P>(rows.row[i / 2][i % 2], all);
        }
        round++;
    }
    MF_UNROLL
    for (int i = 0; i < own; i++) {
        epilogue_ports<E> ports;
        ports.row = place.row + i / 2 * 64 + i % 2 * 8;
        ports.col = 0;
        ports.batch = place.batch;
        if (ports.row >= walk.p.m)
            continue;
        C::R::template derive<P>(walk.p.epilogue, ports, rows.row[i / 2][i % 2]);
        if (P + 1 == C::R::PHASES && walk.side == 0 && place.lane % 4 == 0)
            C::R::finish_row(walk.p.epilogue, ports, rows.row[i / 2][i % 2]);
    }
    // The same sums, but the compiler cannot know: what one phase makes of them is made anew in the next, for want of registers
    // to keep it in.
    const float nothing = shuffle_xor(-0.0f, 0);
    MF_UNROLL
    for (int i = 0; i < C::BLOCKS * C::BN / 2; i++)
        acc[i / (C::BN / 2)][i % (C::BN / 2)] += nothing;
    if constexpr (P + 1 < C::R::PHASES)
        gemm90_reduce<C, E, W, P + 1>(walk, vectors, across, place, done, acc, rows, round);
}

} // namespace mf
#endif
