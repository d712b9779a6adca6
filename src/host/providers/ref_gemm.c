/* Matrix products by plain loops, for every compute type. */
#include "matmul_cpu.h"

#define BLOCK_K 128 /* rows of b that stay in the first-level cache … */
#define BLOCK_N 512 /* … for so many columns */

#define COMPLEX 0
#define T float
#define FN(name) name##_f32
#include "ref_gemm_loops.h"
#define T double
#define FN(name) name##_f64
#include "ref_gemm_loops.h"
#define T uint32_t /* wraps around, as NumPy's integers do */
#define FN(name) name##_i32
#include "ref_gemm_loops.h"
#define T uint64_t
#define FN(name) name##_i64
#include "ref_gemm_loops.h"
#undef COMPLEX
#define COMPLEX 1
#define T float
#define FN(name) name##_c64
#include "ref_gemm_loops.h"
#define T double
#define FN(name) name##_c128
#include "ref_gemm_loops.h"

static void (*const loops[MFI_CTYPE_COUNT])(const mfi_gemm *g) = {
    [MFI_I32] = multiply_i32, [MFI_I64] = multiply_i64, [MFI_F32] = multiply_f32,
    [MFI_F64] = multiply_f64, [MFI_C64] = multiply_c64, [MFI_C128] = multiply_c128,
};

static void multiply(const void *engine, const mfi_gemm *g)
{
    (void)engine;
    loops[g->type](g);
}

const mfi_gemm_engine mfi_loops_gemm = {"loops", false, multiply, NULL, NULL, NULL};
