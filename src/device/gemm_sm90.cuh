// Matmul for sm_90a: D = epilogue(A B), 16- or 8-bit operands, f32 sums, any elementwise epilogue applied before the one
// rounding, one result or several.
//
// One block per multiprocessor walks over output tiles. Warpgroup 0 moves data: warp 0 fetches A and B, warp 1 the
// epilogue's tile operand, warps 2 and 3 store what warpgroups 1 and 2 have staged. Those two multiply: cooperatively,
// each half the rows of a tile, or in ping-pong, each its own tile, so that one's epilogue runs under the other's
// products.
//
// Stages of A and B pass through `full` and `empty` barriers. Results leave in chunks of 64 rows by up to 128 bytes through
// staging buffers; a tile operand arrives in the very buffer, and position, that a 16-bit result leaves from. A buffer goes
//   free -> (tile operand fetched: `tile_full`) -> written by the warpgroup: `staged` -> stored: `free`.
//
// The host encodes tensor maps with zero fill and a swizzle of their inner boxes' width: gemm90_box says how tall.
// Ragged m, n and k need no care: what lies outside reads as zero and is not written.
#ifndef MATHFUSE_GEMM_SM90_CUH
#define MATHFUSE_GEMM_SM90_CUH

#include "device/gemm_sm90_rows.cuh"

