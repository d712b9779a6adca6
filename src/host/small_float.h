/* Conversions between f32 and the 16- and 8-bit floats as branch-free inline code, so that loops over them vectorise.
 * convert.c exports them; the CPU loops inline them. No f32 subnormal is an operand of arithmetic that matters, so the
 * results do not depend on the flush-to-zero mode of the thread. */
#ifndef MFI_SMALL_FLOAT_H
#define MFI_SMALL_FLOAT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t mfi_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float mfi_bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* |value| rounded to a format of `mantissa` bits and exponent bias `bias` < 127, as the format's bits without the sign;
 * exponents too large for the format just carry on upwards. value is not NaN. */
static inline uint32_t mfi_small_round(uint32_t magnitude, int mantissa, int bias)
{
    const int shift = 23 - mantissa;
    uint32_t normal =
        (magnitude - ((uint32_t)(127 - bias) << 23) + ((1u << (shift - 1)) - 1) + (magnitude >> shift & 1)) >> shift;
    /* Below the smallest normal number: adding a power of two whose last place is the format's makes the FPU round. */
    const uint32_t magic = (uint32_t)(127 + 24 - bias - mantissa) << 23;
    uint32_t subnormal = mfi_float_bits(mfi_bits_float(magnitude) + mfi_bits_float(magic)) - magic;
    return magnitude < (uint32_t)(128 - bias) << 23 ? subnormal : normal;
}

static inline uint16_t mfi_inline_f32_to_f16(float value, bool saturate)
{
    uint32_t bits = mfi_float_bits(value), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    uint32_t limit = saturate ? 0x7bff : 0x7c00, rounded = mfi_small_round(magnitude, 10, 15);
    rounded = rounded > limit ? limit : rounded;
    uint32_t nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
    return (uint16_t)(sign | (magnitude > 0x7f800000 ? nan : rounded));
}

static inline float mfi_inline_f16_to_f32(uint16_t half)
{
    uint32_t magnitude = half & 0x7fffu, sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t normal = (magnitude << 13) + (112u << 23);
    uint32_t subnormal = mfi_float_bits((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t bits = magnitude < 0x400 ? subnormal : magnitude >= 0x7c00 ? normal + (112u << 23) : normal;
    return mfi_bits_float(sign | bits);
}

static inline uint16_t mfi_inline_f32_to_bf16(float value, bool saturate)
{
    uint32_t bits = mfi_float_bits(value), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    uint32_t limit = saturate ? 0x7f7f : 0x7f80, rounded = (magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16;
    rounded = rounded > limit ? limit : rounded;
    uint32_t nan = 0x7fc0 | magnitude >> 16;
    return (uint16_t)(sign | (magnitude > 0x7f800000 ? nan : rounded));
}

static inline float mfi_inline_bf16_to_f32(uint16_t bits)
{
    return mfi_bits_float((uint32_t)bits << 16);
}

/* No infinity: what rounds beyond 448 is NaN, or ±448 when saturating. */
static inline uint8_t mfi_inline_f32_to_e4m3(float value, bool saturate)
{
    uint32_t bits = mfi_float_bits(value), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    uint32_t rounded = mfi_small_round(magnitude, 3, 7);
    rounded = rounded > 0x7e ? (saturate ? 0x7e : 0x7f) : rounded;
    return (uint8_t)(sign | (magnitude > 0x7f800000 ? 0x7f : rounded));
}

static inline float mfi_inline_e4m3_to_f32(uint8_t code)
{
    uint32_t magnitude = code & 0x7fu, sign = (uint32_t)(code & 0x80u) << 24;
    uint32_t normal = (magnitude << 20) + (120u << 23);
    uint32_t subnormal = mfi_float_bits((float)(int32_t)magnitude * 0x1p-9f);
    uint32_t bits = magnitude < 8 ? subnormal : magnitude == 0x7f ? 0x7fc00000 : normal;
    return mfi_bits_float(sign | bits);
}

static inline uint8_t mfi_inline_f32_to_e5m2(float value, bool saturate)
{
    uint32_t bits = mfi_float_bits(value), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    uint32_t limit = saturate ? 0x7b : 0x7c, rounded = mfi_small_round(magnitude, 2, 15);
    rounded = rounded > limit ? limit : rounded;
    return (uint8_t)(sign | (magnitude > 0x7f800000 ? 0x7e | (magnitude >> 21 & 3) : rounded));
}

static inline float mfi_inline_e5m2_to_f32(uint8_t code)
{
    return mfi_inline_f16_to_f32((uint16_t)(code << 8));
}

/* f64 to f32, rounding to odd: a second rounding to a narrower format then gives what one rounding would have given. */
static inline float mfi_round_to_odd(double value)
{
    float nearest = (float)value;
    uint32_t bits = mfi_float_bits(nearest);
    double back = nearest;
    bool larger = (back < 0 ? -back : back) > (value < 0 ? -value : value);
    uint32_t inexact = back != value && value == value;
    return mfi_bits_float((bits - larger) | inexact);
}

#endif
