/* A Cholesky factorisation whose factor only one solve reads, as one step: the factor stays where it is made. */
#include "schedule.h"

static bool is_solve(const mfi_problem *p, mfi_solver solver)
{
    return p->anchor == MFI_SOLVE && p->u.solve.solver == solver;
}

/* The step that solves with the factor of step `index`, for which alone the factor is stored; -1: none. */
static int only_reader(const mfi_schedule *s, int index)
{
    int slot = s->step[index]->u.solve.x.slot;
    for (int i = index + 1; i < s->steps; i++)
        if (is_solve(s->step[i], MFI_CHO_SOLVE) && s->step[i]->u.solve.a.slot == slot)
            return mfi_is_private(s, slot) ? i : -1;
    return -1;
}

static bool same_place(const mfi_view *a, const mfi_view *b, int ndim, const int64_t *shape, int64_t n)
{
    for (int d = 0; d < ndim + 2; d++)
        if ((d < ndim ? shape[d] : n) > 1 && a->strides[d] != b->strides[d])
            return false;
    return a->offset == b->offset && a->dtype == b->dtype;
}

/* Nothing between the two wants to know whether the factorisation succeeded. */
static bool info_can_wait(const mfi_schedule *s, int first, int second)
{
    int slot = s->step[first]->u.solve.info.slot;
    for (int i = first + 1; slot >= 0 && i <= second; i++)
        if (mfi_slot_uses(s->step[i], slot))
            return false;
    return true;
}

mf_status mfi_pair_solve(mfi_problem **out, int *reader, const mfi_schedule *s, int index)
{
    const mfi_problem *factor = s->step[index];
    *out = NULL;
    if (!is_solve(factor, MFI_CHOLESKY) || (*reader = only_reader(s, index)) < 0)
        return MF_OK;
    const mfi_problem *solve = s->step[*reader];
    if (factor->ndim != solve->ndim ||
        memcmp(factor->shape, solve->shape, (size_t)factor->ndim * sizeof *factor->shape) != 0 ||
        ((factor->u.solve.flags ^ solve->u.solve.flags) & MF_UPPER) || factor->u.solve.ctype != solve->u.solve.ctype ||
        factor->u.solve.n != solve->u.solve.n ||
        !same_place(&factor->u.solve.x, &solve->u.solve.a, solve->ndim, solve->shape, solve->u.solve.n) ||
        !info_can_wait(s, index, *reader))
        return MF_OK;
    mfi_problem *pair = mfi_problem_copy(solve);
    if (!pair)
        return MFI_NO_MEMORY(sizeof *pair);
    pair->u.solve.solver = MFI_POSV;
    pair->u.solve.a = factor->u.solve.a;
    pair->u.solve.info = factor->u.solve.info;
    *out = pair;
    return MF_OK;
}

/* The info of a solve with a factor that was just made: its diagonal has no zero. */
static mfi_problem *zero_info(const mfi_problem *solve)
{
    mfi_problem *map = mfi_calloc(1, sizeof *map);
    if (!map)
        return NULL;
    map->ndim = solve->ndim;
    memcpy(map->shape, solve->shape, sizeof map->shape);
    mfi_zero_map(map, &solve->u.solve.info);
    return map;
}

mf_status mfi_schedule_join_solve(mfi_schedule *s, int index, int reader, mfi_problem *pair)
{
    mfi_problem *solve = s->step[reader], *zeros = NULL;
    if (solve->u.solve.info.slot >= 0 && !(zeros = zero_info(solve))) {
        mfi_problem_free(pair);
        return MFI_NO_MEMORY(sizeof *zeros);
    }
    s->step[reader] = pair;
    mfi_problem_free(solve);
    mfi_problem_free(s->step[index]);
    s->step[index] = zeros; /* before the solve: anything that reads it comes after */
    if (zeros)
        return MF_OK;
    s->steps--;
    memmove(s->step + index, s->step + index + 1, (size_t)(s->steps - index) * sizeof *s->step);
    return MF_OK;
}
