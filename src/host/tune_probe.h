/* The first run of a candidate, whose result is compared, and which may crash or hang. */
#ifndef MFI_TUNE_PROBE_H
#define MFI_TUNE_PROBE_H

#include "tune_data.h"

typedef enum mfi_verdict {
    MFI_UNTRIED,
    MFI_RIGHT,
    MFI_WRONG,
    MFI_FAILED,
    MFI_CRASHED,
    MFI_HUNG,
} mfi_verdict;

typedef struct mfi_probe {
    mfi_verdict verdict;
    mf_status status; /* of making and running it */
    double error;
    char detail[256];
} mfi_probe;

/* Make the plan of `choice` and run it on set 0, in `seconds`: right if its error is at most `allowed`. *plan is that plan if
 * right, else NULL (but for one that hangs on a GPU, which still uses it). */
void mfi_tune_try(mfi_probe *out, mf_plan **plan, mfi_tune_data *data, const mf_plan *like, const mfi_choice *choice,
                  double allowed, double seconds);
/* The same in a child process, for the CPU; the plan is not kept. */
void mfi_tune_try_apart(mfi_probe *out, mfi_tune_data *data, const mf_plan *like, const mfi_choice *choice,
                        double allowed, double seconds);

#endif
