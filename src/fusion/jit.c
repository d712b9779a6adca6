/* Compilation with NVRTC: device headers from memory, results through the disk cache, modules kept by their context. */
#include "fusion.h"

#include "cuda_api.h"
#include "jit_elf.h"
#include "loader.h"

#include <pthread.h>
#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#ifdef MFI_WITH_CUDA
#include <nvrtc.h>

#define NVRTC_FUNCTIONS(X)                                                                                             \
    X(nvrtcVersion)                                                                                                    \
    X(nvrtcGetErrorString)                                                                                             \
    X(nvrtcCreateProgram)                                                                                              \
    X(nvrtcDestroyProgram)                                                                                             \
    X(nvrtcCompileProgram)                                                                                             \
    X(nvrtcGetProgramLogSize)                                                                                          \
    X(nvrtcGetProgramLog)                                                                                              \
    X(nvrtcGetCUBINSize)                                                                                               \
    X(nvrtcGetCUBIN)                                                                                                   \
    X(nvrtcGetPTXSize)                                                                                                 \
    X(nvrtcGetPTX)                                                                                                     \
    X(nvrtcGetLTOIRSize)                                                                                               \
    X(nvrtcGetLTOIR)

static struct {
#define FIELD(name) __typeof__(name) *name;
    NVRTC_FUNCTIONS(FIELD)
#undef FIELD
} rtc;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *absent; /* the function that the library found lacks */
static int version[2];

