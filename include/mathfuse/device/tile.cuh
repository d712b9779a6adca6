// Tiles of two-dimensional arrays: loads and stores with bounds and strides, and asynchronous copies into shared memory.
// Every thread of the block calls, with the same arguments.
#ifndef MATHFUSE_DEVICE_TILE_CUH
#define MATHFUSE_DEVICE_TILE_CUH

#include "mathfuse/device/types.cuh"
#if !defined(__CUDACC__)
#include "mathfuse/device/emulate.h"
#endif
#ifndef MF_DYNAMIC_SHARED
#define MF_DYNAMIC_SHARED(type, name)                                                                                  \
    extern __shared__ __align__(1024) unsigned char mf_dynamic_shared[];                                               \
    type *name = (type *)mf_dynamic_shared
#endif

namespace mf
{

// ---- asynchronous copies of 4, 8 or 16 bytes a thread; what a thread copied is there after its wait, for others after a
// barrier that follows the waits ----

#if defined(__CUDACC__)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define MF_HAS_COPY_ASYNC 1
#endif
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
#endif
}

// Waits until at most PENDING of this thread's groups are under way.
template <int PENDING> MF_DEVICE void copy_wait()
{
#if defined(MF_HAS_COPY_ASYNC)
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
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
        MF_UNROLL
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
            shared[r * LD + c] = inside ? convert<T>(widen(*src.at(row + r, column + c))) : T{};
        });
    }
    template <class S> static MF_DEVICE void store(const T *shared, const matrix_view<S> &dst, i64 row, i64 column)
    {
        for_each([&](int r, int c) {
            if (dst.has(row + r, column + c))
                *dst.at(row + r, column + c) = narrow<S>(shared[r * LD + c]);
        });
    }
    // The same without conversion, asynchronous; follow with copy_commit, copy_wait and a barrier. V elements move at
    // once: src has column stride 1, and rows, columns, first column, strides and LD are multiples of V.
    template <int V = 1>
    static MF_DEVICE void load_async(T *shared, const matrix_view<const T> &src, i64 row, i64 column)
    {
        static_assert(COLUMNS % V == 0 && LD % V == 0 && ALONG_ROWS, "rows are whole vectors");
        constexpr int vectors = elements / V;
        MF_UNROLL
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
