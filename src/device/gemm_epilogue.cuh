// What the matmul kernels ask of an epilogue, and the helpers that both kernels share.
//
// An epilogue is a type E with
//   struct args;                            passed by value to the kernel
//   typedef ... tile_type;                  bf16 or f16, the elements of the tile operands
//   static constexpr int n_vectors;         float n_vector(args, port, col): one value per column, fetched ahead of use
//   static constexpr int m_vectors;         float m_vector(args, port, row): one value per row, likewise
//   static constexpr int tiles;             operands of the output's shape that the kernel itself fetches
//   static constexpr int scalars;           float scalar(args, port): one value for all, likewise; sm_90a only
//   void apply2(args, ports, v0, v1)        two neighbouring columns of one row, in f32, before the one rounding
// Everything is static, so that an emitter writes a few functions and no state. Elements outside the output are computed
// and dropped: apply2 may compute anything for them but must not load from memory at such a place.
#ifndef MATHFUSE_GEMM_EPILOGUE_CUH
#define MATHFUSE_GEMM_EPILOGUE_CUH

#include "mathfuse/device/types.cuh"

namespace mf
{

MF_HOST_DEVICE constexpr int at_least_one(int n)
{
    return n > 0 ? n : 1;
}

template <class E> struct epilogue_ports {
    i32 row, col;   // of v0; v1 is at col + 1, which may lie outside the output
    i32 batch;      // of kernels that make several products: which; the functions then take it as a last argument
    i32 rows, cols; // of the output
    float across[at_least_one(E::n_vectors)][2];
    float down[at_least_one(E::m_vectors)];
    float scalar[at_least_one(E::scalars)];
    float tile[at_least_one(E::tiles)][2];
    float twin[2]; // of kernels that make two products
};

// The bare matmul; other epilogues derive from it and say only what differs.
struct epilogue_none {
    struct args {
    };
    typedef bf16 tile_type;
    static constexpr int n_vectors = 0, m_vectors = 0, scalars = 0, tiles = 0;
    template <class A> static MF_DEVICE float n_vector(const A &, int, i32) { return 0; }
    template <class A> static MF_DEVICE float m_vector(const A &, int, i32) { return 0; }
    template <class A> static MF_DEVICE float scalar(const A &, int) { return 0; }
    template <class A, class P> static MF_DEVICE void apply2(const A &, const P &, float &, float &) {}
};

// The largest absolute value, as bits, which have the order of their values and NaN above all of them.
template <class P> MF_DEVICE void largest2(u32 &largest, const P &ports, float x, float y)
{
    u32 a = bits_of(x) & 0x7fffffffu, b = bits_of(y) & 0x7fffffffu;
    if (ports.row < ports.rows && ports.col < ports.cols) {
        largest = a > largest ? a : largest;
        largest = b > largest ? b : largest;
    }
}

// Two f32 rounded to 16 bits, the first in the low half.
template <class T> MF_DEVICE u32 pack_pair(float low, float high)
{
#if defined(__CUDA_ARCH__)
    u32 pair;
    if constexpr (same<T, bf16>)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (u32)rounding<T, false>::of(low).bits | (u32)rounding<T, false>::of(high).bits << 16;
#endif
}

// Two f32 rounded to 8 bits, the first in the low byte.
template <class T> MF_DEVICE u32 pack_pair_saturated(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    u16 pair;
    if constexpr (same<T, e4m3>)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (u32)rounding<T, true>::of(low).bits | (u32)rounding<T, true>::of(high).bits << 8;
#endif
}

template <class T> MF_DEVICE u32 storage_bits(T x)
{
    if constexpr (same<T, float>)
        return bits_of(x);
    else if constexpr (same<T, i32>)
        return (u32)x;
    else if constexpr (sizeof(T) == 1)
        return (u8)x.bits;
    else
        return x.bits;
}

// Two neighbours in T's format, of up to 32 bits: side by side in the first word, or a word each.
template <class T, bool SATURATE = false, class S> MF_DEVICE void pack2(u32 (&words)[2], S low, S high)
{
    if constexpr (sizeof(T) == 4) {
        words[0] = storage_bits(narrow<T>(low));
        words[1] = storage_bits(narrow<T>(high));
    } else if constexpr ((same<T, bf16> || same<T, f16>)&&same<S, float> && !SATURATE) {
        words[0] = pack_pair<T>(low, high);
    } else if constexpr ((same<T, e4m3> || same<T, e5m2>)&&same<S, float> && SATURATE) {
        words[0] = pack_pair_saturated<T>(low, high);
    } else {
        words[0] = storage_bits(narrow<T, SATURATE>(low)) | storage_bits(narrow<T, SATURATE>(high)) << 8 * sizeof(T);
    }
}

template <class T> MF_DEVICE void unpack_pair(u32 pair, float &low, float &high)
{
    low = widen(T{(u16)(pair & 0xffff)});
    high = widen(T{(u16)(pair >> 16)});
}

// Blocks that run together should share rows of A and columns of B in L2: walk down `group` tile rows, then one column
// on.
MF_DEVICE void raster(i32 index, i32 tiles_m, i32 tiles_n, i32 group, i32 &tile_m, i32 &tile_n)
{
    i32 band = index / (group * tiles_n), within = index % (group * tiles_n);
    i32 first = band * group, height = tiles_m - first < group ? tiles_m - first : group;
    tile_m = first + within % height;
    tile_n = within / height;
}

} // namespace mf
#endif
