/* The statistics of a race, and choices as text. */
#include <criterion/criterion.h>
#include <math.h>

#include "choice.h"
#include "race.h"

static double noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (1 << 24);
}

/* Rounds until it is decided; times are the true ones with up to `spread` on top. */
static int run(const double *true_us, int count, double spread, uint32_t seed)
{
    static mfi_runner runner[16];
    memset(runner, 0, sizeof runner);
    for (int round = 0; round < MFI_MAX_SAMPLES && !mfi_race_decided(runner, count); round++) {
        for (int i = 0; i < count; i++)
            if (!runner[i].out)
                mfi_runner_add(&runner[i], true_us[i] * (1 + spread * noise(&seed)));
        mfi_race_drop(runner, count);
    }
    return mfi_race_winner(runner, count);
}

Test(race, the_fastest_wins)
{
    const double us[] = {100, 130, 80, 95, 300};
    for (uint32_t seed = 1; seed < 200; seed++)
        cr_assert_eq(run(us, 5, 0.05, seed), 2, "seed %u", seed);
}

Test(race, the_default_stays_unless_beaten_beyond_the_noise)
{
    const double same[] = {100, 100, 100.5, 99.5}, close[] = {100, 99};
    int changed = 0;
    for (uint32_t seed = 1; seed <= 300; seed++)
        changed += run(same, 4, 0.10, seed) != 0;
    cr_assert_leq(changed, 6, "%d of 300 races between equals were won by a newcomer", changed);
    for (uint32_t seed = 1; seed <= 100; seed++)
        cr_assert_eq(run(close, 2, 0.001, seed), 0, "a gain of 1 %% is no reason to change");
}

Test(race, intervals_hold_the_median)
{
    int inside = 0;
    uint32_t seed = 7;
    for (int trial = 0; trial < 1000; trial++) {
        mfi_runner r = {0};
        for (int i = 0; i < 20; i++)
            mfi_runner_add(&r, noise(&seed));
        mfi_standing s = mfi_runner_standing(&r);
        cr_assert(s.low <= s.median && s.median <= s.high);
        inside += s.low <= 0.5 && 0.5 <= s.high;
    }
    cr_assert_geq(inside, 930, "%d of 1000 intervals of 95 %% hold the median", inside);
}

Test(race, one_alone_is_measured_too)
{
    const double us[] = {100};
    cr_assert_eq(run(us, 1, 0.1, 3), 0);
    mfi_runner r = {0};
    cr_assert_not(mfi_race_decided(&r, 1), "it has no sample yet");
}

Test(choice, text_round_trip)
{
    mfi_choice a = {.grouping = MFI_GROUP_TOGETHER, .steps = 3}, b;
    a.step[0] = (mfi_step_choice){mfi_providers[0], 7, "algorithm 66 tile 20"};
    a.step[1] = (mfi_step_choice){mfi_providers[mfi_provider_count - 1], 0, ""};
    mfi_text text = {0}, again = {0};
    mfi_choice_text(&a, &text);
    cr_assert(mfi_choice_parse(&b, text.data), "%s", text.data);
    mfi_choice_text(&b, &again);
    cr_assert_str_eq(text.data, again.data);
    cr_assert_eq(b.step[0].variant, 7);
    cr_assert_null(b.step[2].provider);
    mfi_text_free(&text);
    mfi_text_free(&again);
}

Test(choice, other_texts_are_refused)
{
    const char *const texts[] = {"",
                                 "sideways",
                                 "by_cost; nobody/0/",
                                 "by_cost; ref",
                                 "by_cost; ref/x/",
                                 "by_cost; ref/-1/",
                                 "by_cost; ref/0/; ref/1",
                                 "by_cost ref/0/"};
    mfi_choice c;
    for (size_t i = 0; i < MFI_COUNT(texts); i++)
        cr_assert_not(mfi_choice_parse(&c, texts[i]), "\"%s\"", texts[i]);
}
