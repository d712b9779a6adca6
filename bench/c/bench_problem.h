/* A problem from a line of text, as a graph. The grammar is that of `mathfuse bench`, less what only Python says. */
#ifndef BENCH_PROBLEM_H
#define BENCH_PROBLEM_H

#include <mathfuse/mathfuse.h>

enum { MAX_ARRAYS = 16, TEXT_ROOM = 256 };

typedef enum bench_role { PLAIN, WEIGHT, DEFINITE, REAL_ENDS } bench_role;

/* WEIGHT: divided by the root of its rows. DEFINITE: symmetric with a large diagonal. REAL_ENDS: no imaginary part first and last. */
typedef struct bench_array {
    bench_role role;
    mf_dtype dtype;
    int ndim;
    int64_t shape[MF_MAX_DIMS];
} bench_array;

typedef struct bench_problem {
    char text[TEXT_ROOM], kind[32];
    mf_graph *graph;
    int count; /* arrays: inputs, and at last the result */
    bench_array arrays[MAX_ARRAYS];
    int product, solver, parts;
    char message[512]; /* why it is no problem, or not one for this driver */
} bench_problem;

/* 0, or not: `message` says why and where. The caller frees it by problem_free in either case. */
int problem_parse(bench_problem *out, const char *text);
void problem_free(bench_problem *problem);

int64_t array_elements(const bench_array *array);
size_t array_bytes(const bench_array *array);

#endif
