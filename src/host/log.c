/* One-line records on stderr for the topics named in MATHFUSE_VERBOSE. */
#define _GNU_SOURCE
#include "core.h"

#include <pthread.h>
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
static int enabled;

static void read_environment(void)
{
    const char *p = getenv("MATHFUSE_VERBOSE");
    while (p && *p) {
        size_t length = strcspn(p, ", ");
        for (size_t i = 0; i < MFI_COUNT(topics); i++)
            if (strlen(topics[i].name) == length && !strncmp(topics[i].name, p, length))
                enabled |= topics[i].bits;
        p += length + (p[length] != 0);
    }
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
    fprintf(stderr, "mathfuse %s: %s\n", name, line); /* one call: records of several threads do not mix */
}
