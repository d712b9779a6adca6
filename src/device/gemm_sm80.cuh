// Matmul for sm_80 and later through mma.sync: any strides, any alignment, any m, n, k; 16-bit operands, f32 sums, the
// same epilogues as the sm_90a kernel. For what tensor maps refuse, and for the devices that have none.
//
// One block of 256 threads per 128 x 128 tile; cp.async fills a ring of stages 32 deep along k. Shared memory keeps
// each operand the way memory has it, in 16-byte units swizzled so that ldmatrix meets no bank twice.
#ifndef MATHFUSE_GEMM_SM80_CUH
#define MATHFUSE_GEMM_SM80_CUH

#include "device/gemm_epilogue.cuh"

namespace mf
{

constexpr int GEMM80_THREADS = 256;

// A_MN: of A's dims m is the contiguous one, else k; B_MN: n. A_VECTOR, B_VECTOR: elements that one load may take, 8, 4
// or 2 where base and strides are multiples of that; 1 for the rest, where the "contiguous" dim may have any stride
// too. E_VECTOR: 8 where rows of D, and of a tile operand, may be accessed 16 bytes at a time; else 1.
template <class T_, class OUT_, int STAGES_, bool A_MN_, bool B_MN_, int A_VECTOR_, int B_VECTOR_, int E_VECTOR_>
struct gemm80_config {
    typedef T_ T;
    typedef OUT_ OUT;
    static constexpr int BM = 128, BN = 128, BK = 32, STAGES = STAGES_;
    static constexpr bool A_MN = A_MN_, B_MN = B_MN_;
    static constexpr int A_VECTOR = A_VECTOR_, B_VECTOR = B_VECTOR_;
    static constexpr bool STAGED = E_VECTOR_ == 8 && sizeof(OUT) == 2; // f32 pairs already fill their sectors
    static constexpr int OPERAND_BYTES = 128 * BK * 2, STAGE_BYTES = 2 * OPERAND_BYTES;
    static constexpr int ROW_BYTES = BN * 2 + 16; // of the staged output: padded against bank conflicts
    static constexpr int RING = STAGES * STAGE_BYTES, OUTPUT = STAGED ? BM * ROW_BYTES : 0;
    static constexpr int BYTES = RING > OUTPUT ? RING : OUTPUT;
    static_assert(same<T, bf16> || same<T, f16>, "operands are bf16 or f16");
    static_assert(STAGES >= 2, "a ring of two stages or more");
};

template <class E> struct gemm80_args {
    const void *a, *b, *tile;
    void *d;
    i64 a_row, a_k, b_col, b_k, d_row, d_col, tile_row, tile_col; // strides in elements
    i32 m, n, k;
    i32 tiles_m, tiles_n, group;
    typename E::args epilogue;
};

// ---- one operand's tile in shared memory ----

// Byte offset of element (outer, inner); inner is the contiguous one: 32 of k, or 128 of m or n.
template <bool MN> MF_DEVICE u32 gemm80_place(u32 outer, u32 inner)
{
    if constexpr (MN)
        return outer * 256 + (((inner >> 3) ^ (outer & 7)) << 4) + (inner & 7) * 2;
    else
        return outer * 64 + (((inner >> 3) ^ (outer >> 1 & 3)) << 4) + (inner & 7) * 2;
}

// Copies `bytes` bytes, then zeros up to SIZE.
template <int SIZE> MF_DEVICE void copy_async(u32 dst, const void *src, i32 bytes)
{
    if constexpr (SIZE == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(dst), "l"(src), "r"(bytes), "n"(SIZE)
                     : "memory");
}

// The tile that starts at (outer0, inner0) of an operand with these extents and strides.
template <bool MN, int V>
MF_DEVICE void gemm80_fetch(u32 to, const u16 *from, i64 outer_stride, i64 inner_stride, i32 outer0, i32 inner0,
                            i32 outers, i32 inners)
{
    constexpr int wide = MN ? 128 : 32, across = wide / V, count = 128 * 32 / V / GEMM80_THREADS;
    MF_UNROLL
    for (int i = 0; i < count; i++) {
        u32 index = threadIdx.x + i * GEMM80_THREADS, outer = index / across, inner = index % across * V;
        i32 o = outer0 + (i32)outer, left = inners - inner0 - (i32)inner;
        bool inside = o < outers && left > 0;
        const u16 *p = inside ? from + o * outer_stride + (inner0 + (i32)inner) * inner_stride : from;
        u32 place = to + gemm80_place<MN>(outer, inner);
        if constexpr (V > 1) {
            copy_async<V * 2>(place, p, inside ? (left < V ? left : V) * 2 : 0);
        } else {
            u16 x = inside ? *p : (u16)0;
            asm volatile("st.shared.u16 [%0], %1;" ::"r"(place), "h"(x) : "memory");
        }
    }
}

template <class C, class E>
MF_DEVICE void gemm80_fetch_stage(const gemm80_args<E> &p, u32 shared, i32 block, i32 row, i32 col)
{
    u32 to = shared + (u32)(block % C::STAGES) * C::STAGE_BYTES;
    i32 k = block * C::BK;
    const u16 *a = (const u16 *)p.a, *b = (const u16 *)p.b;
    if constexpr (C::A_MN)
        gemm80_fetch<true, C::A_VECTOR>(to, a, p.a_k, p.a_row, k, row, p.k, p.m);
    else
        gemm80_fetch<false, C::A_VECTOR>(to, a, p.a_row, p.a_k, row, k, p.m, p.k);
    to += C::OPERAND_BYTES;
    if constexpr (C::B_MN)
        gemm80_fetch<true, C::B_VECTOR>(to, b, p.b_k, p.b_col, k, col, p.k, p.n);
    else
        gemm80_fetch<false, C::B_VECTOR>(to, b, p.b_col, p.b_k, col, k, p.n, p.k);
}

// ---- products ----

// Four 8x8 matrices: the first two next to each other along dim 0 (m of A, k of B), the last two further along the
// other. `major` and `k` say where; A's registers want m to vary first, B's want k.
template <bool MN, bool K_FIRST> MF_DEVICE void gemm80_matrices(u32 (&r)[4], u32 tile, u32 major, u32 k, u32 lane)
{
    u32 low = lane >> 3 & 1, high = lane >> 4, line = lane & 7;
    u32 k_at = k + 8 * (K_FIRST ? low : high), major_at = major + 8 * (K_FIRST ? high : low);
    if constexpr (MN)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(tile + gemm80_place<true>(k_at + line, major_at))
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(tile + gemm80_place<false>(major_at + line, k_at))
                     : "memory");
}

