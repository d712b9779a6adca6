/* What a loaded library says of itself: its name, its version, the CUDA major it belongs to, and whether it can be
 * used. */
#include "loader_table.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct probe {
    void *(*find)(void *handle, const char *name);
    void *handle;
    mfi_library_info *info;
    char *why;
    size_t why_bytes;
} probe;

/* dlsym gives object pointers; ISO C has no cast from those to functions. */
#define FUNCTION(variable, name)                                                                                       \
    do {                                                                                                               \
        void *symbol_ = p->find(p->handle, name);                                                                      \
        memcpy(&(variable), &symbol_, sizeof symbol_);                                                                 \
    } while (0)

static bool unusable(probe *p, const char *text)
{
    snprintf(p->why, p->why_bytes, "%s", text);
    return false;
}

/* Keep the first dotted number of `text`, "0.3.21" of "OpenBLAS 0.3.21 DYNAMIC_ARCH", also as 10000 a + 100 b + c. */
static void dotted(mfi_library_info *info, const char *text)
{
    while (*text && !(*text >= '0' && *text <= '9'))
        text++;
    size_t length = strspn(text, "0123456789.");
    long part[3] = {0};
    const char *at = text;
    for (int i = 0; i < 3 && *at >= '0' && *at <= '9'; i++) {
        char *end = NULL;
        part[i] = strtol(at, &end, 10);
        at = *end == '.' ? end + 1 : end;
    }
    snprintf(info->version, sizeof info->version, "%.*s", (int)length, text);
    info->number = part[0] * 10000 + part[1] * 100 + part[2];
}

static bool identify_blas(probe *p, const char *interface)
{
    char *(*config)(void) = NULL;
    void (*mkl)(char *, int) = NULL;
    char *(*blis)(void) = NULL;
    char text[256] = "";
    const char *vendor = "";
    static const char *const names[][3] = {{"OpenBLAS (CBLAS)", "OpenBLAS (LAPACK)", "OpenBLAS"},
                                           {"Intel MKL (CBLAS)", "Intel MKL (LAPACK)", "Intel MKL"},
                                           {"BLIS (CBLAS)", "BLIS (LAPACK)", "BLIS"}};
    int column = !strcmp(interface, "CBLAS") ? 0 : 1;
    FUNCTION(config, "openblas_get_config");
    FUNCTION(mkl, "mkl_get_version_string");
    FUNCTION(blis, "bli_info_get_version_str");
    if (config) {
        vendor = names[0][column];
        snprintf(text, sizeof text, "%s", config());
        if (strstr(text, "USE64BITINT"))
            return unusable(p, "it takes 64-bit integers; a build with 32-bit integers (LP64) is needed");
    } else if (mkl) {
        vendor = names[1][column];
        mkl(text, (int)sizeof text - 1);
    } else if (blis) {
        vendor = names[2][column];
        snprintf(text, sizeof text, "%s", blis());
    }
    if (vendor[0])
        p->info->name = vendor;
    dotted(p->info, text);
    return true;
}

static bool identify_fftw(probe *p, const char *symbol)
{
    const char *version = p->find(p->handle, symbol);
    void (*mkl)(char *, int) = NULL;
    char text[256] = "";
    FUNCTION(mkl, "mkl_get_version_string");
    if (version) {
        snprintf(text, sizeof text, "%.200s", version);
    } else if (mkl) {
        p->info->name = "Intel MKL (FFTW3)";
        mkl(text, (int)sizeof text - 1);
    }
    dotted(p->info, text);
    return true;
}

static bool identify_sqlite(probe *p)
{
    const char *(*version)(void) = NULL;
    FUNCTION(version, "sqlite3_libversion");
    dotted(p->info, version ? version() : "");
    return p->info->number >= 33800 ? true : unusable(p, "it is older than 3.38, whose JSON functions are needed");
}

