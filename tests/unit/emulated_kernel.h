/* Generated kernels as functions of this process: the host compiler and emulate.h make a shared object of each. */
#ifndef EMULATED_KERNEL_H
#define EMULATED_KERNEL_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "emit.h"

/* What watches over this program watches over its kernels. */
#ifdef __SANITIZE_ADDRESS__
#define SANITIZE "-fsanitize=address "
#else
#define SANITIZE ""
#endif

static char emulated_folder[64];

typedef const char *(*emulated_launcher)(const void *args, int grid, int block);

/* The source tree, from where this file lies. */
static inline int root_length(void)
{
    return (int)(strlen(__FILE__) - strlen("tests/unit/emulated_kernel.h"));
}

/* `call`: C++ statements that launch with kernel_args a, int grid, int block, and return an error or NULL. NULL: it does not
 * compile. */
static inline emulated_launcher emulated_compile(const char *source, const char *call, int number)
{
    char path[128], command[1024];
    snprintf(path, sizeof path, "%s/k%d.cpp", emulated_folder, number);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    fprintf(f,
            "#include \"mathfuse/device/emulate.h\"\n%s\n#include <string.h>\n"
            "extern \"C\" const char *run_it(const void *args, int grid, int block)\n{\n    kernel_args a;\n"
            "    memcpy(&a, args, sizeof a);\n    %s\n}\n",
            source, call);
    fclose(f);
    snprintf(command, sizeof command,
             "c++ -std=c++17 -O0 -fPIC -shared " SANITIZE "-I%.*sinclude -I%.*ssrc %s -o %s.so", root_length(),
             __FILE__, root_length(), __FILE__, path, path);
    if (system(command))
        return NULL;
    strcat(path, ".so");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert(library, "%s", dlerror());
    void *symbol = dlsym(library, "run_it");
    emulated_launcher out;
    memcpy(&out, &symbol, sizeof out);
    return out;
}

/* False: there is no compiler to do it. */
static inline bool emulated_begin(void)
{
    if (system("c++ --version >/dev/null 2>&1"))
        return false;
    snprintf(emulated_folder, sizeof emulated_folder, "/tmp/mathfuse-test-XXXXXX");
    cr_assert(mkdtemp(emulated_folder));
    return true;
}

static inline void emulated_end(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", emulated_folder);
    cr_expect_eq(system(command), 0);
}

static inline uint64_t slot_address(char *const *slots, const mfi_view *view)
{
    return (uint64_t)(uintptr_t)(slots[view->slot] + view->offset * (int64_t)mf_dtype_size(view->dtype));
}

#endif
