/* The decompositions of the reference provider: plain loops over column-major matrices of complex f64, to which every
 * dtype is converted. They serve machines without LAPACK, and tests as the second opinion. */
#ifndef MFI_REF_FACTOR_H
#define MFI_REF_FACTOR_H

#include "core.h"

#include <complex.h>

typedef double complex mfi_z;

/* A power of two that brings the largest element near 1, applied; 1 for a zero matrix. */
double mfi_z_scale(mfi_z *a, int64_t count);

/* Each returns info. Matrices are m x n unless said otherwise. */

/* P A = L U in place; rows i and pivots[i] were exchanged. sign is the permutation's. */
int64_t mfi_z_lu(int64_t m, int64_t n, mfi_z *a, int32_t *pivots, int *sign);
/* B, n x nrhs, becomes op(A)^-1 B; op: 0, MF_TRANS or MF_ADJOINT. */
int64_t mfi_z_lu_apply(int64_t n, int64_t nrhs, const mfi_z *lu, const int32_t *pivots, mfi_z *b, int op);
/* Householder reflectors below R, as LAPACK's geqrf leaves them. */
void mfi_z_qr(int64_t m, int64_t n, mfi_z *a, mfi_z *tau);
/* The first `columns` columns of Q from k reflectors. */
void mfi_z_qr_form(int64_t m, int64_t columns, int64_t k, const mfi_z *a, const mfi_z *tau, mfi_z *q);
/* Eigenvalues of the Hermitian A, ascending, by Jacobi's method; A is lost. v: n x n. */
int64_t mfi_z_eigh(int64_t n, mfi_z *a, double *w, mfi_z *v);
/* Singular values of an m >= n matrix by one-sided Jacobi rotations: A becomes U (m x n), v is n x n. */
int64_t mfi_z_svd(int64_t m, int64_t n, mfi_z *a, double *s, mfi_z *v);
/* Fill columns [have, want) of the m-row q with vectors orthonormal to those before. */
void mfi_z_complete(int64_t m, int64_t have, int64_t want, mfi_z *q);
/* Eigenvalues and right eigenvectors of norm 1 of any A, which is lost; v, n x n, may be NULL; work: n + n * n. */
int64_t mfi_z_eig(int64_t n, mfi_z *a, mfi_z *w, mfi_z *v, mfi_z *work) __attribute__((nonnull(2, 3, 5)));

#endif
