/* Text that grows, and just enough JSON: writing strings, and reading numbers and objects that the library wrote. */
#ifndef BENCH_TEXT_H
#define BENCH_TEXT_H

#include <stddef.h>

typedef struct bench_text {
    char *data; /* "" once anything was added; free() it */
    size_t length, room;
} bench_text;

/* Out of memory ends the program: there is nothing left to measure then. */
void text_add(bench_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_string(bench_text *text, const char *string); /* quoted, and escaped as JSON wants it */
void text_clear(bench_text *text);

/* The first number after "key":, or `otherwise`; the sum of all of them. */
double json_number(const char *json, const char *key, double otherwise);
double json_sum(const char *json, const char *key);
/* Append the value of the first "key":, as it is written there, or null. */
void json_copy(bench_text *out, const char *json, const char *key);

#endif