static void load_functions(void)
{
#define LOAD(name)                                                                                                     \
    do {                                                                                                               \
        void *symbol_ = mfi_library_symbol(MFI_LIB_NVRTC, #name);                                                      \
        memcpy(&rtc.name, &symbol_, sizeof symbol_);                                                                   \
        absent = symbol_ || absent ? absent : #name;                                                                   \
    } while (0);
    NVRTC_FUNCTIONS(LOAD)
#undef LOAD
    if (!absent)
        rtc.nvrtcVersion(&version[0], &version[1]);
}

static mf_status usable(void)
{
    const mfi_library_info *info = mfi_library_load(MFI_LIB_NVRTC);
    MF_REQUIRE(info->found, MF_E_MISSING, "NVRTC, which compiles generated kernels, was not found: %s", info->missing);
    pthread_once(&once, load_functions);
    MF_REQUIRE(!absent, MF_E_LIBRARY, "%s has no %s: install a newer NVRTC", info->path, absent);
    return MF_OK;
}

static mf_status check(nvrtcResult result, const char *call, const char *name)
{
    MF_REQUIRE(result == NVRTC_SUCCESS, result == NVRTC_ERROR_OUT_OF_MEMORY ? MF_E_MEMORY : MF_E_LIBRARY,
               "%s of kernel %s: %s", call, name, rtc.nvrtcGetErrorString(result));
    return MF_OK;
}

static char *program_log(nvrtcProgram program)
{
    size_t bytes = 0;
    char *log = rtc.nvrtcGetProgramLogSize(program, &bytes) == NVRTC_SUCCESS ? mfi_alloc(bytes + 1) : NULL;
    if (log) {
        log[0] = log[bytes] = 0;
        if (bytes > 1)
            rtc.nvrtcGetProgramLog(program, log);
    }
    return log;
}

/* Lines of the generated source in Nsight Compute. */
static bool line_info(void)
{
    const char *text = getenv("MATHFUSE_LINEINFO");
    return text && text[0] && strcmp(text, "0") != 0;
}

static int gather_options(const char **out, int room, char *architecture, size_t bytes, const char *arch,
                          const char *const *options)
{
    int count = 0;
    snprintf(architecture, bytes, "--gpu-architecture=%s", arch);
    out[count++] = architecture;
    out[count++] = "--std=c++17";
    out[count++] = "--device-as-default-execution-space";
    if (line_info())
        out[count++] = "-lineinfo";
    for (int i = 0; options && options[i] && count < room; i++)
        out[count++] = options[i];
    return count;
}

typedef nvrtcResult (*size_function)(nvrtcProgram, size_t *);
typedef nvrtcResult (*code_function)(nvrtcProgram, char *);

static mf_status take_code(void **out, size_t *bytes, nvrtcProgram program, mf_code code, const char *name)
{
    static const char *const calls[] = {"nvrtcGetCUBIN", "nvrtcGetPTX", "nvrtcGetLTOIR"};
    const size_function sizes[] = {rtc.nvrtcGetCUBINSize, rtc.nvrtcGetPTXSize, rtc.nvrtcGetLTOIRSize};
    const code_function codes[] = {rtc.nvrtcGetCUBIN, rtc.nvrtcGetPTX, rtc.nvrtcGetLTOIR};
    MF_TRY(check(sizes[code](program, bytes), calls[code], name));
    *out = mfi_alloc(*bytes);
    if (!*out)
        return MFI_NO_MEMORY(*bytes);
    mf_status status = check(codes[code](program, *out), calls[code], name);
    if (status != MF_OK) {
        mf_free(*out);
        *out = NULL;
    }
    return status;
}

mf_status mfi_jit_build(void **out, size_t *bytes, mf_code code, char **log, const char *arch, const char *name,
                        const char *source, const char *const *options)
{
    enum { ROOM = 64 };
    const char *all[ROOM];
    char file[96], architecture[64];
    nvrtcProgram program = NULL;
    *out = NULL;
    *bytes = 0;
    if (log)
        *log = NULL;
    MF_TRY(usable());
    snprintf(file, sizeof file, "%s.cu", name);
    int count = gather_options(all, ROOM - 1, architecture, sizeof architecture, arch, options);
    if (code == MF_LTOIR)
        all[count++] = "--dlink-time-opt";
    MF_TRY(check(
        rtc.nvrtcCreateProgram(&program, source, file, mfi_embedded_count, mfi_embedded_texts, mfi_embedded_names),
        "nvrtcCreateProgram", name));
    nvrtcResult result = rtc.nvrtcCompileProgram(program, count, all);
    char *said = program_log(program);
    mf_status status = MF_OK;
    if (result == NVRTC_ERROR_COMPILATION || result == NVRTC_ERROR_INVALID_OPTION)
        status = mfi_fail(MF_E_COMPILE, "kernel %s does not compile for %s with NVRTC %d.%d: %s", name, arch,
                          version[0], version[1], said && said[0] ? said : rtc.nvrtcGetErrorString(result));
    else
        status = check(result, "nvrtcCompileProgram", name);
    if (status == MF_OK)
        status = take_code(out, bytes, program, code, name);
    rtc.nvrtcDestroyProgram(&program);
    if (log)
        *log = said;
    else
        mf_free(said);
    return status;
}

static int nvrtc_version(void)
{
    return usable() == MF_OK ? version[0] * 100 + version[1] : 0;
}
#else
mf_status mfi_jit_build(void **out, size_t *bytes, mf_code code, char **log, const char *arch, const char *name,
                        const char *source, const char *const *options)
{
    *out = NULL;
    *bytes = 0;
    if (log)
        *log = NULL;
    (void)code, (void)arch, (void)source, (void)options;
    return mfi_fail(MF_E_MISSING, "kernel %s cannot be compiled: this build of mathfuse has no CUDA support", name);
}

static int nvrtc_version(void)
{
    return 0;
}
#endif

/* ---- the modules of a context ---- */

/* Its key is in the list from when a thread begins to build it, so that who wants the same kernel waits for it and who
 * wants another one does not. */
typedef struct kept {
    mfi_module module;
    XXH128_hash_t key;
    bool built;
    struct kept *next;
} kept;

typedef struct modules {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something was built, or could not be */
    kept *first;
} modules;

static const char owner; /* its address names the modules among the context's objects */

static void free_kept(kept *k)
{
    mfi_cuda_module_unload(k->module.module);
    mf_free(k->module.source);
    mf_free(k->module.cubin);
    mf_free(k);
}

static void drop_modules(void *object)
{
    modules *m = object;
    while (m->first) {
        kept *k = m->first;
        m->first = k->next;
        free_kept(k);
    }
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    mf_free(m);
}

static mf_status make_modules(void **out, mf_context *context)
{
    (void)context;
    modules *m = mfi_calloc(1, sizeof *m);
    *out = m;
    if (!m)
        return MFI_NO_MEMORY(sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    return MF_OK;
}

static pthread_once_t headers_once = PTHREAD_ONCE_INIT;
static uint64_t headers_hash;

static void hash_headers(void)
{
    for (int i = 0; i < mfi_embedded_count; i++) {
        headers_hash = XXH3_64bits_withSeed(mfi_embedded_names[i], strlen(mfi_embedded_names[i]), headers_hash);
        headers_hash = XXH3_64bits_withSeed(mfi_embedded_texts[i], strlen(mfi_embedded_texts[i]), headers_hash);
    }
}

/* Everything that the code depends on. */
static XXH128_hash_t key_of(const char *arch, const char *source, const char *options)
{
    char rest[128];
    pthread_once(&headers_once, hash_headers);
    snprintf(rest, sizeof rest, "%s|%016llx|%d|c++17 %s%s", arch, (unsigned long long)headers_hash, nvrtc_version(),
             options, line_info() ? " -lineinfo" : "");
    uint64_t seed = XXH3_64bits(rest, strlen(rest));
    return XXH3_128bits_withSeed(source, strlen(source), seed);
}

static mf_status build_cached(void **out, size_t *bytes, mf_code code, XXH128_hash_t key, const char *arch,
                              const char *name, const char *source, const char *option)
{
    static const char *const kinds[] = {"cubin", "ptx", "ltoir"};
    const char *const options[] = {option, NULL};
    if (mfi_cache_get(out, bytes, kinds[code], key.high64, key.low64) == MF_OK)
        return MF_OK;
    MF_TRY(mfi_jit_build(out, bytes, code, NULL, arch, name, source, options));
    mfi_cache_put(kinds[code], key.high64, key.low64, *out, *bytes);
    return MF_OK;
}

static mf_status compile(kept *k, const char *arch, const char *name, const char *source, const char *option)
{
    mfi_module *m = &k->module;
    snprintf(m->name, sizeof m->name, "%s", name);
    m->source = mfi_strdup(source);
    if (!m->source)
        return MFI_NO_MEMORY(strlen(source));
    MF_TRY(build_cached(&m->cubin, &m->cubin_bytes, MF_CUBIN, k->key, arch, name, source, option));
    mfi_cubin_resources(m->cubin, m->cubin_bytes, name, &m->registers, &m->shared, &m->spills);
    return MF_OK;
}

static mf_status load(kept *k, mf_context *context)
{
    if (!mfi_context_caps(context)->present)
        return MF_OK;
    MF_TRY(mfi_context_make_current(context));
    return mfi_cuda_module_load(&k->module.module, &k->module.function, k->module.cubin, k->module.name);
}

static const char *contraction(bool contract)
{
    return contract ? "--fmad=true" : "--fmad=false";
}

mf_status mf_compile(void **out, size_t *bytes, mf_code code, const char *arch, const char *name, const char *source)
{
    *out = NULL;
    *bytes = 0;
    MF_REQUIRE(arch && name && source, MF_E_INVALID, "mf_compile: arch, name or source is NULL");
    MF_REQUIRE(code >= MF_CUBIN && code <= MF_LTOIR, MF_E_INVALID, "mf_compile: there is no code %d", (int)code);
    const char *option = contraction(true);
    return build_cached(out, bytes, code, key_of(arch, source, option), arch, name, source, option);
}

/* What is kept of `key`, or a new one that the caller has to build (*mine). NULL: no memory. */
static kept *claim(modules *m, XXH128_hash_t key, bool *mine)
{
    kept *k;
    *mine = false;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        for (k = m->first; k && !XXH128_isEqual(k->key, key);)
            k = k->next;
        if (!k || k->built)
            break;
        pthread_cond_wait(&m->changed, &m->lock);
    }
    if (!k) {
        k = mfi_calloc(1, sizeof *k);
        if (k) {
            *mine = true;
            k->key = key;
            k->next = m->first;
            m->first = k;
        }
    }
    pthread_mutex_unlock(&m->lock);
    return k;
}

/* It is built, or leaves the list: then who waits for it tries for itself, and gets its own error. */
static void settle(modules *m, kept *k, bool built)
{
    pthread_mutex_lock(&m->lock);
    k->built = built;
    kept **at = &m->first;
    while (*at != k)
        at = &(*at)->next;
    if (!built)
        *at = k->next;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    if (!built)
        free_kept(k);
}

mf_status mfi_jit_compile(mfi_module **out, mf_context *context, const char *name, const char *source, bool contract)
{
    void *object = NULL;
    bool mine;
    *out = NULL;
    MF_TRY(mfi_context_object(context, &owner, make_modules, drop_modules, &object));
    modules *m = object;
    const char *arch = mfi_context_caps(context)->arch;
    kept *k = claim(m, key_of(arch, source, contraction(contract)), &mine);
    if (!k)
        return MFI_NO_MEMORY(sizeof *k);
    if (mine) {
        mf_status status = compile(k, arch, name, source, contraction(contract));
        if (status == MF_OK)
            status = load(k, context);
        settle(m, k, status == MF_OK);
        MF_TRY(status);
    }
    *out = &k->module;
    return MF_OK;
}

static mf_status launch(const mfi_module *m, mf_context *context, int grid, int block, size_t shared, void *args,
                        size_t args_bytes, void *stream, bool early)
{
    const int grids[3] = {grid, 1, 1}, blocks[3] = {block, 1, 1};
    void *parameters[1] = {args};
    MF_REQUIRE(m->function, MF_E_STATE, "kernel %s was compiled for %s, which is not on this machine", m->name,
               mfi_context_caps(context)->arch);
    MF_REQUIRE(args_bytes > 0, MF_E_INTERNAL, "kernel %s has no arguments", m->name);
    mf_status status = mfi_cuda_launch(m->function, grids, blocks, shared, stream, parameters,
                                       early && mfi_context_caps(context)->sm >= 90);
    return status == MF_OK ? status : mfi_prefix(status, "kernel %s: ", m->name);
}

mf_status mfi_jit_launch(const mfi_module *m, mf_context *context, int grid, int block, size_t shared, void *args,
                         size_t args_bytes, void *stream)
{
    return launch(m, context, grid, block, shared, args, args_bytes, stream, false);
}

mf_status mfi_jit_launch_early(const mfi_module *m, mf_context *context, int grid, int block, size_t shared, void *args,
                               size_t args_bytes, void *stream)
{
    return launch(m, context, grid, block, shared, args, args_bytes, stream, true);
}
