// How gemm_sm90.cuh applies the chain to sums in registers, and stages what comes of it.
#ifndef MATHFUSE_GEMM_SM90_CHAIN_CUH
#define MATHFUSE_GEMM_SM90_CHAIN_CUH

#include "device/gemm_sm90_shared.cuh"

namespace mf
{

// What one thread fetches for its epilogue under the first products, so that it has long arrived after the last.
template <class C, class E> struct gemm90_vectors {
    static constexpr int PER_THREAD = (C::COLS + 127) / 128;
    float across[at_least_one(E::n_vectors)][PER_THREAD];
    float down[at_least_one(E::m_vectors)][C::BLOCKS][2];
    float scalar[at_least_one(E::scalars)];

    // `batch...`: the product's number, of kernels that make several.
    template <class... B> MF_DEVICE void fetch_from(const gemm90_args<E> &p, i32 row, i32 col, u32 thread, B... batch)
    {
        MF_UNROLL
        for (int port = 0; port < E::n_vectors; port++) {
            MF_UNROLL
            for (int i = 0; i < PER_THREAD; i++) {
                i32 c = col + (i32)thread + 128 * i;
                across[port][i] = c < p.n ? E::n_vector(p.epilogue, port, c, batch...) : 0.0f;
            }
        }
        MF_UNROLL
        for (int port = 0; port < E::scalars; port++)
            scalar[port] = E::scalar(p.epilogue, port, batch...);
        MF_UNROLL
        for (int port = 0; port < E::m_vectors; port++) {
            MF_UNROLL
            for (int i = 0; i < C::BLOCKS * 2; i++) {
                i32 r = row + i / 2 * 64 + i % 2 * 8;
                down[port][i / 2][i % 2] = r < p.m ? E::m_vector(p.epilogue, port, r, batch...) : 0.0f;
            }
        }
    }

    MF_DEVICE void fetch(const gemm90_args<E> &p, i32 row, i32 col, i32 batch, u32 thread)
    {
        if constexpr (C::BATCHED)
            fetch_from(p, row, col, thread, batch);
        else
            fetch_from(p, row, col, thread);
    }

    // Hands the columns' values to the whole warpgroup. The first barrier keeps them from a warp still in its last
    // tile.
    MF_DEVICE void share(float *to, u32 w, u32 thread) const
    {
        if constexpr (E::n_vectors > 0) {
            named_barrier(1 + w, 128);
            MF_UNROLL
            for (int port = 0; port < E::n_vectors; port++) {
                MF_UNROLL
                for (int i = 0; i < PER_THREAD; i++)
                    if (thread + 128 * i < C::COLS)
                        to[port * C::COLS + thread + 128 * i] = across[port][i];
            }
            named_barrier(1 + w, 128);
        }
    }
};

MF_DEVICE void store_shared(u32 address, u32 x, u32 y)
{
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}

MF_DEVICE void store_shared_half(u32 address, u32 pair)
{
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"((u16)pair) : "memory");
}

MF_DEVICE void store_words(u32 *to, u32 x, u32 y)
{
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(x), "r"(y) : "memory");
}

// Where 16 bytes of a chunk lie whose lines have LINE bytes: swizzled as tensor maps of that width do.
template <int LINE> MF_DEVICE u32 chunk_sixteen(u32 chunk, u32 row, u32 sixteen)
{
    return chunk + row * LINE + ((sixteen ^ (row * LINE / 128 & (LINE / 16 - 1))) << 4);
}

// Where lane's part of a chunk lies, of which a warp owns 16 rows: for 8 x 8 matrices of 16 bits; for two neighbours.
template <int LINE> MF_DEVICE u32 chunk_matrix(u32 chunk, u32 warp, u32 lane, u32 pair)
{
    return chunk_sixteen<LINE>(chunk, warp * 16 + (lane & 15), 2 * pair + (lane >> 4));
}
template <int LINE, int SIZE> MF_DEVICE u32 chunk_two(u32 chunk, u32 warp, u32 lane, u32 eight, u32 half)
{
    u32 byte = (eight * 8 + lane % 4 * 2) * SIZE;
    return chunk_sixteen<LINE>(chunk, warp * 16 + half * 8 + lane / 4, byte / 16) + byte % 16;
}

