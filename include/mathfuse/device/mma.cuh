// Matrix products of a warp on tensor cores: d += a b in the registers of 32 lanes, on the device and emulated.
// Fragments are those of the instructions; each function says which element a register holds.
#ifndef MATHFUSE_DEVICE_MMA_CUH
#define MATHFUSE_DEVICE_MMA_CUH

#include "mathfuse/device/types.cuh"
#if !defined(__CUDACC__)
#include "mathfuse/device/emulate.h"
#endif

namespace mf
{

#if !defined(__CUDACC__)
namespace emulate
{

// Any m16n8kK with 32-bit registers of PER_WORD elements: `element` reads one of them as a float.
template <int K, int PER_WORD, class F>
void product(const char *what, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], F element)
{
    unsigned char all[32][exchange::bytes];
    u32 mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    meet(what, MF_EMULATE_HERE, 0xffffffffu, mine, sizeof mine, all);
    auto word = [&](int source, int i) {
        u32 w;
        memcpy(&w, all[source] + 4 * i, 4);
        return w;
    };
    for (int i = 0; i < 4; i++) {
        int row = lane() / 4 + i / 2 * 8, column = lane() % 4 * 2 + i % 2;
        float sum = d[i];
        for (int k = 0; k < K; k++) {
            int half = k / (K / 2), within = k % (K / 2); // each half of k lies in registers of its own
            u32 x = word(row % 8 * 4 + within / PER_WORD, row / 8 + 2 * half),
                y = word(column * 4 + within / PER_WORD, 4 + half);
            sum += element(x, within % PER_WORD) * element(y, within % PER_WORD);
        }
        d[i] = sum;
    }
}

// m8n8k4 of doubles.
inline void product_f64(double (&d)[2], double a, double b)
{
    unsigned char all[32][exchange::bytes];
    double mine[2] = {a, b};
    meet("mma_f64", MF_EMULATE_HERE, 0xffffffffu, mine, sizeof mine, all);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 4; k++) {
            double x, y;
            memcpy(&x, all[lane() / 4 * 4 + k], 8);
            memcpy(&y, all[(lane() % 4 * 2 + i) * 4 + k] + 8, 8);
            d[i] += x * y;
        }
}

} // namespace emulate
#endif

// a: 16 x 16, b: 16 x 8, of f16 or bf16, two to a register; d: 16 x 8. Register i of lane l holds
//   a: row l / 4 + i % 2 * 8, columns l % 4 * 2 + i / 2 * 8 and the next,
//   b: rows l % 4 * 2 + i * 8 and the next, column l / 4,
//   d: row l / 4 + i / 2 * 8, column l % 4 * 2 + i % 2.
template <class T> MF_DEVICE void mma(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    static_assert(same<T, f16> || same<T, bf16>, "f16 or bf16");
#if !defined(__CUDACC__)
    emulate::product<16, 2>("mma", d, a, b, [](u32 w, int i) { return widen(T{(u16)(w >> 16 * i)}); });
#elif __CUDA_ARCH__ >= 800
    if constexpr (same<T, f16>)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// The same for 32-bit floats of which the upper 19 bits count; a: 16 x 8, b: 8 x 8. Register i of lane l holds
//   a: row l / 4 + i % 2 * 8, column l % 4 + i / 2 * 4,
//   b: row l % 4 + i * 4, column l / 4.
MF_DEVICE void mma_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
#if !defined(__CUDACC__)
    emulate::product<8, 1>("mma_tf32", d, a, b, [](u32 w, int) { return float_of(w & 0xffffe000u); });
#elif __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// The same for doubles, a: 8 x 4, b: 4 x 8, d: 8 x 8. Lane l holds
//   a: row l / 4, column l % 4; b: row l % 4, column l / 4; d: row l / 4, columns l % 4 * 2 and the next.
MF_DEVICE void mma_f64(double (&d)[2], double a, double b)
{
#if !defined(__CUDACC__)
    emulate::product_f64(d, a, b);
#elif __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(d[0]), "+d"(d[1])
                 : "d"(a), "d"(b));
#endif
}

} // namespace mf

#endif
