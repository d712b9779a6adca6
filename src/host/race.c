/* Medians and their confidence intervals from order statistics: no assumption on how times are distributed (W. J. Conover,
 * Practical Nonparametric Statistics, 3rd ed., section 3.2). */
#include "race.h"

#include <math.h>

static const double least_gain = 0.98, hopeless = 1.5;
enum { FIRST_CUT = 3, SURE = 6 };

void mfi_runner_add(mfi_runner *r, double us)
{
    if (r->count == MFI_MAX_SAMPLES)
        return;
    int at = r->count++;
    for (; at > 0 && r->sample[at - 1] > us; at--)
        r->sample[at] = r->sample[at - 1];
    r->sample[at] = us;
}

mfi_standing mfi_runner_standing(const mfi_runner *r)
{
    int n = r->count;
    if (!n)
        return (mfi_standing){INFINITY, 0, INFINITY};
    double middle = n % 2 ? r->sample[n / 2] : 0.5 * (r->sample[n / 2 - 1] + r->sample[n / 2]);
    if (n < SURE) /* the whole range covers less than 95 %: as wide as can be said, and wider */
        return (mfi_standing){middle, n < FIRST_CUT ? 0 : r->sample[0], n < FIRST_CUT ? INFINITY : r->sample[n - 1]};
    int below = (int)floor(0.5 * n - 0.98 * sqrt(n));
    below = below < 0 ? 0 : below;
    return (mfi_standing){middle, r->sample[below], r->sample[n - 1 - below]};
}

int mfi_race_leader(const mfi_runner *runner, int count)
{
    int best = -1;
    for (int i = 0; i < count; i++)
        if (!runner[i].out && runner[i].count &&
            (best < 0 || mfi_runner_standing(&runner[i]).median < mfi_runner_standing(&runner[best]).median))
            best = i;
    return best;
}

void mfi_race_drop(mfi_runner *runner, int count)
{
    int leader = mfi_race_leader(runner, count);
    if (leader < 0)
        return;
    mfi_standing best = mfi_runner_standing(&runner[leader]);
    for (int i = 1; i < count; i++) {
        mfi_standing s = mfi_runner_standing(&runner[i]);
        if (i != leader && runner[i].count >= 1)
            runner[i].out |= s.low > best.high || runner[i].sample[0] > hopeless * best.median;
    }
}

bool mfi_race_decided(const mfi_runner *runner, int count)
{
    int leader = mfi_race_leader(runner, count), left = 0;
    for (int i = 1; i < count; i++)
        left += !runner[i].out;
    if (runner[0].count < SURE || left > 1)
        return false;
    if (!left)
        return true;
    if (runner[leader].count < SURE)
        return false;
    mfi_standing first = mfi_runner_standing(&runner[0]);
    return leader == 0 ? false : mfi_runner_standing(&runner[leader]).high < least_gain * first.low;
}

bool mfi_race_beats(mfi_standing better, mfi_standing than)
{
    return better.high < than.low && better.median < least_gain * than.median;
}

int mfi_race_winner(const mfi_runner *runner, int count)
{
    int leader = mfi_race_leader(runner, count);
    if (leader <= 0 || runner[0].count < FIRST_CUT || runner[leader].count < FIRST_CUT)
        return 0;
    return mfi_race_beats(mfi_runner_standing(&runner[leader]), mfi_runner_standing(&runner[0])) ? leader : 0;
}
