/* The step: one anchor with a chain of scalar code on its result. This is what the planner hands to providers.
 *
 * A step runs over a *domain*, a box of shape[0..ndim) (row-major; the last dim varies fastest). Its operands are
 * strided views of numbered buffers ("slots"), with one stride per domain dim; a stride of 0 repeats. A chain is a list
 * of instructions in SSA form: instruction i defines value i. */
#ifndef MFI_CHAIN_H
#define MFI_CHAIN_H

#include "core.h"

#define MFI_MAX_INSTR 96
#define MFI_MAX_OPERANDS 24

/* A strided view of a slot. Which dims the strides belong to depends on who holds the view. */
typedef struct mfi_view {
    int16_t slot; /* index into the plan's buffers; -1: absent */
    mf_dtype dtype;
    /* bytes to which the address of element 0 is known to be aligned (power of two, ≤ 256) */
    int32_t alignment;
    int64_t offset; /* of element 0,…,0, in elements */
    int64_t strides[MF_MAX_DIMS];
} mfi_view;

typedef enum mfi_instr_kind {
    MFI_ACC,    /* the anchor's result at this domain point (MATMUL, FFT); at most one, first */
    MFI_LOAD,   /* operand `operand`, widened to its compute type; outside `extent` it reads as 0 */
    MFI_CONST,  /* re, im */
    MFI_INDEX,  /* the position along domain dim `axis`, as i64 */
    MFI_APPLY,  /* op of op.def on a, b, c, in compute type `ctype` (result type: see rule) */
    MFI_CAST,   /* a converted from `from` and rounded to `dtype` (saturate: fp8 and 16-bit), then widened again */
    MFI_REDUCE, /* reduce a over the domain's last nreduce dims; a row value afterwards */
    MFI_STORE,  /* a, rounded to the operand's dtype, into operand `operand` */
    MFI_SUM_K,  /* MATMUL: the first (axis 0) or second (axis 1) operand summed over k */
    MFI_INSTR_KINDS
} mfi_instr_kind;

typedef struct mfi_instr {
    uint8_t kind;     /* mfi_instr_kind */
    uint8_t ctype;    /* compute type of the value (APPLY with rule BOOL: I32; see `from` for the operands') */
    uint8_t from;     /* APPLY, CAST: compute type of the operands */
    uint8_t dtype;    /* CAST: the dtype rounded to; LOAD, STORE: unused (the operand's) */
    uint8_t saturate; /* CAST, STORE */
    uint8_t level;    /* 0: one value per domain point; k: a row value, after the k-th reduction phase */
    uint8_t axis;     /* INDEX */
    uint8_t reduce;   /* REDUCE: mf_reduce_op (MEAN is lowered to SUM and a division) */
    int16_t op;       /* APPLY: mf_op */
    int16_t operand;  /* LOAD, STORE: index into operands */
    int16_t a, b, c;  /* values; -1 where unused */
    double re, im;    /* CONST */
} mfi_instr;

/* extent[d] >= 0: the operand has only so many elements along domain dim d; reads beyond give 0 (zero padding). -1: all. */
typedef struct mfi_operand {
    mfi_view view;
    int64_t extent[MF_MAX_DIMS];
} mfi_operand;

/* Evaluation order with reductions: phase 0 evaluates what REDUCE instructions of level 1 need, over the row; then level-1 row
 * values are known; phase 1 feeds level-2 reductions; … the last phase evaluates stores. Element values may be recomputed
 * in each phase. A row value has the same value for all points that differ only in the last nreduce dims.
 * MATMUL: nreduce may be 1, along rows of the result (pair_rows.c). Else it is 0, and phases 1, if something is reduced beside the
 * product, over those dims along which the operand that stores it has stride 0 (beside.c). */
typedef struct mfi_chain {
    int count, operands, phases; /* phases: number of reduction levels, 0 for a plain map */
    mfi_instr instr[MFI_MAX_INSTR];
    mfi_operand operand[MFI_MAX_OPERANDS];
} mfi_chain;

