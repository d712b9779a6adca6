/* Finding and loading vendor libraries. One search order for all; loader_table.c has the names, loader_version.c asks
 * what was found for its version. Nothing is ever unloaded: libraries leave threads and handlers behind. */
#define _GNU_SOURCE
#include "loader_table.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 1024

static struct {
    mfi_library_info info;
    void *handle;
    atomic_bool done;
} libraries[MFI_LIB_COUNT];

/* Guards everything below and the loading itself; readers of a done library need no lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *directories;

/* The CUDA major of this process, and the file that decided it. 0: undecided. */
static struct {
    int major;
    char path[512];
} bound;

/* One search: for which library, and what went wrong on the way. */
typedef struct search {
    mfi_library library;
    const mfi_library_spec *spec;
    mfi_library_info *info;
    const char *how;
    void *handle;
    char trouble[400]; /* files that were there and could not be used */
    char places[256];  /* where it was looked for */
    char system[200];  /* what the system search said */
} search;

static void append(char *text, size_t bytes, const char *format, ...) MFI_PRINTF(3, 4);
static void append(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* ---- one file ---- */

static void path_of(void *handle, char *path, size_t bytes)
{
    struct link_map *map = NULL;
    path[0] = 0;
    if (!dlinfo(handle, RTLD_DI_LINKMAP, &map) && map)
        snprintf(path, bytes, "%s", map->l_name);
}

/* A symbol that the library itself defines, not one of the libraries it depends on. */
static void *own_symbol(void *handle, const char *name)
{
    char path[PATH_BYTES];
    Dl_info where;
    void *symbol = dlsym(handle, name);
    path_of(handle, path, sizeof path);
    return symbol && dladdr(symbol, &where) && where.dli_fname && !strcmp(where.dli_fname, path) ? symbol : NULL;
}

static void *any_symbol(void *handle, const char *name)
{
    char prefixed[128];
    void *symbol = dlsym(handle, name);
    if (symbol)
        return symbol;
    snprintf(prefixed, sizeof prefixed, "scipy_%s", name);
    return dlsym(handle, prefixed);
}

static void *library_symbol(mfi_library library, void *handle, const char *name)
{
    return library <= MFI_LIB_LAPACK ? any_symbol(handle, name) : dlsym(handle, name);
}

static void *identity_symbol(void *handle, const char *name)
{
    char prefixed[128];
    void *symbol = own_symbol(handle, name);
    snprintf(prefixed, sizeof prefixed, "scipy_%s", name);
    return symbol ? symbol : own_symbol(handle, prefixed);
}

static void load_locked(mfi_library library);

/* Decide the process's CUDA major from what is loaded already, by us or by others; a driver of CUDA 12 runs no library
 * of CUDA 13. */
static void bind_major(void)
{
    static const mfi_candidate witnesses[] = {
        {"libcudart.so.13", 13, false},   {"libcudart.so.12", 12, false},    {"libcublasLt.so.13", 13, false},
        {"libcublasLt.so.12", 12, false}, {"libnvrtc.so.13", 13, false},     {"libnvrtc.so.12", 12, false},
        {"libcufft.so.12", 13, false},    {"libcufft.so.11", 12, false},     {"libcusolver.so.12", 13, false},
        {"libcusolver.so.11", 12, false}, {"libnvJitLink.so.13", 13, false}, {"libnvJitLink.so.12", 12, false},
    };
    for (size_t i = 0; !bound.major && i < MFI_COUNT(witnesses); i++) {
        void *handle = dlopen(witnesses[i].soname, RTLD_NOW | RTLD_NOLOAD);
        if (!handle)
            continue;
        bound.major = witnesses[i].major;
        path_of(handle, bound.path, sizeof bound.path);
    }
    if (bound.major)
        return;
    load_locked(MFI_LIB_CUDA);
    const mfi_library_info *driver = &libraries[MFI_LIB_CUDA].info;
    if (driver->found && driver->number < 13000) {
        bound.major = 12;
        snprintf(bound.path, sizeof bound.path, "%s", driver->path);
    }
}

/* Check a loaded file and take it. False: it cannot be used; the reason is in s->trouble. */
static bool accept(search *s, void *handle, int major, const char *name)
{
    char path[sizeof s->info->path], why[160] = "";
    mfi_library_info found = *s->info;
    path_of(handle, path, sizeof path);
    snprintf(found.path, sizeof found.path, "%s", path[0] ? path : name);
    found.major = major;
    if (!library_symbol(s->library, handle, s->spec->symbol))
        snprintf(why, sizeof why, "it has no %s", s->spec->symbol);
    else if (mfi_library_identify(s->library, &found, identity_symbol, handle, why, sizeof why) && s->spec->cuda &&
             bound.major && found.major != bound.major)
        snprintf(why, sizeof why, "it belongs to CUDA %d, but this process uses CUDA %d", found.major, bound.major);
    if (why[0]) {
        bool mixed = s->spec->cuda && bound.major && found.major && found.major != bound.major;
        append(s->trouble, sizeof s->trouble, "%s: %s%s%s; ", found.path, why, mixed ? ": " : "",
               mixed ? bound.path : "");
        return false;
    }
    if (s->spec->cuda && !bound.major) {
        bound.major = found.major;
        snprintf(bound.path, sizeof bound.path, "%s", found.path);
    }
    found.found = true;
    snprintf(found.how, sizeof found.how, "%s", s->how);
    *s->info = found;
    s->handle = handle;
    return true;
}

static void *open_file(const char *path, bool global)
{
    return dlopen(path, RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
}

/* Load what `path` needs from where it lies, so that no other copy is picked up from the system's directories. */
static void open_dependencies(const search *s, const char *path, int major)
{
    const char *slash = strrchr(path, '/');
    int directory = slash ? (int)(slash - path) : 0;
    for (size_t i = 0; slash && i < MFI_COUNT(s->spec->dependencies) && s->spec->dependencies[i].soname; i++) {
        const char *soname = s->spec->dependencies[i].soname;
        if (s->spec->dependencies[i].major && s->spec->dependencies[i].major != major)
            continue;
        if (!strchr(soname, '*') && dlopen(soname, RTLD_NOW | RTLD_NOLOAD))
            continue;
        char pattern[2 * PATH_BYTES];
        for (int sibling = 0; sibling < 2; sibling++) {
            if (sibling)
                snprintf(pattern, sizeof pattern, "%.*s/../../%s/lib/%s", directory, path,
                         s->spec->dependencies[i].component, soname);
            else
                snprintf(pattern, sizeof pattern, "%.*s/%s", directory, path, soname);
            glob_t found;
            bool any = !glob(pattern, 0, NULL, &found);
            for (size_t j = 0; any && j < found.gl_pathc; j++)
                if (!open_file(found.gl_pathv[j], false))
                    mfi_log(MFI_LOG_LOAD, "%s", dlerror());
            globfree(&found);
            if (any)
                break;
        }
    }
}

static bool try_file(search *s, const char *path, const mfi_candidate *candidate)
{
    if (s->spec->cuda && candidate->major && bound.major && candidate->major != bound.major) {
        append(s->trouble, sizeof s->trouble, "%s: it belongs to CUDA %d, but this process uses CUDA %d: %s; ", path,
               candidate->major, bound.major, bound.path);
        return false;
    }
    open_dependencies(s, path, candidate->major);
    void *handle = open_file(path, candidate->global);
    if (!handle) {
        const char *error = dlerror();
        append(s->trouble, sizeof s->trouble, "%s%s%s; ", strncmp(error, path, strlen(path)) ? path : "",
               strncmp(error, path, strlen(path)) ? ": " : "", error);
        return false;
    }
    return accept(s, handle, candidate->major, path);
}

/* ---- the places, in order ---- */

static bool in_directory(search *s, const char *directory, int length)
{
    char pattern[2 * PATH_BYTES];
    for (const mfi_candidate *c = s->spec->candidates; c->soname; c++) {
        glob_t found;
        bool taken = false;
        snprintf(pattern, sizeof pattern, "%.*s/%s", length, directory, c->soname);
        if (!glob(pattern, 0, NULL, &found))
            for (size_t i = 0; i < found.gl_pathc && !taken; i++)
                taken = try_file(s, found.gl_pathv[i], c);
        globfree(&found);
        if (taken)
            return true;
    }
    return false;
}

/* Below a root: the subdirectories in which packages and toolkits keep libraries. */
static bool in_root(search *s, const char *root, int length)
{
    char directory[PATH_BYTES];
    while (length > 1 && root[length - 1] == '/')
        length--;
    for (const char *const *sub = s->spec->subdirectories; *sub; sub++) {
        int used = snprintf(directory, sizeof directory, "%.*s%s%s", length, root, **sub ? "/" : "", *sub);
        if (used > 0 && used < (int)sizeof directory && in_directory(s, directory, used))
            return true;
    }
    return false;
}

/* The variable of this library names a file, a name for the system search, or a directory; nothing else is tried. */
static bool in_variable(search *s, const char *value)
{
    struct stat status;
    mfi_candidate named = {value, 0, s->spec->candidates[0].global};
    s->how = s->spec->variable;
    append(s->places, sizeof s->places, "%s=%.150s only", s->spec->variable, value);
    if (!stat(value, &status) && S_ISDIR(status.st_mode))
        return in_root(s, value, (int)strlen(value));
    for (const mfi_candidate *c = s->spec->candidates; c->soname; c++) {
        const char *file = strrchr(value, '/') ? strrchr(value, '/') + 1 : value;
        if (!strncmp(file, c->soname, strcspn(c->soname, "*")))
            named = (mfi_candidate){value, s->spec->cuda ? c->major : 0, c->global};
    }
    return try_file(s, value, &named);
}

static bool already_loaded(search *s)
{
    s->how = "already loaded";
    append(s->places, sizeof s->places, "loaded already");
    for (const mfi_candidate *c = s->spec->candidates; c->soname; c++) {
        void *handle = dlopen(c->soname, RTLD_NOW | RTLD_NOLOAD);
        if (handle && accept(s, handle, c->major, c->soname))
            return true;
    }
    return false;
}

/* Beside the CUDA library that decided the major, and in the sibling packages of its wheel. */
static bool beside_bound(search *s)
{
    char how[sizeof s->info->how], directory[PATH_BYTES];
    const char *slash = strrchr(bound.path, '/');
    if (!s->spec->cuda || !slash)
        return false;
    snprintf(how, sizeof how, "beside %.80s", slash + 1);
    s->how = how;
    bool found = in_directory(s, bound.path, (int)(slash - bound.path));
    if (!found) {
        snprintf(directory, sizeof directory, "%.*s/../../..", (int)(slash - bound.path), bound.path);
        found =
            !access(directory, X_OK) && strstr(bound.path, "/nvidia/") && in_root(s, directory, (int)strlen(directory));
    }
    s->how = "";
    return found;
}

static bool in_given_directories(search *s)
{
    s->how = "mf_library_path";
    if (directories)
        append(s->places, sizeof s->places, ", mf_library_path");
    for (const char *p = directories; p && *p;) {
        int length = (int)strcspn(p, ":");
        if (length && in_root(s, p, length))
            return true;
        p += length + (p[length] == ':');
    }
    return false;
}

static bool in_system(search *s)
{
    s->how = "system search";
    append(s->places, sizeof s->places, ", system search");
    for (const mfi_candidate *c = s->spec->candidates; c->soname; c++) {
        if (strchr(c->soname, '*') || (s->spec->cuda && bound.major && c->major != bound.major))
            continue;
        void *handle = open_file(c->soname, c->global);
        const char *error = handle ? NULL : dlerror();
        if (handle && accept(s, handle, c->major, c->soname))
            return true;
        if (error && !strstr(error, "cannot open shared object file: No such file"))
            append(s->trouble, sizeof s->trouble, "%s; ", error);
        else if (error && !s->system[0])
            append(s->system, sizeof s->system, "%s", error);
    }
    return false;
}

static bool in_named_root(search *s, const char *name, const char *value)
{
    s->how = name;
    if (!value || access(value, X_OK))
        return false;
    append(s->places, sizeof s->places, ", %s", name);
    return in_root(s, value, (int)strlen(value));
}

/* Drivers lie where containers and distributions put them, never below a toolkit. */
static bool in_driver_places(search *s)
{
    static const char *const places[] = {"/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib"};
    for (size_t i = 0; i < MFI_COUNT(places); i++)
        if (in_named_root(s, places[i], places[i]))
            return true;
    return false;
}

/* LAPACK comes with most BLAS libraries: one library has one set of threads. */
static bool in_blas(search *s)
{
    if (s->library != MFI_LIB_LAPACK || !libraries[MFI_LIB_BLAS].handle)
        return false;
    s->how = "with CBLAS";
    return library_symbol(MFI_LIB_LAPACK, libraries[MFI_LIB_BLAS].handle, s->spec->symbol) &&
           accept(s, libraries[MFI_LIB_BLAS].handle, 0, "");
}

static bool look(search *s)
{
    const char *own = variable(s->spec->variable);
    if (own)
        return in_variable(s, own);
    if (in_blas(s) || already_loaded(s) || beside_bound(s) || in_given_directories(s))
        return true;
    if (s->library != MFI_LIB_CUDA && in_named_root(s, "CONDA_PREFIX", variable("CONDA_PREFIX")))
        return true;
    if (in_system(s) || (s->library == MFI_LIB_CUDA && in_driver_places(s)))
        return true;
    return s->spec->cuda && (in_named_root(s, "CUDA_PATH", variable("CUDA_PATH")) ||
                             in_named_root(s, "CUDA_HOME", variable("CUDA_HOME")) ||
                             in_named_root(s, "/usr/local/cuda", "/usr/local/cuda"));
}

static void report_missing(search *s)
{
    char names[160] = "";
    for (const mfi_candidate *c = s->spec->candidates; c->soname; c++)
        append(names, sizeof names, "%s%s", c == s->spec->candidates ? "" : ", ", c->soname);
    append(s->info->missing, sizeof s->info->missing, "%s%s not found (looked in: %s)%s%.120s; to install: %s",
           s->trouble, names, s->places, s->system[0] ? ": " : "", s->system, s->spec->install);
    mfi_log(MFI_LOG_LOAD, "%s: missing: %s", s->info->name, s->info->missing);
}

static void load_locked(mfi_library library)
{
    if (atomic_load_explicit(&libraries[library].done, memory_order_acquire))
        return;
    search s = {.library = library, .spec = &mfi_library_specs[library], .info = &libraries[library].info, .how = ""};
    s.info->name = s.spec->name;
    if (library == MFI_LIB_LAPACK && !variable(s.spec->variable))
        load_locked(MFI_LIB_BLAS);
    if (s.spec->cuda)
        bind_major();
    if (look(&s)) {
        libraries[library].handle = s.handle;
        mfi_log(MFI_LOG_LOAD, "%s %s: %s (%s)", s.info->name, s.info->version, s.info->path, s.info->how);
    } else {
        report_missing(&s);
    }
    atomic_store_explicit(&libraries[library].done, true, memory_order_release);
}

const mfi_library_info *mfi_library_load(mfi_library library)
{
    if (!atomic_load_explicit(&libraries[library].done, memory_order_acquire)) {
        pthread_mutex_lock(&lock);
        load_locked(library);
        pthread_mutex_unlock(&lock);
    }
    return &libraries[library].info;
}

void *mfi_library_symbol(mfi_library library, const char *name)
{
    return mfi_library_load(library)->found ? library_symbol(library, libraries[library].handle, name) : NULL;
}

mf_status mf_library_path(const char *list)
{
    char *copy = list ? mfi_strdup(list) : NULL;
    if (list && !copy)
        return MFI_NO_MEMORY(strlen(list) + 1);
    pthread_mutex_lock(&lock);
    mf_free(directories);
    directories = copy;
    pthread_mutex_unlock(&lock);
    return MF_OK;
}