// Where a thread stands, of the warpgroup that is at a tile. row and col are those of its first value.
struct gemm90_place {
    u32 w, warp, lane;
    i32 row, col, batch;
};

// What comes of sixteen columns of a thread's rows: four pairs of neighbours.
template <class C> struct gemm90_sixteen {
    u32 bits[4][C::R::COUNT][2];
};

// What is reduced along a thread's rows, and what follows from it: of each block of 64, the first and the eighth after it.
template <class C, bool ROWS = C::ROWS> struct gemm90_row_values {
};
template <class C> struct gemm90_row_values<C, true> {
    typename C::R::row row[C::BLOCKS][2];
};

// Puts result PART of columns 16 * pair on into its chunk.
template <class C, int PART, class W>
MF_DEVICE void gemm90_stage(const W &walk, const gemm90_place &at, u32 slot, int pair, const gemm90_sixteen<C> &x)
{
    if constexpr (PART < C::R::COUNT) {
        constexpr int size = C::R::size(PART), line = C::CHUNK_COLS * size;
        const u32 chunk = walk.chunk(at.w, slot, PART);
        if constexpr (size == 2) {
            const u32 r[4] = {x.bits[0][PART][0], x.bits[1][PART][0], x.bits[2][PART][0], x.bits[3][PART][0]};
            matrix_store(chunk_matrix<line>(chunk, at.warp, at.lane, pair), r);
        } else {
            MF_UNROLL
            for (int i = 0; i < 4; i++) {
                u32 to = chunk_two<line, size>(chunk, at.warp, at.lane, 2 * pair + i / 2, i % 2);
                if constexpr (size == 1)
                    store_shared_half(to, x.bits[i][PART][0]);
                else
                    store_shared(to, x.bits[i][PART][0], x.bits[i][PART][1]);
            }
        }
        gemm90_stage<C, PART + 1>(walk, at, slot, pair, x);
    }
}

// The same straight to memory, sixteen columns from `first` on.
template <class C, class E>
MF_DEVICE void gemm90_put(const gemm90_args<E> &p, const gemm90_place &at, i32 block, i32 first,
                          const gemm90_sixteen<C> &x)
{
    MF_UNROLL
    for (int i = 0; i < 4; i++) {
        i32 r = at.row + block * 64 + i % 2 * 8, c = at.col + first + i / 2 * 8;
        u32 *to;
        if constexpr (C::BATCHED)
            to = E::out(p.epilogue, r, at.batch);
        else
            to = E::out(p.epilogue, r);
        if (r < p.m && c < p.n)
            store_words(to + c, x.bits[i][0][0], x.bits[i][0][1]);
    }
}

// What the chain takes for a pair of neighbours: those of `column` on, of a tile's rows that begin with BLOCK, and half, of which
// a thread has one each. v: the sums; `tile`: the tile operand.
template <class C, class E, int BLOCK>
MF_DEVICE epilogue_ports<E> gemm90_ports(const gemm90_args<E> &p, const gemm90_vectors<C, E> &vectors,
                                         const float *across, const gemm90_place &at, int column, int half, u32 tile,
                                         const float *v)
{
    epilogue_ports<E> ports;
    ports.row = at.row + BLOCK * 64 + half * 8;
    ports.col = at.col + column;
    ports.batch = at.batch;
    ports.rows = p.m;
    ports.cols = p.n;
    if constexpr (C::TWIN) {
        ports.twin[0] = v[C::BN / 4];
        ports.twin[1] = v[C::BN / 4 + 1];
    }
    MF_UNROLL
    for (int port = 0; port < E::n_vectors; port++) {
        const float *from = across + port * C::COLS + column + at.lane % 4 * 2;
        ports.across[port][0] = from[0];
        ports.across[port][1] = from[1];
    }
    MF_UNROLL
    for (int port = 0; port < E::m_vectors; port++)
        ports.down[port] = vectors.down[port][BLOCK][half];
    MF_UNROLL
    for (int port = 0; port < E::scalars; port++)
        ports.scalar[port] = vectors.scalar[port];
    if constexpr (E::tiles > 0)
        unpack_pair<typename E::tile_type>(tile, ports.tile[0][0], ports.tile[0][1]);
    return ports;
}

