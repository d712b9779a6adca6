/* Where files of the user's are kept. */
#ifndef MFI_CACHE_DIR_H
#define MFI_CACHE_DIR_H

#include "core.h"

#define MFI_PATH_BYTES 1024

const char *mfi_variable(const char *name); /* of the environment; NULL if not set or empty */
bool mfi_make_directories(char *path);      /* mkdir -p; writes to path, and restores it */
/* MATHFUSE_CACHE_DIR, else below XDG_CACHE_HOME or HOME; room for a file name is left. False: none of them is set. */
bool mfi_cache_directory(char out[MFI_PATH_BYTES]);

#endif
