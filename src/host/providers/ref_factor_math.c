/* LU, QR, Jacobi eigenvalues and singular values: see ref_factor.h. */
#include "ref_factor.h"

#include "mathfuse/graph.h"

#include <float.h>
#include <math.h>

enum { SWEEPS = 60 }; /* Jacobi's methods take about log2(n) + 5 */

static double square(mfi_z z)
{
    return creal(z) * creal(z) + cimag(z) * cimag(z);
}

static double size1(mfi_z z)
{
    return fabs(creal(z)) + fabs(cimag(z));
}

double mfi_z_scale(mfi_z *a, int64_t count)
{
    double most = 0;
    int exponent = 0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fmax(fabs(creal(a[i])), fabs(cimag(a[i]))));
    if (most == 0)
        return 1;
    (void)frexp(most, &exponent);
    exponent--; /* the largest double is below 2^1024, which is none */
    for (int64_t i = 0; i < count; i++)
        a[i] = CMPLX(ldexp(creal(a[i]), -exponent), ldexp(cimag(a[i]), -exponent));
    return ldexp(1, exponent);
}

/* ---- LU ---- */

static void swap_rows(int64_t ld, int64_t cols, mfi_z *a, int64_t i, int64_t k)
{
    for (int64_t j = 0; i != k && j < cols; j++) {
        mfi_z t = a[i + j * ld];
        a[i + j * ld] = a[k + j * ld];
        a[k + j * ld] = t;
    }
}

int64_t mfi_z_lu(int64_t m, int64_t n, mfi_z *a, int32_t *pivots, int *sign)
{
    int64_t info = 0;
    *sign = 1;
    for (int64_t k = 0; k < mfi_min64(m, n); k++) {
        int64_t best = k;
        for (int64_t i = k + 1; i < m; i++)
            if (size1(a[i + k * m]) > size1(a[best + k * m]))
                best = i;
        pivots[k] = (int32_t)best;
        swap_rows(m, n, a, k, best);
        *sign = best == k ? *sign : -*sign;
        if (a[k + k * m] == 0) {
            info = info ? info : k + 1;
            continue;
        }
        for (int64_t i = k + 1; i < m; i++)
            a[i + k * m] /= a[k + k * m];
        for (int64_t j = k + 1; j < n; j++)
            for (int64_t i = k + 1; i < m; i++)
                a[i + j * m] -= a[i + k * m] * a[k + j * m];
    }
    return info;
}

/* x becomes L^-1 x or U^-1 x; `op` turns the triangle round. */
static void triangle(int64_t n, const mfi_z *lu, mfi_z *x, bool upper, int op)
{
    bool down = upper == (op != 0); /* the first unknown that is free of the others is the first */
    for (int64_t step = 0; step < n; step++) {
        int64_t i = down ? step : n - 1 - step;
        for (int64_t k = down ? 0 : i + 1; k < (down ? i : n); k++) {
            mfi_z f = op ? lu[k + i * n] : lu[i + k * n];
            x[i] -= (op == MF_ADJOINT ? conj(f) : f) * x[k];
        }
        if (upper)
            x[i] /= op == MF_ADJOINT ? conj(lu[i + i * n]) : lu[i + i * n];
    }
}

int64_t mfi_z_lu_apply(int64_t n, int64_t nrhs, const mfi_z *lu, const int32_t *pivots, mfi_z *b, int op)
{
    for (int64_t k = 0; k < n; k++)
        if (lu[k + k * n] == 0)
            return k + 1;
    for (int64_t k = 0; !op && k < n; k++)
        swap_rows(n, nrhs, b, k, pivots[k]);
    for (int64_t j = 0; j < nrhs; j++) {
        triangle(n, lu, b + j * n, op != 0, op);
        triangle(n, lu, b + j * n, op == 0, op);
    }
    for (int64_t k = n - 1; op && k >= 0; k--)
        swap_rows(n, nrhs, b, k, pivots[k]);
    return 0;
}

/* ---- QR ---- */

