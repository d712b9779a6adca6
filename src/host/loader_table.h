/* What the loader knows about each library: names, order, dependencies, how to install it. Used by loader*.c only. */
#ifndef MFI_LOADER_TABLE_H
#define MFI_LOADER_TABLE_H

#include "loader.h"

typedef struct mfi_candidate {
    const char *soname; /* file name, or a glob(3) pattern for libraries whose file names carry a hash */
    int major;          /* CUDA major it belongs to, 0 none */
    bool global;        /* its own parts look for its symbols in the global scope */
} mfi_candidate;

#define MFI_MAX_CANDIDATES 12 /* the last one is empty */
#define MFI_MAX_DEPENDENCIES 4

typedef struct mfi_library_spec {
    const char *name, *variable;
    const char *symbol;                /* must be there, as it is or with scipy_ in front */
    const char *install;               /* what to do when it is missing */
    const char *const *subdirectories; /* below a directory that is searched, "" for itself; NULL-terminated */
    bool cuda;                         /* part of the CUDA toolkit: one major per process */
    mfi_candidate candidates[MFI_MAX_CANDIDATES];
    struct {
        const char *soname, *component;
        int major; /* 0: of either */
    } dependencies[2 * MFI_MAX_DEPENDENCIES];
} mfi_library_spec;

extern const mfi_library_spec mfi_library_specs[MFI_LIB_COUNT];

/* Fill name, version, number and major of `info` from what the library says of itself. False: it cannot be used, and
 * `why` says so. `find` looks a symbol up. */
bool mfi_library_identify(mfi_library library, mfi_library_info *info, void *(*find)(void *handle, const char *name),
                          void *handle, char *why, size_t why_bytes);

#endif
