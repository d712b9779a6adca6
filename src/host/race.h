/* A race between candidates: samples of each in turn, until one is the fastest beyond doubt, or time is up. Pure
 * statistics; who measures is not its business. */
#ifndef MFI_RACE_H
#define MFI_RACE_H

#include "core.h"

enum { MFI_MAX_SAMPLES = 40 };

typedef struct mfi_runner {
    double sample[MFI_MAX_SAMPLES]; /* sorted */
    int count;
    bool out; /* it lost, or failed */
} mfi_runner;

typedef struct mfi_standing {
    double median, low, high; /* the median's confidence interval, 95 % */
} mfi_standing;

void mfi_runner_add(mfi_runner *runner, double us);
mfi_standing mfi_runner_standing(const mfi_runner *runner);

/* The one with the least median among those still in; -1: none. */
int mfi_race_leader(const mfi_runner *runner, int count);
/* Take out who cannot win any more: its interval lies above the leader's. Runner 0, the default, stays to be compared with. */
void mfi_race_drop(mfi_runner *runner, int count);
/* Nobody is left beside the leader and the default, and it is clear which of them is faster. */
bool mfi_race_decided(const mfi_runner *runner, int count);
/* `better` is less than `than`, beyond the noise and by 2 %. */
bool mfi_race_beats(mfi_standing better, mfi_standing than);
/* The leader if it beats the default, else 0. */
int mfi_race_winner(const mfi_runner *runner, int count);

#endif
