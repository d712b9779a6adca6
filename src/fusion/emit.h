/* Generated kernels: how one is laid out (emit_shape.c), and its text (emit_chain.c, emit_map.c). */
#ifndef MFI_EMIT_H
#define MFI_EMIT_H

#include "fusion.h"

typedef enum mfi_skeleton {
    MFI_SK_MAP,
    MFI_SK_TILES,
    MFI_SK_REDUCE,
    MFI_SK_GEMM,
    MFI_SK_GEMM_TILES,
    MFI_SK_GEMM_LANES,
    MFI_SK_GEMM_SMALL
} mfi_skeleton;

/* The compile-time side of a kernel. Sizes are run-time arguments, so problems that differ in them only share kernels.
 */
typedef struct mfi_shape {
    mfi_skeleton skeleton;
    int vector;           /* points of the last dim that a thread takes at once */
    int threads, items;   /* per block; vectors in flight per thread */
    int lanes;            /* REDUCE: threads of a row; GEMM_LANES: products of a block */
    bool cached, columns; /* REDUCE: see reduce_rows.cuh */
    bool tail;            /* MAP: points are no multiple of vector */
    bool wide;            /* 64-bit indices */
    bool through;         /* the chain's only store goes on in the kernel, not to memory */
    bool results;         /* all of its stores do, as a struct */
    bool widened;         /* the kernel loads the operands, and hands them over in their compute types */
    int tile_dim;         /* TILES: the dim along which the other operands are contiguous; GEMM_LANES: the batch */
    int tile_m, tile_n,
        tile_k; /* GEMM, GEMM_TILES, GEMM_LANES: a block's share of the result; not LANES: its steps along k */
    int own_m, own_n, parts; /* GEMM_LANES, GEMM_SMALL: a thread's share of it; LANES: threads that share k */
    int a_vector, b_vector;  /* GEMM_TILES: elements of the factors that are copied at once */
    bool a_rows, b_rows;     /* GEMM_TILES: a lies along k, b along n */
    double share;            /* GEMM, GEMM_TILES, GEMM_LANES: of the peak rate that is estimated */
    /* run-time side */
    int64_t columns_count, splits, chunk; /* vectors of a row, blocks that share it, vectors of each */
    int launches;                         /* splits > 1: one a phase, and one to finish */
} mfi_shape;

bool mfi_shape_needs_wide(const mfi_problem *p);
/* May reorder p's dims for the kernel's good. */
void mfi_shape_choose(mfi_shape *layout, mfi_problem *p, const mfi_caps *caps);
/* emit_gemm.c: the part of mfi_shape_choose for products; how the kernel is called. */
/* rank: of the tiles, among those for the dtype by estimate. False: there are not so many. */
bool mfi_shape_choose_gemm(mfi_shape *layout, const mfi_problem *p, const mfi_caps *caps, int rank);
/* What products side by side are estimated to take, without what they store. */
double mfi_lanes_us(const mfi_shape *layout, const mfi_problem *p, const mfi_caps *caps);
void mfi_emit_gemm_shared(mfi_text *out, const mfi_problem *p, const mfi_shape *layout);
void mfi_emit_gemm_call(mfi_text *out, const mfi_problem *p, const mfi_shape *layout, const char *block,
                        const char *shared);
/* Points of the last dim that every operand can be accessed in at once. */
int mfi_shape_vector(const mfi_problem *p);
/* Within a kernel that does other things, too: one launch, `threads` of a block, no shared memory and no barriers. False: there is no
 * such kernel. */
bool mfi_shape_choose_within(mfi_shape *layout, mfi_problem *p, const mfi_caps *caps, int threads);
/* Other blocks than chosen. MF_E_UNSUPPORTED: the kernel cannot have such. */
mf_status mfi_shape_set_threads(mfi_shape *layout, int threads);
/* Blocks of launch k. */
int64_t mfi_shape_grid(const mfi_shape *layout, const mfi_problem *p, int launch);
/* Scratch memory of a split reduction. */
size_t mfi_shape_workspace(const mfi_shape *layout, const mfi_problem *p);

