// What the parts of gemm_sm90.cuh agree on: the configuration, where things lie in shared memory, a block's walk.
#ifndef MATHFUSE_GEMM_SM90_SHARED_CUH
#define MATHFUSE_GEMM_SM90_SHARED_CUH

#include "device/gemm_epilogue.cuh"
#include "device/ptx_sm90.cuh"

namespace mf
{

constexpr int GEMM90_THREADS = 384;
constexpr int GEMM90_SHARED_LIMIT = 232448;
constexpr int CHUNK_BYTES = 64 * 128;

// What is stored of a pair of neighbours: `COUNT` results of size(i) bytes an element, packed as pack2 does. LARGEST: the
// bits of absolute values go into `largest` besides, and the largest of all to E::largest(args). This is the case of one
// result that the epilogue leaves in v0 and v1.
template <class OUT> struct one_result {
    static constexpr int COUNT = 1, WIDEST = (int)sizeof(OUT);
    static constexpr bool LARGEST = false;
    static MF_HOST_DEVICE constexpr int size(int) { return WIDEST; }
    template <class E>
    static MF_DEVICE void finish(const typename E::args &args, const epilogue_ports<E> &ports, float v0, float v1,
                                 u32 (&bits)[1][2], u32 &)
    {
        E::apply2(args, ports, v0, v1);
        pack2<OUT>(bits[0], v0, v1);
    }
};

// T: bf16, f16, e4m3 or e5m2. R: what is stored, as one_result. A_MN: A is stored (k, m); B_MN: B is stored (k, n); else
// (m, k) and (n, k), as 8-bit factors must be. CLUSTER: 1, or 2 blocks one above the other that share the loads of B.
// BUFFERS: staging chunks per warpgroup; 0: 32-bit values go from registers to memory, at E::out(args, row). TWIN: the tile's
// left half is A's product with B, its right half that with B2, for the same BN / 2 columns of the output; the epilogue
// takes both. BATCHED: products of a third dim of all tensor maps. WIDE: blocks of a cluster, side by side, that hold whole
// rows of the result and reduce along them, as gemm_sm90_rows.cuh says; 0: nothing is reduced along rows.
template <class T_, class R_, int BM_, int BN_, int STAGES_, int CLUSTER_, bool PINGPONG_, bool A_MN_, bool B_MN_,
          int BUFFERS_, bool TWIN_ = false, bool BATCHED_ = false, int WIDE_ = 0>
struct gemm90_config {
    typedef T_ T;
    typedef R_ R;
    static constexpr int BM = BM_, BN = BN_, BK = 128 / (int)sizeof(T), STAGES = STAGES_, CLUSTER = CLUSTER_;
    static constexpr int BUFFERS = BUFFERS_;
    static constexpr bool BATCHED = BATCHED_, ROWS = WIDE_ > 0;
    static constexpr int WIDE = at_least_one(WIDE_), CLUSTER_BLOCKS = CLUSTER * WIDE; // of a cluster
    static constexpr bool PINGPONG = PINGPONG_, A_MN = A_MN_, B_MN = B_MN_, DIRECT = BUFFERS == 0, TWIN = TWIN_;
    static constexpr int GROUP_ROWS = PINGPONG ? BM : BM / 2; // rows of a tile that one warpgroup multiplies
    static constexpr int BLOCKS = GROUP_ROWS / 64;
    static constexpr int A_BYTES = BM * 128, B_BYTES = BN * 128, STAGE_BYTES = A_BYTES + B_BYTES;
    static constexpr int COLS = TWIN ? BN / 2 : BN; // of the output
    // Lines of 128 bytes of the widest result, or of 64 where those do not divide a tile's.
    static constexpr int CHUNK_COLS = COLS % (128 / R::WIDEST) ? 64 / R::WIDEST : 128 / R::WIDEST;
    static constexpr int CHUNKS_ACROSS = COLS / CHUNK_COLS, CHUNKS = BLOCKS * CHUNKS_ACROSS;
    static constexpr bool NARROW = sizeof(T) == 1; // 8-bit factors
    static constexpr int TOGETHER = 2;             // stages of them without a pause
    static_assert(same<T, bf16> || same<T, f16> || same<T, e4m3> || same<T, e5m2>, "of what there is a wgmma for");
    static_assert(!NARROW || (!A_MN && !B_MN && !TWIN), "8-bit factors lie along k, and come in one product");
    static_assert(R::COUNT <= 3 && R::WIDEST <= 4, "up to three results of up to 32 bits");
    static_assert(GROUP_ROWS % 64 == 0 && BM <= 256, "a warpgroup multiplies 64 rows at a time");
    static_assert(BN == 128 || BN == 192 || BN == 256, "there is a wgmma for 128, 192 and 256 columns");
    static_assert(!TWIN || BN % 128 == 0, "each of a twin's halves is whole chunks");
    static_assert(BLOCKS * BN <= (NARROW ? 256 : 384), "more accumulators than registers");
    static_assert(!NARROW || BLOCKS * BN % 128 == 0, "two parts of sums take turns");
    static_assert(CLUSTER == 1 || CLUSTER == 2, "clusters of one or two");
    static_assert(!ROWS || (CLUSTER == 1 && !TWIN && BLOCKS <= 2 && WIDE <= 8),
                  "up to 8 blocks share rows, and no loads");
    static_assert(!B_MN || BN / 64 % CLUSTER == 0, "the blocks of a cluster load equal parts of B");
    static_assert(!DIRECT || (R::COUNT == 1 && R::WIDEST == 4), "one 32-bit result goes straight to memory");
};

// The part of a staging buffer that a 16-bit tile operand arrives in: a 16-bit result's, or one of its own.
template <class R> MF_HOST_DEVICE constexpr int gemm90_tile_part()
{
    int part = 0;
    while (part < R::COUNT && R::size(part) != 2)
        part++;
    return part;
}

// Words that a warpgroup is told of one round of reductions along rows: from each block, of each of its rows.
template <class C> MF_HOST_DEVICE constexpr int gemm90_told()
{
    if constexpr (C::ROWS)
        return C::WIDE > 1 ? C::R::VALUES * C::GROUP_ROWS * C::WIDE : 0;
    else
        return 0;
}

// Where things lie in shared memory. A staging buffer has PARTS chunks, and there are DEPTH of them per warpgroup.
template <class C, class E> struct gemm90_layout {
    static constexpr int TILE_PART = gemm90_tile_part<typename C::R>();
    static constexpr int PARTS = E::tiles > 0 && TILE_PART == C::R::COUNT ? C::R::COUNT + 1 : C::R::COUNT;
    static constexpr int DEPTH = C::BUFFERS / PARTS, RING = at_least_one(DEPTH);
    static constexpr int STAGING = C::STAGES * C::STAGE_BYTES;
    static constexpr int VECTORS = STAGING + 2 * C::BUFFERS * CHUNK_BYTES;
    static constexpr int TOLD = VECTORS + 2 * E::n_vectors * C::COLS * 4; // per warpgroup, of two rounds
    static constexpr int BARRIERS = TOLD + 4 * gemm90_told<C>() * 4;
    static constexpr int FULL = BARRIERS, EMPTY = FULL + 8 * C::STAGES;
    static constexpr int TILE_FULL = EMPTY + 8 * C::STAGES; // these three: per warpgroup, per buffer
    static constexpr int STAGED = TILE_FULL + 16 * C::BUFFERS;
    static constexpr int FREE = STAGED + 16 * C::BUFFERS;
    static constexpr int TURN = FREE + 16 * C::BUFFERS; // ping-pong: whose products are next
    static constexpr int HEARD = TURN + 16;             // as TOLD
    static constexpr int BYTES = HEARD + (C::ROWS ? 32 : 0);
    static_assert(BYTES <= GEMM90_SHARED_LIMIT, "too many stages or buffers for shared memory");
    static_assert(E::tiles <= 1, "one tile operand comes through shared memory; load others in apply2");
    static_assert(E::tiles == 0 || C::CHUNK_COLS <= 64, "a line of a tile operand has at most 128 bytes");
    static_assert(E::tiles == 0 || !C::ROWS || DEPTH >= C::CHUNKS, "a tile operand is read again after each reduction");
    static_assert(DEPTH >= 2 || (C::DIRECT && E::tiles == 0), "stores overlap only with two buffers or more");
};

// Rows of each tensor map's box. Factors have inner boxes of 128 bytes, results and the tile operand of CHUNK_COLS elements.
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
    i32 batches;          // BATCHED: products
    u32 shared;           // BATCHED: bits of those operands that are the same for all: A, B, the tile operand
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
    u32 rank;     // in the cluster, of those that share loads
    i32 side;     // of those that share rows
    i32 first;    // the cluster's first tile
    i32 stride;   // clusters in the grid
    i32 total;    // cluster tiles
    i32 k_blocks; // stages per tile