/* a REDUCE is a MAP with nreduce > 0; an FFT_PAIR is an FFT step of one axis with the step that makes its input; a MATMUL_PAIR has
 * two products of one left factor, the second one (ACC of axis 1) with the right factor of `head`; TOGETHER is several steps over the
 * items of one batch, one after the other for each item. */
typedef enum mfi_anchor {
    MFI_MAP,
    MFI_MATMUL,
    MFI_FFT,
    MFI_SOLVE,
    MFI_FFT_PAIR,
    MFI_FACTOR,
    MFI_MATMUL_PAIR,
    MFI_TOGETHER,
    MFI_ANCHOR_COUNT
} mfi_anchor;

/* D[batch, m, n] = chain(sum_k A[batch, m, k] B[batch, k, n]). The domain is batch dims, then m, n. Sum in `acc`. */
typedef struct mfi_matmul {
    int64_t m, n, k;
    /* strides: batch dims (ndim - 2 of them), then [ndim-2] for m (b: k), [ndim-1] for k (b: n) */
    mfi_view a, b;
    mfi_ctype acc;
    mf_compute compute;
} mfi_matmul;

/* out = scale * transform(in) over the last `naxes` dims of the domain; the domain is the output's shape.
 * `in` has in_shape along those dims and the domain's batch dims otherwise. in_shape already equals the transform's input
 * lengths (C2R: n/2+1 along the last), except where the input is shorter: then it reads as 0 beyond in_extent. */
typedef struct mfi_fft {
    mf_fft_kind kind;
    int naxes;
    int64_t n[MF_MAX_DIMS];         /* transform lengths, per axis */
    int64_t in_shape[MF_MAX_DIMS];  /* per axis: what the transform reads */
    int64_t in_extent[MF_MAX_DIMS]; /* per axis: what exists */
    mfi_view in;                    /* strides per domain dim; dtype may be real for a complex transform, or narrower */
    bool f64;                       /* precision of the arithmetic */
    double scale;
} mfi_fft;

typedef enum mfi_solver {
    MFI_CHOLESKY,
    MFI_LU_SOLVE,
    MFI_CHO_SOLVE,
    MFI_TRSM,
    MFI_POSV, /* Cholesky and the solution, the factor is not wanted; made by mfi_pair_solve */
    MFI_SOLVER_COUNT
} mfi_solver;

/* Dense solvers over a batch: domain is the batch dims. Matrix views have ndim + 2 strides: batch, rows, columns. */
typedef struct mfi_solve {
    mfi_solver solver;
    int flags; /* MF_UPPER, MF_UNIT, MF_TRANS, MF_ADJOINT */
    int64_t n, nrhs;
    mfi_ctype ctype;  /* F32, F64, C64, C128 */
    mfi_view a, b;    /* inputs; b.slot = -1 for cholesky. Never written. dtype may be narrower than ctype */
    mfi_view x, info; /* results; slot -1: not wanted. info strides: batch only */
} mfi_solve;

typedef enum mfi_factor_kind {
    MFI_LU,
    MFI_LU_APPLY, /* solve with factors that exist */
    MFI_INVERSE,
    MFI_SYMMETRIC_SOLVE,
    MFI_TRIDIAGONAL_SOLVE,
    MFI_QR,
    MFI_EIGH,
    MFI_SVD,
    MFI_LEAST_SQUARES,
    MFI_EIG,
    MFI_FACTOR_COUNT
} mfi_factor_kind;

enum { MFI_FACTOR_INPUTS = 3, MFI_FACTOR_RESULTS = 4, MFI_INFO = 1 /* the result that is info */ };

/* What is one matrix, vector (rank 1: cols is 1) or number (rank 0: both are 1) for each item of the batch. */
typedef struct mfi_factor_operand {
    mfi_view view; /* strides: batch, then `rank` of them; slot -1: absent, or not wanted */
    int rank;
    int64_t rows, cols;
} mfi_factor_operand;