// The chain over sixteen columns from `first` of block BLOCK of a tile on. `acc` holds each thread's share, eight columns to
// four values; `tile` the tile operand's.
template <class C, class E, int BLOCK>
MF_DEVICE void gemm90_apply(const gemm90_args<E> &p, const gemm90_vectors<C, E> &vectors, const float *across,
                            const gemm90_place &at, int first, const u32 (&tile)[4], const float (&acc)[C::BN / 2],
                            const gemm90_row_values<C> &rows, gemm90_sixteen<C> &x, u32 &largest)
{
    MF_UNROLL
    for (int i = 0; i < 4; i++) {
        const float *v = acc + first / 2 + i * 2;
        const auto ports = gemm90_ports<C, E, BLOCK>(p, vectors, across, at, first + i / 2 * 8, i % 2, tile[i], v);
        if constexpr (C::ROWS)
            C::R::finish(p.epilogue, ports, v[0], v[1], x.bits[i], rows.row[BLOCK][i % 2]);
        else
            C::R::finish(p.epilogue, ports, v[0], v[1], x.bits[i], largest);
    }
}

// One chunk. The chain runs over GROUP times sixteen columns before they are staged, which later loads wait for; over more,
// registers would not do.
template <class C, class E, int BLOCK, int ACROSS, class W>
MF_DEVICE void gemm90_chunk(const W &walk, const gemm90_vectors<C, E> &vectors, const float *across,
                            const gemm90_place &at, u32 slot, const float (&acc)[C::BN / 2],
                            const gemm90_row_values<C> &rows, u32 &largest)
{
    constexpr int pairs = C::CHUNK_COLS / 16, first = ACROSS * C::CHUNK_COLS, GROUP = 2;
    u32 tile[pairs][4];
    if constexpr (E::tiles > 0) {
        MF_UNROLL
        for (int pair = 0; pair < pairs; pair++)
            matrix_load(tile[pair], chunk_matrix<C::CHUNK_COLS * 2>(walk.chunk(at.w, slot, W::at::TILE_PART), at.warp,
                                                                    at.lane, pair));
    }
    MF_UNROLL
    for (int group = 0; group < pairs; group += GROUP) {
        gemm90_sixteen<C> x[GROUP];
        MF_UNROLL
        for (int i = 0; i < GROUP; i++)
            gemm90_apply<C, E, BLOCK>(walk.p, vectors, across, at, first + (group + i) * 16, tile[group + i], acc, rows,
                                      x[i], largest);
        MF_UNROLL
        for (int i = 0; i < GROUP; i++)
            if constexpr (C::DIRECT)
                gemm90_put<C>(walk.p, at, BLOCK, first + (group + i) * 16, x[i]);
            else
                gemm90_stage<C, 0>(walk, at, slot, group + i, x[i]);
    }
}

template <class C, class E, class W, int I = 0>
MF_DEVICE void gemm90_chunks(const W &walk, const gemm90_vectors<C, E> &vectors, const float *across,
                             const gemm90_place &place, u32 done, const float (&acc)[C::BLOCKS][C::BN / 2],
                             const gemm90_row_values<C> &rows, u32 &largest)
{
    if constexpr (I < C::CHUNKS) {
        constexpr int block = I / C::CHUNKS_ACROSS, column = I % C::CHUNKS_ACROSS;
        ring_position at = ring_at<W::at::RING>(done + I);
        if constexpr (E::tiles > 0)
            barrier_wait(walk.tile_full(place.w, at.slot), at.parity);
        else if constexpr (!C::DIRECT)
            barrier_wait(walk.free(place.w, at.slot), at.parity ^ 1);
        gemm90_chunk<C, E, block, column>(walk, vectors, across, place, at.slot, acc[block], rows, largest);
        if constexpr (!C::DIRECT) {
            async_fence();
            __syncwarp();
            if (place.lane == 0)
                barrier_arrive(walk.staged(place.w, at.slot));
        }
        gemm90_chunks<C, E, W, I + 1>(walk, vectors, across, place, done, acc, rows, largest);
    }
}

} // namespace mf
#endif
