// Batches of small dense systems: blocks of several groups of solve.cuh, a matrix each.
#ifndef MF_DEVICE_SOLVE_BATCH_CUH
#define MF_DEVICE_SOLVE_BATCH_CUH

#include "mathfuse/device/solve.cuh"

namespace mf
{

enum solve_kind { SOLVE_CHOLESKY, SOLVE_LU, SOLVE_WITH_FACTOR, SOLVE_LOWER, SOLVE_UPPER };

// 8-byte fields only, filled by the host in this order. Strides: ND batch dims, rows, columns. NULL: not wanted.
template <int ND> struct solve_args {
    i64 items, n, nrhs;
    void *a, *b, *x, *info;
    i64 shape[ND];
    i64 a_stride[ND + 2], b_stride[ND + 2], x_stride[ND + 2], info_stride[ND];
};

// Where a matrix of the batch and what belongs to it begin, in elements.
struct solve_item {
    i64 a, b, x, info;
};
template <int ND> MF_DEVICE solve_item solve_locate(const solve_args<ND> &p, i64 number)
{
    solve_item at = {0, 0, 0, 0};
    MF_UNROLL
    for (int d = ND - 1; d >= 0; d--) {
        i64 c = d > 0 ? number % p.shape[d] : number;
        if (d > 0)
            number /= p.shape[d];
        at.a += c * p.a_stride[d];
        at.b += c * p.b_stride[d];
        at.x += c * p.x_stride[d];
        at.info += c * p.info_stride[d];
    }
    return at;
}

// CONJUGATE: the matrix, and a factor that is a result, are those of the conjugate. UNIT: ones on the diagonal, which is not read.
template <solve_kind KIND, class T, int N, int R, class TA, class TB, class TX, int ND, int THREADS, bool CONJUGATE,
          bool UNIT>
struct solve_batch {
    typedef solve::group<T, N, R> group;
    typedef solve_args<ND> args;
    typedef solve_item item;
    static constexpr int groups = THREADS / group::threads;
    static constexpr int BYTES = groups * group::elements * (int)sizeof(T);
    static constexpr bool factors = KIND == SOLVE_CHOLESKY && R == 0;

    static MF_DEVICE T turned(T x)
    {
        if constexpr (CONJUGATE)
            return solve::conjugate_of(x);
        else
            return x;
    }

    // Elements (i, j) of an n x columns matrix, spread over the group so that neighbours in memory are read together.
    template <class F> static MF_DEVICE void each(int rows, int columns, bool by_columns, F &&f)
    {
        int inner = by_columns ? rows : columns;
        for (int e = group::row(); e < rows * columns; e += group::threads)
            f(by_columns ? e % inner : e / inner, by_columns ? e / inner : e % inner);
    }

    // The matrix as lines of shared memory: rows of it, or, for a lower factor, conjugated columns.
    static MF_DEVICE void fetch(const args &p, const item &at, group &g)
    {
        constexpr bool turn = KIND == SOLVE_WITH_FACTOR || KIND == SOLVE_LOWER;
        const TA *a = (const TA *)p.a + at.a;
        i64 rs = p.a_stride[ND], cs = p.a_stride[ND + 1];
        each((int)p.n, (int)p.n, cs != 1, [&](int i, int j) {
            bool wanted = KIND == SOLVE_LU || (KIND == SOLVE_UPPER ? j >= i : j <= i);
            if (!wanted || (UNIT && i == j))
                return;
            T x = turned(convert<T>(widen(a[i * rs + j * cs])));
            if constexpr (turn)
                g.line(j)[i] = solve::conjugate_of(x);
            else
                g.line(i)[j] = x;
        });
        if (UNIT && group::row() < p.n)
            g.line(group::row())[group::row()] = solve::from_real(real_t<T>(1), T());
        group::sync();
    }

    static MF_DEVICE void take_row(const args &p, const group &g, T (&a)[group::columns])
    {
        int i = group::row();
        MF_UNROLL
        for (int c = 0; c < group::columns / group::vector; c++) {
            pack<T, group::vector> q = {};
            if (i < p.n)
                load_pack<16>(q, g.line(i) + c * group::vector);
            MF_UNROLL
            for (int k = 0; k < group::vector; k++) {
                int j = c * group::vector + k;
                a[j] = i < p.n && j < p.n ? q.v[k] : T();
            }
        }
        group::sync();
    }

    static MF_DEVICE void store_factor(const args &p, const item &at, const group &g, bool failed)
    {
        TX *x = (TX *)p.x + at.x;
        i64 rs = p.x_stride[ND], cs = p.x_stride[ND + 1];
        each((int)p.n, (int)p.n, cs != 1, [&](int i, int j) {
            T l = failed ? solve::nan_number<T>() : turned(solve::conjugate_of(g.line(j)[i]));
            x[i * rs + j * cs] = narrow<TX>(convert<compute_t<TX>>(j <= i ? l : T()));
        });
    }

    static MF_DEVICE void run(const args &p, i64 block, void *shared)
    {
        i64 number = block * groups + threadIdx.x / group::threads;
        bool here = number < p.items;
        item at = solve_locate(p, here ? number : 0);
        group g((T *)shared + threadIdx.x / group::threads * group::elements);
        int n = (int)p.n, i = group::row(), info = 0;
        fetch(p, at, g);
        T b[group::sides] = {};
        MF_UNROLL
        for (int r = 0; r < R; r++)
            if (i < n && r < p.nrhs)
                b[r] = convert<T>(widen(((const TB *)p.b)[at.b + i * p.b_stride[ND] + r * p.b_stride[ND + 1]]));
        if constexpr (KIND == SOLVE_CHOLESKY || KIND == SOLVE_LU) {
            T a[group::columns];
            take_row(p, g, a);
            info = KIND == SOLVE_LU ? g.lu(a, b, n) : g.cholesky(a, b, n);
        } else if constexpr (KIND != SOLVE_UPPER) {
            info = g.forward(b, n);
        }
        if constexpr (!factors && KIND != SOLVE_LOWER) {
            int other = g.backward(b, n);
            info = info ? info : other;
        }
        group::sync();
        if (!here)
            return;
        if constexpr (factors) {
            if (p.x)
                store_factor(p, at, g, info != 0);
        } else if (p.x) {
            MF_UNROLL
            for (int r = 0; r < R; r++)
                if (i < n && r < p.nrhs)
                    ((TX *)p.x)[at.x + i * p.x_stride[ND] + r * p.x_stride[ND + 1]] =
                        narrow<TX>(convert<compute_t<TX>>(info ? solve::nan_number<T>() : b[r]));
        }
        if (p.info && i == 0)
            ((i32 *)p.info)[at.info] = info;
    }
};

} // namespace mf
#endif
