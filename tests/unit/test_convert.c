/* The small floats: every code both ways, against values computed from their definition, and the loops against the
 * scalars. */
#include <criterion/criterion.h>
#include <math.h>

#include "cpu_loops.h"

typedef struct format {
    const char *name;
    mf_dtype dtype;
    int bits, mantissa, bias;
    bool infinity; /* else the largest exponent holds numbers, and NaN is all ones */
} format;

static const format formats[] = {
    {"f16", MF_F16, 16, 10, 15, true},
    {"bf16", MF_BF16, 16, 7, 127, true},
    {"e4m3", MF_E4M3, 8, 3, 7, false},
    {"e5m2", MF_E5M2, 8, 2, 15, true},
};

static uint32_t encode(const format *f, float x, bool saturate)
{
    switch (f->dtype) {
    case MF_F16:
    case MF_BF16: {
        uint16_t out;
        mfi_loops_at(0)->store[MFI_F32][f->dtype][saturate](1, &out, &x);
        if (!saturate)
            cr_assert_eq(out, f->dtype == MF_F16 ? mfi_f32_to_f16(x) : mfi_f32_to_bf16(x));
        return out;
    }
    case MF_E4M3:
        return mfi_f32_to_e4m3(x, saturate);
    default:
        return mfi_f32_to_e5m2(x, saturate);
    }
}

static float decode(const format *f, uint32_t code)
{
    switch (f->dtype) {
    case MF_F16:
        return mfi_f16_to_f32((uint16_t)code);
    case MF_BF16:
        return mfi_bf16_to_f32((uint16_t)code);
    case MF_E4M3:
        return mfi_e4m3_to_f32((uint8_t)code);
    default:
        return mfi_e5m2_to_f32((uint8_t)code);
    }
}

/* The value of a code without its sign, from the definition. */
static double defined(const format *f, uint32_t magnitude)
{
    uint32_t top = (1u << (f->bits - 1)) - 1, exponent = magnitude >> f->mantissa,
             fraction = magnitude & ((1u << f->mantissa) - 1);
    if (!f->infinity && magnitude == top)
        return NAN;
    if (f->infinity && exponent == top >> f->mantissa)
        return fraction ? NAN : INFINITY;
    if (!exponent)
        return ldexp(fraction, 1 - f->bias - f->mantissa);
    return ldexp(1 + ldexp(fraction, -f->mantissa), (int)exponent - f->bias);
}

static uint32_t largest(const format *f)
{
    uint32_t code = (1u << (f->bits - 1)) - 1;
    while (!isfinite(defined(f, code)))
        code--;
    return code;
}

Test(convert, every_code_has_its_value_and_comes_back)
{
    for (size_t i = 0; i < MFI_COUNT(formats); i++) {
        const format *f = &formats[i];
        uint32_t sign = 1u << (f->bits - 1);
        for (uint32_t code = 0; code < 2 * sign; code++) {
            double want = defined(f, code & (sign - 1));
            float have = decode(f, code);
            cr_assert(isnan(want) ? isnan(have) : (double)fabsf(have) == want, "%s %#x: %g, wanted %g", f->name, code,
                      have, want);
            cr_assert_eq(signbit(have) != 0, (code & sign) != 0, "%s %#x", f->name, code);
            uint32_t back = encode(f, have, false);
            cr_assert(isnan(want) ? isnan(decode(f, back)) : back == code, "%s %#x comes back as %#x", f->name, code,
                      back);
        }
    }
}

/* Around each midpoint of neighbours: below, tie to even, above. */
Test(convert, rounds_to_nearest_even)
{
    for (size_t i = 0; i < MFI_COUNT(formats); i++) {
        const format *f = &formats[i];
        uint32_t sign = 1u << (f->bits - 1), top = largest(f);
        for (uint32_t code = 0; code < top; code++) {
            float middle = (float)((defined(f, code) + defined(f, code + 1)) / 2);
            uint32_t even = code & 1 ? code + 1 : code;
            cr_assert_eq(encode(f, middle, false), even, "%s: tie above %#x", f->name, code);
            cr_assert_eq(encode(f, -middle, true), even | sign, "%s: negative tie above %#x", f->name, code);
            cr_assert_eq(encode(f, nextafterf(middle, 0), false), code, "%s: below the tie above %#x", f->name, code);
            cr_assert_eq(encode(f, nextafterf(middle, INFINITY), false), code + 1, "%s: above the tie above %#x",
                         f->name, code);
        }
    }
}

