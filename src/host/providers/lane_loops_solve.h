/* Factorisations and substitutions over vectors of matrices, for element type T; included by lane_loops.c after
 * lane_loops_move.h. The operations on an element, and their order, are those of ref_solve_loops.h. */
#undef MASK
typedef INTEGER FN(mask) __attribute__((vector_size(VECTOR_BYTES), may_alias));
#define MASK FN(mask)

INLINE V FN(select)(MASK where, V yes, V no)
{
    return (V)(((MASK)yes & where) | ((MASK)no & ~where));
}

INLINE V FN(magnitude)(V x)
{
    return (V)((MASK)x & SIGN_OFF);
}

/* The first failure of a lane counts. */
INLINE void FN(note)(MASK *info, MASK failed, int64_t k)
{
    *info |= failed & (*info == 0) & (INTEGER)(k + 1);
}

/* ---- c -= a b, in the order of k ---- */

/* Element (i, k) of a is a[i * a_row + k * a_k], (k, j) of b is b[k * b_k + j * b_col], (i, j) of c is c[i * c_row + j]. */
typedef struct FN(product) {
    V *c;
    const V *a, *b;
    int64_t c_row, a_row, a_k, b_k, b_col, count;
} FN(product);

INLINE void FN(tile)(const int rows, const int cols, const FN(product) * p, int64_t i0, int64_t j0)
{
    V sum[TILE][TILE];
    V *c = p->c + i0 * p->c_row + j0;
    const V *a = p->a + i0 * p->a_row, *b = p->b + j0 * p->b_col;
    const int64_t a_row = p->a_row, a_k = p->a_k, b_k = p->b_k, b_col = p->b_col;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            sum[i][j] = c[i * p->c_row + j];
    for (int64_t k = 0; k < p->count; k++, a += a_k, b += b_k) {
        V row[TILE];
        for (int j = 0; j < cols; j++)
            row[j] = b[j * b_col];
        for (int i = 0; i < rows; i++) {
            const V f = a[i * a_row];
            for (int j = 0; j < cols; j++)
                sum[i][j] -= f * row[j];
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            c[i * p->c_row + j] = sum[i][j];
}

#define TILE_CASE(rows, cols)                                                                                          \
    case (rows)*8 + (cols):                                                                                            \
        FN(tile)(rows, cols, p, i, j);                                                                                 \
        break;

static void FN(subtract_product)(int64_t rows, int64_t cols, const FN(product) * p)
{
    for (int64_t i = 0; i < rows; i += TILE)
        for (int64_t j = 0; j < cols; j += TILE) {
            int64_t down = rows - i < TILE ? rows - i : TILE, across = cols - j < TILE ? cols - j : TILE;
            switch (down * 8 + across) {
                TILE_CASE(1, 1)
                TILE_CASE(1, 2)
                TILE_CASE(1, 3)
                TILE_CASE(2, 1)
                TILE_CASE(2, 2)
                TILE_CASE(2, 3)
                TILE_CASE(3, 1)
                TILE_CASE(3, 2)
                TILE_CASE(3, 3)
#if TILE == 4
                TILE_CASE(1, 4)
                TILE_CASE(2, 4)
                TILE_CASE(3, 4)
                TILE_CASE(4, 1)
                TILE_CASE(4, 2)
                TILE_CASE(4, 3)
                TILE_CASE(4, 4)
#endif
            }
        }
}

/* row -= f by */
INLINE void FN(eliminate)(V *restrict row, V f, const V *restrict by, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        row[j] -= f * by[j];
}

/* ---- substitution ---- */

/* A triangular matrix: element (i, j) is m[i * row + j * col]; its diagonal holds no 0, and counts as 1 if `unit`. */
typedef struct FN(triangle) {
    const V *m;
    int64_t n, row, col;
    bool unit;
} FN(triangle);

INLINE void FN(divide)(const FN(triangle) * t, int64_t i, V *b, int64_t nrhs)
{
    const V d = t->m[i * (t->row + t->col)];
    for (int64_t j = 0; j < nrhs && !t->unit; j++)
        b[j] /= d;
}

static void FN(forward)(const FN(triangle) * t, V *b, int64_t ldb, int64_t nrhs)
{
    for (int64_t i0 = 0; i0 < t->n; i0 += TILE) {
        int64_t i1 = i0 + TILE < t->n ? i0 + TILE : t->n;
        FN(product) p = {b + i0 * ldb, t->m + i0 * t->row, b, ldb, t->row, t->col, ldb, 1, i0};
        if (i0)
            FN(subtract_product)(i1 - i0, nrhs, &p);
        for (int64_t i = i0; i < i1; i++) {
            for (int64_t k = i0; k < i; k++)
                FN(eliminate)(b + i * ldb, t->m[i * t->row + k * t->col], b + k * ldb, nrhs);
            FN(divide)(t, i, b + i * ldb, nrhs);
        }
    }
}

static void FN(backward)(const FN(triangle) * t, V *b, int64_t ldb, int64_t nrhs)
{
    int64_t n = t->n;
    for (int64_t i1 = n, i0; i1 > 0; i1 = i0) {
        i0 = i1 > TILE ? i1 - TILE : 0;
        FN(product)
        p = {b + i0 * ldb, t->m + i0 * t->row + (n - 1) * t->col, b + (n - 1) * ldb, ldb, t->row, -t->col, -ldb, 1,
             n - i1};
        if (i1 < n)
            FN(subtract_product)(i1 - i0, nrhs, &p);
        for (int64_t i = i1 - 1; i >= i0; i--) {
            for (int64_t k = i1 - 1; k > i; k--)
                FN(eliminate)(b + i * ldb, t->m[i * t->row + k * t->col], b + k * ldb, nrhs);
            FN(divide)(t, i, b + i * ldb, nrhs);
        }
    }
}

/* Notes zeros on the diagonal and makes them 1, so that lanes that failed stay quiet. */
static void FN(check_diagonal)(V *m, int64_t ld, int64_t n, MASK *info)
{
    for (int64_t k = 0; k < n; k++) {
        V *d = &m[k * (ld + 1)];
        MASK zero = *d == 0;
        FN(note)(info, zero, k);
        *d = FN(select)(zero, (V){0} + 1, *d);
    }
}

/* ---- factorisation ---- */

/* The lower factor of the lower triangle; what is above it becomes anything. */
static void FN(cholesky)(V *m, int64_t ld, int64_t n, MASK *info)
{
    const int64_t block = n <= UNBLOCKED ? n : BLOCK;
    for (int64_t k0 = 0; k0 < n; k0 += block) {
        int64_t k1 = k0 + block < n ? k0 + block : n;
        for (int64_t k = k0; k < k1; k++) {
            V d = m[k * ld + k], root;
            MASK failed = ~(d > 0); /* NaN fails too */
            FN(note)(info, failed, k);
            d = FN(select)(failed, (V){0} + 1, d);
            for (int v = 0; v < LANES; v++)
                root[v] = SQRT(d[v]);
            m[k * ld + k] = root;
            for (int64_t i = k + 1; i < n; i++) {
                const V f = m[i * ld + k] / root;
                m[i * ld + k] = f;
                for (int64_t j = k + 1; j < k1 && j <= i; j++)
                    m[i * ld + j] -= f * m[j * ld + k];
            }
        }
        for (int64_t i = k1; i < n; i += TILE) {
            int64_t rows = n - i < TILE ? n - i : TILE;
            FN(product) p = {m + i * ld + k1, m + i * ld + k0, m + k1 * ld + k0, ld, ld, 1, 1, ld, k1 - k0};
            FN(subtract_product)(rows, i + rows - k1, &p);
        }
    }
}

/* Bring the largest element of column k at or below the diagonal onto it, in each lane; NaN counts as the largest. Columns
 * `first` to `end` of the rows move. Returns the rows it came from. */
static MASK FN(pivot)(V *m, int64_t ld, int64_t n, int64_t k, int64_t first, int64_t end)
{
    V most = FN(magnitude)(m[k * ld + k]);
    MASK best = (MASK){0} + (INTEGER)k;
    for (int64_t i = k + 1; i < n; i++) {
        V size = FN(magnitude)(m[i * ld + k]);
        MASK take = ~(size <= most) & (most <= (T)INFINITY);
        most = FN(select)(take, size, most);
        best = (((MASK){0} + (INTEGER)i) & take) | (best & ~take);
    }
    for (int v = 0; v < LANES; v++) {
        if (best[v] == k)
            continue;
        T *x = (T *)(m + k * ld) + v, *y = (T *)(m + best[v] * ld) + v;
        for (int64_t j = first * LANES; j < end * LANES; j += LANES) {
            T t = x[j];
            x[j] = y[j];
            y[j] = t;
        }
    }
    return best;
}

/* Eliminate the columns behind the matrix, right-hand sides, with it: L^-1 b is left there, and U in the matrix. With `pivots`
 * whole rows are exchanged, so that L is left there too, and a diagonal element that is 0 stays it. */
static void FN(lu)(V *m, int64_t ld, int64_t n, int64_t nrhs, MASK *info, int32_t *pivots)
{
    const int64_t block = n <= UNBLOCKED ? n : BLOCK, end = n + nrhs;
    for (int64_t k0 = 0; k0 < n; k0 += block) {
        int64_t k1 = k0 + block < n ? k0 + block : n, own = n <= UNBLOCKED ? end : k1;
        for (int64_t k = k0; k < k1; k++) {
            V *row = m + k * ld;
            MASK from = FN(pivot)(m, ld, n, k, pivots ? 0 : k0, end), zero = row[k] == 0;
            FN(note)(info, zero, k);
            const V d = FN(select)(zero, (V){0} + 1, row[k]);
            for (int v = 0; v < LANES && pivots; v++)
                pivots[k * MFI_MOST_LANES + v] = (int32_t)from[v];
            row[k] = pivots ? row[k] : d;
            for (int64_t i = k + 1; i < n; i++) {
                const V f = m[i * ld + k] / d;
                m[i * ld + k] = f;
                FN(eliminate)(m + i * ld + k + 1, f, row + k + 1, own - k - 1);
            }
        }
        if (own == end)
            continue;
        FN(triangle) t = {m + k0 * (ld + 1), k1 - k0, ld, 1, true};
        FN(forward)(&t, m + k0 * ld + k1, ld, end - k1);
        FN(product) p = {m + k1 * (ld + 1), m + k1 * ld + k0, m + k0 * ld + k1, ld, ld, 1, ld, 1, k1 - k0};
        FN(subtract_product)(n - k1, end - k1, &p);
    }
}

/* ---- a group ---- */

static void FN(reject_infinite)(const V *m, int64_t ld, int64_t n, MASK *info)
{
    V sum = {0}; /* x times 0 is 0 for finite x only */
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            sum += m[i * ld + j] * 0;
    *info |= ~(sum == 0);
}

static void FN(identity)(V *b, int64_t ld, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            b[i * ld + j] = (V){0} + (T)(i == j);
}

static void FN(triangular)(mfi_lane_group *g, V *m, V *b, MASK *info)
{
    FN(triangle) t = {m, g->n, g->transpose ? 1 : g->ld, g->transpose ? g->ld : 1, g->unit};
    if (!g->unit)
        FN(check_diagonal)(m, g->ld, g->n, info);
    if (g->upper == g->transpose)
        FN(forward)(&t, b, g->ld, g->nrhs);
    else
        FN(backward)(&t, b, g->ld, g->nrhs);
}

static void FN(compute)(mfi_lane_group *g)
{
    V *m = g->m, *b = m + g->n;
    MASK info = {0};
    FN(triangle) lower = {m, g->n, g->ld, 1, false}, upper = {m, g->n, 1, g->ld, false};
    switch (g->solver) {
    case MFI_CHOLESKY:
        FN(cholesky)(m, g->ld, g->n, &info);
        break;
    case MFI_LU_SOLVE:
        if (g->finite)
            FN(reject_infinite)(m, g->ld, g->n, &info);
        if (g->invert)
            FN(identity)(b, g->ld, g->n);
        FN(lu)(m, g->ld, g->n, g->nrhs, &info, g->pivots);
        if (g->pivots)
            break;
        upper.row = g->ld, upper.col = 1;
        FN(backward)(&upper, b, g->ld, g->nrhs);
        break;
    case MFI_POSV:
    case MFI_CHO_SOLVE:
        if (g->solver == MFI_POSV)
            FN(cholesky)(m, g->ld, g->n, &info);
        else
            FN(check_diagonal)(m, g->ld, g->n, &info);
        FN(forward)(&lower, b, g->ld, g->nrhs);
        FN(backward)(&upper, b, g->ld, g->nrhs);
        break;
    default:
        FN(triangular)(g, m, b, &info);
    }
    for (int v = 0; v < LANES; v++)
        g->info[v] = (int32_t)info[v];
}

static void FN(finish)(const mfi_lane_group *g)
{
    bool factor = g->solver == MFI_CHOLESKY, any = false;
    V *m = g->m;
    MASK failed;
    for (int v = 0; v < LANES; v++) {
        failed[v] = g->info[v] ? -1 : 0;
        any |= g->info[v] != 0;
    }
    for (int64_t i = 0; i < g->n && factor; i++)
        for (int64_t j = i + 1; j < g->n; j++)
            m[i * g->ld + j] = (V){0};
    for (int64_t i = 0; i < g->n && any; i++)
        for (int64_t j = factor ? 0 : g->n; j < (factor ? i + 1 : g->n + g->nrhs); j++)
            m[i * g->ld + j] = FN(select)(failed, (V){0} + (T)NAN, m[i * g->ld + j]);
}