/* Kernel arguments in 8-byte words, laid out as chain_args and gemm_args of src/device; data pointers are left 0. */
#define MFI_MAX_WORDS 500
typedef struct mfi_words {
    int count;
    int data;       /* where the operands' pointers lie, one word each */
    int work, a, b; /* the workspace; GEMM: the factors */
    uint64_t word[MFI_MAX_WORDS];
} mfi_words;
int mfi_words_needed(const mfi_problem *p);
/* A view's strides over at least one batch dim, then over `rank` dims of a matrix, `transposed` in the other order. */
void mfi_words_strides(mfi_words *words, const mfi_problem *p, const mfi_view *v, int rank, bool transposed);
void mfi_words_fill(mfi_words *words, const mfi_shape *layout, const mfi_problem *p);

/* Where an operand's neighbours along the last dim lie. */
typedef enum mfi_access { MFI_ACCESS_UNIT, MFI_ACCESS_REPEAT, MFI_ACCESS_STRIDED } mfi_access;
mfi_access mfi_operand_access(const mfi_problem *p, int operand);
/* Bytes to which `vector` neighbouring elements are aligned, wherever they begin; at most 16. */
int mfi_view_vector_alignment(const mfi_view *view, const mfi_problem *p, int vector);
bool mfi_chain_has_extents(const mfi_chain *chain);
/* No reductions, and every operation is defined for its dtype. */
bool mfi_chain_is_elementwise(const mfi_chain *chain);
/* Exchanges two dims of the domain and of the chain's operands. */
void mfi_shape_swap_dims(mfi_problem *p, int x, int y);
/* A store of the row, not of its points: it does not move along the reduced dims. */
bool mfi_is_row_store(const mfi_problem *p, const mfi_instr *in);

/* emit_chain.c: the chain struct. */
/* Whether an operand is loaded, or stored; `through`: what the chain stores goes on in the kernel, not to memory. */
bool mfi_chain_reaches_memory(const mfi_chain *chain, int operand, bool through);
/* The value that a store rounds, once: what a cast to the result's own dtype takes. */
int mfi_emit_stored(const mfi_chain *c, const mfi_instr *store, bool *saturate);
void mfi_emit_chain(mfi_text *out, const mfi_problem *p, const mfi_shape *layout);
const char *mfi_emit_storage(mf_dtype dtype); /* "mf::bf16" */
const char *mfi_emit_ctype(mfi_ctype ctype);  /* "float" */

/* emit_map.c: the translation unit of launch k. Caller frees out->text with mf_free. */
mf_status mfi_emit(mfi_source *out, const mfi_problem *p, const mfi_shape *layout, int launch);
/* And its pieces: the header of the skeleton, "map"; chain and argument types; the size of the shared memory as a C++
 * expression, nothing for none; the call, with expressions for this block, all blocks and the shared memory. */
const char *mfi_emit_skeleton(const mfi_shape *layout);
void mfi_emit_types(mfi_text *out, const mfi_problem *p, const mfi_shape *layout);
void mfi_emit_shared(mfi_text *out, const mfi_problem *p, const mfi_shape *layout, int launch);
void mfi_emit_call(mfi_text *out, const mfi_problem *p, const mfi_shape *layout, int launch, const char *block,
                   const char *blocks, const char *shared);

/* emit_device.c: a kernel as device code of provider.h. Its arguments are written into the text: words, but for those that
 * are addresses of views (of a NULL text), or C++ expressions. */
typedef struct mfi_device_word {
    int at;
    const mfi_view *view;
    const char *text;
} mfi_device_word;
enum { MFI_DEVICE_WORDS = 3 * MFI_MAX_OPERANDS + 4 };
typedef struct mfi_device_unit {
    const char *skeleton;  /* as in mfi_device_code */
    mfi_text types;        /* what the call uses; kernel_args */
    mfi_text call;         /* of a, tile, tiles, shared; no semicolon */
    mfi_text shared_bytes; /* a constant expression; empty: none, and no barriers */
    int threads;
    int64_t tiles;
    const mfi_words *words;
    mfi_device_word word[MFI_DEVICE_WORDS];
    int replaced;             /* how many of `word` */
    int doubles, doubles_end; /* words that are doubles */
} mfi_device_unit;
/* For a unit that is zeros but for its words; the view of one, or an expression for it, in place of word `at`. */
void mfi_device_place(mfi_device_unit *unit, int at, const mfi_view *view, const char *text);
/* For the operands of a chain, whose pointers begin at word `at`. */
void mfi_device_operands(mfi_device_unit *unit, int at, const mfi_chain *chain, bool through);
/* Frees the unit's texts. */
mf_status mfi_emit_device_unit(mfi_device_code *out, mfi_device_unit *unit, const char *const *slots);
/* Launch k of a map, a reduction or a product. */
mf_status mfi_emit_device(mfi_device_code *out, const mfi_problem *p, const mfi_shape *layout, int launch,
                          const mfi_words *words, const char *const *slots, const char *workspace);