    MF_DEVICE gemm90_walk(const gemm90_args<E> &args, u32 base)
        : p(args), shared(base), rank(blockIdx.x % C::CLUSTER), side((i32)(blockIdx.x % C::WIDE)),
          first((i32)(blockIdx.x / C::CLUSTER_BLOCKS)), stride((i32)(gridDim.x / C::CLUSTER_BLOCKS)),
          total(tiles() * (C::BATCHED ? args.batches : 1)), k_blocks((args.k + C::BK - 1) / C::BK)
    {
    }

    MF_DEVICE i32 tiles_n() const { return C::ROWS ? 1 : p.tiles_n; }
    MF_DEVICE i32 tiles() const { return p.tiles_m * tiles_n(); } // cluster tiles of a product

    MF_DEVICE bool has(i32 turn) const { return first + turn * stride < total; }

    MF_DEVICE i32 batch(i32 turn) const { return C::BATCHED ? (first + turn * stride) / tiles() : 0; }
    // Where `operand`, by its bit in `shared`, lies along the maps' third dim.
    MF_DEVICE i32 item(i32 turn, u32 operand) const { return p.shared & operand ? 0 : batch(turn); }

    MF_DEVICE void locate(i32 turn, i32 &row, i32 &col) const
    {
        i32 tile_m, tile_n, index = first + turn * stride;
        raster(C::BATCHED ? index % tiles() : index, p.tiles_m, tiles_n(), p.group, tile_m, tile_n);
        row = (tile_m * C::CLUSTER + (i32)rank) * C::BM;
        col = (C::ROWS ? side : tile_n) * C::COLS;
    }

