/* Matrix products of truth values: whether there is an l with a[i, l] and b[l, j]. A row of b is bits, 512 columns at a time; a row
 * of the result is the union of those that a names, done as soon as all are set. */
#include "matmul_cpu.h"

enum { WORDS = 8, COLUMNS = 64 * WORDS, DEPTH = 512, CHECK = 32 };

typedef struct bit_row {
    uint64_t word[WORDS];
} bit_row;

static bit_row columns_of(int64_t n)
{
    bit_row all = {{0}};
    for (int w = 0; w < WORDS; w++) {
        int64_t left = n - 64 * w;
        all.word[w] = left >= 64 ? ~UINT64_C(0) : left > 0 ? (UINT64_C(1) << left) - 1 : 0;
    }
    return all;
}

static void pack_row(bit_row *out, const int32_t *values, int64_t n)
{
    *out = (bit_row){{0}};
    for (int64_t j = 0; j < n; j += 64) {
        uint64_t word = 0;
        for (int64_t k = 0; k < mfi_min64(64, n - j); k++)
            word |= (uint64_t)(values[j + k] != 0) << k;
        out->word[j / 64] = word;
    }
}

static bool same(const bit_row *a, const bit_row *b)
{
    uint64_t differ = 0;
    for (int w = 0; w < WORDS; w++)
        differ |= a->word[w] ^ b->word[w];
    return !differ;
}

static void add_rows(bit_row *sum, const bit_row *rows, const int32_t *a, int64_t step, int64_t count)
{
    for (int64_t l = 0; l < count; l++) {
        uint64_t mask = -(uint64_t)(a[l * step] != 0);
        for (int w = 0; w < WORDS; w++)
            sum->word[w] |= rows[l].word[w] & mask;
    }
}

static void add_bits(int32_t *c, const bit_row *sum, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        c[j] |= (int32_t)(sum->word[j / 64] >> j % 64 & 1);
}

/* Columns [j, j + n) of c from rows [l, l + depth) of b. */
static void multiply_block(const mfi_gemm *g, int64_t l, int64_t depth, int64_t j, int64_t n)
{
    bit_row rows[DEPTH], all = columns_of(n);
    for (int64_t r = 0; r < depth; r++)
        pack_row(&rows[r], (const int32_t *)g->b + (l + r) * g->bk + j, n);
    for (int64_t i = 0; i < g->m; i++) {
        const int32_t *a = (const int32_t *)g->a + i * g->am + l * g->ak;
        bit_row sum = {{0}};
        for (int64_t r = 0; r < depth && !same(&sum, &all); r += CHECK)
            add_rows(&sum, rows + r, a + r * g->ak, g->ak, mfi_min64(CHECK, depth - r));
        add_bits((int32_t *)g->c + i * g->cm + j, &sum, n);
    }
}

static void multiply(const void *engine, const mfi_gemm *g)
{
    (void)engine;
    for (int64_t i = 0; i < g->m; i++)
        memset((int32_t *)g->c + i * g->cm, 0, (size_t)g->n * sizeof(int32_t));
    for (int64_t j = 0; j < g->n; j += COLUMNS)
        for (int64_t l = 0; l < g->k; l += DEPTH)
            multiply_block(g, l, mfi_min64(DEPTH, g->k - l), j, mfi_min64(COLUMNS, g->n - j));
}

const mfi_gemm_engine mfi_bits_gemm = {"bits", false, multiply, NULL, NULL, NULL};
