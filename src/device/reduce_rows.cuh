// Kernels of chains with reductions over the domain's last dims: what differs only in those dims is a row.
//
// LANES threads share a row. Neighbouring threads take neighbouring vectors of it, or, with COLUMNS, neighbouring rows
// (for memory that is contiguous across rows). A row of at most LANES * ITEMS vectors is read once and kept in
// registers through all phases (CACHED); longer ones are swept once a phase. SPLIT >= 0: several blocks share a row;
// launch k combines the partial results of launches before it, and either leaves those of phase k or, the last,
// finishes.
#ifndef MF_DEVICE_REDUCE_ROWS_CUH
#define MF_DEVICE_REDUCE_ROWS_CUH

#include "device/chain.cuh"

namespace mf
{

template <int THREADS_, int LANES_, int ITEMS_, bool CACHED_, bool COLUMNS_, int SPLIT_> struct reduce_shape {
    static constexpr int threads = THREADS_, lanes = LANES_, items = ITEMS_, split = SPLIT_, rows = THREADS_ / LANES_;
    static constexpr bool cached = CACHED_, columns = COLUMNS_;
    static constexpr int scratch = 16 * (columns ? threads : (threads + 31) / 32);
};

struct alignas(16) partial_slot {
    u32 word[4];
};

template <class T> union partial_value {
    partial_slot slot;
    T value;
};

// Combines over the lanes of a row.
template <class S> struct across_lanes {
    unsigned char *scratch;
    template <class Op, int SLOT, class T> MF_DEVICE T over(T x) const
    {
        T *shared = (T *)(void *)scratch;
        if constexpr (S::columns) {
            shared[threadIdx.x] = x;
            __syncthreads();
            int row = (int)threadIdx.x % S::rows;
            x = shared[row];
            MF_UNROLL
            for (int i = 1; i < S::lanes; i++)
                x = Op::combine(x, shared[row + i * S::rows]);
            __syncthreads();
            return x;
        } else {
            return group_reduce<Op, S::lanes, S::threads>(x, shared);
        }
    }
};

// Leaves a block's share of a row in the workspace.
struct save_partial {
    partial_slot *work;
    i64 rows, splits, row, split;
    template <class Op, int SLOT, class T> MF_DEVICE T over(T x) const
    {
        partial_value<T> p;
        p.slot = partial_slot{};
        p.value = x;
        work[(SLOT * rows + row) * splits + split] = p.slot;
        return x;
    }
};

// Takes the shares of all blocks together.
template <class S> struct combine_partials {
    across_lanes<S> across;
    const partial_slot *work;
    i64 rows, splits, row;
    int lane;
    template <class Op, int SLOT, class T> MF_DEVICE T over(T) const
    {
        T x = Op::template identity<T>();
        for (i64 s = lane; s < splits; s += S::lanes) {
            partial_value<T> p;
            p.slot = work[(SLOT * rows + row) * splits + s];
            x = Op::combine(x, p.value);
        }
        return across.template over<Op, SLOT>(x);
    }
};

template <template <int> class Chain, int V, class S, class A, int NR, int ND> struct reduce_kernel {
    typedef Chain<V> chain;
    typedef typename chain::index I;
    typedef typename chain::row row_values;
    typedef typename chain::inputs inputs;

    const A &a;
    unsigned char *scratch;
    point<I, ND> p; // row coordinates are fixed
    I begin, end;   // vectors of this block
    i64 row, split;
    int lane;
    bool valid;
    row_values r;
    inputs in[S::items];

    // Visit ITEMS vectors from `first` on; FULL: all exist. The loads of all go out before the first is used.
    template <int P, bool FULL> MF_DEVICE void visit(I first)
    {
        MF_UNROLL
        for (int i = 0; i < S::items; i++)
            if (FULL || first + i * S::lanes < end) {
                unravel<NR, ND - NR, V>(a, first + i * S::lanes, p);
                chain::template load<P, S::cached>(a, p, in[i]);
            }
        MF_UNROLL
        for (int i = 0; i < S::items; i++)
            if (FULL || first + i * S::lanes < end) {
                unravel<NR, ND - NR, V>(a, first + i * S::lanes, p);
                if constexpr (P < chain::phases) {
                    MF_UNROLL
                    for (int j = 0; j < V; j++)
                        chain::add(phase<P>(), a, p, in[i], j, r);
                } else if (valid) {
                    chain::finish(a, p, in[i], r);
                }
            }
    }

    // FULL: the thread has all its ITEMS vectors of a cached row.
    template <int P, bool FULL> MF_DEVICE void sweep()
    {
        I first = begin + lane;
        if constexpr (S::cached) {
            visit<P, FULL>(first);
        } else {
            for (; first + (S::items - 1) * S::lanes < end; first += S::items * S::lanes)
                visit<P, true>(first);
            if (first < end)
                visit<P, false>(first);
        }
    }

    MF_DEVICE void at_row_start()
    {
        MF_UNROLL
        for (int d = NR; d < ND; d++)
            p.c[d] = 0;
    }

    template <int P, bool FULL> MF_DEVICE void run()
    {
        if constexpr (P == chain::phases) {
            if constexpr (chain::stores_points)
                sweep<P, FULL>();
            at_row_start();
            if (valid && lane == 0 && split == 0)
                chain::finish_row(a, p, r);
        } else {
            across_lanes<S> across = {scratch};
            partial_slot *work = (partial_slot *)a.work;
            chain::start(phase<P>(), r);
            if constexpr (P < S::split) {
                combine_partials<S> combine = {across, work, a.points, a.splits, row, lane};
                chain::across(phase<P>(), r, combine);
            } else {
                sweep<P, FULL>();
                chain::across(phase<P>(), r, across);
            }
            if constexpr (P == S::split) {
                save_partial save = {work, a.points, a.splits, row, split};
                if (valid && lane == 0)
                    chain::across(phase<P>(), r, save);
            } else {
                at_row_start();
                chain::derive(phase<P>(), a, p, r);
                run<P + 1, FULL>();
            }
        }
    }
};

// NR row dims. In a launch of a split reduction, consecutive blocks share rows. `scratch`: S::scratch bytes of shared
// memory, free again after the return.
template <template <int> class Chain, int V, class S, int NR, int ND, class A>
MF_DEVICE void reduce(const A &a, u32 number, void *scratch)
{
    typedef typename Chain<V>::index I;
    constexpr bool shares = S::split >= 0 && (S::split < Chain<V>::phases || Chain<V>::stores_points);
    int thread = (int)threadIdx.x;
    i64 block = shares ? number / (u32)a.splits : number;
    i64 split = shares ? number % (u32)a.splits : 0;
    i64 row = block * S::rows + (S::columns ? thread % S::rows : thread / S::lanes);
    bool valid = row < a.points;
    row = valid ? row : a.points - 1;
    i64 begin = shares ? split * a.chunk : 0, end = shares && begin + a.chunk < a.columns ? begin + a.chunk : a.columns;
    reduce_kernel<Chain, V, S, A, NR, ND> k = {a,      (unsigned char *)scratch,
                                               {},     (I)begin,
                                               (I)end, row,
                                               split,  S::columns ? thread / S::rows : thread % S::lanes,
                                               valid,  {},
                                               {}};
    unravel<0, NR, 1>(a, (I)row, k.p);
    // One straight line of code for rows that fill the block's registers: what two phases compute alike is computed
    // once. Barriers are inside, so all threads of the block take the same way.
    if (S::cached && k.end == (I)S::items * S::lanes)
        k.template run<0, true>();
    else
        k.template run<0, false>();
}

} // namespace mf

#endif
