/* Results that are unique but for a factor of modulus one for each vector: eigenvectors, singular vectors, Q and R. Before they
 * are compared, each vector is turned to the one that is expected; what belongs together turns together. */
#include "nodes.h"
#include "tune_data.h"

#include <math.h>

typedef struct place {
    int factor; /* the decomposition's node; -1: the output is unique, or no result of one */
    bool rows;  /* vectors are rows, and turn the other way */
    int64_t n;  /* vectors that are unique in this sense; more of them span what the others leave */
} place;

static int64_t smaller_side(const mfi_node *matrix)
{
    return mfi_min64(matrix->shape[matrix->ndim - 1], matrix->shape[matrix->ndim - 2]);
}

static place place_of(const mf_graph *g, int output)
{
    const mfi_node *node = &g->node[g->output[output]];
    bool first = node->kind == MFI_N_FACTOR;
    int factor = first ? g->output[output] : node->kind == MFI_N_RESULT ? node->src[0] : -1;
    int index = first ? 0 : node->u.result;
    if (factor < 0 || g->node[factor].kind != MFI_N_FACTOR || index == MFI_INFO)
        return (place){.factor = -1};
    const mfi_node *f = &g->node[factor];
    place p = {factor, false, smaller_side(&g->node[f->src[0]])};
    switch (f->u.factor.kind) {
    case MFI_EIGH:
        p.factor = index == 2 ? factor : -1;
        break;
    case MFI_SVD:
        p.factor = index >= 2 ? factor : -1;
        p.rows = index == 3;
        break;
    case MFI_QR:
        p.factor = f->u.factor.flags & MF_RAW ? -1 : factor;
        p.rows = index == 2;
        break;
    default:
        p.factor = -1;
    }
    return p;
}

typedef struct number {
    double re, im;
} number;

static number load(mf_dtype dtype, const char *at)
{
    return (number){mfi_tune_load(dtype, at),
                    mfi_is_complex(dtype) ? mfi_tune_load(dtype, at + mf_dtype_size(dtype) / 2) : 0};
}

static void store(mf_dtype dtype, char *at, number x)
{
    mfi_tune_store(dtype, at, x.re);
    if (mfi_is_complex(dtype))
        mfi_tune_store(dtype, at + mf_dtype_size(dtype) / 2, x.im);
}

/* A vector: `count` elements, `step` apart, at offset `first`. */
typedef struct line {
    int64_t first, step, count;
} line;

/* The factor of modulus one by which `got` differs from what is wanted; 1 where they are orthogonal. */
static number turn_between(const mf_tensor *want, const char *got, line v)
{
    const int64_t size = (int64_t)mf_dtype_size(want->dtype);
    number sum = {0, 0};
    for (int64_t i = 0; i < v.count; i++) {
        int64_t at = (v.first + i * v.step) * size;
        number w = load(want->dtype, (const char *)want->data + at), x = load(want->dtype, got + at);
        sum.re += x.re * w.re + x.im * w.im;
        sum.im += x.im * w.re - x.re * w.im;
    }
    double size_of_sum = hypot(sum.re, sum.im);
    return size_of_sum > 0 && isfinite(size_of_sum) ? (number){sum.re / size_of_sum, sum.im / size_of_sum}
                                                    : (number){1, 0};
}

static void turn_back(mf_dtype dtype, char *got, line v, number turn)
{
    const int64_t size = (int64_t)mf_dtype_size(dtype);
    for (int64_t i = 0; i < v.count; i++) {
        char *at = got + (v.first + i * v.step) * size;
        number x = load(dtype, at);
        store(dtype, at, (number){x.re * turn.re + x.im * turn.im, x.im * turn.re - x.re * turn.im});
    }
}

mf_status mfi_tune_turn(mfi_tune_turns *turns, const mf_graph *g, int output, const mf_tensor *want, char *got)
{
    const place p = place_of(g, output);
    if (p.factor < 0 || mf_tensor_elements(want) == 0)
        return MF_OK;
    const int rows = want->ndim - 2, cols = want->ndim - 1;
    int64_t matrices = mf_tensor_elements(want) / (want->shape[rows] * want->shape[cols]);
    bool known = turns->factor == p.factor && turns->count == matrices * p.n;
    if (!known) {
        mfi_tune_turns_free(turns);
        turns->value = mfi_alloc((size_t)(matrices * p.n) * sizeof *turns->value);
        if (!turns->value)
            return MFI_NO_MEMORY((size_t)(matrices * p.n) * sizeof *turns->value);
        turns->factor = p.factor;
        turns->count = matrices * p.n;
    }
    const int across = p.rows ? rows : cols, along = p.rows ? cols : rows;
    for (int64_t b = 0; b < matrices; b++)
        for (int64_t j = 0; j < p.n; j++) {
            line v = {mfi_tune_matrix(want, b) + j * want->strides[across], want->strides[along], want->shape[along]};
            double *own = turns->value[b * p.n + j];
            number turn = {own[0], p.rows ? -own[1] : own[1]};
            if (!known) {
                turn = turn_between(want, got, v);
                own[0] = turn.re;
                own[1] = p.rows ? -turn.im : turn.im;
            }
            turn_back(want->dtype, got, v, turn);
        }
    return MF_OK;
}

void mfi_tune_turns_free(mfi_tune_turns *turns)
{
    mf_free(turns->value);
    *turns = (mfi_tune_turns){.factor = -1};
}