static bool identify_driver(probe *p)
{
    int (*get)(int *) = NULL;
    int version = 0;
    if (strstr(p->info->path, "/stubs/"))
        return unusable(p, "it is the toolkit's stub for linking, no driver");
    FUNCTION(get, "cuDriverGetVersion");
    if (!get || get(&version))
        return unusable(p, "cuDriverGetVersion failed");
    snprintf(p->info->version, sizeof p->info->version, "%d.%d", version / 1000, version % 1000 / 10);
    p->info->number = version;
    return true;
}

/* Versions as each library numbers them: cuBLAS 10000 a + 100 b + c; cuFFT and cuSOLVER 1000 a + 100 b + c. */
static bool numbered(probe *p, int64_t number, int64_t unit)
{
    snprintf(p->info->version, sizeof p->info->version, "%lld.%lld.%lld", (long long)(number / unit),
             (long long)(number % unit / 100), (long long)(number % 100));
    p->info->number = number;
    return true;
}

static bool identify_cublas(probe *p)
{
    int (*property)(int, int *) = NULL;
    int part[3] = {0};
    FUNCTION(property, "cublasGetProperty");
    for (int i = 0; i < 3; i++) /* MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL of libraryPropertyType */
        if (!property || property(i, &part[i]))
            return unusable(p, "cublasGetProperty failed");
    numbered(p, part[0] * 10000 + part[1] * 100 + part[2], 10000);
    p->info->major = part[0];
    return true;
}

static bool identify_cublaslt(probe *p)
{
    size_t (*version)(void) = NULL;
    FUNCTION(version, "cublasLtGetVersion");
    if (!version)
        return unusable(p, "it has no cublasLtGetVersion");
    numbered(p, (int64_t)version(), 10000);
    p->info->major = (int)(p->info->number / 10000);
    return true;
}

/* cuFFT 11 and cuSOLVER 11 belong to CUDA 12, and so on. */
static bool identify_shifted(probe *p, const char *symbol)
{
    int (*version)(int *) = NULL;
    int number = 0;
    FUNCTION(version, symbol);
    if (!version || version(&number))
        return unusable(p, "it does not tell its version");
    numbered(p, number, 1000);
    p->info->major = number / 1000 + 1;
    return true;
}

static bool identify_compiler(probe *p, const char *symbol)
{
    int (*version)(int *, int *) = NULL;
    int major = 0, minor = 0;
    FUNCTION(version, symbol);
    if (!version || version(&major, &minor))
        return unusable(p, "it does not tell its version");
    snprintf(p->info->version, sizeof p->info->version, "%d.%d", major, minor);
    p->info->number = major * 1000 + minor * 10;
    p->info->major = major;
    return true;
}

bool mfi_library_identify(mfi_library library, mfi_library_info *info, void *(*find)(void *handle, const char *name),
                          void *handle, char *why, size_t why_bytes)
{
    probe p = {find, handle, info, why, why_bytes};
    switch (library) {
    case MFI_LIB_BLAS:
        return identify_blas(&p, "CBLAS");
    case MFI_LIB_LAPACK:
        return identify_blas(&p, "LAPACK");
    case MFI_LIB_FFTW:
        return identify_fftw(&p, "fftw_version");
    case MFI_LIB_FFTWF:
        return identify_fftw(&p, "fftwf_version");
    case MFI_LIB_CUDA:
        return identify_driver(&p);
    case MFI_LIB_NVRTC:
        return identify_compiler(&p, "nvrtcVersion");
    case MFI_LIB_CUBLASLT:
        return identify_cublaslt(&p);
    case MFI_LIB_CUBLAS:
        return identify_cublas(&p);
    case MFI_LIB_CUFFT:
        return identify_shifted(&p, "cufftGetVersion");
    case MFI_LIB_CUSOLVER:
        return identify_shifted(&p, "cusolverGetVersion");
    case MFI_LIB_NVJITLINK:
        return identify_compiler(&p, "nvJitLinkVersion");
    case MFI_LIB_SQLITE:
        return identify_sqlite(&p);
    case MFI_LIB_COUNT:
        break;
    }
    return false;
}
