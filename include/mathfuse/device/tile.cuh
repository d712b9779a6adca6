// Tiles of two-dimensional arrays: loads and stores with bounds and strides, and asynchronous copies into shared memory.
// Every thread of the block calls, with the same arguments.
#ifndef MATHFUSE_DEVICE_TILE_CUH
#define MATHFUSE_DEVICE_TILE_CUH

#include "mathfuse/device/types.cuh"
#if !defined(__CUDACC__)
#include "mathfuse/device/emulate.h"
#endif

namespace mf
{

// ---- asynchronous copies of 4, 8 or 16 bytes a thread; what a thread copied is there after its wait, for others after a
// barrier that follows the waits ----

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define MF_HAS_COPY_ASYNC 1
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define MF_HAS_COPY_BULK 1
#endif

#if defined(MF_EMULATE)
namespace emulate
{

// Undefined until the copy is waited for. Whole words, as the checked mode sees only those.
template <int BYTES> void spoil(void *shared)
{
    typename word_of<BYTES>::type word;
    memset(&word, 0xff, BYTES);
    *(typename word_of<BYTES>::type *)shared = word;
}

template <int BYTES> void arrive(const pending_copy &copy)
{
    typedef typename word_of<BYTES>::type word;
    *(word *)copy.dst = copy.src ? *(const word *)copy.src : word{};
}

} // namespace emulate
#endif

// BYTES from global to shared memory; keep == false: zeros instead, and `src` is not read.
template <int BYTES> MF_DEVICE void copy_async(void *shared, const void *src, bool keep = true)
{
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "what the instruction moves");
#if defined(MF_HAS_COPY_ASYNC)
    unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    int bytes = keep ? BYTES : 0;
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(src), "r"(bytes) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(src), "r"(bytes), "n"(BYTES)
                     : "memory");
#elif defined(MF_EMULATE)
    emulate::spoil<BYTES>(shared);
    emulate::later(shared, keep ? src : nullptr, BYTES);
#else
    typedef typename word_of<BYTES>::type word;
    *(word *)shared = keep ? *(const word *)src : word{};
#endif
}

// Ends a group of copies of this thread.
MF_DEVICE void copy_commit()
{
#if defined(MF_HAS_COPY_ASYNC)
    asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(MF_EMULATE)
    emulate::now.self->copy_group++;
#endif
}

// Waits until at most PENDING of this thread's groups are under way.
template <int PENDING> MF_DEVICE void copy_wait()
{
#if defined(MF_HAS_COPY_ASYNC)
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#elif defined(MF_EMULATE)
    int taken = 0;
    for (emulate::pending_copy copy; emulate::next_copy(PENDING, taken, &copy); taken++) {
        if (copy.bytes == 16)
            emulate::arrive<16>(copy);
        else if (copy.bytes == 8)
            emulate::arrive<8>(copy);
        else
            emulate::arrive<4>(copy);
    }
    emulate::forget_copies(taken);
#endif
}

// Fetches the line of an address into the second-level cache.
MF_DEVICE void prefetch(const void *address)
{
#if defined(__CUDACC__)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#else
    __builtin_prefetch(address);
#endif
}

// ---- bulk copies: runs of memory that one thread asks for (sm_90 and later; before, all threads copy 16 bytes each) ----

// A counter of bytes in shared memory, for one buffer; all THREADS of the block construct it and call, with the same
// arguments. Copies after the construction or a wait belong together; a barrier lies between the last use of what they
// overwrite and them, and bulk_fence before that barrier if ordinary stores wrote there.
template <int THREADS> struct bulk {
    u64 *counter; // 8-byte word in shared memory
    u32 phase;

    MF_DEVICE explicit bulk(u64 *shared_word) : counter(shared_word), phase(0)
    {
#if defined(MF_HAS_COPY_BULK)
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address()) : "memory");
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
#endif
        __syncthreads();
    }
    // Addresses and bytes are multiples of 16.
    MF_DEVICE void copy(void *shared, const void *src, u32 bytes)
    {
#if defined(MF_HAS_COPY_BULK)
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(bytes)
                         : "memory");
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                    (u32)__cvta_generic_to_shared(shared)),
                "l"(src), "r"(bytes), "r"(address())
                : "memory");
        }
#else
        for (u32 i = threadIdx.x * 16; i < bytes; i += THREADS * 16)
            copy_async<16>((char *)shared + i, (const char *)src + i);
#endif
    }
    // Until all copies have arrived, for all threads.
    MF_DEVICE void wait()
    {
#if defined(MF_HAS_COPY_BULK)
        if (threadIdx.x == 0)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
        u32 done = 0;
        while (!done)
            asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                         "selp.u32 %0, 1, 0, p;\n}"
                         : "=r"(done)
                         : "r"(address()), "r"(phase)
                         : "memory");
        phase ^= 1;
#else
        copy_commit();
        copy_wait<0>();
#endif
        __syncthreads();
    }

  private:
    MF_DEVICE u32 address() const
    {
#if defined(__CUDACC__)
        return (u32)__cvta_generic_to_shared(counter);
#else
        return 0;
#endif
    }
};