/* ---- products on sm_90a (emit_gemm90.c, gemm_sm90.cuh) ---- */

enum { MFI_GEMM90_VARIANTS = 20, MFI_GEMM90_MAP_WORDS = 16, MFI_GEMM90_RESULTS = 3 };

/* How the kernel gets an operand of the chain. */
typedef enum mfi_port {
    MFI_PORT_NONE,
    MFI_PORT_SCALAR,
    MFI_PORT_ACROSS,
    MFI_PORT_DOWN,
    MFI_PORT_TILE,
    MFI_PORT_DIRECT
} mfi_port;

typedef struct mfi_gemm90 {
    int bm, bn, stages, cluster, buffers;
    bool pingpong, a_mn, b_mn, twin; /* twin: two products of one left factor */
    bool batched;                    /* along dim 0 */
    mfi_port port[MFI_MAX_OPERANDS];
    int number[MFI_MAX_OPERANDS];            /* of its port */
    int scalars, across, down;               /* how many */
    int tile;                                /* the operand that is one, -1: none */
    int results, result[MFI_GEMM90_RESULTS]; /* the operands that are stored */
    int largest;                             /* the operand that the largest absolute value goes to; -1 */
    int parts;                               /* chunks of a staging buffer */
    bool rows;                               /* it reduces along rows */
    int wide;                                /* blocks that share rows; 0: none reduces along them */
    int values;                              /* reduced along a row in one round, at most */
    int64_t tiles_m, tiles_n, group, clusters, batches;
    size_t shared;
    double us; /* that its tiles are estimated to take */
    mfi_shape layout;
} mfi_gemm90;
/* Elements between lines of `inner` for a tensor map; -1: it cannot be. */
int64_t mfi_gemm90_ld(int64_t stride, int64_t inner, int64_t outer, mf_dtype dtype);
/* The problem as the kernel sees it, for the functions below; freed by mfi_problem_free. The largest absolute value
 * beside a product becomes a store of these values, of axis 1. */
mf_status mfi_gemm90_flatten(mfi_problem **out, const mfi_problem *p);
/* The configuration of that rank by estimate. False: the reason is in `bid`, MFI_R_SIZE past the last. */
bool mfi_gemm90_choose(mfi_gemm90 *g, const mfi_problem *p, const mfi_caps *c, int rank, mfi_bid *bid);
mf_status mfi_emit_gemm90(mfi_source *out, const mfi_problem *p, const mfi_gemm90 *g);
/* Argument words: tensor maps, left 0, of the left factor, the right, the tile operand, the results and a twin's right, then
 * what follows; words->data: the operands' pointers. */
int mfi_gemm90_maps(const mfi_gemm90 *g);
/* Bytes of an element of the widest result, or of the tile operand. */
int mfi_gemm90_widest(const mfi_gemm90 *g, const mfi_problem *p);
/* Columns of a chunk of staging. */
int mfi_gemm90_chunk(const mfi_gemm90 *g, const mfi_problem *p);
mf_status mfi_gemm90_words(mfi_words *words, const mfi_problem *p, const mfi_gemm90 *g);

/* ---- products of few rows or columns (emit_gemm_skinny.c, gemm_skinny.cuh) ---- */

enum { MFI_GEMM_SKINNY_VARIANTS = 10 };

typedef struct mfi_gemm_skinny {
    int m, n, k, stages, across, along, split, resident; /* see gemm_skinny_config; blocks of a multiprocessor */
    bool b_rows;
    int64_t blocks;
    size_t shared;
    double us; /* that it is estimated to take */
    mfi_shape layout;
} mfi_gemm_skinny;
/* The configuration of that rank by estimate; p is transposed where columns are fewer than rows. False: the reason is in
 * `bid`, MFI_R_SIZE past the last. */
bool mfi_gemm_skinny_choose(mfi_gemm_skinny *g, mfi_problem *p, const mfi_caps *c, int rank, mfi_bid *bid);
/* Its arguments are those of mfi_words_fill. */
mf_status mfi_emit_gemm_skinny(mfi_source *out, const mfi_problem *p, const mfi_gemm_skinny *g);

