/* Status codes and the thread's last error message. */
#ifndef MATHFUSE_STATUS_H
#define MATHFUSE_STATUS_H

#if defined(__GNUC__)
#define MF_API __attribute__((visibility("default")))
#else
#define MF_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mf_status {
#define MF_STATUS(ENUM, value, text, python) MF_##ENUM = value,
#include "mathfuse/def/status.def"
#undef MF_STATUS
} mf_status;

/* The name of a status, "MF_E_SHAPE" say; "MF_E_UNKNOWN" for a number that is none. */
MF_API const char *mf_status_name(mf_status status);

/* What a status means in general. For what happened in this call, see mf_error_message. */
MF_API const char *mf_status_text(mf_status status);

/* The name of the Python exception class that stands for a status; "" for MF_OK. */
MF_API const char *mf_status_python(mf_status status);

/* What the last failed call of this thread said: what was given, what is allowed, what to try.
 * Keyed to the status: any other status than that call's gives the general text.
 * Owns: the library; valid until the next failing call of this thread. */
MF_API const char *mf_error_message(mf_status status);

/* Free a string or buffer that the library returned; NULL is fine. */
MF_API void mf_free(void *memory);

/* "0.1.0"; of the library that runs, where MF_VERSION_STRING is of the header that was compiled in. */
MF_API const char *mf_version(void);

/* Records of what the library does, one line each: `topics` is a list of "plan", "run", "tune", "cache", "load", or "all"; NULL or
 * "": none. They go to `function`, or, with NULL, to stderr. In the beginning the environment's MATHFUSE_VERBOSE says which
 * topics go to stderr.
 * Threads: `function` is called on whatever thread has something to tell, several at once.
 * Errors: MF_E_INVALID for a topic that there is not. */
typedef void mf_log_function(const char *topic, const char *text, void *user);
MF_API mf_status mf_log_to(const char *topics, mf_log_function *function, void *user);

#ifdef __cplusplus
}
#endif
#endif