template <class T> MF_DEVICE void mma_16x8x16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    if constexpr (same<T, bf16>)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A warp's part of a tile: 64 rows by 32 columns, as 4 x 4 products of 16 x 8.
template <class C>
MF_DEVICE void gemm80_multiply(u32 stage, u32 warp_row, u32 warp_col, u32 lane, float (&acc)[4][4][4])
{
    MF_UNROLL
    for (u32 k = 0; k < C::BK; k += 16) {
        u32 a[4][4], b[2][4];
        MF_UNROLL
        for (int i = 0; i < 4; i++)
            gemm80_matrices<C::A_MN, false>(a[i], stage, warp_row + 16 * i, k, lane);
        MF_UNROLL
        for (int j = 0; j < 2; j++)
            gemm80_matrices<C::B_MN, true>(b[j], stage + C::OPERAND_BYTES, warp_col + 16 * j, k, lane);
        MF_UNROLL
        for (int i = 0; i < 4; i++) {
            MF_UNROLL
            for (int j = 0; j < 4; j++)
                mma_16x8x16<typename C::T>(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
}

// ---- epilogue ----

// The tile operand into the output's staging, or the staged output to memory: 16 bytes a thread. Clipped at the edges.
template <class C, class E, bool STORE>
MF_DEVICE void gemm80_rows(unsigned char *memory, const gemm80_args<E> &p, i32 row, i32 col)
{
    constexpr int across = C::BN / 8;
    for (int i = (int)threadIdx.x; i < C::BM * across; i += GEMM80_THREADS) {
        i32 r = i / across, c = i % across * 8, left = p.n - col - c;
        if (row + r >= p.m || left <= 0)
            continue;
        u16 *at = (u16 *)(memory + r * C::ROW_BYTES) + c;
        u16 *global =
            STORE ? (u16 *)p.d + (row + r) * p.d_row + (col + c) : (u16 *)p.tile + (row + r) * p.tile_row + (col + c);
        if (left >= 8) {
            *(uint4 *)(STORE ? global : at) = *(const uint4 *)(STORE ? at : global);
        } else {
            for (int e = 0; e < left; e++)
                (STORE ? global : at)[e] = (STORE ? at : global)[e];
        }
    }
}

template <class E> MF_DEVICE float gemm80_tile(const gemm80_args<E> &p, i32 row, i32 col)
{
    typedef typename E::tile_type S;
    return row < p.m && col < p.n ? widen(((const S *)p.tile)[row * p.tile_row + col * p.tile_col]) : 0.0f;
}

// What one thread's columns and rows need, fetched together.
template <class E> struct gemm80_vectors {
    float across[at_least_one(E::n_vectors)][4][2], down[at_least_one(E::m_vectors)][8];

    MF_DEVICE gemm80_vectors(const gemm80_args<E> &p, i32 row, i32 col)
    {
        MF_UNROLL
        for (int port = 0; port < E::n_vectors; port++) {
            MF_UNROLL
            for (int i = 0; i < 8; i++) {
                i32 c = col + i / 2 * 8 + i % 2;
                across[port][i / 2][i % 2] = c < p.n ? E::n_vector(p.epilogue, port, c) : 0.0f;
            }
        }
        MF_UNROLL
        for (int port = 0; port < E::m_vectors; port++) {
            MF_UNROLL
            for (int i = 0; i < 8; i++)
                down[port][i] = row + i * 8 < p.m ? E::m_vector(p.epilogue, port, row + i * 8) : 0.0f;
        }
    }
};

template <class OUT> MF_DEVICE void gemm80_put(void *d, i64 at, float x)
{
    if constexpr (same<OUT, float>)
        ((float *)d)[at] = x;
    else
        ((OUT *)d)[at] = rounding<OUT, false>::of(x);
}

// row, col: of the tile; local_row, local_col: of the thread's first value within it.
template <class C, class E>
MF_DEVICE void gemm80_finish(unsigned char *memory, const gemm80_args<E> &p, i32 row, i32 col, i32 local_row,
                             i32 local_col, float (&acc)[4][4][4])
{
    static_assert(E::tiles <= 1, "one tile operand; load others in apply2");
    gemm80_vectors<E> vectors(p, row + local_row, col + local_col);
    if constexpr (C::STAGED && E::tiles > 0) {
        gemm80_rows<C, E, false>(memory, p, row, col);
        __syncthreads();
    }
    MF_UNROLL
    for (int i = 0; i < 8; i++) {
        MF_UNROLL
        for (int j = 0; j < 4; j++) {
            float v0 = acc[i / 2][j][i % 2 * 2], v1 = acc[i / 2][j][i % 2 * 2 + 1];
            u32 *staged = (u32 *)(memory + (local_row + i * 8) * C::ROW_BYTES + (local_col + j * 8) * 2);
            epilogue_ports<E> ports;
            ports.row = row + local_row + i * 8, ports.col = col + local_col + j * 8;
            ports.rows = p.m, ports.cols = p.n;
            MF_UNROLL
            for (int port = 0; port < E::n_vectors; port++)
                ports.across[port][0] = vectors.across[port][j][0], ports.across[port][1] = vectors.across[port][j][1];
            MF_UNROLL
            for (int port = 0; port < E::m_vectors; port++)
                ports.down[port] = vectors.down[port][i];
            if constexpr (E::tiles > 0 && C::STAGED)
                unpack_pair<typename E::tile_type>(*staged, ports.tile[0][0], ports.tile[0][1]);
            else if constexpr (E::tiles > 0)
                ports.tile[0][0] = gemm80_tile<E>(p, ports.row, ports.col),
                ports.tile[0][1] = gemm80_tile<E>(p, ports.row, ports.col + 1);
            E::apply2(p.epilogue, ports, v0, v1);
            if constexpr (C::STAGED) {
                *staged = pack_pair<typename C::OUT>(v0, v1);
            } else if (ports.row < p.m) {
                i64 at = ports.row * p.d_row + ports.col * p.d_col;
                if (ports.col < p.n)
                    gemm80_put<typename C::OUT>(p.d, at, v0);
                if (ports.col + 1 < p.n)
                    gemm80_put<typename C::OUT>(p.d, at + p.d_col, v1);
            }
        }
    }
    if constexpr (C::STAGED) {
        __syncthreads();
        gemm80_rows<C, E, true>(memory, p, row, col);
    }
}

// ---- the kernel ----

// The body, for a kernel that an emitter declares. Grid: tiles_m * tiles_n blocks of GEMM80_THREADS; dynamic shared
// memory C::BYTES, 16-byte aligned. k may be 0.
template <class C, class E> MF_DEVICE void gemm80(unsigned char *memory, const gemm80_args<E> &p)
{
    u32 shared = (u32)__cvta_generic_to_shared(memory);
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_row = warp % 2 * 64, warp_col = warp / 2 * 32;
    i32 tile_m, tile_n, blocks = (p.k + C::BK - 1) / C::BK;
    raster((i32)blockIdx.x, p.tiles_m, p.tiles_n, p.group, tile_m, tile_n);
    i32 row = tile_m * C::BM, col = tile_n * C::BN;
    float acc[4][4][4] = {};
    for (i32 i = 0; i < C::STAGES - 1; i++) {
        if (i < blocks)
            gemm80_fetch_stage<C>(p, shared, i, row, col);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    for (i32 i = 0; i < blocks; i++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(C::STAGES - 2) : "memory");
        __syncthreads(); // stage i has arrived, and nobody reads stage i - 1 any more
        if (i + C::STAGES - 1 < blocks)
            gemm80_fetch_stage<C>(p, shared, i + C::STAGES - 1, row, col);
        asm volatile("cp.async.commit_group;" ::: "memory"); // empty ones keep the count
        gemm80_multiply<C>(shared + (u32)(i % C::STAGES) * C::STAGE_BYTES, warp_row, warp_col, lane, acc);
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads(); // the ring becomes the output's staging
    gemm80_finish<C>(memory, p, row, col, (i32)(warp_row + lane / 4), (i32)(warp_col + lane % 4 * 2), acc);
}

template <class C, class E> __global__ void __launch_bounds__(GEMM80_THREADS, 1) gemm80_kernel(const gemm80_args<E> p)
{
    extern __shared__ __align__(16) unsigned char memory80[];
    gemm80<C, E>(memory80, p);
}

} // namespace mf
#endif