/* ---- small systems (emit_solve.c, solve_batch.cuh) ---- */

typedef enum mfi_solve_kind {
    MFI_SOLVE_CHOLESKY,
    MFI_SOLVE_LU,
    MFI_SOLVE_WITH_FACTOR,
    MFI_SOLVE_LOWER,
    MFI_SOLVE_UPPER
} mfi_solve_kind;

typedef struct mfi_solve_shape {
    mfi_solve_kind kind;
    int n, sides; /* that the kernel is made for; at least those of the problem */
    int lanes;    /* solve_rows_batch.cuh, for exactly n and sides: of a matrix; 0: another */
    int warps;    /* solve_tiles_batch.cuh, likewise; both 0: solve_batch.cuh */
    int resident; /* blocks of a multiprocessor that registers are to suffice for; 0: as the compiler likes */
    bool transpose, conjugate, unit; /* how the matrix is read, and a factor written */
    int group, threads;              /* of a matrix, of a block */
    size_t shared;
    int64_t items, blocks;
} mfi_solve_shape;
/* False: the reason is in `bid`. */
bool mfi_solve_shape_choose(mfi_solve_shape *s, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid);
const char *mfi_solve_skeleton(const mfi_solve_shape *s); /* its header, and the template in it */
void mfi_emit_solve_types(mfi_text *out, const mfi_problem *p, const mfi_solve_shape *s); /* batch */
mf_status mfi_emit_solve(mfi_source *out, const mfi_problem *p, const mfi_solve_shape *s);
/* words->data: addresses of a, b, x and info. */
void mfi_solve_words(mfi_words *words, const mfi_problem *p, const mfi_solve_shape *s);

/* The address words of a, b, x and info, and the rest of a device unit. */
mf_status mfi_emit_solve_device(mfi_device_code *out, const mfi_problem *p, const mfi_solve_shape *s,
                                const mfi_words *words, const char *const *slots);

/* ---- several steps over the items of a batch (emit_together.c) ---- */

enum { MFI_TOGETHER_PLACES = 48 };

typedef struct mfi_together_shape {
    int threads, items, resident; /* of a block; at least so many blocks of a multiprocessor */
    int64_t batch, blocks;
    size_t work, shared; /* bytes: of the part that needs most; with what parts hand on */
    int places;          /* addresses that the kernel gets: of slots, and how many bytes on the next item is */
    struct {
        int16_t slot;
        int64_t step;
    } place[MFI_TOGETHER_PLACES];
    double us; /* that its parts are estimated to take beside the memory's time */
} mfi_together_shape;
/* False: the reason is in `bid`. */
bool mfi_together_choose(mfi_together_shape *s, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid);
/* Its arguments: an address for each place, then the batch. */
mf_status mfi_emit_together(mfi_source *out, const mfi_problem *p, const mfi_together_shape *s, const mfi_caps *c);

/* ---- systems and decompositions of small matrices (emit_batch.c) ---- */

/* A unit of one kernel, mf_NAME_…, over device/SKELETON.cuh; types: batch. resident: blocks of a multiprocessor that registers leave
 * room for, 0: as many as they happen to. */
mf_status mfi_emit_batch(mfi_source *out, const char *name, const char *skeleton, const mfi_text *types, int threads,
                         int resident);
/* The sizes, so many addresses (words->data) and the batch dims, at least one. */
void mfi_words_batch(mfi_words *words, const mfi_problem *p, const int64_t *sizes, size_t count, int addresses);

/* ---- QR of small matrices (emit_qr.c, qr_batch.cuh) ---- */

typedef struct mfi_qr_shape {
    int rows;           /* that the kernel is made for */
    int group, threads; /* of a matrix, each a column; of a block */
    size_t shared;
    int64_t inner, items, blocks; /* inner: columns of Q, rows of R */
} mfi_qr_shape;
/* False: the reason is in `bid`. */
bool mfi_qr_shape_choose(mfi_qr_shape *s, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid);
void mfi_emit_qr_types(mfi_text *out, const mfi_problem *p, const mfi_qr_shape *s); /* batch */
mf_status mfi_emit_qr(mfi_source *out, const mfi_problem *p, const mfi_qr_shape *s);
/* words->data: addresses of a, q, r and info. */
void mfi_qr_words(mfi_words *words, const mfi_problem *p, const mfi_qr_shape *s);

