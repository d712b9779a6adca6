/* What a kernel takes, read from its cubin. */
#ifndef MFI_JIT_ELF_H
#define MFI_JIT_ELF_H

#include <stddef.h>

/* Registers a thread, static shared bytes a block, bytes of local memory a thread; each -1 where the file does not
 * tell. */
void mfi_cubin_resources(const void *cubin, size_t bytes, const char *kernel, int *registers, int *shared, int *local);

#endif
