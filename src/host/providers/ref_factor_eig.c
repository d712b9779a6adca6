/* Eigenvalues of general matrices: Hessenberg form, QR steps with Wilkinson's shift, back-substitution. */
#include "ref_factor.h"

#include <float.h>
#include <math.h>

enum { STEPS_EACH = 60 }; /* QR steps for an eigenvalue; two or three are usual */

#define A(i, j) a[(i) + (j)*n]
#define Q(i, j) q[(i) + (j)*n]

/* A becomes upper Hessenberg by reflections, which q gathers. */
static void hessenberg(int64_t n, mfi_z *a, mfi_z *q, mfi_z *v)
{
    for (int64_t k = 0; k + 2 < n; k++) {
        double norm = 0;
        for (int64_t i = k + 1; i < n; i++)
            norm = hypot(norm, cabs(A(i, k)));
        if (norm == 0)
            continue;
        mfi_z first = A(k + 1, k), phase = first == 0 ? 1 : first / cabs(first);
        double size = 0;
        for (int64_t i = k + 1; i < n; i++) {
            v[i] = A(i, k) + (i == k + 1 ? phase * norm : 0);
            size += creal(v[i]) * creal(v[i]) + cimag(v[i]) * cimag(v[i]);
        }
        if (size == 0) /* so small that squares vanish */
            continue;
        for (int64_t j = 0; j < n; j++) { /* (I - 2 v v^H / size) A */
            mfi_z sum = 0;
            for (int64_t i = k + 1; i < n; i++)
                sum += conj(v[i]) * A(i, j);
            for (int64_t i = k + 1; i < n; i++)
                A(i, j) -= v[i] * (2 * sum / size);
        }
        for (int64_t i = 0; i < 2 * n; i++) { /* A and q times the same, row by row */
            mfi_z *row = i < n ? a + i : q ? q + i - n : NULL, sum = 0;
            for (int64_t j = k + 1; row && j < n; j++)
                sum += row[j * n] * v[j];
            for (int64_t j = k + 1; row && j < n; j++)
                row[j * n] -= (2 * sum / size) * conj(v[j]);
        }
        for (int64_t i = k + 2; i < n; i++)
            A(i, k) = 0;
    }
}

/* The eigenvalue of the trailing 2 x 2 block that is nearer to its last element. */
static mfi_z wilkinson(mfi_z a, mfi_z b, mfi_z c, mfi_z d)
{
    mfi_z half = (a - d) / 2, root = csqrt(half * half + b * c);
    mfi_z far = creal(half * conj(root)) < 0 ? half - root : half + root;
    return far == 0 ? d : d - b * c / far;
}

/* One QR step on the active block [lo, hi] with Givens rotations, whose sines and cosines are kept in s and c. */
static void qr_step(int64_t n, mfi_z *a, mfi_z *q, int64_t lo, int64_t hi, mfi_z shift)
{
    mfi_z x = A(lo, lo) - shift, y = A(lo + 1, lo);
    for (int64_t k = lo; k < hi; k++) {
        if (k > lo) {
            x = A(k, k - 1);
            y = A(k + 1, k - 1);
        }
        double r = hypot(cabs(x), cabs(y));
        if (r == 0)
            continue;
        mfi_z c = x / r, s = y / r;
        for (int64_t j = k > lo ? k - 1 : lo; j < n; j++) {
            mfi_z t = A(k, j);
            A(k, j) = conj(c) * t + conj(s) * A(k + 1, j);
            A(k + 1, j) = c * A(k + 1, j) - s * t;
        }
        if (k > lo)
            A(k + 1, k - 1) = 0;
        for (int64_t i = 0; i <= mfi_min64(k + 2, hi); i++) {
            mfi_z t = A(i, k);
            A(i, k) = c * t + s * A(i, k + 1);
            A(i, k + 1) = conj(c) * A(i, k + 1) - conj(s) * t;
        }
        for (int64_t i = 0; q && i < n; i++) {
            mfi_z t = Q(i, k);
            Q(i, k) = c * t + s * Q(i, k + 1);
            Q(i, k + 1) = conj(c) * Q(i, k + 1) - conj(s) * t;
        }
    }
}

/* A, upper Hessenberg, becomes triangular. Returns how many eigenvalues were not found. */
static int64_t schur(int64_t n, mfi_z *a, mfi_z *q)
{
    int64_t hi = n - 1, steps = 0;
    while (hi > 0) {
        int64_t lo = hi;
        for (; lo > 0; lo--) {
            double around = cabs(A(lo, lo)) + cabs(A(lo - 1, lo - 1));
            if (cabs(A(lo, lo - 1)) <= DBL_EPSILON * (around == 0 ? 1 : around)) {
                A(lo, lo - 1) = 0;
                break;
            }
        }
        if (lo == hi) {
            hi--;
            steps = 0;
            continue;
        }
        if (++steps > STEPS_EACH)
            return hi + 1;
        mfi_z shift = wilkinson(A(hi - 1, hi - 1), A(hi - 1, hi), A(hi, hi - 1), A(hi, hi));
        if (steps % 10 == 0) /* an unusual shift breaks a cycle */
            shift = A(hi, hi) + cabs(A(hi, hi - 1));
        qr_step(n, a, q, lo, hi, shift);
    }
    return 0;
}

/* Eigenvectors of the triangle, times q, of norm 1. */
static void vectors(int64_t n, const mfi_z *a, const mfi_z *q, mfi_z *v, mfi_z *y)
{
    for (int64_t k = n - 1; k >= 0; k--) {
        double norm = 0, most = 1;
        y[k] = 1;
        for (int64_t i = k - 1; i >= 0; i--) {
            mfi_z sum = 0, gap = A(i, i) - A(k, k);
            for (int64_t j = i + 1; j <= k; j++)
                sum += A(i, j) * y[j];
            if (cabs(gap) < DBL_EPSILON) /* the matrix is scaled to about 1 */
                gap = DBL_EPSILON;
            y[i] = -sum / gap;
            most = fmax(most, cabs(y[i]));
            for (int64_t j = i; most > 1e100 && j <= k; j++)
                y[j] /= most;
            most = most > 1e100 ? 1 : most;
        }
        for (int64_t i = 0; i < n; i++) {
            mfi_z sum = 0;
            for (int64_t j = 0; j <= k; j++)
                sum += Q(i, j) * y[j];
            v[i + k * n] = sum;
            norm = hypot(norm, cabs(sum));
        }
        for (int64_t i = 0; i < n; i++)
            v[i + k * n] /= norm;
    }
}

int64_t mfi_z_eig(int64_t n, mfi_z *a, mfi_z *w, mfi_z *v, mfi_z *work)
{
    mfi_z *q = v ? work + n : NULL;
    double scale = mfi_z_scale(a, n * n);
    for (int64_t i = 0; q && i < n * n; i++)
        q[i] = i % (n + 1) == 0;
    hessenberg(n, a, q, work);
    int64_t info = schur(n, a, q);
    for (int64_t i = 0; i < n; i++)
        w[i] = A(i, i) * scale;
    if (v && !info)
        vectors(n, a, q, v, work);
    return info;
}
