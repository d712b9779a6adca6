// Matmul for sm_90a: D = epilogue(A B), 16-bit operands, f32 sums, any elementwise epilogue applied before the one
// rounding.
//
// One block per multiprocessor walks over output tiles. Warpgroup 0 moves data: warp 0 fetches A and B, warp 1 the
// epilogue's tile operand, warps 2 and 3 store what warpgroups 1 and 2 have staged. Those two multiply: cooperatively,
// each half the rows of a tile, or in ping-pong, each its own tile, so that one's epilogue runs under the other's
// products.
//
// Stages of A and B pass through `full` and `empty` barriers. Output leaves in chunks of 64 rows by 128 bytes through
// staging buffers; a tile operand arrives in the very buffer, and position, that its result leaves from. A buffer goes
//   free -> (tile operand fetched: `tile_full`) -> written by the warpgroup: `staged` -> stored: `free`.
//
// The host encodes tensor maps with 128-byte swizzle, 128-byte inner boxes and zero fill: gemm90_box says how tall.
// Ragged m, n and k need no care: what lies outside reads as zero and is not written.
#ifndef MATHFUSE_GEMM_SM90_CUH
#define MATHFUSE_GEMM_SM90_CUH

#include "device/gemm_epilogue.cuh"
#include "device/ptx_sm90.cuh"

