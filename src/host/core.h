/* What every source file shares: error macros, allocation, logging, small helpers. Depends on public headers only. */
#ifndef MFI_CORE_H
#define MFI_CORE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "mathfuse/mathfuse.h"

/* ---- errors (error.c) ---- */

#if defined(__GNUC__)
#define MFI_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define MFI_PRINTF(f, a)
#endif

mf_status mfi_set_error(mf_status status, const char *format, ...) MFI_PRINTF(2, 3);
mf_status mfi_prefix_error(mf_status status, const char *format, ...) MFI_PRINTF(2, 3);
/* A status that is not MF_OK: compilers and analysers follow no path on which a failure was none. */
static inline mf_status mfi_failed(mf_status status)
{
    if (status == MF_OK)
        __builtin_unreachable();
    return status;
}
/* Set the thread's message and return `status`. */
#define mfi_fail(status, ...) mfi_failed(mfi_set_error(status, __VA_ARGS__))
/* Put words in front of the thread's message, keeping its status. */
#define mfi_prefix(status, ...) mfi_failed(mfi_prefix_error(status, __VA_ARGS__))

#define MF_TRY(call)                                                                                                   \
    do {                                                                                                               \
        mf_status status_ = (call);                                                                                    \
        if (status_ != MF_OK)                                                                                          \
            return status_;                                                                                            \
    } while (0)
/* The same in a function with one `out:` label and a variable `status`. */
#define MF_TRY_OUT(call)                                                                                               \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != MF_OK)                                                                                           \
            goto out;                                                                                                  \
    } while (0)
#define MF_REQUIRE(condition, status, ...)                                                                             \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return mfi_fail(status, __VA_ARGS__);                                                                      \
    } while (0)

/* ---- memory (alloc.c) ---- */

/* All heap memory of the library goes through these; what they return is released by mf_free. */
void *mfi_alloc(size_t bytes);                /* NULL when out of memory; bytes 0 gives a valid pointer */
void *mfi_calloc(size_t count, size_t bytes); /* zeroed, overflow checked */
void *mfi_realloc(void *memory, size_t bytes);
/* 64-byte aligned, for numeric buffers; released by mfi_free_aligned */
void *mfi_alloc_aligned(size_t bytes);
void mfi_free_aligned(void *memory);
char *mfi_strdup(const char *text);
#define MFI_NO_MEMORY(bytes)                                                                                           \
    mfi_fail(MF_E_MEMORY, "out of memory: %zu bytes of host memory were asked for", (size_t)(bytes))

/* A string that grows. Out of memory leaves it failed; mfi_text_take then returns NULL. */
typedef struct mfi_text {
    char *data;
    size_t length, capacity;
    bool failed;
} mfi_text;
void mfi_text_add(mfi_text *text, const char *format, ...) MFI_PRINTF(2, 3);
void mfi_text_json(mfi_text *text, const char *value); /* a quoted, escaped JSON string */
char *mfi_text_take(mfi_text *text);                   /* caller frees with mf_free */
void mfi_text_free(mfi_text *text);

/* ---- log (log.c): MATHFUSE_VERBOSE=plan,run,tune,cache,load,all; one line a record on stderr ---- */

typedef enum mfi_topic {
    MFI_LOG_PLAN = 1,
    MFI_LOG_RUN = 2,
    MFI_LOG_TUNE = 4,
    MFI_LOG_CACHE = 8,
    MFI_LOG_LOAD = 16
} mfi_topic;
bool mfi_log_on(mfi_topic topic);
void mfi_log(mfi_topic topic, const char *format, ...) MFI_PRINTF(2, 3);

/* ---- ranges for profilers (range.c): NVTX, with MATHFUSE_NVTX=1 ---- */

extern _Atomic int mfi_ranges; /* -1: not known yet; 0: off */
void mfi_range_open(const char *provider, const char *kernel);
void mfi_range_close(void);
static inline void mfi_range_begin(const char *provider, const char *kernel)
{
    if (mfi_ranges)
        mfi_range_open(provider, kernel);
}
static inline void mfi_range_end(void)
{
    if (mfi_ranges)
        mfi_range_close();
}

/* ---- dtypes (dtype.c) ---- */

/* The type that holds a value in registers: everything is computed in one of these. */
typedef enum mfi_ctype { MFI_I32, MFI_I64, MFI_F32, MFI_F64, MFI_C64, MFI_C128, MFI_CTYPE_COUNT } mfi_ctype;
typedef enum mfi_kind { MFI_KIND_B, MFI_KIND_I, MFI_KIND_F, MFI_KIND_C, MFI_KIND_S } mfi_dkind;

mfi_ctype mfi_compute_type(mf_dtype dtype);
mfi_dkind mfi_dtype_kind(mf_dtype dtype);
size_t mfi_ctype_size(mfi_ctype ctype);
mf_dtype mfi_ctype_dtype(mfi_ctype ctype); /* f32 for MFI_F32 … */
static inline bool mfi_is_complex(mf_dtype d)
{
    return mfi_dtype_kind(d) == MFI_KIND_C;
}
static inline bool mfi_is_integer(mf_dtype d)
{
    return mfi_dtype_kind(d) <= MFI_KIND_I;
}

/* Scalar conversions, to nearest even (convert.c). */
float mfi_f16_to_f32(uint16_t bits);
uint16_t mfi_f32_to_f16(float value);
float mfi_bf16_to_f32(uint16_t bits);
uint16_t mfi_f32_to_bf16(float value);
float mfi_e4m3_to_f32(uint8_t bits);
uint8_t mfi_f32_to_e4m3(float value, bool saturate);
float mfi_e5m2_to_f32(uint8_t bits);
uint8_t mfi_f32_to_e5m2(float value, bool saturate);

/* ---- threads (parallel.c) ---- */

/* Call fn(context, begin, end) over pieces of [0, count), each of at least `grain`, on up to `threads` threads (0: all of
 * the process's). Returns when all are done. Nested calls run on the calling thread. Survives fork. */
void mfi_parallel_for(int64_t count, int64_t grain, int threads, void (*fn)(void *context, int64_t begin, int64_t end),
                      void *context);
int mfi_thread_default(void); /* MATHFUSE_NUM_THREADS, else the cores this process may use */

/* ---- small things ---- */

static inline int64_t mfi_max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t mfi_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t mfi_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static inline size_t mfi_align_up(size_t n, size_t a)
{
    return (n + a - 1) / a * a;
}
#define MFI_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