/* Decompositions, and solvers that are none of mfi_solver: domain is the batch dims. graph_factor.c lists operands. */
typedef struct mfi_factor {
    mfi_factor_kind kind;
    int flags;
    int64_t m, n, nrhs; /* of the first input, m x n; nrhs is 0 without a right-hand side */
    mfi_ctype ctype;    /* F32, F64, C64, C128: the inputs' (not that of complex results of real ones) */
    double rcond;       /* LEAST_SQUARES: singular values up to rcond times the largest count as 0 */
    mfi_factor_operand in[MFI_FACTOR_INPUTS], out[MFI_FACTOR_RESULTS];
} mfi_factor;

enum { MFI_TOGETHER_PARTS = 12, MFI_TOGETHER_OWN = 12 };

/* The domain is the batch, one dim. Parts are steps as they were, in their order, each with the batch as its first dim or the
 * first factor of it; freed with their owner. `own`: slots that only they use, contiguous, with so many bytes for an item. */
typedef struct mfi_together {
    int parts, owns;
    int64_t bytes; /* of the other slots, each once */
    struct mfi_problem *part[MFI_TOGETHER_PARTS];
    struct {
        int16_t slot;
        int64_t bytes;
    } own[MFI_TOGETHER_OWN];
} mfi_together;

typedef struct mfi_problem {
    mfi_anchor anchor;
    /* FFT_PAIR: a map, or an FFT or FFT_PAIR of the same axis, with as many dims, whose chain's only store is what u.fft.in
     * reads. MATMUL with phases: the product alone, whose head is the reduction alone. Else NULL. Freed with its owner, by
     * mfi_problem_free. */
    struct mfi_problem *head;
    int ndim, nreduce;
    int64_t shape[MF_MAX_DIMS];
    mfi_chain chain; /* MATMUL and FFT: starts with ACC and ends in at least one STORE. SOLVE, FACTOR: empty */
    union {
        mfi_matmul matmul;
        mfi_fft fft;
        mfi_solve solve;
        mfi_factor factor;
        mfi_together together;
    } u;
} mfi_problem;

/* chain.c */
enum { MFI_MOST_VIEWS = MFI_MAX_OPERANDS + MFI_FACTOR_INPUTS + MFI_FACTOR_RESULTS };
/* collapse.c: the views of a step of one anchor (no pair, no TOGETHER); how many. Absent ones are among them. */
int mfi_problem_views(mfi_problem *p, mfi_view *out[MFI_MOST_VIEWS]);
/* The index of a TOGETHER's own slot, or -1. */
int mfi_together_own(const mfi_together *t, int slot);
/* together.c: a part, the batch its first dim, for so many items from any on; freed by mfi_problem_free. */
mf_status mfi_together_items(mfi_problem **out, const mfi_problem *together, int part, int64_t items);
void mfi_problem_free(mfi_problem *p);
mfi_problem *mfi_problem_copy(const mfi_problem *p); /* NULL: out of memory */
/* The terms that a transform of one axis gives. Its domain has fewer along the axis where only the first ones are stored. */
int64_t mfi_fft_terms(const mfi_fft *f);
bool mfi_fft_is_narrow(const mfi_problem *p);
int mfi_op_arity(int op);
bool mfi_op_defined(mf_op op, mfi_ctype ctype);
const char *mfi_ctype_name(mfi_ctype ctype);      /* "f32" … */
int64_t mfi_problem_points(const mfi_problem *p); /* product of shape */
int64_t mfi_problem_rows(const mfi_problem *p);   /* without the last nreduce dims */
/* distinct bytes touched, stride 0 counted once */
int64_t mfi_view_bytes(const mfi_view *view, int ndim, const int64_t *shape);
void mfi_chain_text(const mfi_problem *p, mfi_text *out);   /* "gelu(acc + in2)", for explain and refusals */
void mfi_problem_text(const mfi_problem *p, mfi_text *out); /* "matmul bf16 8192x512x512 …" */
const char *mfi_factor_name(mfi_factor_kind kind);          /* "lu_factor" … */
double mfi_factor_flops(const mfi_factor *f);               /* of one matrix, roughly */
/* The chain is just "store the anchor's result": *store is the STORE's operand. */
bool mfi_chain_is_store(const mfi_chain *chain, const mfi_operand **store);

#endif