Test(convert, beyond_the_range)
{
    for (size_t i = 0; i < MFI_COUNT(formats); i++) {
        const format *f = &formats[i];
        uint32_t sign = 1u << (f->bits - 1), top = largest(f);
        const float values[] = {INFINITY, 3.4e38f, (float)(defined(f, top) * 1.5)};
        for (size_t k = 0; k < MFI_COUNT(values); k++) {
            float plain = decode(f, encode(f, values[k], false));
            cr_expect(f->infinity ? plain == INFINITY : isnan(plain), "%s of %g: %g", f->name, values[k], plain);
            cr_expect_eq(encode(f, values[k], true), top, "%s of %g, saturating", f->name, values[k]);
            cr_expect_eq(encode(f, -values[k], true), top | sign, "%s of %g, saturating", f->name, -values[k]);
        }
        cr_expect(isnan(decode(f, encode(f, NAN, false))) && isnan(decode(f, encode(f, NAN, true))), "%s", f->name);
    }
    cr_expect_eq(mfi_f32_to_e4m3(464, false), 0x7e);
    cr_expect_eq(mfi_f32_to_e4m3(465, false), 0x7f);
    cr_expect_eq(mfi_f32_to_e4m3(465, true), 0x7e);
}

/* f64 and i64 round once: not to f32 first. */
Test(convert, wide_sources_round_once)
{
    for (int isa = 0; mfi_loops_at(isa); isa++) {
        const mfi_loops *l = mfi_loops_at(isa);
        for (size_t i = 0; i < MFI_COUNT(formats); i++) {
            const format *f = &formats[i];
            for (uint32_t code = 0; code < largest(f); code += f->bits == 16 ? 7 : 1) {
                double middle = (defined(f, code) + defined(f, code + 1)) / 2;
                const double x[3] = {nextafter(middle, 0), middle, nextafter(middle, INFINITY)};
                const uint32_t want[3] = {code, code & 1 ? code + 1 : code, code + 1};
                unsigned char out[6] = {0};
                l->store[MFI_F64][f->dtype][0](3, out, x);
                for (int k = 0; k < 3; k++) {
                    uint32_t have = f->bits == 8 ? out[k] : (uint32_t)out[2 * k] | (uint32_t)out[2 * k + 1] << 8;
                    cr_assert_eq(have, want[k], "%s (%s) of %.17g: %#x, wanted %#x", f->name, l->isa, x[k], have,
                                 want[k]);
                }
            }
        }
        int64_t big = ((int64_t)0x101 << 54) + 1; /* above the tie between two bf16 numbers, by one part in 2^62 */
        uint16_t out;
        l->store[MFI_I64][MF_BF16][0](1, &out, &big);
        cr_expect_eq(out, mfi_f32_to_bf16(0x1.02p62f), "%s: %#x", l->isa, out);
    }
}

Test(convert, loops_agree_with_scalars)
{
    enum { N = 1000 };
    static float in[N], back[N];
    static unsigned char out[4 * N];
    uint32_t random = 1;
    for (int isa = 0; mfi_loops_at(isa); isa++)
        for (size_t i = 0; i < MFI_COUNT(formats); i++)
            for (int saturate = 0; saturate < 2; saturate++) {
                const format *f = &formats[i];
                for (int k = 0; k < N; k++) {
                    random = random * 1664525 + 1013904223;
                    memcpy(&in[k], &random, sizeof random);
                }
                mfi_loops_at(isa)->store[MFI_F32][f->dtype][saturate](N, out, in);
                mfi_loops_at(isa)->load[f->dtype](N, back, out);
                for (int k = 0; k < N; k++) {
                    float want = decode(f, encode(f, in[k], saturate));
                    cr_assert(!memcmp(&want, &back[k], sizeof want), "%s (%s) of %g: %g, wanted %g", f->name,
                              mfi_loops_at(isa)->isa, in[k], back[k], want);
                }
            }
}

Test(convert, integers_clamp_and_nan_is_zero)
{
    const double x[] = {1.9, -1.9, 3e9, -3e9, 1e19, -1e19, NAN, INFINITY};
    const int32_t want32[] = {1, -1, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, 0, INT32_MAX};
    const int64_t want64[] = {1, -1, 3000000000, -3000000000, INT64_MAX, INT64_MIN, 0, INT64_MAX};
    for (int isa = 0; mfi_loops_at(isa); isa++) {
        int32_t out32[8];
        int64_t out64[8];
        uint8_t flags[8];
        mfi_loops_at(isa)->store[MFI_F64][MF_I32][0](8, out32, x);
        mfi_loops_at(isa)->store[MFI_F64][MF_I64][0](8, out64, x);
        mfi_loops_at(isa)->store[MFI_F64][MF_BOOL][0](8, flags, (double[]){0, -0.0, 1e-300, NAN, -1, 2, 256, 0});
        for (int i = 0; i < 8; i++) {
            cr_expect_eq(out32[i], want32[i], "%g: %d", x[i], out32[i]);
            cr_expect_eq(out64[i], want64[i], "%g: %lld", x[i], (long long)out64[i]);
            cr_expect_eq(flags[i], i > 1 && i < 7);
        }
    }
}