namespace mf
{

constexpr int GEMM90_THREADS = 384;
constexpr int GEMM90_SHARED_LIMIT = 232448;
constexpr int CHUNK_BYTES = 64 * 128;

// T: bf16 or f16. OUT: bf16, f16 or float. A_MN: A is stored (k, m); B_MN: B is stored (k, n); else (m, k) and (n, k).
// CLUSTER: 1, or 2 blocks one above the other that share the loads of B. BUFFERS: staging chunks per warpgroup; 0: floats
// go from registers to memory, at E::out(args, row). TWIN: the tile's left half is A's product with B, its right half that
// with B2, for the same BN / 2 columns of the output; the epilogue takes both.
template <class T_, class OUT_, int BM_, int BN_, int STAGES_, int CLUSTER_, bool PINGPONG_, bool A_MN_, bool B_MN_,
          int BUFFERS_, bool TWIN_ = false>
struct gemm90_config {
    typedef T_ T;
    typedef OUT_ OUT;
    static constexpr int BM = BM_, BN = BN_, BK = 64, STAGES = STAGES_, CLUSTER = CLUSTER_, BUFFERS = BUFFERS_;
    static constexpr bool PINGPONG = PINGPONG_, A_MN = A_MN_, B_MN = B_MN_, DIRECT = BUFFERS == 0, TWIN = TWIN_;
    static constexpr int GROUP_ROWS = PINGPONG ? BM : BM / 2; // rows of a tile that one warpgroup multiplies
    static constexpr int BLOCKS = GROUP_ROWS / 64;
    static constexpr int A_BYTES = BM * 128, B_BYTES = BN * 128, STAGE_BYTES = A_BYTES + B_BYTES;
    static constexpr int CHUNK_COLS = 128 / (int)sizeof(OUT);
    static constexpr int COLS = TWIN ? BN / 2 : BN; // of the output
    static constexpr int CHUNKS_ACROSS = COLS / CHUNK_COLS, CHUNKS = BLOCKS * CHUNKS_ACROSS;
    static_assert(same<T, bf16> || same<T, f16>, "operands are bf16 or f16");
    static_assert(same<OUT, bf16> || same<OUT, f16> || same<OUT, float>, "the output is bf16, f16 or float");
    static_assert(GROUP_ROWS % 64 == 0 && BM <= 256, "a warpgroup multiplies 64 rows at a time");
    static_assert(BN == 128 || BN == 192 || BN == 256, "there is a wgmma for 128, 192 and 256 columns");
    static_assert(!TWIN || BN % 128 == 0, "each of a twin's halves is whole chunks");
    static_assert(BLOCKS * BN <= 384, "more accumulators than registers");
    static_assert(CLUSTER == 1 || CLUSTER == 2, "clusters of one or two");
    static_assert(!B_MN || BN / 64 % CLUSTER == 0, "the blocks of a cluster load equal parts of B");
    static_assert(BUFFERS >= 2 || (DIRECT && same<OUT, float>), "stores overlap only with two buffers or more");
};

// Where things lie in shared memory.
template <class C, class E> struct gemm90_layout {
    static constexpr int STAGING = C::STAGES * C::STAGE_BYTES;
    static constexpr int VECTORS = STAGING + 2 * C::BUFFERS * CHUNK_BYTES;
    static constexpr int BARRIERS = VECTORS + 2 * E::n_vectors * C::COLS * 4;
    static constexpr int FULL = BARRIERS, EMPTY = FULL + 8 * C::STAGES;
    static constexpr int TILE_FULL = EMPTY + 8 * C::STAGES; // these three: per warpgroup, per buffer
    static constexpr int STAGED = TILE_FULL + 16 * C::BUFFERS;
    static constexpr int FREE = STAGED + 16 * C::BUFFERS;
    static constexpr int TURN = FREE + 16 * C::BUFFERS; // ping-pong: whose products are next
    static constexpr int BYTES = TURN + 16;
    static_assert(BYTES <= GEMM90_SHARED_LIMIT, "too many stages or buffers for shared memory");
    static_assert(E::tiles <= 1, "one tile operand comes through shared memory; load others in apply2");
    static_assert(E::tiles == 0 || (sizeof(typename C::OUT) == 2 && !C::DIRECT),
                  "a tile operand shares the output's staging: 16 bits");
};

// Rows of each tensor map's box; the inner extent is 64 elements, of a float output 32.
enum gemm90_operand { GEMM90_A, GEMM90_B, GEMM90_D };
template <class C> constexpr int gemm90_box(gemm90_operand operand)
{
    return operand == GEMM90_A   ? (C::A_MN ? 64 : C::BM)
           : operand == GEMM90_B ? (C::B_MN ? 64 : C::BN / (C::TWIN ? 2 : C::CLUSTER))
                                 : 64;
}

template <class E> struct gemm90_args {
    i32 m, n, k;
    i32 tiles_m, tiles_n; // tiles_m counts cluster tiles: CLUSTER * BM rows each
    i32 group;            // of `raster`
    typename E::args epilogue;
};

// A position in a ring of `size` buffers: which one, and the parity of its barriers' phase.
struct ring_position {
    u32 slot, parity;
};

template <int size> MF_DEVICE ring_position ring_at(u32 count)
{
    return ring_position{count % size, count / size & 1};
}

template <int size> MF_DEVICE void ring_next(ring_position &p)
{
    p.slot++;
    if (p.slot == size) {
        p.slot = 0;
        p.parity ^= 1;
    }
}

// One block's walk over the tiles. `step` tiles of this cluster lie between two that a warpgroup takes.
template <class C, class E> struct gemm90_walk {
    const gemm90_args<E> &p;
    u32 shared;
    u32 rank;     // in the cluster
    i32 first;    // the cluster's first tile
    i32 stride;   // clusters in the grid
    i32 total;    // cluster tiles
    i32 k_blocks; // stages per tile

    MF_DEVICE gemm90_walk(const gemm90_args<E> &args, u32 base)
        : p(args), shared(base), rank(blockIdx.x % C::CLUSTER), first((i32)(blockIdx.x / C::CLUSTER)),
          stride((i32)(gridDim.x / C::CLUSTER)), total(args.tiles_m * args.tiles_n),
          k_blocks((args.k + C::BK - 1) / C::BK)
    {
    }

    MF_DEVICE bool has(i32 turn) const { return first + turn * stride < total; }

    MF_DEVICE void locate(i32 turn, i32 &row, i32 &col) const
    {
        i32 tile_m, tile_n;
        raster(first + turn * stride, p.tiles_m, p.tiles_n, p.group, tile_m, tile_n);
        row = (tile_m * C::CLUSTER + (i32)rank) * C::BM;
        col = tile_n * C::COLS;
    }

    typedef gemm90_layout<C, E> at;
    MF_DEVICE u32 stage(u32 slot) const { return shared + slot * C::STAGE_BYTES; }
    MF_DEVICE u32 full(u32 slot) const { return shared + at::FULL + 8 * slot; }
    MF_DEVICE u32 empty(u32 slot) const { return shared + at::EMPTY + 8 * slot; }
    MF_DEVICE u32 chunk(u32 w, u32 slot) const { return shared + at::STAGING + (w * C::BUFFERS + slot) * CHUNK_BYTES; }
    MF_DEVICE u32 tile_full(u32 w, u32 slot) const { return shared + at::TILE_FULL + 8 * (w * C::BUFFERS + slot); }
    MF_DEVICE u32 staged(u32 w, u32 slot) const { return shared + at::STAGED + 8 * (w * C::BUFFERS + slot); }
    MF_DEVICE u32 free(u32 w, u32 slot) const { return shared + at::FREE + 8 * (w * C::BUFFERS + slot); }
    MF_DEVICE u32 turn(u32 w) const { return shared + at::TURN + 8 * w; }
    // The rows of a tile that start warpgroup w's part.
    MF_DEVICE i32 part(u32 w) const { return C::PINGPONG ? 0 : (i32)w * C::GROUP_ROWS; }
};

// ---- the data-moving warps, one thread each ----

// Box `i` of this block's share of B, sent to the whole cluster. `col`: the tile's first.
template <class C, class W>
MF_DEVICE void gemm90_fetch_b(const W &walk, const tensor_map &b, const tensor_map &b2, u32 stage, u32 full, i32 i,
                              i32 col, i32 k)
{
    constexpr i32 box = C::B_MN ? 64 : C::BN / (C::TWIN ? 2 : C::CLUSTER), share = C::BN / C::CLUSTER;
    i32 first = (i32)walk.rank * share + i * box, right = C::TWIN && first >= C::COLS;
    i32 at = col + first - (right ? C::COLS : 0);
    i32 inner = C::B_MN ? at : k, outer = C::B_MN ? k : at;
    const tensor_map &map = right ? b2 : b;
    if constexpr (C::CLUSTER > 1)
        map_load_multicast(stage + C::A_BYTES + first * 128, map, full, inner, outer, (1 << C::CLUSTER) - 1);
    else
        map_load(stage + C::A_BYTES + first * 128, map, full, inner, outer);
}

template <class C, class W>
MF_DEVICE void gemm90_fetch(const W &walk, const tensor_map &a, const tensor_map &b, const tensor_map &b2)
{
    constexpr int boxes = C::BN / C::CLUSTER / (C::B_MN ? 64 : C::BN / (C::TWIN ? 2 : C::CLUSTER));
    ring_position at{0, 0};
    for (i32 turn = 0; walk.has(turn); turn++) {
        i32 row, col;
        walk.locate(turn, row, col);
        for (i32 kb = 0; kb < walk.k_blocks; kb++, ring_next<C::STAGES>(at)) {
            i32 k = kb * C::BK;
            u32 full = walk.full(at.slot), to_a = walk.stage(at.slot);
            barrier_wait(walk.empty(at.slot), at.parity ^ 1);
            barrier_arrive_bytes(full, C::STAGE_BYTES);
            if constexpr (C::A_MN) {
                MF_UNROLL
                for (int i = 0; i < C::BM / 64; i++)
                    map_load(to_a + i * CHUNK_BYTES, a, full, row + 64 * i, k);
            } else {
                map_load(to_a, a, full, k, row);
            }
            MF_UNROLL
            for (int i = 0; i < boxes; i++)
                gemm90_fetch_b<C>(walk, b, b2, to_a, full, i, col, k);
        }
    }
}

// The tile operand, for both warpgroups in the order in which they will want it.
template <class C, class W> MF_DEVICE void gemm90_fetch_tiles(const W &walk, const tensor_map &t)
{
    constexpr int sharers = C::PINGPONG ? 1 : 2;
    for (i32 turn = 0; walk.has(turn); turn++) {
        i32 row, col;
        walk.locate(turn, row, col);
        u32 done = (u32)(C::PINGPONG ? turn / 2 : turn) * C::CHUNKS;
        for (int i = 0; i < C::CHUNKS * sharers; i++) {
            u32 w = C::PINGPONG ? turn & 1 : i % 2;
            i32 c = i / sharers;
            ring_position at = ring_at<at_least_one(C::BUFFERS)>(done + c);
            barrier_wait(walk.free(w, at.slot), at.parity ^ 1);
            barrier_arrive_bytes(walk.tile_full(w, at.slot), CHUNK_BYTES);
            map_load(walk.chunk(w, at.slot), t, walk.tile_full(w, at.slot), col + c % C::CHUNKS_ACROSS * C::CHUNK_COLS,
                     row + walk.part(w) + c / C::CHUNKS_ACROSS * 64);
        }
    }
}

template <class C, class W> MF_DEVICE void gemm90_store(const W &walk, const tensor_map &d, u32 w)
{
    ring_position at{0, 0};
    for (i32 turn = C::PINGPONG ? w : 0; walk.has(turn); turn += C::PINGPONG ? 2 : 1) {
        i32 row, col;
        walk.locate(turn, row, col);
        row += walk.part(w);
        u32 before = 0;
        for (int c = 0; c < C::CHUNKS; c++, ring_next<at_least_one(C::BUFFERS)>(at)) {
            barrier_wait(walk.staged(w, at.slot), at.parity);
            map_store(d, walk.chunk(w, at.slot), col + c % C::CHUNKS_ACROSS * C::CHUNK_COLS,
                      row + c / C::CHUNKS_ACROSS * 64);
            store_commit();
            if (c > 0) {
                store_wait_read<1>();
                barrier_arrive(walk.free(w, before));
            }
            before = at.slot;
        }
        store_wait_read<0>();
        barrier_arrive(walk.free(w, before));
    }
    store_wait_all();
}

// ---- the multiplying warpgroups ----

// Tells the fetchers of the cluster that this warp is done with a stage.
template <class C, class W> MF_DEVICE void gemm90_release(const W &walk, u32 slot, u32 lane)
{
    if constexpr (C::CLUSTER == 1) {
        if (lane == 0)
            barrier_arrive(walk.empty(slot));
    } else if (lane < C::CLUSTER) {
        barrier_arrive_at(walk.empty(slot), lane);
    }
}

// What one thread fetches for its epilogue under the first products, so that it has long arrived after the last.
template <class C, class E> struct gemm90_vectors {
    static constexpr int PER_THREAD = (C::COLS + 127) / 128;
    float across[at_least_one(E::n_vectors)][PER_THREAD];
    float down[at_least_one(E::m_vectors)][C::BLOCKS][2];

    MF_DEVICE void fetch(const gemm90_args<E> &p, i32 row, i32 col, u32 thread)
    {
        MF_UNROLL
        for (int port = 0; port < E::n_vectors; port++) {
            MF_UNROLL
            for (int i = 0; i < PER_THREAD; i++) {
                i32 c = col + (i32)thread + 128 * i;
                across[port][i] = c < p.n ? E::n_vector(p.epilogue, port, c) : 0.0f;
            }
        }
        MF_UNROLL
        for (int port = 0; port < E::m_vectors; port++) {
            MF_UNROLL
            for (int i = 0; i < C::BLOCKS * 2; i++) {
                i32 r = row + i / 2 * 64 + i % 2 * 8;
                down[port][i / 2][i % 2] = r < p.m ? E::m_vector(p.epilogue, port, r) : 0.0f;
            }
        }
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

// Keeps the accumulators in their registers from one product to the next: a move would read what is still being written.
template <class C> MF_DEVICE void gemm90_pin(float (&acc)[C::BLOCKS][C::BN / 2])
{
    MF_UNROLL
    for (int block = 0; block < C::BLOCKS; block++)
        wgmma_pin(acc[block]);
}

// `meanwhile` runs once, under the first products.
template <class C, class W, class F>
MF_DEVICE void gemm90_multiply(const W &walk, u32 w, u32 lane, i32 turn, float (&acc)[C::BLOCKS][C::BN / 2],
                               F meanwhile)
{
    constexpr u64 a_step = C::A_MN ? 16 * 128 / 16 : 2, b_step = C::B_MN ? 16 * 128 / 16 : 2; // 16 along k, in 16 bytes
    const u64 a_base = wgmma_descriptor(walk.shared + (u32)walk.part(w) * 128, C::A_MN ? CHUNK_BYTES : 16, 1024);
    const u64 b_base = wgmma_descriptor(walk.shared + C::A_BYTES, C::B_MN ? CHUNK_BYTES : 16, 1024);
    ring_position at = ring_at<C::STAGES>((u32)turn * (u32)walk.k_blocks);
    u32 before = 0;
    for (i32 kb = 0; kb < walk.k_blocks; kb++, ring_next<C::STAGES>(at)) {
        barrier_wait(walk.full(at.slot), at.parity);
        u64 offset = at.slot * (C::STAGE_BYTES / 16);
        gemm90_pin<C>(acc);
        wgmma_fence();
        MF_UNROLL
        for (int step = 0; step < C::BK / 16; step++) {
            MF_UNROLL
            for (int block = 0; block < C::BLOCKS; block++)
                wgmma<typename C::T, C::A_MN, C::B_MN>(acc[block],
                                                       a_base + offset + step * a_step + block * (CHUNK_BYTES / 16),
                                                       b_base + offset + step * b_step, kb > 0 || step > 0);
        }
        wgmma_commit();
        gemm90_pin<C>(acc);
        if (kb > 0) {
            wgmma_wait<1>();
            gemm90_release<C>(walk, before, lane);
        } else {
            meanwhile();
        }
        before = at.slot;
    }
    if constexpr (C::PINGPONG) {
        // Only now may the other warpgroup look at `full`: before, it would mistake an older phase for its own.
        if (lane == 0)
            barrier_arrive(walk.turn(w ^ 1));
    }
    wgmma_wait<0>();
    gemm90_pin<C>(acc);
    gemm90_release<C>(walk, before, lane);
}

MF_DEVICE void store_shared(u32 address, float x, float y)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

MF_DEVICE void store_floats(float *to, float x, float y)
{
    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x), "f"(y) : "memory");
}

// Where lane's part of a 64 x 128-byte chunk lies. A warp owns 16 rows; 16-byte columns are swizzled by the row.
MF_DEVICE u32 chunk_matrix(u32 chunk, u32 warp, u32 lane, u32 pair)
{
    return chunk + (warp * 16 + (lane & 15)) * 128 + (((2 * pair + (lane >> 4)) ^ (lane & 7)) << 4);
}
MF_DEVICE u32 chunk_floats(u32 chunk, u32 warp, u32 lane, u32 eight, u32 half)
{
    u32 row = warp * 16 + half * 8 + lane / 4;
    return chunk + row * 128 + (((2 * eight + lane % 4 / 2) ^ (row & 7)) << 4) + (lane & 1) * 8;
}

// One chunk: 64 rows, `acc` holding each thread's share of its columns, eight columns to four values.
// `ports` comes with the tile's invariants; row and col are those of the thread's first value.
template <class C, class E, int BLOCK, int ACROSS>
MF_DEVICE void gemm90_chunk(const gemm90_args<E> &p, const gemm90_vectors<C, E> &vectors, const float *across, i32 row,
                            i32 col, u32 chunk, u32 warp, u32 lane, float (&acc)[C::BN / 2])
{
    typedef typename C::OUT OUT;
    constexpr int eights = C::CHUNK_COLS / 8;
    u32 tile[eights / 2][4];
    if constexpr (E::tiles > 0) {
        MF_UNROLL
        for (int pair = 0; pair < eights / 2; pair++)
            matrix_load(tile[pair], chunk_matrix(chunk, warp, lane, pair));
    }
    MF_UNROLL
    for (int j = 0; j < eights; j++) {
        MF_UNROLL
        for (int half = 0; half < 2; half++) {
            constexpr int first = ACROSS * C::CHUNK_COLS;
            float &v0 = acc[(first / 8 + j) * 4 + half * 2], &v1 = acc[(first / 8 + j) * 4 + half * 2 + 1];
            epilogue_ports<E> ports;
            ports.row = row + BLOCK * 64 + half * 8;
            ports.col = col + first + j * 8;
            ports.rows = p.m;
            ports.cols = p.n;
            if constexpr (C::TWIN) {
                ports.twin[0] = acc[C::BN / 4 + (first / 8 + j) * 4 + half * 2];
                ports.twin[1] = acc[C::BN / 4 + (first / 8 + j) * 4 + half * 2 + 1];
            }
            MF_UNROLL
            for (int port = 0; port < E::n_vectors; port++) {
                const float *at = across + port * C::COLS + first + j * 8 + lane % 4 * 2;
                ports.across[port][0] = at[0];
                ports.across[port][1] = at[1];
            }
            MF_UNROLL
            for (int port = 0; port < E::m_vectors; port++)
                ports.down[port] = vectors.down[port][BLOCK][half];
            if constexpr (E::tiles > 0)
                unpack_pair<typename E::tile_type>(tile[j / 2][j % 2 * 2 + half], ports.tile[0][0], ports.tile[0][1]);
            E::apply2(p.epilogue, ports, v0, v1);
        }
    }
    const float *v = acc + ACROSS * C::CHUNK_COLS / 2;
    if constexpr (C::DIRECT) {
        MF_UNROLL
        for (int half = 0; half < 2; half++) {
            i32 r = row + BLOCK * 64 + half * 8;
            float *to = E::out(p.epilogue, r);
            MF_UNROLL
            for (int j = 0; j < eights; j++) {
                i32 c = col + ACROSS * C::CHUNK_COLS + j * 8;
                if (r < p.m && c < p.n)
                    store_floats(to + c, v[j * 4 + half * 2], v[j * 4 + half * 2 + 1]);
            }
        }
    } else if constexpr (sizeof(OUT) == 2) {
        MF_UNROLL
        for (int pair = 0; pair < eights / 2; pair++) {
            u32 r[4];
            MF_UNROLL
            for (int i = 0; i < 4; i++)
                r[i] = pack_pair<OUT>(v[pair * 8 + i * 2], v[pair * 8 + i * 2 + 1]);
            matrix_store(chunk_matrix(chunk, warp, lane, pair), r);
        }
    } else {
        MF_UNROLL
        for (int i = 0; i < eights * 2; i++)
            store_shared(chunk_floats(chunk, warp, lane, i / 2, i % 2), v[i * 2], v[i * 2 + 1]);
    }
}

template <class C, class E, class W, int I = 0>
MF_DEVICE void gemm90_chunks(const W &walk, const gemm90_vectors<C, E> &vectors, const float *across, i32 row, i32 col,
                             u32 w, u32 warp, u32 lane, u32 done, float (&acc)[C::BLOCKS][C::BN / 2])
{
    if constexpr (I < C::CHUNKS) {
        constexpr int block = I / C::CHUNKS_ACROSS;
        ring_position at = ring_at<at_least_one(C::BUFFERS)>(done + I);
        if constexpr (E::tiles > 0)
            barrier_wait(walk.tile_full(w, at.slot), at.parity);
        else if constexpr (!C::DIRECT)
            barrier_wait(walk.free(w, at.slot), at.parity ^ 1);
        gemm90_chunk<C, E, block, I % C::CHUNKS_ACROSS>(walk.p, vectors, across, row, col, walk.chunk(w, at.slot), warp,
                                                        lane, acc[block]);
        if constexpr (!C::DIRECT) {
            async_fence();
            __syncwarp();
            if (lane == 0)
                barrier_arrive(walk.staged(w, at.slot));
        }
        gemm90_chunks<C, E, W, I + 1>(walk, vectors, across, row, col, w, warp, lane, done, acc);
    }
}

template <class C, class E, class W> MF_DEVICE void gemm90_consume(const W &walk, unsigned char *memory, u32 w)
{
    u32 thread = threadIdx.x % 128, lane = threadIdx.x % 32, warp = thread / 32;
    float *across = (float *)(memory + gemm90_layout<C, E>::VECTORS) + w * (E::n_vectors * C::COLS);
    u32 done = 0, tile = 0;
    for (i32 turn = C::PINGPONG ? w : 0; walk.has(turn); turn += C::PINGPONG ? 2 : 1, tile++, done += C::CHUNKS) {
        i32 row, col;
        walk.locate(turn, row, col);
        row += walk.part(w) + (i32)(warp * 16 + lane / 4);
        gemm90_vectors<C, E> vectors;
        float acc[C::BLOCKS][C::BN / 2];
        if constexpr (C::PINGPONG)
            barrier_wait(walk.turn(w), (tile & 1) ^ (w == 0)); // warpgroup 0 goes first, without waiting
        gemm90_multiply<C>(walk, w, lane, turn, acc, [&]() { vectors.fetch(walk.p, row, col, thread); });
        vectors.share(across, w, thread);
        gemm90_chunks<C, E>(walk, vectors, across, row, col + (i32)(lane % 4 * 2), w, warp, lane, done, acc);
    }
}

// ---- the kernel ----

template <class C, class E> MF_DEVICE void gemm90_barriers(u32 shared)
{
    typedef gemm90_layout<C, E> at;
    for (int i = 0; i < C::STAGES; i++) {
        barrier_init(shared + at::FULL + 8 * i, 1);
        barrier_init(shared + at::EMPTY + 8 * i, (C::PINGPONG ? 4 : 8) * C::CLUSTER);
    }
    for (int i = 0; i < 2 * C::BUFFERS; i++) {
        barrier_init(shared + at::TILE_FULL + 8 * i, 1);
        barrier_init(shared + at::STAGED + 8 * i, 4);
        barrier_init(shared + at::FREE + 8 * i, 1);
    }
    for (int i = 0; i < 2; i++)
        barrier_init(shared + at::TURN + 8 * i, 4);
    barrier_init_fence();
}

// The body, for a kernel that an emitter declares. Grid: a multiple of CLUSTER blocks; GEMM90_THREADS threads; dynamic
// shared memory gemm90_layout<C, E>::BYTES, which must start 1024-byte aligned. k >= 1.
template <class C, class E>
MF_DEVICE void gemm90(unsigned char *memory, const tensor_map &a, const tensor_map &b, const tensor_map &b2,
                      const tensor_map &d, const tensor_map &t, const gemm90_args<E> &p)
{
    u32 warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    gemm90_walk<C, E> walk(p, shared_address(memory));
    if (threadIdx.x == 0) {
        if (walk.shared % 1024 != 0)
            __trap();
        map_prefetch(a);
        map_prefetch(b);
        map_prefetch(d);
        if (E::tiles > 0)
            map_prefetch(t);
        gemm90_barriers<C, E>(walk.shared);
    }
    if constexpr (C::CLUSTER > 1)
        cluster_sync();
    else
        __syncthreads();
    if (warp < 4) {
        registers_shrink<40>();
        if (lane == 0) {
            if (warp == 0)
                gemm90_fetch<C>(walk, a, b, b2);
            else if (warp == 1 && E::tiles > 0)
                gemm90_fetch_tiles<C>(walk, t);
            else if (warp >= 2 && !C::DIRECT)
                gemm90_store<C>(walk, d, warp - 2);
        }
        __syncwarp();
    } else {
        registers_grow<232>();
        gemm90_consume<C, E>(walk, memory, warp / 4 - 1);
    }
    if constexpr (C::CLUSTER > 1)
        cluster_sync(); // a block must not leave while the other may still signal it
}

template <class C, class E>
__global__ void __launch_bounds__(GEMM90_THREADS, 1)
    gemm90_kernel(const __grid_constant__ tensor_map a, const __grid_constant__ tensor_map b,
                  const __grid_constant__ tensor_map d, const __grid_constant__ tensor_map t,
                  const __grid_constant__ gemm90_args<E> p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    gemm90<C, E>(memory, a, b, b, d, t, p);
}

} // namespace mf
#endif
