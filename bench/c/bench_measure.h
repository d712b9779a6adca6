/* One problem: planned, tuned, verified and timed. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "bench_problem.h"
#include "bench_text.h"

typedef struct bench_options {
    mf_context *context; /* that is measured */
    mf_context *cpu;     /* that verifies */
    const char *device;  /* its name, for the rows */
    double tune;         /* seconds for each problem; 0: not at all */
    int rounds;
} bench_options;

double bench_now(void); /* seconds */
/* Append a row in JSON, as `mathfuse report` reads it, and a few lines for people. 0, or not if ours failed or is wrong. */
int measure_row(bench_text *row, bench_text *lines, const bench_problem *problem, const bench_options *options);
/* Microseconds that mf_plan_run takes where there is nothing to compute; negative if that failed. */
double measure_call_us(mf_context *context);

#endif
