/* The wide accumulators of CPU reductions: start, combine, result. */
#include "cpu_program.h"

#include <math.h>

static bool floating(mfi_ctype c)
{
    return c >= MFI_F32;
}

static bool complex_type(mfi_ctype c)
{
    return c >= MFI_C64;
}

/* The identity of the operation, as a real number and as an integer. */
static double identity(const mfi_cpu_reduce *r)
{
    return r->op == MF_PROD ? 1 : r->op == MF_MAX ? -INFINITY : r->op == MF_MIN ? INFINITY : 0;
}

static int64_t integer_identity(const mfi_cpu_reduce *r)
{
    bool narrow = r->ctype == MFI_I32;
    if (r->op == MF_MAX)
        return narrow ? INT32_MIN : INT64_MIN;
    if (r->op == MF_MIN)
        return narrow ? INT32_MAX : INT64_MAX;
    return r->op == MF_PROD || r->op == MF_ALL;
}

static bool logical(const mfi_cpu_reduce *r)
{
    return r->op == MF_ANY || r->op == MF_ALL;
}

void mfi_acc_init(mfi_acc *acc, int n, const mfi_cpu_reduce *r)
{
    mfi_acc first = {{0}};
    if (logical(r) || !floating(r->ctype))
        first.i = integer_identity(r);
    else
        first.v[0] = identity(r);
    for (int i = 0; i < n; i++)
        acc[i] = first;
}

void mfi_narrow_init(void *narrow, int n, const mfi_cpu_reduce *r)
{
    const double real = identity(r);
    const int64_t integer = integer_identity(r);
    switch (r->narrow) {
    case MFI_I32:
        for (int i = 0; i < n; i++)
            ((int32_t *)narrow)[i] = (int32_t)integer;
        break;
    case MFI_I64:
        for (int i = 0; i < n; i++)
            ((int64_t *)narrow)[i] = integer;
        break;
    case MFI_F32:
        for (int i = 0; i < n; i++)
            ((float *)narrow)[i] = (float)real;
        break;
    case MFI_F64:
        for (int i = 0; i < n; i++)
            ((double *)narrow)[i] = real;
        break;
    case MFI_C64:
        for (int i = 0; i < n; i++)
            ((float _Complex *)narrow)[i] = (float)real;
        break;
    default:
        for (int i = 0; i < n; i++)
            ((double _Complex *)narrow)[i] = real;
    }
}

/* Two sums with what each lost. */
static void add_part(mfi_acc *acc, const mfi_acc *other, int part)
{
    double a = acc->v[part], b = other->v[part], sum = a + b, rounded = sum - a;
    acc->v[part + 2] += other->v[part + 2] + ((a - (sum - rounded)) + (b - rounded));
    acc->v[part] = sum;
}

static void merge_floating(mfi_acc *acc, const mfi_acc *other, mf_reduce_op op)
{
    double a = acc->v[0], b = other->v[0];
    if (op == MF_SUM) {
        add_part(acc, other, 0);
        add_part(acc, other, 1);
    } else if (op == MF_PROD) {
        acc->v[0] = a * b - acc->v[1] * other->v[1];
        acc->v[1] = a * other->v[1] + acc->v[1] * b;
    } else if (op == MF_MAX) {
        acc->v[0] = b > a || b != b ? b : a;
    } else {
        acc->v[0] = b < a || b != b ? b : a;
    }
}

void mfi_acc_merge(mfi_acc *acc, const mfi_acc *other, const mfi_cpu_reduce *r)
{
    if (floating(r->ctype) && !logical(r)) {
        if (r->op == MF_PROD && !complex_type(r->ctype))
            acc->v[0] *= other->v[0]; /* no 0 * inf from imaginary parts */
        else
            merge_floating(acc, other, r->op);
        return;
    }
    int64_t a = acc->i, b = other->i;
    switch (r->op) {
    case MF_SUM:
        acc->i = (int64_t)((uint64_t)a + (uint64_t)b);
        break;
    case MF_PROD:
        acc->i = (int64_t)((uint64_t)a * (uint64_t)b);
        break;
    case MF_MAX:
        acc->i = a > b ? a : b;
        break;
    case MF_MIN:
        acc->i = a < b ? a : b;
        break;
    case MF_ANY:
        acc->i = a | b;
        break;
    default:
        acc->i = a & b;
    }
}

/* A sum with what it lost; infinities and NaN have lost nothing that counts, and -0 stays. */
static double total(const mfi_acc *acc, int part)
{
    double sum = acc->v[part], lost = acc->v[part + 2];
    return isfinite(sum) && lost != 0 ? sum + lost : sum;
}

static void finish_one(const mfi_acc *acc, const mfi_cpu_reduce *r, void *dst)
{
    double re = total(acc, 0), im = total(acc, 1);
    if (logical(r) || r->ctype == MFI_I32)
        *(int32_t *)dst = (int32_t)(uint32_t)(uint64_t)acc->i;
    else if (r->ctype == MFI_I64)
        *(int64_t *)dst = acc->i;
    else if (r->ctype == MFI_C64)
        memcpy(dst, (float[]){(float)re, (float)im}, 2 * sizeof(float));
    else
        memcpy(dst, (double[]){re, im}, 2 * sizeof(double));
}

void mfi_acc_finish(const mfi_acc *acc, int n, const mfi_cpu_reduce *r, void *dst)
{
    size_t size = logical(r) ? sizeof(int32_t) : mfi_ctype_size(r->ctype);
    if (r->ctype == MFI_F32 && !logical(r)) {
        for (int i = 0; i < n; i++)
            ((float *)dst)[i] = (float)total(&acc[i], 0);
    } else if (r->ctype == MFI_F64 && !logical(r)) {
        for (int i = 0; i < n; i++)
            ((double *)dst)[i] = total(&acc[i], 0);
    } else {
        for (int i = 0; i < n; i++)
            finish_one(&acc[i], r, (char *)dst + (size_t)i * size);
    }
}
