/* Graph nodes: what builders write and the planner reads. */
#ifndef MFI_NODES_H
#define MFI_NODES_H

#include "chain.h"

#define MFI_MAX_NODES 4096

typedef enum mfi_node_kind {
    MFI_N_INPUT,
    MFI_N_CONST,
    MFI_N_ARANGE,
    MFI_N_APPLY,
    MFI_N_CAST,
    MFI_N_REDUCE,
    MFI_N_MATMUL,
    MFI_N_FFT,
    MFI_N_SOLVE,
    MFI_N_FACTOR,
    MFI_N_RESULT,
    MFI_N_VIEW,
} mfi_node_kind;

typedef enum mfi_view_kind { MFI_V_PERMUTE, MFI_V_RESHAPE, MFI_V_BROADCAST, MFI_V_SLICE } mfi_view_kind;

typedef struct mfi_node {
    mfi_node_kind kind;
    mf_dtype dtype;
    int ndim;
    int64_t shape[MF_MAX_DIMS];
    int sources;
    int32_t src[3];
    union {
        int input; /* INPUT: position */
        struct {
            double re, im;
            bool weak; /* a Python number: dtype is I64, F64 or C128 until it meets another */
        } constant;
        mf_op op; /* APPLY; operands are promoted to `operand_dtype` first */
        struct {
            bool saturate;
        } cast;
        struct {
            mf_reduce_op op; /* not MEAN: the builder lowers it */
            uint32_t axes;   /* bit per source axis */
            bool keepdims;
        } reduce;
        mf_compute compute; /* MATMUL; both operands have 2 or more axes */
        struct {
            mf_fft_kind kind;
            mf_fft_norm norm;
            int count, axes[MF_MAX_DIMS];
            int64_t n[MF_MAX_DIMS]; /* transform length per entry of axes */
        } fft;
        struct {
            mfi_solver solver;
            int flags;
            bool vector; /* b is one vector */
        } solve;
        struct {
            mfi_factor_kind kind;
            int flags;
            bool vector; /* b is one vector */
            double rcond;
        } factor;
        int result; /* RESULT: index, 1 or more */
        struct {
            mfi_view_kind kind;
            int permutation[MF_MAX_DIMS];
            int64_t start[MF_MAX_DIMS], step[MF_MAX_DIMS];
        } view;
    } u;
    mf_dtype operand_dtype; /* APPLY; FACTOR: what it computes in */
} mfi_node;

struct mf_graph {
    mf_status error;
    char *message;
    int count, capacity, inputs, outputs, output_capacity;
    mfi_node *node;
    int32_t *output;
    int32_t *stored_as; /* after normalising: per output, the view of it whose axes the bound tensor has, or itself */
};

/* graph.c */
mf_node mfi_graph_add(mf_graph *g, const mfi_node *node);
/* Latch an error (the thread's message) and return MF_NODE_NONE. */
mf_node mfi_graph_latch(mf_graph *g, mf_status status);
mf_node mfi_graph_missing(mf_graph *g, const char *name, const char *argument); /* an argument is NULL */
/* The node behind a handle; NULL, with the error latched, if the graph failed before or the handle is not of it. */
const mfi_node *mfi_graph_get(mf_graph *g, mf_node x, const char *what);
mf_status mfi_graph_copy(mf_graph **out, const mf_graph *g);
void mfi_shape_text(const int64_t *shape, int ndim, char out[160]); /* "(8192, 512)" */

/* graph_factor.c: matrix axes of a factor's result (0, 1 or 2, their extents in shape) and its dtype; false: there is none. */
typedef struct mfi_factor_shape {
    int rank;
    int64_t shape[2];
    mf_dtype dtype;
} mfi_factor_shape;
mf_node mfi_factor_info(mf_graph *g, mf_node x, int index); /* mf_graph_result of a factor */
bool mfi_factor_result(const mf_graph *g, int node, int index, mfi_factor_shape *out);
int mfi_factor_batch(const mf_graph *g, int node); /* number of batch axes */

/* graph_linalg.c */
mf_dtype mfi_solver_dtype(mf_dtype dtype); /* what a solver computes in */
/* The batch axes of a and b, broadcast, then (rows, columns of b), or (rows) if b is a vector: 1-D, as in NumPy 2. */
mf_status mfi_right_side(mfi_node *node, const mfi_node *a, const mfi_node *b, int64_t rows, bool *vector,
                         const char *name);

/* graph_view.c: numpy broadcasting of two shapes into (ndim, shape); false if they do not fit. */
bool mfi_broadcast(int *ndim, int64_t *shape, int other_ndim, const int64_t *other);

#endif
