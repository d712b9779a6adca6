// A matrix product with so few rows that it costs one pass over its right factor: that streams through stages in shared
// memory, each element into one tensor-core instruction, and the chain is applied to the sums. Where a tile's columns
// are too few for the device, a cluster of SPLIT blocks shares k; each adds the others' sums to its part of the tile,
// always in one order. 16 bits, contiguous along k (left factor), and k or the columns (right factor), in vectors of 16
// bytes.
#ifndef MF_DEVICE_GEMM_SKINNY_CUH
#define MF_DEVICE_GEMM_SKINNY_CUH

#include "device/gemm_args.cuh"
#include "mathfuse/device/gemm.cuh"
#if defined(__CUDACC__)
#include "device/ptx_sm90.cuh"
#endif

namespace mf
{

// At most M rows; N columns of a block, K its steps. Warps: ACROSS share the columns, ALONG each step. B_ROWS: the right
// factor lies along the columns, else along k.
template <class T_, int M_, int N_, int K_, int STAGES_, int ACROSS_, int ALONG_, int SPLIT_, bool B_ROWS_>
struct gemm_skinny_config {
    typedef T_ T;
    typedef gemm::atom<T, gemm::tensor> unit;
    static constexpr int M = M_, N = N_, K = K_, STAGES = STAGES_, ACROSS = ACROSS_, ALONG = ALONG_, SPLIT = SPLIT_;
    static constexpr bool B_ROWS = B_ROWS_;
    static constexpr int THREADS = ACROSS * ALONG * 32, VECTOR = 8;
    static constexpr int ATOMS_M = M / unit::m, ATOMS_N = N / ACROSS / unit::n;
    static constexpr int PARTS = SPLIT > 1 ? 1 : ALONG; // tiles of sums that a block leaves
    // Eight lines of a fragment meet in no bank; so do the rows of a sum.
    static constexpr int LDA = K + 8, B_LINES = B_ROWS ? K : N, B_LINE = B_ROWS ? N : K, LDB = B_LINE + 8, LD = N + 8;
    static constexpr int A_ELEMENTS = M * LDA, STAGE = A_ELEMENTS + B_LINES * LDB;
    static constexpr int STAGES_BYTES = STAGES * STAGE * (int)sizeof(T), SUMS_BYTES = ALONG * M * LD * 4;
    static constexpr int BYTES = STAGES_BYTES > SUMS_BYTES ? STAGES_BYTES : SUMS_BYTES;
    static_assert(M % unit::m == 0 && N % (ACROSS * unit::n) == 0 && K % (ALONG * unit::k) == 0, "whole instructions");
    static_assert(STAGES >= 2 && STAGE * sizeof(T) % 16 == 0 && BYTES % 16 == 0, "stages start at vectors");
};

template <class T, int LD, bool ALONG_K> struct gemm_skinny_source {
    static constexpr int ld = LD;
    static constexpr bool along_k = ALONG_K, full = true;
    const T *data;
    MF_DEVICE const T *at(int outer, int k) const { return data + (ALONG_K ? outer * LD + k : k * LD + outer); }
    MF_DEVICE T get(int outer, int k) const { return *at(outer, k); }
};

// Where a thread copies from: LINES x LINE elements at a time, lines `ld` apart.
template <class C, int LINES, int LINE, int LD> struct gemm_skinny_reader {
    typedef typename C::T T;
    static constexpr int vectors = LINE / C::VECTOR, together = C::THREADS / vectors;
    static_assert(C::THREADS % vectors == 0, "a thread keeps to its place in the lines");
    const T *first, *next;
    i64 ld;
    static MF_DEVICE int line() { return (int)threadIdx.x / vectors; }
    static MF_DEVICE int place() { return (int)threadIdx.x % vectors * C::VECTOR; }
    MF_DEVICE gemm_skinny_reader(const T *from, i64 leading)
        : first(from), next(from + line() * leading + place()), ld(leading)
    {
    }
    // Zeros beyond `length` elements of each line, and, if CLEAR, beyond the first `lines`; else there is what was there.
    template <bool CLEAR> MF_DEVICE void fetch(T *to, int lines, int length) const
    {
        const T *from = next;
        MF_UNROLL
        for (int i = 0; i < (LINES + together - 1) / together; i++) {
            const int at = line() + i * together;
            const bool keep = at < lines && place() < length;
            if (CLEAR ? LINES % together == 0 || at < LINES : at < lines)
                copy_async<16>(to + at * LD + place(), keep ? from : first, keep);
            from += together * ld;
        }
    }
};

template <class C, class T>
MF_DEVICE void gemm_skinny_multiply(float (&sum)[C::ATOMS_M * C::ATOMS_N * 4], const T *stage)
{
    typedef typename C::unit unit;
    const gemm_skinny_source<T, C::LDA, true> a = {stage};
    const gemm_skinny_source<T, C::LDB, !C::B_ROWS> b = {stage + C::A_ELEMENTS};
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, column = warp % C::ACROSS * (C::N / C::ACROSS);
    MF_UNROLL
    for (int i = 0; i < C::K / (C::ALONG * unit::k); i++) {
        int k = (i * C::ALONG + warp / C::ACROSS) * unit::k;
        typename unit::b_fragment y[C::ATOMS_N];
        MF_UNROLL
        for (int c = 0; c < C::ATOMS_N; c++)
            unit::load_b(y[c], b, column + c * unit::n, k, lane);
        MF_UNROLL
        for (int r = 0; r < C::ATOMS_M; r++) {
            typename unit::a_fragment x;
            unit::load_a(x, a, r * unit::m, k, lane);
            MF_UNROLL
            for (int c = 0; c < C::ATOMS_N; c++)
                unit::multiply(sum, (r * C::ATOMS_N + c) * unit::sums, x, y[c]);
        }
    }
}

// One tile of sums for each warp along a step, at `shared`; of a cluster, their sum is the first of them.
template <class C> MF_DEVICE void gemm_skinny_gather(float *shared, const float (&sum)[C::ATOMS_M * C::ATOMS_N * 4])
{
    typedef typename C::unit unit;
    constexpr int tile = C::M * C::LD, vectors = C::N / 4;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    float *sums = shared + warp / C::ACROSS * tile + warp % C::ACROSS * (C::N / C::ACROSS);
    MF_UNROLL
    for (int i = 0; i < C::ATOMS_M * C::ATOMS_N * unit::sums; i++) {
        int atom = i / unit::sums, r = atom / C::ATOMS_N * unit::m, c = atom % C::ATOMS_N * unit::n;
        sums[(r + unit::row(lane, i % unit::sums)) * C::LD + c + unit::column(lane, i % unit::sums)] = sum[i];
    }
    if constexpr (C::PARTS < C::ALONG) {
        __syncthreads();
        for (int e = (int)threadIdx.x; e < C::M * vectors; e += C::THREADS) {
            float *at = shared + e / vectors * C::LD + e % vectors * 4;
            pack<float, 4> x, y;
            load_pack<16>(x, at);
            MF_UNROLL
            for (int w = 1; w < C::ALONG; w++) {
                load_pack<16>(y, at + w * tile);
                MF_UNROLL
                for (int i = 0; i < 4; i++)
                    x.v[i] += y.v[i];
            }
            store_pack<16>(at, x);
        }
    }
}

// The sums over block `rank`'s share of k, gathered. b starts at the tile's first column. Rows from m on are sums of
// whatever lies there, and are not stored.
template <class C, class T>
MF_DEVICE void gemm_skinny_sums(void *shared, const T *a, i64 lda, const T *b, i64 ldb, int m, int n, i64 k, int rank)
{
    const int all = (int)((k + C::K - 1) / C::K), share = (all + C::SPLIT - 1) / C::SPLIT, first = rank * share;
    const int steps = first >= all ? 0 : first + share < all ? share : all - first;
    T *stages = (T *)shared;
    gemm_skinny_reader<C, C::M, C::K, C::LDA> left(a, lda);
    gemm_skinny_reader<C, C::B_LINES, C::B_LINE, C::LDB> right(b, ldb);
    left.next += (i64)first * C::K;
    right.next += (i64)first * C::K * (C::B_ROWS ? ldb : 1);
    int length = (int)(k - (i64)first * C::K); // from the next step on
    auto fetch = [&](int step) {
        T *to = stages + step % C::STAGES * C::STAGE;
        left.template fetch<false>(to, m, length);
        right.template fetch<true>(to + C::A_ELEMENTS, C::B_ROWS ? length : n, C::B_ROWS ? n : length);
        left.next += C::K;
        right.next += C::K * (C::B_ROWS ? ldb : 1);
        length -= C::K;
    };
    float sum[C::ATOMS_M * C::ATOMS_N * C::unit::sums] = {};
    for (int step = 0; step < C::STAGES - 1; step++) {
        if (step < steps)
            fetch(step);
        copy_commit();
    }
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (int step = 0; step < steps; step++) {
        copy_wait<C::STAGES - 2>();
        __syncthreads();
        if (step + C::STAGES - 1 < steps)
            fetch(step + C::STAGES - 1);
        copy_commit();
        gemm_skinny_multiply<C>(sum, (const T *)(stages + step % C::STAGES * C::STAGE));
    }
    copy_wait<0>();
    __syncthreads();
    gemm_skinny_gather<C>((float *)shared, sum);
}

// Adds V sums of block `rank` of the cluster, at element `at` of its shared memory.
template <class C, int V> MF_DEVICE void gemm_skinny_add(float (&to)[V], const void *shared, int rank, int at)
{
    pack<float, V> x;
#if defined(__CUDACC__)
    if constexpr (C::SPLIT > 1) {
        u32 from;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(from) : "r"(shared_address(shared)), "r"(rank));
        MF_UNROLL
        for (int i = 0; i < V; i += V % 4 ? 1 : 4) {
            u32 p = from + (at + i) * 4;
            if constexpr (V % 4 == 0)
                asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                             : "=f"(x.v[i]), "=f"(x.v[i + 1]), "=f"(x.v[i + 2]), "=f"(x.v[i + 3])
                             : "r"(p)
                             : "memory");
            else
                asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x.v[i]) : "r"(p) : "memory");
        }
    } else {
        load_pack<V >= 4 ? 16 : 4 * V>(x, (const float *)shared + at);
    }
