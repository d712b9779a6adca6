/* Vendor libraries, loaded on first use. */
#ifndef MFI_LOADER_H
#define MFI_LOADER_H

#include "provider.h"

/* What was found. Strings live as long as the process. */
typedef struct mfi_library_info {
    const char *name; /* "OpenBLAS (CBLAS)" */
    bool found;
    char version[64];  /* "13.1.0" as the library tells it, "" unknown */
    int64_t number;    /* the same as a number the library defines (cublasLtGetVersion), 0 unknown */
    int major;         /* CUDA major it belongs to, 0 none */
    char path[512];    /* of the file loaded */
    char how[96];      /* "already loaded", "MATHFUSE_BLAS", "CUDA_HOME", "system search" */
    char missing[768]; /* what was tried and why it failed, and what to install */
} mfi_library_info;

/* Load on first call (thread-safe, once per process; a failure is remembered). Never unloaded. */
const mfi_library_info *mfi_library_load(mfi_library library);
/* A symbol of a loaded library; NULL if the library or the symbol is missing. BLAS tries "name", then "scipy_name". */
void *mfi_library_symbol(mfi_library library, const char *name);

#endif
