/* Scalar conversions of the 16- and 8-bit floats: the exported form of small_float.h. */
#include "core.h"
#include "small_float.h"

float mfi_f16_to_f32(uint16_t bits)
{
    return mfi_inline_f16_to_f32(bits);
}

uint16_t mfi_f32_to_f16(float value)
{
    return mfi_inline_f32_to_f16(value, false);
}

float mfi_bf16_to_f32(uint16_t bits)
{
    return mfi_inline_bf16_to_f32(bits);
}

uint16_t mfi_f32_to_bf16(float value)
{
    return mfi_inline_f32_to_bf16(value, false);
}

float mfi_e4m3_to_f32(uint8_t bits)
{
    return mfi_inline_e4m3_to_f32(bits);
}

uint8_t mfi_f32_to_e4m3(float value, bool saturate)
{
    return mfi_inline_f32_to_e4m3(value, saturate);
}

float mfi_e5m2_to_f32(uint8_t bits)
{
    return mfi_inline_e5m2_to_f32(bits);
}

uint8_t mfi_f32_to_e5m2(float value, bool saturate)
{
    return mfi_inline_f32_to_e5m2(value, saturate);
}
