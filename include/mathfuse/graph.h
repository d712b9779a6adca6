/* A graph: an immutable description of a computation. Building one touches no device.
 *
 * Builders return a node and latch the first error: after it they do nothing and return MF_NODE_NONE, and
 * mf_graph_error or mf_plan_new reports it. A graph is built by one thread.
 *
 * Numerics: elementwise operations and reductions compute in the accumulator's type (f32 for 16- and 8-bit
 * floats). A value is rounded to its dtype at a graph output, as an operand of matmul, fft or solve, and at an
 * explicit cast; nowhere else, whatever is fused. MF_PLAN_MATCH_UNFUSED rounds at every node. */
#ifndef MATHFUSE_GRAPH_H
#define MATHFUSE_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "mathfuse/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mf_graph mf_graph;
typedef struct mf_node {
    int32_t id;
} mf_node;
#define MF_NODE_NONE ((mf_node){-1})

typedef enum mf_op {
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) MF_OP_##ENUM,
#include "mathfuse/def/op.def"
#undef MF_OP
    MF_OP_COUNT
} mf_op;

typedef enum mf_reduce_op { MF_SUM, MF_PROD, MF_MAX, MF_MIN, MF_MEAN, MF_ANY, MF_ALL, MF_REDUCE_COUNT } mf_reduce_op;
typedef enum mf_fft_kind { MF_FFT, MF_IFFT, MF_RFFT, MF_IRFFT } mf_fft_kind;
typedef enum mf_fft_norm { MF_NORM_BACKWARD, MF_NORM_ORTHO, MF_NORM_FORWARD } mf_fft_norm;
typedef enum mf_weak_kind { MF_WEAK_INT, MF_WEAK_FLOAT, MF_WEAK_COMPLEX } mf_weak_kind;

/* How matmul may compute. DEFAULT: f32 exactly for f32, tensor cores with f32 accumulation for 16-bit floats. */
typedef enum mf_compute { MF_COMPUTE_DEFAULT, MF_COMPUTE_TF32, MF_COMPUTE_COUNT } mf_compute;

enum { MF_CAST_SATURATE = 1 }; /* flags of mf_graph_cast */
/* Flags of the solvers. FULL: square orthogonal factors. RAW: QR as LAPACK leaves it. SYMMETRIC: not conjugated. */
enum { MF_UPPER = 1, MF_UNIT = 2, MF_TRANS = 4, MF_ADJOINT = 8, MF_FULL = 16, MF_RAW = 32, MF_SYMMETRIC = 64 };

MF_API mf_status mf_graph_new(mf_graph **out);
MF_API void mf_graph_free(mf_graph *graph);
MF_API mf_status mf_graph_error(const mf_graph *graph); /* first error of a builder; its text by mf_error_message */

/* Leaves. Inputs are bound in the order of creation. */
MF_API mf_node mf_graph_input(mf_graph *g, mf_dtype dtype, int ndim, const int64_t *shape);
MF_API mf_node mf_graph_constant(mf_graph *g, mf_dtype dtype, double re, double im);
/* A Python number: takes the dtype of what it meets, as NumPy does (NEP 50). */
MF_API mf_node mf_graph_number(mf_graph *g, mf_weak_kind kind, double re, double im);

/* 0, 1, …, n - 1 as i64. Costs no memory where it is computed with. */
MF_API mf_node mf_graph_arange(mf_graph *g, int64_t n);

/* Elementwise, with NumPy's broadcasting and promotion: mf_graph_add(g, x, y), mf_graph_gelu(g, x), … */
#define MF_OP(ENUM, name, arity, rule, real, integer, complex, doc) MF_OP_DECLARE_##arity(name)
#define MF_OP_DECLARE_1(name) MF_API mf_node mf_graph_##name(mf_graph *g, mf_node x);
#define MF_OP_DECLARE_2(name) MF_API mf_node mf_graph_##name(mf_graph *g, mf_node x, mf_node y);
#define MF_OP_DECLARE_3(name) MF_API mf_node mf_graph_##name(mf_graph *g, mf_node x, mf_node y, mf_node z);
#include "mathfuse/def/op.def"
#undef MF_OP
#undef MF_OP_DECLARE_1
#undef MF_OP_DECLARE_2
#undef MF_OP_DECLARE_3
MF_API mf_node mf_graph_op(mf_graph *g, mf_op op, int count, const mf_node *operands);
MF_API const char *mf_op_name(mf_op op);
MF_API int mf_op_arity(mf_op op);
MF_API const char *mf_op_doc(mf_op op);
MF_API mf_status mf_op_parse(mf_op *out, const char *name);

/* Round to dtype, to nearest even. A complex source must have a complex dtype. With MF_CAST_SATURATE finite
 * values and infinities beyond the range of fp8 or 16-bit floats become the largest finite one; else e4m3 gives NaN, others inf. */
MF_API mf_node mf_graph_cast(mf_graph *g, mf_node x, mf_dtype dtype, int flags);

/* Reduce over axes (negative ones count from the end; count 0 with axes NULL: all). Sum and prod of bool and i32 give
 * i64, mean of integers f64, any and all give bool. Empty max and min are MF_E_SHAPE. */
