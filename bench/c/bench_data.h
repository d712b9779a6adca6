/* Random arrays for problems, and how far a result is from what it should be. */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include "bench_problem.h"

/* Fill `host`, array_bytes of it. `cpu` rounds to dtypes that C has not. */
mf_status data_fill(mf_context *cpu, const bench_array *array, void *host, uint64_t seed);
/* The largest difference of two such arrays, of the largest value of `want`; infinite if their NaNs differ. */
mf_status data_error(double *out, mf_context *cpu, const bench_array *array, const void *got, const void *want);
/* Errors of a right result: a few hundred last digits of the narrowest dtype. */
double data_allowed(const bench_problem *problem);
/* Tensors of contiguous arrays. */
mf_status data_tensor(mf_tensor *out, const bench_array *array, void *data);

#endif