#else
    load_pack<V >= 4 ? 16 : 4 * V>(x, (const float *)((const char *)shared + rank * C::BYTES) + at);
#endif
    MF_UNROLL
    for (int i = 0; i < V; i++)
        to[i] += x.v[i];
}

// Between writing sums and reading those of the cluster. Threads may come apart from their warp.
template <class C> MF_DEVICE void gemm_skinny_barrier()
{
#if defined(__CUDACC__)
    if constexpr (C::SPLIT > 1)
        asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
    else
#endif
        __syncthreads();
}

// What block `number` does.
template <class C, int ND> struct gemm_skinny_share {
    int rank, n; // in the cluster; columns that the tile has
    i64 column0;
    u32 batch;
    template <class A> MF_DEVICE gemm_skinny_share(const A &a, u32 number)
    {
        const i64 all = a.chain.shape[ND - 1];
        const u32 tiles = (u32)((all + C::N - 1) / C::N), tile = number / C::SPLIT;
        rank = (int)(number % C::SPLIT);
        batch = tile / tiles;
        column0 = (i64)(tile % tiles) * C::N;
        n = (int)(all - column0 < C::N ? all - column0 : C::N);
    }
};

template <class C, int ND, class A> MF_DEVICE void gemm_skinny_multiply_share(const A &a, u32 number, void *shared)
{
    typedef typename C::T T;
    const gemm_skinny_share<C, ND> s(a, number);
    const i64 lda = a.a_stride[ND - 2], ldb = a.b_stride[C::B_ROWS ? ND - 2 : ND - 1];
    const int m = (int)a.chain.shape[ND - 2];
    point<i64, ND> p;
    const T *from_a = (const T *)a.a, *from_b = (const T *)a.b;
    gemm_batch<ND>(a, s.batch, p, from_a, from_b);
    from_b += C::B_ROWS ? s.column0 : s.column0 * ldb;
#if defined(__CUDACC__)
    gemm_skinny_sums<C>(shared, from_a, lda, from_b, ldb, m, s.n, a.k, s.rank);
#else
    for (int rank = 0; rank < C::SPLIT; rank++)
        gemm_skinny_sums<C>((char *)shared + rank * C::BYTES, from_a, lda, from_b, ldb, m, s.n, a.k, rank);
#endif
}