    typedef gemm90_layout<C, E> at;
    MF_DEVICE u32 stage(u32 slot) const { return shared + slot * C::STAGE_BYTES; }
    MF_DEVICE u32 full(u32 slot) const { return shared + at::FULL + 8 * slot; }
    MF_DEVICE u32 empty(u32 slot) const { return shared + at::EMPTY + 8 * slot; }
    MF_DEVICE u32 chunk(u32 w, u32 slot, u32 part) const
    {
        return shared + at::STAGING + (w * C::BUFFERS + slot * at::PARTS + part) * CHUNK_BYTES;
    }
    MF_DEVICE u32 tile_full(u32 w, u32 slot) const { return shared + at::TILE_FULL + 8 * (w * C::BUFFERS + slot); }
    MF_DEVICE u32 staged(u32 w, u32 slot) const { return shared + at::STAGED + 8 * (w * C::BUFFERS + slot); }
    MF_DEVICE u32 free(u32 w, u32 slot) const { return shared + at::FREE + 8 * (w * C::BUFFERS + slot); }
    MF_DEVICE u32 turn(u32 w) const { return shared + at::TURN + 8 * w; }
    MF_DEVICE u32 told(u32 w, u32 slot) const { return shared + at::TOLD + (w * 2 + slot) * gemm90_told<C>() * 4; }
    MF_DEVICE u32 heard(u32 w, u32 slot) const { return shared + at::HEARD + 8 * (w * 2 + slot); }
    // The rows of a tile that start warpgroup w's part.
    MF_DEVICE i32 part(u32 w) const { return C::PINGPONG ? 0 : (i32)w * C::GROUP_ROWS; }
};

} // namespace mf
#endif
