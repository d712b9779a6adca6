/* What our tests use of Criterion, each test in a process of its own: Criterion's memory arena cannot lie where
 * ThreadSanitizer lets it. Each test program is one source file, so this header has its main. */
#ifndef MF_PLAIN_CRITERION_H
#define MF_PLAIN_CRITERION_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct plain_options {
    int listed; /* so that an initialiser is never empty */
    void (*init)(void);
    void (*fini)(void);
    double timeout;
    const char *description;
} plain_options;

typedef struct plain_test {
    const char *suite, *name;
    void (*run)(void); /* NULL: the options of a suite */
    plain_options options;
    struct plain_test *next;
} plain_test;

static plain_test *plain_first, **plain_end = &plain_first;
static jmp_buf plain_out;
static int plain_failures;
static int plain_skipped;

static inline void plain_add(plain_test *test)
{
    *plain_end = test;
    plain_end = &test->next;
}

#define PLAIN_ADD(id, suite_, name_, run_, ...)                                                                        \
    __attribute__((constructor)) static void plain_add_##id(void)                                                      \
    {                                                                                                                  \
        static plain_test test = {.suite = suite_, .name = name_, .run = run_, .options = {.listed = 1, __VA_ARGS__}}; \
        plain_add(&test);                                                                                              \
    }
#define Test(suite_, name_, ...)                                                                                       \
    static void suite_##_##name_##_test(void);                                                                         \
    PLAIN_ADD(suite_##_##name_, #suite_, #name_, suite_##_##name_##_test, __VA_ARGS__)                                 \
    static void suite_##_##name_##_test(void)
#define TestSuite(suite_, ...)                                                                                         \
    PLAIN_ADD(suite_, #suite_, "", NULL, __VA_ARGS__)                                                                  \
    extern plain_test *plain_after_suite /* takes the semicolon */

__attribute__((format(printf, 5, 6))) static inline void plain_fail(int ends, const char *file, int line,
                                                                    const char *condition, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%d: not true: %s ", file, line, condition);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    plain_failures++;
    if (ends)
        longjmp(plain_out, 1);
}

#define PLAIN_CHECK(ends, condition, text, ...)                                                                        \
    ((condition) ? (void)0 : plain_fail(ends, __FILE__, __LINE__, text, "" __VA_ARGS__))
#define cr_assert(c, ...) PLAIN_CHECK(1, c, #c, __VA_ARGS__)
#define cr_assert_eq(a, b, ...) PLAIN_CHECK(1, (a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) PLAIN_CHECK(1, (a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_assert_null(a, ...) PLAIN_CHECK(1, (a) == NULL, #a " is NULL", __VA_ARGS__)
#define cr_assert_not_null(a, ...) PLAIN_CHECK(1, (a) != NULL, #a " is not NULL", __VA_ARGS__)
#define cr_assert_float_eq(a, b, e, ...) PLAIN_CHECK(1, fabs((double)((a) - (b))) <= (e), #a " near " #b, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) PLAIN_CHECK(1, !strcmp(a, b), #a " reads " #b, __VA_ARGS__)
#define cr_expect(c, ...) PLAIN_CHECK(0, c, #c, __VA_ARGS__)
#define cr_expect_not(c, ...) PLAIN_CHECK(0, !(c), "not " #c, __VA_ARGS__)
#define cr_expect_eq(a, b, ...) PLAIN_CHECK(0, (a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_expect_neq(a, b, ...) PLAIN_CHECK(0, (a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_expect_leq(a, b, ...) PLAIN_CHECK(0, (a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_expect_lt(a, b, ...) PLAIN_CHECK(0, (a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_expect_geq(a, b, ...) PLAIN_CHECK(0, (a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_expect_gt(a, b, ...) PLAIN_CHECK(0, (a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_expect_null(a, ...) PLAIN_CHECK(0, (a) == NULL, #a " is NULL", __VA_ARGS__)
#define cr_expect_not_null(a, ...) PLAIN_CHECK(0, (a) != NULL, #a " is not NULL", __VA_ARGS__)
#define cr_expect_float_eq(a, b, e, ...) PLAIN_CHECK(0, fabs((double)((a) - (b))) <= (e), #a " near " #b, __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) PLAIN_CHECK(0, !strcmp(a, b), #a " reads " #b, __VA_ARGS__)
#define cr_skip_test(...)                                                                                              \
    do {                                                                                                               \
        plain_skipped = 1;                                                                                             \
        longjmp(plain_out, 1);                                                                                         \
    } while (0)

static inline const plain_test *plain_suite(const char *name)
{
    for (const plain_test *t = plain_first; t; t = t->next)
        if (!t->run && !strcmp(t->suite, name))
            return t;
    return NULL;
}

enum { PLAIN_PASSED, PLAIN_FAILED, PLAIN_SKIPPED };

static inline int plain_run(const plain_test *t)
{
    const plain_test *suite = plain_suite(t->suite);
    double seconds = t->options.timeout > 0 ? t->options.timeout : suite ? suite->options.timeout : 0;
    alarm(20 * (unsigned)seconds); /* under a sanitizer everything is slow; a hang ends the process */
    if (!setjmp(plain_out)) {
        if (suite && suite->options.init)
            suite->options.init();
        if (t->options.init)
            t->options.init();
        t->run();
    }
    if (t->options.fini)
        t->options.fini();
    if (suite && suite->options.fini)
        suite->options.fini();
    return plain_failures ? PLAIN_FAILED : plain_skipped ? PLAIN_SKIPPED : PLAIN_PASSED;
}

static inline int plain_outcome(const plain_test *t)
{
    pid_t child = fork();
    if (child == 0)
        exit(plain_run(t));
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return PLAIN_FAILED;
    return WEXITSTATUS(status);
}

int main(void)
{
    int tested = 0, passing = 0;
    for (const plain_test *t = plain_first; t; t = t->next) {
        if (!t->run)
            continue;
        int outcome = plain_outcome(t);
        tested += outcome != PLAIN_SKIPPED;
        passing += outcome == PLAIN_PASSED;
        if (outcome != PLAIN_PASSED)
            fprintf(stderr, "%s: %s::%s\n", outcome == PLAIN_SKIPPED ? "skipped" : "failed", t->suite, t->name);
    }
    fprintf(stderr, "Synthesis: Tested: %d | Passing: %d\n", tested, passing);
    return tested != passing;
}

#endif
