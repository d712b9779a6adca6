/* What is known about element types: the rows of dtype.def, and NumPy's promotion. */
#include "core.h"

static const struct {
    const char *name, *numpy;
    size_t size;
    mfi_dkind kind;
    mfi_ctype compute;
    int dlpack;
} rows[] = {
#define MF_DTYPE(ENUM, name, bytes, kind, compute, dlpack, numpy)                                                      \
    [MF_##ENUM] = {#name, numpy, bytes, MFI_KIND_##kind, MFI_##compute, dlpack},
#include "mathfuse/def/dtype.def"
#undef MF_DTYPE
};
_Static_assert(MFI_COUNT(rows) == MF_DTYPE_COUNT, "one row per dtype");

static const struct {
    const char *name;
    size_t size;
    mf_dtype dtype;
} ctypes[] = {
    [MFI_I32] = {"i32", 4, MF_I32}, [MFI_I64] = {"i64", 8, MF_I64}, [MFI_F32] = {"f32", 4, MF_F32},
    [MFI_F64] = {"f64", 8, MF_F64}, [MFI_C64] = {"c64", 8, MF_C64}, [MFI_C128] = {"c128", 16, MF_C128},
};
_Static_assert(MFI_COUNT(ctypes) == MFI_CTYPE_COUNT, "one row per compute type");

static bool valid(mf_dtype d)
{
    return (unsigned)d < MF_DTYPE_COUNT;
}

const char *mf_dtype_name(mf_dtype d)
{
    return valid(d) ? rows[d].name : NULL;
}

const char *mf_dtype_numpy(mf_dtype d)
{
    return valid(d) ? rows[d].numpy : NULL;
}

size_t mf_dtype_size(mf_dtype d)
{
    return valid(d) ? rows[d].size : 0;
}

int mf_dtype_dlpack(mf_dtype d)
{
    return valid(d) ? rows[d].dlpack : -1;
}

mf_status mf_dtype_parse(mf_dtype *out, const char *name)
{
    mfi_text known = {0};
    for (int d = 0; d < MF_DTYPE_COUNT; d++) {
        if (name && (!strcmp(rows[d].name, name) || !strcmp(rows[d].numpy, name))) {
            *out = (mf_dtype)d;
            mfi_text_free(&known);
            return MF_OK;
        }
        mfi_text_add(&known, "%s%s", d ? ", " : "", rows[d].name);
    }
    mf_status status = mfi_fail(MF_E_TYPE, "no dtype is called \"%s\"; there are %s and NumPy's names for them",
                                name ? name : "(null)", known.data ? known.data : "?");
    mfi_text_free(&known);
    return status;
}

mfi_ctype mfi_compute_type(mf_dtype d)
{
    return rows[d].compute;
}

mfi_dkind mfi_dtype_kind(mf_dtype d)
{
    return rows[d].kind;
}

size_t mfi_ctype_size(mfi_ctype c)
{
    return ctypes[c].size;
}

mf_dtype mfi_ctype_dtype(mfi_ctype c)
{
    return ctypes[c].dtype;
}

const char *mfi_ctype_name(mfi_ctype c)
{
    return ctypes[c].name;
}

mf_dtype mf_dtype_to_real(mf_dtype d)
{
    return d == MF_C64 ? MF_F32 : d == MF_C128 ? MF_F64 : d;
}

mf_dtype mf_dtype_to_complex(mf_dtype d)
{
    if (!valid(d) || rows[d].kind == MFI_KIND_C)
        return d;
    return rows[d].compute == MFI_F32 ? MF_C64 : MF_C128;
}

/* Real floats of one promotion, both real. */
static mf_dtype promote_floats(mf_dtype a, mf_dtype b)
{
    mfi_dkind ka = rows[a].kind, kb = rows[b].kind;
    if (ka == MFI_KIND_S && kb == MFI_KIND_S)
        return MF_F32; /* fp8 is for storage: arithmetic on it gives f32 */
    if (ka == MFI_KIND_S)
        return b;
    if (kb == MFI_KIND_S)
        return a;
    if (a == b)
        return a;
    if (a == MF_F64 || b == MF_F64)
        return MF_F64;
    return MF_F32; /* f16 with bf16, or either with f32 */
}

/* An integer or bool meeting the float f: NumPy keeps f if it holds the integer type, else f64. */
static mf_dtype promote_integer_float(mf_dtype i, mf_dtype f)
{
    if (rows[f].kind == MFI_KIND_S)
        return i == MF_BOOL ? MF_F32 : MF_F64;
    return i == MF_BOOL ? f : MF_F64;
}

mf_dtype mf_dtype_promote(mf_dtype a, mf_dtype b)
{
    a = a == MF_I8 ? MF_I32 : a;
    b = b == MF_I8 ? MF_I32 : b;
    if (a == b && rows[a].kind != MFI_KIND_S)
        return a;
    if (mfi_is_integer(a) && mfi_is_integer(b))
        return a > b ? a : b; /* bool < i32 < i64 */
    if (mfi_is_complex(a) || mfi_is_complex(b))
        return mf_dtype_to_complex(mf_dtype_promote(mf_dtype_to_real(a), mf_dtype_to_real(b)));
    if (mfi_is_integer(a))
        return promote_integer_float(a, b);
    if (mfi_is_integer(b))
        return promote_integer_float(b, a);
    return promote_floats(a, b);
}