/* x - tau v (v^H x), v = (1, rest) */
static void reflect(int64_t m, const mfi_z *rest, mfi_z tau, mfi_z *x)
{
    mfi_z sum = x[0];
    for (int64_t i = 1; i < m; i++)
        sum += conj(rest[i]) * x[i];
    sum *= tau;
    x[0] -= sum;
    for (int64_t i = 1; i < m; i++)
        x[i] -= rest[i] * sum;
}

/* The reflector that takes x to a multiple of the first unit vector, real and as LAPACK's larfg signs it. */
static mfi_z make_reflector(int64_t m, mfi_z *x)
{
    double below = 0;
    for (int64_t i = 1; i < m; i++)
        below += square(x[i]);
    if (below == 0 && cimag(x[0]) == 0)
        return 0;
    double norm = sqrt(below + square(x[0])), beta = creal(x[0]) > 0 ? -norm : norm;
    mfi_z tau = (beta - x[0]) / beta, by = x[0] - beta;
    for (int64_t i = 1; i < m; i++)
        x[i] /= by;
    x[0] = beta;
    return tau;
}

void mfi_z_qr(int64_t m, int64_t n, mfi_z *a, mfi_z *tau)
{
    for (int64_t k = 0; k < mfi_min64(m, n); k++) {
        mfi_z *v = a + k + k * m;
        tau[k] = make_reflector(m - k, v);
        for (int64_t j = k + 1; j < n; j++)
            reflect(m - k, v, conj(tau[k]), a + k + j * m);
    }
}

void mfi_z_qr_form(int64_t m, int64_t columns, int64_t k, const mfi_z *a, const mfi_z *tau, mfi_z *q)
{
    memset(q, 0, (size_t)(m * columns) * sizeof *q);
    for (int64_t j = 0; j < mfi_min64(m, columns); j++)
        q[j + j * m] = 1;
    for (int64_t i = k - 1; i >= 0; i--)
        for (int64_t j = 0; j < columns; j++)
            reflect(m - i, a + i + i * m, tau[i], q + i + j * m);
}

/* ---- Jacobi's methods ---- */

/* The rotation of two columns that makes the Hermitian (p, g; conj g, q) diagonal. */
typedef struct rotation {
    double c, s, t;
    mfi_z phase; /* of g */
} rotation;

static rotation rotate_for(double p, double q, mfi_z g)
{
    double size = cabs(g), theta = (q - p) / (2 * size);
    double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1);
    return (rotation){c, t * c, t, g / size};
}

static void rotate_columns(int64_t m, mfi_z *x, mfi_z *y, const rotation *r)
{
    for (int64_t i = 0; i < m; i++) {
        mfi_z b = y[i] * conj(r->phase), a = x[i];
        x[i] = r->c * a - r->s * b;
        y[i] = r->s * a + r->c * b;
    }
}

static void rotate_rows(int64_t n, mfi_z *a, int64_t p, int64_t q, const rotation *r)
{
    for (int64_t j = 0; j < n; j++) {
        mfi_z y = a[q + j * n] * r->phase, x = a[p + j * n];
        a[p + j * n] = r->c * x - r->s * y;
        a[q + j * n] = r->s * x + r->c * y;
    }
}

static void identity(int64_t n, mfi_z *v)
{
    memset(v, 0, (size_t)(n * n) * sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i + i * n] = 1;
}

/* Order values and the columns of up to two matrices, by selection. */
static void sort(int64_t n, double *w, bool descending, int64_t m, mfi_z *u, int64_t k, mfi_z *v)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t best = i;
        for (int64_t j = i + 1; j < n; j++)
            if (descending ? w[j] > w[best] : w[j] < w[best])
                best = j;
        if (best == i)
            continue;
        double t = w[i];
        w[i] = w[best];
        w[best] = t;
        for (int64_t j = 0; j < m + k; j++) {
            mfi_z *x = j < m ? u + j : v + j - m, keep = x[i * (j < m ? m : k)];
            x[i * (j < m ? m : k)] = x[best * (j < m ? m : k)];
            x[best * (j < m ? m : k)] = keep;
        }
    }
}

