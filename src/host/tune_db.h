/* The tuning database: one record for a problem on a device with its libraries. */
#ifndef MFI_TUNE_DB_H
#define MFI_TUNE_DB_H

#include "core.h"

typedef struct mfi_tune_key {
    char problem[40];    /* hash of the graph, its layouts and the plan's options */
    char device[128];    /* "NVIDIA H200 sm_90a 132x", "cpu AMD EPYC … 16 threads avx512" */
    char libraries[256]; /* "mathfuse 0.1.0/1 cublaslt 130100 nvrtc 13000" */
} mfi_tune_key;

/* Strings are the record's own; mfi_tune_record_free. */
typedef struct mfi_tune_record {
    char *title, *winner, *baseline, *measured; /* measured: JSON array of candidates */
    double winner_us, default_us, seconds;
    bool complete; /* not cut short */
} mfi_tune_record;
void mfi_tune_record_free(mfi_tune_record *record);

/* In the user's database, the site's, or what this process could not write. *source: "database" or "memory". What goes
 * wrong with a file is told once and otherwise a miss. */
bool mfi_tune_find(const mfi_tune_key *key, mfi_tune_record *out, const char **source);
/* Kept in memory if it cannot be written, with a warning. An unfinished record never replaces a complete one. */
void mfi_tune_keep(const mfi_tune_key *key, const mfi_tune_record *record);

/* A candidate that may take the process with it: noted before, struck out after. True: it did so twice already. */
bool mfi_tune_attempt(const mfi_tune_key *key, const char *candidate);
void mfi_tune_attempted(const mfi_tune_key *key, const char *candidate);
void mfi_tune_give_up(const mfi_tune_key *key, const char *candidate); /* it hangs: as if it did so twice */

#endif