namespace mf
{

// ---- the data-moving warps, one thread each ----

template <class C> MF_DEVICE void gemm90_load(u32 to, const tensor_map &map, u32 full, i32 inner, i32 outer, i32 item)
{
    if constexpr (C::BATCHED)
        map_load(to, map, full, inner, outer, item);
    else
        map_load(to, map, full, inner, outer);
}

// Box `i` of this block's share of B, sent to the whole cluster. `col`: the tile's first.
template <class C, class W>
MF_DEVICE void gemm90_fetch_b(const W &walk, const tensor_map &b, const tensor_map &b2, u32 stage, u32 full, i32 i,
                              i32 col, i32 k, i32 item)
{
    constexpr i32 box = C::B_MN ? 64 : C::BN / (C::TWIN ? 2 : C::CLUSTER), share = C::BN / C::CLUSTER;
    i32 first = (i32)walk.rank * share + i * box, right = C::TWIN && first >= C::COLS;
    i32 at = col + first - (right ? C::COLS : 0);
    i32 inner = C::B_MN ? at : k, outer = C::B_MN ? k : at;
    const tensor_map &map = right ? b2 : b;
    const u32 to = stage + C::A_BYTES + first * 128;
    if constexpr (C::CLUSTER == 1)
        gemm90_load<C>(to, map, full, inner, outer, item);
    else if constexpr (C::BATCHED)
        map_load_multicast(to, map, full, inner, outer, item, (1 << C::CLUSTER) - 1);
    else
        map_load_multicast(to, map, full, inner, outer, (1 << C::CLUSTER) - 1);
}

template <class C, class W>
MF_DEVICE void gemm90_fetch(const W &walk, const tensor_map &a, const tensor_map &b, const tensor_map &b2)
{
    constexpr int boxes = C::BN / C::CLUSTER / (C::B_MN ? 64 : C::BN / (C::TWIN ? 2 : C::CLUSTER));
    ring_position at{0, 0};
    for (i32 turn = 0; walk.has(turn); turn++) {
        i32 row, col;
        walk.locate(turn, row, col);
        const i32 item_a = walk.item(turn, 1), item_b = walk.item(turn, 2);
        for (i32 kb = 0; kb < walk.k_blocks; kb++, ring_next<C::STAGES>(at)) {
            i32 k = kb * C::BK;
            u32 full = walk.full(at.slot), to_a = walk.stage(at.slot);
            barrier_wait(walk.empty(at.slot), at.parity ^ 1);
            barrier_arrive_bytes(full, C::STAGE_BYTES);
            if constexpr (C::A_MN) {
                MF_UNROLL
                for (int i = 0; i < C::BM / 64; i++)
                    gemm90_load<C>(to_a + i * CHUNK_BYTES, a, full, row + 64 * i, k, item_a);
            } else {
                gemm90_load<C>(to_a, a, full, k, row, item_a);
            }
            MF_UNROLL
            for (int i = 0; i < boxes; i++)
                gemm90_fetch_b<C>(walk, b, b2, to_a, full, i, col, k, item_b);
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
            ring_position at = ring_at<W::at::RING>(done + c);
            barrier_wait(walk.free(w, at.slot), at.parity ^ 1);
            barrier_arrive_bytes(walk.tile_full(w, at.slot), 64 * C::CHUNK_COLS * 2);
            gemm90_load<C>(walk.chunk(w, at.slot, W::at::TILE_PART), t, walk.tile_full(w, at.slot),
                           col + c % C::CHUNKS_ACROSS * C::CHUNK_COLS, row + walk.part(w) + c / C::CHUNKS_ACROSS * 64,
                           walk.item(turn, 4));
        }
    }
}

template <class C, class W> MF_DEVICE void gemm90_store(const W &walk, const tensor_map (&d)[C::R::COUNT], u32 w)
{
    ring_position at{0, 0};
    for (i32 turn = C::PINGPONG ? w : 0; walk.has(turn); turn += C::PINGPONG ? 2 : 1) {
        i32 row, col;
        walk.locate(turn, row, col);
        row += walk.part(w);
        u32 before = 0;
        for (int c = 0; c < C::CHUNKS; c++, ring_next<W::at::RING>(at)) {
            barrier_wait(walk.staged(w, at.slot), at.parity);
            const i32 x = col + c % C::CHUNKS_ACROSS * C::CHUNK_COLS, y = row + c / C::CHUNKS_ACROSS * 64;
            MF_UNROLL
            for (int part = 0; part < C::R::COUNT; part++) {
                if constexpr (C::BATCHED)
                    map_store(d[part], walk.chunk(w, at.slot, part), x, y, walk.batch(turn));
                else
                    map_store(d[part], walk.chunk(w, at.slot, part), x, y);
            }
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

// Keeps the accumulators in their registers from one product to the next: a move would read what is still being written.
template <class C> MF_DEVICE void gemm90_pin(float (&acc)[C::BLOCKS][C::BN / 2])
{
    MF_UNROLL
    for (int block = 0; block < C::BLOCKS; block++)
        wgmma_pin(acc[block]);
}

// Products of 8-bit factors, whose sums the tensor cores keep to 14 bits or so: 64 columns of one stage are added up at a time,
// and f32 takes over, while the next 64 are under way.
template <class C> struct gemm90_narrow {
    static constexpr int ACROSS = C::BN / 64, PARTS = C::BLOCKS * ACROSS;
    u64 a_base, b_base;
    float part[2][32];

    MF_DEVICE void issue(u32 slot, int number)
    {
        const u64 offset = slot * (C::STAGE_BYTES / 16);
        const u64 a = a_base + offset + number / ACROSS * (CHUNK_BYTES / 16);
        const u64 b = b_base + offset + number % ACROSS * (CHUNK_BYTES / 16);
        wgmma_pin(part[number % 2]);
        wgmma_fence();
        MF_UNROLL
        for (int step = 0; step < 4; step++)
            wgmma_narrow<typename C::T>(part[number % 2], a + step * 2, b + step * 2, step > 0);
        wgmma_commit();
        wgmma_pin(part[number % 2]);
    }

    MF_DEVICE void add(int number, float (&acc)[C::BLOCKS][C::BN / 2])
    {
        MF_UNROLL
        for (int i = 0; i < 32; i++)
            acc[number / ACROSS][number % ACROSS * 32 + i] += part[number % 2][i];
        gemm90_pin<C>(acc); // before the part's registers are given to the next product
    }

    // COUNT stages without a pause. The compiler follows products that are under way through no loop.
    template <int COUNT, class W, class F>
    MF_DEVICE void multiply(const W &walk, u32 lane, ring_position &at, float (&acc)[C::BLOCKS][C::BN / 2], F meanwhile)
    {
        u32 before = 0;
        MF_UNROLL
        for (int i = 0; i < COUNT * PARTS; i++) {
            if (i % PARTS == 0)
                barrier_wait(walk.full(at.slot), at.parity);
            issue(at.slot, i % PARTS);
            if (i == 0) {
                meanwhile();
            } else {
                wgmma_wait<1>();
                wgmma_pin(part[1 - i % 2]);
                add((i + PARTS - 1) % PARTS, acc);
                if (i % PARTS == 0)
                    gemm90_release<C>(walk, before, lane);
            }
            if (i % PARTS == PARTS - 1) {
                before = at.slot;
                ring_next<C::STAGES>(at);
            }
        }
        wgmma_wait<0>();
        wgmma_pin(part[1]);
        gemm90_release<C>(walk, before, lane);
        add(PARTS - 1, acc);
    }
};

template <class C, class W, class F>
MF_DEVICE void gemm90_multiply_narrow(const W &walk, u32 w, u32 lane, i32 turn, float (&acc)[C::BLOCKS][C::BN / 2],
                                      F meanwhile)
{
    gemm90_narrow<C> parts = {wgmma_descriptor(walk.shared + (u32)walk.part(w) * 128, 16, 1024),
                              wgmma_descriptor(walk.shared + C::A_BYTES, 16, 1024),
                              {}};
    ring_position at = ring_at<C::STAGES>((u32)turn * (u32)walk.k_blocks);
    MF_UNROLL
    for (int i = 0; i < C::BLOCKS * C::BN / 2; i++)
        acc[i / (C::BN / 2)][i % (C::BN / 2)] = 0;
    i32 left = walk.k_blocks;
    if (left % C::TOGETHER == 0)
        meanwhile();
    for (; left % C::TOGETHER; left--)
        parts.template multiply<1>(walk, lane, at, acc, [&]() {
            if (left == walk.k_blocks)
                meanwhile();
        });
    for (; left > 0; left -= C::TOGETHER)
        parts.template multiply<C::TOGETHER>(walk, lane, at, acc, []() {});
    if constexpr (C::PINGPONG) {
        if (lane == 0)
            barrier_arrive(walk.turn(w ^ 1)); // see gemm90_multiply
    }
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

template <class C, class E, class W> MF_DEVICE void gemm90_consume(const W &walk, unsigned char *memory, u32 w)
{
    u32 thread = threadIdx.x % 128, lane = threadIdx.x % 32, warp = thread / 32;
    float *across = (float *)(memory + gemm90_layout<C, E>::VECTORS) + w * (E::n_vectors * C::COLS);
    u32 done = 0, tile = 0, round = 0, largest = 0;
    for (i32 turn = C::PINGPONG ? w : 0; walk.has(turn); turn += C::PINGPONG ? 2 : 1, tile++, done += C::CHUNKS) {
        i32 row, col;
        walk.locate(turn, row, col);
        row += walk.part(w) + (i32)(warp * 16 + lane / 4);
        gemm90_vectors<C, E> vectors;
        float acc[C::BLOCKS][C::BN / 2];
        if constexpr (C::PINGPONG)
            barrier_wait(walk.turn(w), (tile & 1) ^ (w == 0)); // warpgroup 0 goes first, without waiting
        auto meanwhile = [&]() { vectors.fetch(walk.p, row, col, walk.batch(turn), thread); };
        if constexpr (C::NARROW)
            gemm90_multiply_narrow<C>(walk, w, lane, turn, acc, meanwhile);
        else
            gemm90_multiply<C>(walk, w, lane, turn, acc, meanwhile);
        vectors.share(across, w, thread);
        const gemm90_place place = {w, warp, lane, row, col + (i32)(lane % 4 * 2), walk.batch(turn)};
        gemm90_row_values<C> rows;
        if constexpr (C::ROWS)
            gemm90_reduce<C, E>(walk, vectors, across, place, done, acc, rows, round);
        gemm90_chunks<C, E>(walk, vectors, across, place, done, acc, rows, largest);
    }
    if constexpr (!C::ROWS && C::R::LARGEST) {
        largest = __reduce_max_sync(0xffffffffu, largest);
        if (lane == 0)
            atomicMax(E::largest(walk.p.epilogue), largest);
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
    for (int i = 0; C::ROWS && i < 4; i++)
        barrier_init(shared + at::HEARD + 8 * i, 1);
    barrier_init_fence();
}

// The body, for a kernel that an emitter declares. Grid: a multiple of CLUSTER, or WIDE, blocks; GEMM90_THREADS threads; dynamic
// shared memory gemm90_layout<C, E>::BYTES, which must start 1024-byte aligned. k >= 1.
template <class C, class E>
MF_DEVICE void gemm90(unsigned char *memory, const tensor_map &a, const tensor_map &b, const tensor_map &b2,
                      const tensor_map (&d)[C::R::COUNT], const tensor_map &t, const gemm90_args<E> &p)
{
    u32 warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    gemm90_walk<C, E> walk(p, shared_address(memory));
    if (threadIdx.x == 0) {
        if (walk.shared % 1024 != 0)
            __trap();
        map_prefetch(a);
        map_prefetch(b);
        for (int part = 0; part < C::R::COUNT; part++)
            map_prefetch(d[part]);
        if (E::tiles > 0)
            map_prefetch(t);
        gemm90_barriers<C, E>(walk.shared);
    }
    if constexpr (C::CLUSTER_BLOCKS > 1)
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
    if constexpr (C::CLUSTER_BLOCKS > 1)
        cluster_sync(); // a block must not leave while the other may still signal it
}

template <int COUNT> struct gemm90_maps {
    tensor_map map[COUNT];
};

template <class C, class E>
__global__ void __launch_bounds__(GEMM90_THREADS, 1)
    gemm90_kernel(const __grid_constant__ tensor_map a, const __grid_constant__ tensor_map b,
                  const __grid_constant__ gemm90_maps<C::R::COUNT> d, const __grid_constant__ tensor_map t,
                  const __grid_constant__ gemm90_args<E> p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    gemm90<C, E>(memory, a, b, b, d.map, t, p);
}

} // namespace mf
#endif
