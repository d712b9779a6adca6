// Products whose batch is contiguous in memory, as of the terms of transforms: a block takes a few neighbouring products, so
// that what it reads and writes are segments of memory, and keeps each product's factors apart in shared memory. Plain cores;
// any dtype and accumulator, any other strides.
#ifndef MF_DEVICE_GEMM_LANES_CUH
#define MF_DEVICE_GEMM_LANES_CUH

#include "device/gemm_simple.cuh"
#include "mathfuse/device/tile.cuh"

namespace mf
{

// LANES products beside each other, M x N results of each in a block; ROWS x COLUMNS results of one product in a thread, or
// in PARTS threads, each with a share of every stage's k.
template <class ACC_, int LANES_, int M_, int N_, int ROWS_, int COLUMNS_, int PARTS_> struct gemm_lanes_config {
    typedef ACC_ ACC;
    static constexpr int LANES = LANES_, M = M_, N = N_, ROWS = ROWS_, COLUMNS = COLUMNS_, PARTS = PARTS_;
    static constexpr int SIZE = (int)sizeof(ACC), V = SIZE < 16 ? 16 / SIZE : 1; // elements of a vector
    static constexpr int DOWN = M / ROWS, ACROSS = N / COLUMNS, TEAM = LANES * DOWN * ACROSS, THREADS = TEAM * PARTS;
    static constexpr int STEP_BYTES = LANES * (M + N) * SIZE; // of one k
    static constexpr int K = STEP_BYTES > 2048 ? 2 : STEP_BYTES > 512 ? 4 : 8;
    static constexpr int STAGE = LANES * K * (M + N), DEEP = 40960 / (STAGE * SIZE), STAGES = DEEP < 6 ? DEEP : 6;
    static constexpr int SUMS_BYTES = PARTS > 1 ? THREADS *ROWS *COLUMNS *SIZE : 0;
    static constexpr int BYTES = STAGES * STAGE * SIZE > SUMS_BYTES ? STAGES *STAGE *SIZE : SUMS_BYTES;
    static_assert(DOWN % 2 == 0 && ACROSS % 2 == 0 && ROWS % V == 0 && COLUMNS % V == 0,
                  "whole vectors, two by two threads");
    static_assert(K % PARTS == 0 && STAGES >= 3 && ROWS % PARTS == 0, "the parts' shares");
    static_assert(BYTES <= 48128, "what a kernel may have without asking, less what the system takes");
};

// Where shared memory has element `at` of a product's line: neighbouring products' vectors lie in different banks.
template <class C, int LINE> MF_DEVICE int gemm_lanes_turn(int lane)
{
    constexpr int vectors = LINE / C::V, turns = vectors < 8 ? vectors : 8;
    static_assert((turns & (turns - 1)) == 0, "vectors change places in groups of a power of two");
    return ((lane & 1) << 2 | (lane & 2) | (lane & 4) >> 2) & (turns - 1);
}

// Copies LINE elements of each product for each of a stage's k, all threads together; a thread keeps to its product, and to
// one element of the line or to a few.
template <class C, class T, int LINE, int ALIGNMENT> struct gemm_lanes_reader {
    typedef typename C::ACC ACC;
    static constexpr int each_k = C::LANES * LINE;
    static constexpr int rows = each_k > C::THREADS ? each_k / C::THREADS : 1;     // of a thread
    static constexpr int together = each_k < C::THREADS ? C::THREADS / each_k : 1; // k that all threads copy at once
    static constexpr int most = C::K < together ? C::K : together;
    static_assert(each_k % C::THREADS == 0 || C::THREADS % each_k == 0, "whole lines");
    const T *from[rows];
    i64 stride;   // of k
    int to[rows]; // in a stage

    static MF_DEVICE int lane() { return (int)threadIdx.x % C::LANES; }
    static MF_DEVICE int row(int i) { return (int)threadIdx.x / C::LANES % LINE + i * (C::THREADS / C::LANES); }
    static MF_DEVICE int first_k() { return rows > 1 ? 0 : (int)threadIdx.x / each_k; }
    // The line's elements lie `apart`; it has `count` of them: beyond, the last is read again.
    MF_DEVICE gemm_lanes_reader(const T *data, i64 apart, i64 count, i64 k_stride) : stride(k_stride)
    {
        MF_UNROLL
        for (int i = 0; i < rows; i++) {
            const int at = row(i), vector = (at / C::V) ^ gemm_lanes_turn<C, LINE>(lane());
            from[i] = data + (at < count ? at : count - 1) * apart + first_k() * k_stride;
            to[i] = (lane() * C::K + first_k()) * LINE + vector * C::V + at % C::V;
        }
    }
    // The next stage; `left`: steps of k that there still are, zeros beyond.
    MF_DEVICE void fetch(ACC *stage, int left)
    {
        constexpr bool raw = same<T, ACC> && sizeof(T) >= 4 && ALIGNMENT >= (int)sizeof(T);
        MF_UNROLL
        for (int k = 0; k < C::K; k += most) {
            MF_UNROLL
            for (int i = 0; i < rows; i++) {
                const int mine = k + first_k();
                ACC *at = stage + to[i] + k * LINE;
                if (most < together && mine >= C::K)
                    continue;
                if constexpr (raw) {
                    copy_async<(int)sizeof(T)>(at, from[i], mine < left);
                } else {
                    pack<T, 1> x = {};
                    if (mine < left)
                        load_pack<ALIGNMENT>(x, from[i]);
                    *at = convert<ACC>(widen(x.v[0]));
                }
                from[i] += most * stride;
            }
        }
    }
};

// A thread's place: its product, the first of its vectors down and across, its share of k.
template <class C> struct gemm_lanes_place {
    int lane, down, across, part;
    MF_DEVICE gemm_lanes_place()
    {
        int t = (int)threadIdx.x % C::TEAM, rest = t / 4 / C::LANES;
        part = (int)threadIdx.x / C::TEAM;
        lane = t / 4 % C::LANES;
        across = rest % (C::ACROSS / 2) * 2 + t % 2;
        down = rest / (C::ACROSS / 2) * 2 + t / 2 % 2;
    }
    static MF_DEVICE int row(int i, int down) { return (i / C::V * C::DOWN + down) * C::V + i % C::V; }
    static MF_DEVICE int column(int j, int across) { return (j / C::V * C::ACROSS + across) * C::V + j % C::V; }
};

template <class C>
MF_DEVICE void gemm_lanes_multiply(typename C::ACC (&sum)[C::ROWS][C::COLUMNS], const typename C::ACC *stage,
                                   const gemm_lanes_place<C> &place)
{
    typedef typename C::ACC ACC;
    constexpr int V = C::V, own = C::K / C::PARTS;
    const ACC *a = stage + (place.lane * C::K + place.part * own) * C::M;
    const ACC *b = stage + C::LANES * C::K * C::M + (place.lane * C::K + place.part * own) * C::N;
    const int turn_a = gemm_lanes_turn<C, C::M>(place.lane), turn_b = gemm_lanes_turn<C, C::N>(place.lane);
    MF_UNROLL
    for (int k = 0; k < own; k++) {
        pack<ACC, V> x[C::ROWS / V], y[C::COLUMNS / V];
        MF_UNROLL
        for (int i = 0; i < C::ROWS / V; i++)
            load_pack<16>(x[i], a + k * C::M + ((i * C::DOWN + place.down) ^ turn_a) * V);
        MF_UNROLL
        for (int j = 0; j < C::COLUMNS / V; j++)
            load_pack<16>(y[j], b + k * C::N + ((j * C::ACROSS + place.across) ^ turn_b) * V);
        MF_UNROLL
        for (int i = 0; i < C::ROWS; i++)
            MF_UNROLL
        for (int j = 0; j < C::COLUMNS; j++)
            sum[i][j] = multiply_add(x[i / V].v[i % V], y[j / V].v[j % V], sum[i][j]);
    }
}

// Part p ends with the whole sums of the rows i of which it has the p-th share.
template <class C>
MF_DEVICE void gemm_lanes_gather(typename C::ACC (&sum)[C::ROWS][C::COLUMNS], typename C::ACC *shared, int part)
{
    constexpr int share = C::ROWS / C::PARTS;
    const int t = (int)threadIdx.x % C::TEAM;
    MF_UNROLL
    for (int i = 0; i < C::ROWS; i++)
        MF_UNROLL
    for (int j = 0; j < C::COLUMNS; j++)
        if (i / share != part)
            shared[((part * C::ROWS + i) * C::COLUMNS + j) * C::TEAM + t] = sum[i][j];
    __syncthreads();
    MF_UNROLL
    for (int i = 0; i < C::ROWS; i++)
        MF_UNROLL
    for (int j = 0; j < C::COLUMNS; j++) {
        if (i / share != part)
            continue;
        MF_UNROLL
        for (int other = 1; other < C::PARTS; other++) {
            int from = (part + other) % C::PARTS;
            sum[i][j] = op_sum::combine(sum[i][j], shared[((from * C::ROWS + i) * C::COLUMNS + j) * C::TEAM + t]);
        }
    }
}

// The sums over all of k.
template <class C, class A, class B>
MF_DEVICE void gemm_lanes_sums(typename C::ACC (&sum)[C::ROWS][C::COLUMNS], A &left, B &right, int k,
                               const gemm_lanes_place<C> &place, typename C::ACC *shared)
{
    const int steps = (k + C::K - 1) / C::K;
    auto fetch = [&](int step, int to) {
        if (step < steps) {
            left.fetch(shared + to, k - step * C::K);
            right.fetch(shared + to + C::LANES * C::K * C::M, k - step * C::K);
        }
        copy_commit();
    };
    MF_UNROLL
    for (int s = 0; s < C::STAGES - 1; s++)
        fetch(s, s * C::STAGE);
    int from = 0, to = (C::STAGES - 1) * C::STAGE;
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (int step = 0; step < steps; step++) {
        copy_wait<C::STAGES - 2>();
        __syncthreads();
        fetch(step + C::STAGES - 1, to);
        gemm_lanes_multiply<C>(sum, shared + from, place);
        to = from;
        from = from == (C::STAGES - 1) * C::STAGE ? 0 : from + C::STAGE;
    }
    copy_wait<0>();
    __syncthreads();
    if constexpr (C::PARTS > 1)
        gemm_lanes_gather<C>(sum, shared, place.part);
}

// D: the batch dim that is contiguous. AA, AB: alignment of an element. Threads beyond the results repeat the last ones, and
// store nothing. `shared`: C::BYTES.
template <template <int> class Chain, class C, class TA, class TB, int ND, int D, int AA, int AB, class A>
MF_DEVICE void gemm_lanes(const A &a, u32 number, void *shared)
{
    typedef typename C::ACC ACC;
    typedef Chain<1> chain;
    typedef typename chain::index I;
    const i64 m = a.chain.shape[ND - 2], n = a.chain.shape[ND - 1], products = a.chain.shape[D];
    const u32 tiles_n = (u32)((n + C::N - 1) / C::N), tiles_l = (u32)((products + C::LANES - 1) / C::LANES),
              tiles_m = (u32)((m + C::M - 1) / C::M);
    const gemm_lanes_place<C> place;
    const i64 column0 = (i64)(number % tiles_n) * C::N;
    const i64 lane0 = (i64)(number / tiles_n % tiles_l) * C::LANES;
    const i64 row0 = (i64)(number / tiles_n / tiles_l % tiles_m) * C::M;
    i64 batch = number / tiles_n / tiles_l / tiles_m;
    const i64 copied = lane0 + (int)threadIdx.x % C::LANES, from = copied < products ? copied : products - 1;
    const TA *from_a = (const TA *)a.a + from * a.a_stride[D] + row0 * a.a_stride[ND - 2];
    const TB *from_b = (const TB *)a.b + from * a.b_stride[D] + column0 * a.b_stride[ND - 1];
    point<I, ND> p;
    MF_UNROLL
    for (int d = ND - 3; d >= 0; d--) {
        if (d == D)
            continue;
        i64 c = batch % a.chain.shape[d];
        batch /= a.chain.shape[d];
        p.c[d] = (I)c;
        from_a += c * a.a_stride[d];
        from_b += c * a.b_stride[d];
    }
    gemm_lanes_reader<C, TA, C::M, AA> left(from_a, a.a_stride[ND - 2], m - row0, a.a_stride[ND - 1]);
    gemm_lanes_reader<C, TB, C::N, AB> right(from_b, a.b_stride[ND - 1], n - column0, a.b_stride[ND - 2]);
    ACC sum[C::ROWS][C::COLUMNS] = {};
    gemm_lanes_sums<C>(sum, left, right, (int)a.k, place, (ACC *)shared);
    if (lane0 + place.lane >= products)
        return;
    p.c[D] = (I)(lane0 + place.lane);
    MF_UNROLL
    for (int i = 0; i < C::ROWS; i++)
        MF_UNROLL
    for (int j = 0; j < C::COLUMNS; j++) {
        const i64 row = row0 + place.row(i, place.down), column = column0 + place.column(j, place.across);
        if (i / (C::ROWS / C::PARTS) != place.part || row >= m || column >= n)
            continue;
        typename chain::inputs in;
        p.c[ND - 2] = (I)row;
        p.c[ND - 1] = (I)column;
        in.acc[0] = sum[i][j];
        chain::template load<0, true>(a.chain, p, in);
        chain::finish(a.chain, p, in, typename chain::row{});
    }
}

} // namespace mf

#endif