// Puts this thread's ordinary writes to shared memory before bulk copies that follow the next barrier.
MF_DEVICE void bulk_fence()
{
#if defined(MF_HAS_COPY_BULK)
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// ---- tiles ----

// A matrix in global memory: element (r, c) lies at data[r * row_stride + c * column_stride].
template <class T> struct matrix_view {
    T *data;
    i64 rows, columns, row_stride, column_stride;
    MF_DEVICE T *at(i64 r, i64 c) const { return data + r * row_stride + c * column_stride; }
    MF_DEVICE bool has(i64 r, i64 c) const { return r >= 0 && r < rows && c >= 0 && c < columns; }
};

// ROWS x COLUMNS elements in shared memory, rows LD apart. THREADS of the block share the work; ALONG_ROWS: neighbouring
// threads take neighbouring columns, else neighbouring rows: whichever of the two is contiguous in global memory.
template <class T, int ROWS, int COLUMNS, int THREADS, int LD = COLUMNS, bool ALONG_ROWS = true> struct tile {
    static_assert(LD >= COLUMNS, "rows of a tile do not overlap");
    static constexpr int elements = ROWS * COLUMNS, bytes = ((ROWS - 1) * LD + COLUMNS) * (int)sizeof(T);

    template <class F> static MF_DEVICE void for_each(F &&f)
    {
        /* not in full: so many addresses at once would spill */
        MF_UNROLL_BY_4
        for (int i = 0; i < (elements + THREADS - 1) / THREADS; i++) {
            int e = (int)threadIdx.x + i * THREADS;
            if (elements % THREADS == 0 || e < elements)
                f(ALONG_ROWS ? e / COLUMNS : e % ROWS, ALONG_ROWS ? e % COLUMNS : e / ROWS);
        }
    }
    // shared = convert(src at (row, column)); zero outside of src.
    template <class S> static MF_DEVICE void load(T *shared, const matrix_view<const S> &src, i64 row, i64 column)
    {
        for_each([&](int r, int c) {
            bool inside = src.has(row + r, column + c);
            shared[r * LD + c] = inside ? narrow<T>(widen(*src.at(row + r, column + c))) : T{};
        });
    }
    template <class S> static MF_DEVICE void store(const T *shared, const matrix_view<S> &dst, i64 row, i64 column)
    {
        for_each([&](int r, int c) {
            if (dst.has(row + r, column + c))
                *dst.at(row + r, column + c) = narrow<S>(widen(shared[r * LD + c]));
        });
    }
    // Rows by bulk copies, without conversion; follow with copies.wait(). src has column stride 1; rows and COLUMNS,
    // where the tile lies in src, and LD are multiples of 16 bytes. What lies outside of src is zero.
    static MF_DEVICE void load_bulk(T *shared, const matrix_view<const T> &src, i64 row, i64 column,
                                    bulk<THREADS> &copies)
    {
        static_assert(COLUMNS * sizeof(T) % 16 == 0 && LD * sizeof(T) % 16 == 0 && ALONG_ROWS, "rows of 16-byte words");
        bool whole = column >= 0 && column + COLUMNS <= src.columns;
        for (int r = 0; r < ROWS; r++)
            if (whole && row + r >= 0 && row + r < src.rows)
                copies.copy(shared + r * LD, src.at(row + r, column), COLUMNS * (u32)sizeof(T));
        if (!whole || row < 0 || row + ROWS > src.rows)
            for_each([&](int r, int c) {
                if (!whole || !src.has(row + r, column))
                    shared[r * LD + c] = src.has(row + r, column + c) ? *src.at(row + r, column + c) : T{};
            });
    }
    // Asks for the tile's lines, of 128 bytes, ahead of a load. src has column stride 1.
    static MF_DEVICE void prefetch(const matrix_view<const T> &src, i64 row, i64 column)
    {
        constexpr int step = 128 / (int)sizeof(T), lines = (COLUMNS + step - 1) / step;
        for (int e = (int)threadIdx.x; e < ROWS * lines; e += THREADS)
            if (src.has(row + e / lines, column + e % lines * step))
                mf::prefetch(src.at(row + e / lines, column + e % lines * step));
    }
    // Without conversion, asynchronous; follow with copy_commit, copy_wait and a barrier. V elements move at
    // once: src has column stride 1, and rows, columns, first column, strides and LD are multiples of V.
    template <int V = 1>
    static MF_DEVICE void load_async(T *shared, const matrix_view<const T> &src, i64 row, i64 column)
    {
        static_assert(COLUMNS % V == 0 && LD % V == 0 && ALONG_ROWS, "rows are whole vectors");
        constexpr int vectors = elements / V;
        MF_UNROLL_BY_4
        for (int i = 0; i < (vectors + THREADS - 1) / THREADS; i++) {
            int e = (int)threadIdx.x + i * THREADS, r = e * V / COLUMNS, c = e * V % COLUMNS;
            if (vectors % THREADS == 0 || e < vectors) {
                bool inside = src.has(row + r, column + c);
                copy_async<V *(int)sizeof(T)>(shared + r * LD + c, inside ? src.at(row + r, column + c) : src.data,
                                              inside);
            }
        }
    }
};

} // namespace mf

#endif