template <template <int> class Chain, class C, int ND, int V, class A>
MF_DEVICE void gemm_skinny_finish_share(const A &a, u32 number, const void *shared)
{
    typedef typename C::T T;
    typedef Chain<V> chain;
    typedef typename chain::index I;
    constexpr int vectors = C::N / V;
    const gemm_skinny_share<C, ND> s(a, number);
    const int all = (int)a.chain.shape[ND - 2] * vectors;
    const T *none_a = nullptr, *none_b = nullptr;
    point<I, ND> p;
    typename chain::inputs in;
    gemm_batch<ND>(a, s.batch, p, none_a, none_b);
    auto load = [&](int e) { // false: beyond the result
        if (e >= all || e % vectors * V >= s.n)
            return false;
        p.c[ND - 2] = (I)(e / vectors);
        p.c[ND - 1] = (I)(s.column0 + e % vectors * V);
        chain::template load<0, true>(a.chain, p, in);
        return true;
    };
    int e = s.rank * C::THREADS + (int)threadIdx.x;
    bool inside = load(e); // while others still add
    gemm_skinny_barrier<C>();
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (; e < all; e += C::SPLIT * C::THREADS, inside = load(e)) {
        if (!inside)
            continue;
        float acc[V] = {};
        MF_UNROLL
        for (int part = 0; part < C::SPLIT * C::PARTS; part++)
            gemm_skinny_add<C>(acc, shared, part / C::PARTS,
                               (part % C::PARTS * C::M + e / vectors) * C::LD + e % vectors * V);
        MF_UNROLL
        for (int i = 0; i < V; i++)
            in.acc[i] = acc[i];
        chain::finish(a.chain, p, in, typename chain::row{});
    }
}

// Block `number`; SPLIT neighbours make a cluster. V: points that the chain takes at once; n is a multiple of it.
// `shared`: C::BYTES. Emulated, where blocks do not meet, each makes the sums of its whole cluster, in SPLIT times as
// many bytes.
template <template <int> class Chain, class C, int ND, int V, class A>
MF_DEVICE void gemm_skinny(const A &a, u32 number, void *shared)
{
    gemm_skinny_multiply_share<C, ND>(a, number, shared);
#if defined(__CUDACC__)
    asm volatile("" : "+r"(number)); // what follows from it is worked out anew, not kept in registers over the loop
#endif
    gemm_skinny_finish_share<Chain, C, ND, V>(a, number, shared);
#if defined(__CUDACC__)
    if constexpr (C::SPLIT > 1) // others still read; nothing is handed over
        asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
#endif
}

} // namespace mf

#endif