MF_API mf_node mf_graph_reduce(mf_graph *g, mf_reduce_op op, mf_node x, int count, const int *axes, int keepdims);

/* numpy.matmul: (…, m, k) by (…, k, n), batches broadcast, 1-D operands as there. k = 0 gives zeros. */
MF_API mf_node mf_graph_matmul(mf_graph *g, mf_node a, mf_node b);
MF_API mf_node mf_graph_matmul_ex(mf_graph *g, mf_node a, mf_node b, mf_compute compute);

/* Discrete Fourier transform over `count` distinct axes (numpy.fft's fftn family; irfft's last axis is axes[count-1]).
 * n: lengths, -1 for the input's (irfft: 2 (m - 1)); inputs are cut or zero-padded to them. */
MF_API mf_node mf_graph_fft(mf_graph *g, mf_fft_kind kind, mf_node x, int count, const int *axes, const int64_t *n,
                            mf_fft_norm norm);

/* Solvers over the last two axes, leading axes are batch. The node is the main result; the others follow by
 * mf_graph_result: index 1 is `info` for each of these: i32, one per matrix; 0 is fine, k > 0 as LAPACK counts, -1 where
 * the matrix holds NaN or infinity. A failed matrix' results are NaN, except for lu_factor's of a singular one. */
MF_API mf_node mf_graph_cholesky(mf_graph *g, mf_node a, int flags); /* L, or U with MF_UPPER */
/* A X = B by LU; b is (…, n, nrhs) or 1-D (n) */
MF_API mf_node mf_graph_solve(mf_graph *g, mf_node a, mf_node b);
MF_API mf_node mf_graph_cho_solve(mf_graph *g, mf_node factor, mf_node b, int flags); /* from cholesky's factor */
MF_API mf_node mf_graph_solve_triangular(mf_graph *g, mf_node a, mf_node b, int flags);
MF_API mf_node mf_graph_solve_symmetric(mf_graph *g, mf_node a, mf_node b, int flags); /* reads one triangle */
MF_API mf_node mf_graph_solve_tridiagonal(mf_graph *g, mf_node a, mf_node b);          /* reads three diagonals */
MF_API mf_node mf_graph_inv(mf_graph *g, mf_node a);
/* L and U of an m x n matrix with partial pivoting, in one. 2: pivots (i32, min(m, n)), row i was exchanged with row
 * pivots[i]. 3: the permutation's sign (i32). */
MF_API mf_node mf_graph_lu_factor(mf_graph *g, mf_node a);
MF_API mf_node mf_graph_lu_solve(mf_graph *g, mf_node lu, mf_node pivots, mf_node b, int flags); /* TRANS, ADJOINT */
/* Q of A = Q R, m x min(m, n) or with MF_FULL m x m; 2: R. With MF_RAW the reflectors below R, and 2: tau. */
MF_API mf_node mf_graph_qr(mf_graph *g, mf_node a, int flags);
/* Eigenvalues, ascending; 2: orthonormal vectors, as columns. One triangle is read. */
MF_API mf_node mf_graph_eigh(mf_graph *g, mf_node a, int flags);
/* Singular values, descending; 2: U, 3: V^H, square with MF_FULL. Results that are not asked for cost nothing. */
MF_API mf_node mf_graph_svd(mf_graph *g, mf_node a, int flags);
/* Eigenvalues of any square matrix, complex; 2: right eigenvectors of norm 1, as columns, complex. */
MF_API mf_node mf_graph_eig(mf_graph *g, mf_node a);
/* The x of least norm that makes A x - b least. 2: the rank (i32), counting singular values above rcond times the largest
 * (rcond < 0: the dtype's epsilon). 3: the singular values. */
MF_API mf_node mf_graph_lstsq(mf_graph *g, mf_node a, mf_node b, double rcond);
MF_API mf_node mf_graph_result(mf_graph *g, mf_node solver, int index);

/* Views. They cost nothing where the memory exists already. */
MF_API mf_node mf_graph_transpose(mf_graph *g, mf_node x, const int *permutation);
MF_API mf_node mf_graph_reshape(mf_graph *g, mf_node x, int ndim, const int64_t *shape); /* one extent may be -1 */
MF_API mf_node mf_graph_broadcast(mf_graph *g, mf_node x, int ndim, const int64_t *shape);
/* Element i of axis d is element start[d] + i*step[d] of x, for length[d] elements. */
MF_API mf_node mf_graph_slice(mf_graph *g, mf_node x, const int64_t *start, const int64_t *length, const int64_t *step);

/* Outputs are bound after the inputs, in the order of these calls. A node may be output more than once. */
MF_API mf_status mf_graph_output(mf_graph *g, mf_node x);

/* What is known about a node. shape has room for MF_MAX_DIMS. */
MF_API mf_status mf_graph_describe(const mf_graph *g, mf_node x, mf_dtype *dtype, int *ndim, int64_t *shape);
MF_API int mf_graph_inputs(const mf_graph *g);
MF_API int mf_graph_outputs(const mf_graph *g);
MF_API mf_status mf_graph_output_node(const mf_graph *g, int index, mf_node *out);

#ifdef __cplusplus
}
#endif
#endif
