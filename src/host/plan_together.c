/* Where steps over the items of one batch become one: around each solver, as many neighbours as can, where that is estimated to pay by
 * far; a grouping that is to have steps together, which tuning measures, where it pays at all. */
#include "plan_internal.h"
#include "schedule.h"

static const double BY_FAR = 0.5;

/* What the steps are estimated to cost, each by itself. */
static mf_status cost_apart(double *us, const mf_plan *plan, int first, int count)
{
    *us = 0;
    for (int i = first; i < first + count; i++) {
        double step;
        MF_TRY(mfi_plan_step_cost(&step, plan, plan->schedule->step[i]));
        *us += step;
    }
    return MF_OK;
}

/* What is saved with these steps as one; 0: nothing, or it cannot be. */
static mf_status saving(double *us, const mf_plan *plan, int first, int count)
{
    mfi_problem *p;
    double apart = 0, together = 0;
    *us = 0;
    MF_TRY(mfi_together_of(&p, plan->schedule, first, count));
    if (!p)
        return MF_OK;
    bool made = false;
    for (int i = 0; i < mfi_provider_count; i++) {
        double cost;
        if (mfi_plan_bids(plan, p, mfi_providers[i], &cost)) {
            together = made && together < cost ? together : cost;
            made = true;
        }
    }
    mfi_problem_free(p);
    MF_TRY(cost_apart(&apart, plan, first, count));
    double most = plan->choice.grouping == MFI_GROUP_TOGETHER ? apart : BY_FAR * apart;
    *us = made && together < most ? apart - together : 0;
    return MF_OK;
}

typedef struct range {
    int first, end;
    double us; /* that it saves */
} range;

static mf_status try_range(range *best, const mf_plan *plan, int first, int end)
{
    double us = 0;
    if (end - first >= 2 && end - first <= MFI_TOGETHER_PARTS)
        MF_TRY(saving(&us, plan, first, end - first));
    if (us > best->us)
        *best = (range){first, end, us};
    return MF_OK;
}

/* The range around step `index` that saves most, of the largest and of those that begin later or end sooner. */
static mf_status best_range(range *best, const mf_plan *plan, int index)
{
    const mfi_schedule *s = plan->schedule;
    int64_t batch = mfi_problem_points(s->step[index]);
    int first = index, end = index + 1;
    *best = (range){.us = 0};
    if (batch < 2)
        return MF_OK;
    while (first > 0 && index - first + 1 < MFI_TOGETHER_PARTS && mfi_together_suits(s->step[first - 1], batch))
        first--;
    while (end < s->steps && end - index < MFI_TOGETHER_PARTS && mfi_together_suits(s->step[end], batch))
        end++;
    for (int a = first; a <= index; a++)
        MF_TRY(try_range(best, plan, a, end));
    for (int b = end - 1; b > index; b--)
        MF_TRY(try_range(best, plan, first, b));
    return MF_OK;
}

mf_status mfi_plan_join_together(mf_plan *plan)
{
    mfi_schedule *s = plan->schedule;
    if (!plan->caps->cuda || plan->choice.grouping == MFI_GROUP_APART)
        return MF_OK;
    for (int i = 0; i < s->steps; i++) {
        range best;
        mfi_problem *p = NULL;
        if (s->step[i]->anchor != MFI_SOLVE)
            continue;
        MF_TRY(best_range(&best, plan, i));
        if (best.us > 0)
            MF_TRY(mfi_together_of(&p, s, best.first, best.end - best.first));
        if (p) {
            mfi_schedule_join_together(s, best.first, best.end - best.first, p);
            i = best.first;
        }
    }
    return MF_OK;
}