/* ---- Hermitian eigenproblems and singular values (emit_jacobi.c, eigen_batch.cuh, svd_batch.cuh) ---- */

typedef struct mfi_jacobi_shape {
    bool eigen;                 /* or singular values */
    int rows, columns, carried; /* that the kernel is made for; rows of V below the matrix's */
    int group, threads;         /* of a matrix, each two columns; of a block */
    int resident;               /* blocks of a multiprocessor */
    size_t shared;
    int64_t items, blocks;
    double us; /* that rounds of rotations are estimated to take */
} mfi_jacobi_shape;
/* False: the reason is in `bid`. */
bool mfi_jacobi_shape_choose(mfi_jacobi_shape *s, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid);
const char *mfi_jacobi_skeleton(const mfi_jacobi_shape *s); /* its header, and the template in it */
void mfi_emit_jacobi_types(mfi_text *out, const mfi_problem *p, const mfi_jacobi_shape *s); /* batch */
mf_status mfi_emit_jacobi(mfi_source *out, const mfi_problem *p, const mfi_jacobi_shape *s);
void mfi_jacobi_words(mfi_words *words, const mfi_problem *p, const mfi_jacobi_shape *s);
/* Whose addresses are at words->data: how many, at most 5. */
int mfi_jacobi_views(const mfi_view **views, const mfi_factor *f);

/* ---- transforms (emit_fft.c) ---- */

/* What a kernel of an FFT or an FFT_PAIR does, in order: a map, a first transform and its chain, each NULL where there is none;
 * a transform and its chain. */
typedef struct mfi_fft_parts {
    const mfi_problem *before, *first, *last;
} mfi_fft_parts;
mfi_fft_parts mfi_fft_parts_of(const mfi_problem *p);

/* The compile-time side of it. */
typedef struct mfi_fft_shape {
    int n, elements, ffts, threads,
        resident;       /* elements of a thread, signals and threads of a block, blocks of a multiprocessor */
    bool split, beside; /* see fft_block.cuh */
    bool pair;          /* two blocks of a cluster share a signal: fft_pair.cuh */
    size_t shared;      /* bytes at least as many as it needs */
    int64_t table;      /* entries, at least as many */
    int64_t blocks;
    mfi_shape middle, last; /* how the chains are laid out */
} mfi_fft_shape;
/* False: the reason is in `bid`. */
/* For bid->variant, less than MFI_FFT_VARIANTS. */
enum { MFI_FFT_VARIANTS = 9 };
bool mfi_fft_shape_choose(mfi_fft_shape *shape, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid);
/* The unit has two kernels: `name`, and `name`_table that fills the table of its transforms, 256 entries a block. */
mf_status mfi_emit_fft(mfi_source *out, const mfi_problem *p, const mfi_fft_shape *shape);
/* Argument words; the places of pointers. */
typedef struct mfi_fft_words {
    int in, table;
    int scale;                /* two doubles */
    int before, middle, last; /* where the chains' operands' pointers begin; -1: no such chain */
    mfi_words words;
} mfi_fft_words;
/* Bytes of the accesses whose neighbours do not lie side by side, along the axis or, `beside`, across signals. */
int64_t mfi_fft_strided_bytes(const mfi_problem *p, bool beside);
mf_status mfi_fft_words_fill(mfi_fft_words *words, const mfi_problem *p, const mfi_fft_shape *shape);
/* emit_fft_device.c: as device code. Launch 0 fills the table, launch 1 transforms. table: an expression of its address. */
mf_status mfi_emit_fft_device(mfi_device_code *out, const mfi_problem *p, const mfi_fft_shape *shape,
                              const mfi_fft_words *words, int launch, const char *const *slots, const char *table);
/* The pieces of mfi_emit_fft: the transforms `first` and `second`; these, chains and kernel_args; the call, with an expression
 * for this block. */
void mfi_emit_fft_transforms(mfi_text *out, const mfi_problem *p, const mfi_fft_shape *shape);
void mfi_emit_fft_types(mfi_text *out, const mfi_problem *p, const mfi_fft_shape *shape);
void mfi_emit_fft_call(mfi_text *out, const mfi_problem *p, const mfi_fft_shape *shape, const char *block);

#endif
