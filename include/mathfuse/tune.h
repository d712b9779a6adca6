/* Tuning: measure the ways a plan can run, keep the fastest right one, remember it in a database. */
#ifndef MATHFUSE_TUNE_H
#define MATHFUSE_TUNE_H

#include <stddef.h>
#include <stdint.h>

#include "mathfuse/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where tuning is, told before every candidate and every round of measurements. */
typedef struct mf_tune_event {
    const char *stage;     /* "prepare": a candidate is compiled and verified; "race": all that are left are measured */
    int step, steps;       /* of the plan, from 1; 0: all of it, while groupings of the graph are compared */
    const char *candidate; /* "cublaslt/3/algorithm 66, …"; the best so far while racing */
    int done, count;       /* candidates prepared of all; rounds raced of at most */
    int alive;             /* candidates still in the race */
    double elapsed_s, left_s;
    double default_us, best_us; /* medians so far, 0: not known yet */
} mf_tune_event;

typedef struct mf_tune_options {
    size_t size;    /* sizeof(mf_tune_options), set by the INIT macro */
    double seconds; /* what all of it may take; what a race needs to be decided may be cut short, never verification */
    int candidates; /* most to try for each step */
    /* May be NULL. Other than 0: stop now, and keep what was measured. Called on the thread that tunes. */
    int (*progress)(const mf_tune_event *event, void *user);
    void *user;
    void *stream; /* a CUstream that is not being captured; ignored on the CPU */
} mf_tune_options;

#define MF_TUNE_OPTIONS_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(mf_tune_options), 10.0, 64, NULL, NULL, NULL                                                            \
    }

/* Measure how `plan` can run here and make it run the fastest way that gives the right result.
 * Candidates are the groupings of the graph into steps, and for each step every provider that bids and every variant it
 * offers (algorithms, tiles, threads, planning effort). Data is random and rotated through more memory than the last
 * cache; candidates take turns, and one whose confidence interval lies above the best's leaves. Each result is compared with
 * an unfused run first: a wrong candidate never wins. The default stays unless beaten beyond the noise. On the CPU a
 * candidate first runs in a child process, whose crash or hang costs that candidate only.
 * The winner is written to the database (MF_TUNE_CACHED finds it there) and used by this plan from its next run on.
 * Threads: the plan may be run by others meanwhile, which disturbs the measurement only.
 * Memory: several copies of the plan's inputs and outputs.
 * Errors: MF_E_STATE under stream capture, for a target that is not here, or if the default itself is wrong. */
MF_API mf_status mf_plan_tune(mf_plan *plan, const mf_tune_options *options);

/* What is known of a plan's tuning, as JSON:
 *   {"problem", "title", "device", "libraries", "source": "default" | "tuned" | "database" | "memory", "winner", "default",
 *    "winner_us", "default_us", "complete", "seconds", "candidates": [{"step", "choice", "result": "won" | "slower" | "wrong" |
 *    "failed" | "crashed" | "hung" | "not reached", "us", "low_us", "high_us", "samples", "detail"}]}
 * Owns: caller frees *out with mf_free. */
MF_API mf_status mf_plan_tuning(char **out, const mf_plan *plan);

/* ---- the database ----
 * `path` is an SQLite file; NULL: the user's own, MATHFUSE_CACHE_DIR/tuning.db, else below XDG_CACHE_HOME or ~/.cache. Plans
 * also look into the read-only one at MATHFUSE_SITE_DIR/tuning.db (default: /usr/share/mathfuse/tuning.db). A record holds for
 * one problem, device and set of library versions; others ignore it. Records are data, never code.
 * Errors: MF_E_MISSING without SQLite; MF_E_IO for a file that cannot be opened or is no tuning database. */

/* The user's own file's name, whether it exists or not. Owns: caller frees *out with mf_free. */
MF_API mf_status mf_tune_database(char **out);
/* All records whose problem, title, device or winner contains `filter` (NULL: all) as a JSON array, newest first; of
 * everything a record has if `whole`, else without the candidates. Owns: caller frees *out with mf_free. */
MF_API mf_status mf_tune_records(char **out, const char *path, const char *filter, int whole);
/* Add records from `other`: a database, or JSON as mf_tune_records writes it (whole). Of two for one key the newer stays.
 * *count: how many were taken. */
MF_API mf_status mf_tune_merge(const char *path, const char *other, int *count);
MF_API mf_status mf_tune_import(const char *path, const char *json, int *count);
/* Remove those that mf_tune_records lists. */
MF_API mf_status mf_tune_clear(const char *path, const char *filter, int *count);
/* Is the file sound, and every record readable? *out: one line for each fault, "" if there is none. */
MF_API mf_status mf_tune_verify(char **out, const char *path);

#ifdef __cplusplus
}
#endif
#endif
