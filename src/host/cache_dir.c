/* Where files of the user's are kept: compiled kernels, the tuning database. */
#include "cache_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

const char *mfi_variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* mkdir -p; 0700, since whoever can write here can run code in the reader's process. */
bool mfi_make_directories(char *path)
{
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        int failed = mkdir(path, 0700) && errno != EEXIST;
        *p = '/';
        if (failed && errno != EROFS && errno != EACCES)
            return false;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

bool mfi_cache_directory(char out[MFI_PATH_BYTES])
{
    const char *own = mfi_variable("MATHFUSE_CACHE_DIR"), *xdg = mfi_variable("XDG_CACHE_HOME"),
               *home = mfi_variable("HOME");
    int length = own                      ? snprintf(out, MFI_PATH_BYTES, "%s", own)
                 : xdg && xdg[0] == '/'   ? snprintf(out, MFI_PATH_BYTES, "%s/mathfuse", xdg)
                 : home && home[0] == '/' ? snprintf(out, MFI_PATH_BYTES, "%s/.cache/mathfuse", home)
                                          : -1;
    if (length < 0)
        mfi_log(MFI_LOG_CACHE, "no cache: none of MATHFUSE_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
    return length > 0 && length < MFI_PATH_BYTES - 128;
}