int64_t mfi_z_eigh(int64_t n, mfi_z *a, double *w, mfi_z *v)
{
    int64_t turned = 1;
    double scale = mfi_z_scale(a, n * n);
    identity(n, v);
    for (int sweep = 0; turned && sweep < SWEEPS; sweep++) {
        turned = 0;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                mfi_z g = a[p + q * n];
                double x = creal(a[p + p * n]), y = creal(a[q + q * n]);
                /* negligible beside both diagonal elements, or beside the whole */
                if (cabs(g) <= DBL_EPSILON * 1e-3 * sqrt(fabs(x * y)) || cabs(g) <= DBL_EPSILON * 1e-4)
                    continue;
                rotation r = rotate_for(x, y, g);
                rotate_columns(n, a + p * n, a + q * n, &r);
                rotate_rows(n, a, p, q, &r);
                rotate_columns(n, v + p * n, v + q * n, &r);
                a[p + q * n] = a[q + p * n] = 0;
                a[p + p * n] = creal(a[p + p * n]);
                a[q + q * n] = creal(a[q + q * n]);
                turned++;
            }
    }
    for (int64_t i = 0; i < n; i++)
        w[i] = creal(a[i + i * n]) * scale;
    sort(n, w, false, 0, NULL, n, v);
    return turned;
}

void mfi_z_complete(int64_t m, int64_t have, int64_t want, mfi_z *q)
{
    for (int64_t j = have, unit = 0; j < want; unit++) {
        mfi_z *x = q + j * m;
        double left = 0;
        memset(x, 0, (size_t)m * sizeof *x);
        x[unit % m] = 1;
        for (int pass = 0; pass < 2; pass++) /* twice is enough (Kahan and Parlett) */
            for (int64_t k = 0; k < j; k++) {
                mfi_z along = 0;
                for (int64_t i = 0; i < m; i++)
                    along += conj(q[i + k * m]) * x[i];
                for (int64_t i = 0; i < m; i++)
                    x[i] -= along * q[i + k * m];
            }
        for (int64_t i = 0; i < m; i++)
            left += square(x[i]);
        if (left < 0.5 / (double)m) /* some unit vector has at least 1/m left */
            continue;
        for (int64_t i = 0; i < m; i++)
            x[i] /= sqrt(left);
        j++;
    }
}

/* One pass over all pairs of columns; the number of rotations. */
static int64_t svd_sweep(int64_t m, int64_t n, mfi_z *a, mfi_z *v)
{
    int64_t turned = 0;
    for (int64_t p = 0; p < n; p++)
        for (int64_t q = p + 1; q < n; q++) {
            const mfi_z *x = a + p * m, *y = a + q * m;
            double alpha = 0, beta = 0;
            mfi_z gamma = 0;
            for (int64_t i = 0; i < m; i++) {
                alpha += square(x[i]);
                beta += square(y[i]);
                gamma += conj(x[i]) * y[i];
            }
            if (cabs(gamma) <= sqrt((double)m) * DBL_EPSILON * sqrt(alpha) * sqrt(beta) || cabs(gamma) < 1e-290)
                continue;
            rotation r = rotate_for(alpha, beta, gamma);
            rotate_columns(m, a + p * m, a + q * m, &r);
            rotate_columns(n, v + p * n, v + q * n, &r);
            turned++;
        }
    return turned;
}

int64_t mfi_z_svd(int64_t m, int64_t n, mfi_z *a, double *s, mfi_z *v)
{
    int64_t turned = 1, rank = 0;
    double scale = mfi_z_scale(a, m * n);
    identity(n, v);
    for (int sweep = 0; turned && sweep < SWEEPS; sweep++)
        turned = svd_sweep(m, n, a, v);
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t i = 0; i < m; i++)
            sum += square(a[i + j * m]);
        s[j] = sum < 1e-280 ? 0 : sqrt(sum);
    }
    sort(n, s, true, m, a, n, v);
    for (int64_t j = 0; j < n && s[j] > 0; j++, rank++)
        for (int64_t i = 0; i < m; i++)
            a[i + j * m] /= s[j];
    mfi_z_complete(m, rank, n, a);
    for (int64_t j = 0; j < n; j++)
        s[j] *= scale;
    return turned;
}
