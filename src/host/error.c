/* Status names and texts, and the thread's last error message. */
#include "core.h"
#include "provider.h"

#include <stdio.h>
#include <stdlib.h>

static _Thread_local struct {
    mf_status status;
    char text[1024];
} last;

static const struct {
    mf_status status;
    const char *name, *text, *python;
} statuses[] = {
#define MF_STATUS(ENUM, value, text, python) {MF_##ENUM, "MF_" #ENUM, text, python},
#include "mathfuse/def/status.def"
#undef MF_STATUS
};

static int find(mf_status status)
{
    for (size_t i = 0; i < MFI_COUNT(statuses); i++)
        if (statuses[i].status == status)
            return (int)i;
    return -1;
}

const char *mf_status_name(mf_status status)
{
    int i = find(status);
    return i < 0 ? "MF_E_UNKNOWN" : statuses[i].name;
}

const char *mf_status_text(mf_status status)
{
    int i = find(status);
    return i < 0 ? "a number that is no status" : statuses[i].text;
}

const char *mf_status_python(mf_status status)
{
    int i = find(status);
    return i < 0 ? "RuntimeError" : statuses[i].python;
}

const char *mf_error_message(mf_status status)
{
    return status != MF_OK && last.status == status && last.text[0] ? last.text : mf_status_text(status);
}

const char *mf_version(void)
{
    return MF_VERSION_STRING;
}

mf_status mfi_set_error(mf_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last.text, sizeof last.text, format, args);
    va_end(args);
    last.status = status;
    return status;
}

mf_status mfi_prefix_error(mf_status status, const char *format, ...)
{
    char old[sizeof last.text], head[256];
    snprintf(old, sizeof old, "%s", mf_error_message(status));
    va_list args;
    va_start(args, format);
    vsnprintf(head, sizeof head, format, args);
    va_end(args);
    size_t n = strlen(head);
    memcpy(last.text, head, n);
    snprintf(last.text + n, sizeof last.text - n, "%.*s", (int)(sizeof old - sizeof head), old);
    last.status = status;
    return status;
}

static const struct {
    const char *name, *text;
} reasons[] = {
#define MF_REASON(ENUM, text) {#ENUM, text},
#include "mathfuse/def/reason.def"
#undef MF_REASON
};
_Static_assert(MFI_COUNT(reasons) == MFI_REASON_COUNT, "one row per reason");

const char *mfi_reason_name(mfi_reason reason)
{
    return reasons[reason].name;
}

const char *mfi_reason_text(mfi_reason reason)
{
    return reasons[reason].text;
}

bool mfi_refuse(mfi_bid *bid, mfi_reason reason, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bid->reason = reason;
    vsnprintf(bid->detail, sizeof bid->detail, format, args);
    va_end(args);
    return false;
}
