/* One-line records on stderr for the topics named in MATHFUSE_VERBOSE. */
#define _GNU_SOURCE
#include "core.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name;
    int bits;
} topics[] = {
    {"plan", MFI_LOG_PLAN},   {"run", MFI_LOG_RUN},   {"tune", MFI_LOG_TUNE},
    {"cache", MFI_LOG_CACHE}, {"load", MFI_LOG_LOAD}, {"all", ~0},
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int enabled;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two below */
static mf_log_function *receiver;
static void *receiver_user;

/* Bits of the topics in a list; *unknown: the first word that is none. */
static int parse(const char *p, const char **unknown)
{
    int bits = 0;
    *unknown = NULL;
    while (p && *p) {
        size_t length = strcspn(p, ", ");
        int found = 0;
        for (size_t i = 0; i < MFI_COUNT(topics); i++)
            if (strlen(topics[i].name) == length && !strncmp(topics[i].name, p, length))
                found = topics[i].bits;
        if (length && !found && !*unknown)
            *unknown = p;
        bits |= found;
        p += length + (p[length] != 0);
    }
    return bits;
}

static void read_environment(void)
{
    const char *unknown;
    enabled = parse(getenv("MATHFUSE_VERBOSE"), &unknown);
    if (unknown)
        fprintf(stderr,
                "mathfuse: MATHFUSE_VERBOSE names no topic with \"%s\"; there are plan, run, tune, cache, load, all\n",
                unknown);
}

mf_status mf_log_to(const char *names, mf_log_function *function, void *user)
{
    const char *unknown;
    int bits = parse(names, &unknown);
    MF_REQUIRE(!unknown, MF_E_INVALID, "no topic is called \"%s\"; there are plan, run, tune, cache, load and all",
               unknown);
    pthread_once(&once, read_environment);
    pthread_mutex_lock(&lock);
    receiver = function;
    receiver_user = user;
    enabled = bits;
    pthread_mutex_unlock(&lock);
    return MF_OK;
}

bool mfi_log_on(mfi_topic topic)
{
    pthread_once(&once, read_environment);
    return enabled & (int)topic;
}

void mfi_log(mfi_topic topic, const char *format, ...)
{
    if (!mfi_log_on(topic))
        return;
    const char *name = "";
    for (size_t i = 0; i < MFI_COUNT(topics); i++)
        if (topics[i].bits == (int)topic)
            name = topics[i].name;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    pthread_mutex_lock(&lock);
    mf_log_function *function = receiver;
    void *user = receiver_user;
    pthread_mutex_unlock(&lock);
    if (function)
        function(name, line, user);
    else
        fprintf(stderr, "mathfuse %s: %s\n", name, line); /* one call: records of several threads do not mix */
}
