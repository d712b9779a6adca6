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

void mfi_acc_init(mfi_acc *acc, const mfi_cpu_reduce *r)
{
    *acc = (mfi_acc){{0}};
    if (logical(r) || !floating(r->ctype))
        acc->i = integer_identity(r);
    else
        acc->v[0] = identity(r);
}

void mfi_narrow_init(void *narrow, int64_t n, const mfi_cpu_reduce *r)
{
    for (int64_t i = 0; i < n; i++) {
        if (r->narrow == MFI_I32)
            ((int32_t *)narrow)[i] = (int32_t)integer_identity(r);
        else if (r->narrow == MFI_I64)
            ((int64_t *)narrow)[i] = integer_identity(r);
        else if (r->narrow == MFI_F32)
            ((float *)narrow)[i] = (float)identity(r);
        else if (r->narrow == MFI_F64)
            ((double *)narrow)[i] = identity(r);
        else if (r->narrow == MFI_C64)
            ((float _Complex *)narrow)[i] = (float)identity(r);
        else
            ((double _Complex *)narrow)[i] = identity(r);
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

void mfi_acc_finish(const mfi_acc *acc, const mfi_cpu_reduce *r, void *dst)
{
    double re = total(acc, 0), im = total(acc, 1);
    if (logical(r) || r->ctype == MFI_I32)
        *(int32_t *)dst = (int32_t)(uint32_t)(uint64_t)acc->i;
    else if (r->ctype == MFI_I64)
        *(int64_t *)dst = acc->i;
    else if (r->ctype == MFI_F32)
        *(float *)dst = (float)re;
    else if (r->ctype == MFI_F64)
        *(double *)dst = re;
    else if (r->ctype == MFI_C64)
        memcpy(dst, (float[]){(float)re, (float)im}, 2 * sizeof(float));
    else
        memcpy(dst, (double[]){re, im}, 2 * sizeof(double));
}
