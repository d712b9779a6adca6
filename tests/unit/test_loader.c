/* The loader against stub libraries built into a temporary directory. Criterion forks each test: each has a fresh
 * loader. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader.h"

static char root[256];

static void make_root(void)
{
    static const char *const variables[] = {"MATHFUSE_BLAS",     "MATHFUSE_LAPACK", "MATHFUSE_CUFFT",
                                            "MATHFUSE_CUBLASLT", "MATHFUSE_NVRTC",  "MATHFUSE_CUSOLVER",
                                            "MATHFUSE_CUDA",     "CONDA_PREFIX",    "CUDA_PATH",
                                            "CUDA_HOME",         "LD_PRELOAD"};
    const char *parent = getenv("TMPDIR");
    for (size_t i = 0; i < MFI_COUNT(variables); i++)
        unsetenv(variables[i]);
    snprintf(root, sizeof root, "%s/mathfuse-loader-XXXXXX", parent && parent[0] ? parent : P_tmpdir);
    cr_assert(mkdtemp(root) != NULL);
}

static void remove_root(void)
{
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    cr_expect_eq(system(command), 0);
}

/* Compile `code` as root/path with the given soname; its path in out. False: no C compiler here. */
static bool stub(char out[600], const char *path, const char *soname, const char *code)
{
    char command[2400];
    snprintf(out, 600, "%s/%s", root, path);
    snprintf(command, sizeof command,
             "mkdir -p \"$(dirname '%s')\" && printf '%%s' '%s' | cc -shared -fPIC -w -Wl,-soname,%s -x c -o '%s' -",
             out, code, soname, out);
    return system(command) == 0;
}

#define NEED(call)                                                                                                     \
    do {                                                                                                               \
        if (!(call))                                                                                                   \
            cr_skip_test("no C compiler to build stub libraries with");                                                \
    } while (0)

static const char cufft12[] = "int cufftGetVersion(int*v){*v=12000;return 0;} void cufftMakePlanMany64(void){}";
static const char cufft11[] = "int cufftGetVersion(int*v){*v=11303;return 0;} void cufftMakePlanMany64(void){}";
static const char lt12[] = "unsigned long cublasLtGetVersion(void){return 120804;} void cublasLtMatmul(void){}";

TestSuite(loader, .init = make_root, .fini = remove_root);

Test(loader, missing_file_says_what_and_how)
{
    setenv("MATHFUSE_CUFFT", "/no/such/libcufft.so.12", 1);
    const mfi_library_info *info = mfi_library_load(MFI_LIB_CUFFT);
    cr_expect_not(info->found);
    cr_expect(strstr(info->missing, "/no/such/libcufft.so.12"), "%s", info->missing);
    cr_expect(strstr(info->missing, "MATHFUSE_CUFFT"), "%s", info->missing);
    cr_expect(strstr(info->missing, "pip install nvidia-cufft"), "%s", info->missing);
    cr_expect(strstr(info->missing, "libcufft-13-0"), "%s", info->missing);
    cr_expect_null(mfi_library_symbol(MFI_LIB_CUFFT, "cufftExecC2C"));
    cr_expect_eq(mfi_library_load(MFI_LIB_CUFFT), info, "a failure is remembered");
}

Test(loader, variable_is_exclusive_and_reported)
{
    char path[600];
    NEED(stub(path, "own/libcufft.so.12", "libcufft.so.12", cufft12));
    setenv("MATHFUSE_CUFFT", path, 1);
    const mfi_library_info *info = mfi_library_load(MFI_LIB_CUFFT);
    cr_assert(info->found, "%s", info->missing);
    cr_expect_str_eq(info->path, path);
    cr_expect_str_eq(info->how, "MATHFUSE_CUFFT");
    cr_expect_str_eq(info->version, "12.0.0");
    cr_expect_eq(info->number, 12000);
    cr_expect_eq(info->major, 13);
    cr_expect_not_null(mfi_library_symbol(MFI_LIB_CUFFT, "cufftGetVersion"));
    cr_expect_null(mfi_library_symbol(MFI_LIB_CUFFT, "cufftNoSuchFunction"));
}

Test(loader, a_directory_in_the_variable)
{
    char path[600];
    NEED(stub(path, "lib/libcufft.so.11", "libcufft.so.11", cufft11));
    setenv("MATHFUSE_CUFFT", root, 1);
    const mfi_library_info *info = mfi_library_load(MFI_LIB_CUFFT);
    cr_assert(info->found, "%s", info->missing);
    cr_expect_str_eq(info->version, "11.3.3");
    cr_expect_eq(info->major, 12);
}

Test(loader, another_library_under_the_name)
{
    char path[600];
    NEED(stub(path, "libcufft.so.12", "libcufft.so.12", "int something_else;"));
    setenv("MATHFUSE_CUFFT", path, 1);
    const mfi_library_info *info = mfi_library_load(MFI_LIB_CUFFT);
    cr_expect_not(info->found);
    cr_expect(strstr(info->missing, "it has no cufftMakePlanMany64"), "%s", info->missing);
}

Test(loader, mixed_majors_are_refused_naming_both)
{
    char lt[600], fft[600];
    NEED(stub(lt, "a/libcublasLt.so.12", "libcublasLt.so.12", lt12));
    NEED(stub(fft, "b/libcufft.so.12", "libcufft.so.12", cufft12));
    setenv("MATHFUSE_CUBLASLT", lt, 1);
    setenv("MATHFUSE_CUFFT", fft, 1);
    cr_assert(mfi_library_load(MFI_LIB_CUBLASLT)->found, "%s", mfi_library_load(MFI_LIB_CUBLASLT)->missing);
    const mfi_library_info *info = mfi_library_load(MFI_LIB_CUFFT);
    cr_expect_not(info->found);
    cr_expect(strstr(info->missing, lt) && strstr(info->missing, fft), "%s", info->missing);
    cr_expect(strstr(info->missing, "CUDA 13") && strstr(info->missing, "CUDA 12"), "%s", info->missing);
}

Test(loader, a_major_in_the_process_is_followed)
{
    char lt[600], fft[600], path[600];
    NEED(stub(lt, "a/libcublasLt.so.12", "libcublasLt.so.12", lt12));
    NEED(stub(path, "root/nvidia/cu13/lib/libcufft.so.12", "libcufft.so.12", cufft12));
    NEED(stub(fft, "root/nvidia/cufft/lib/libcufft.so.11", "libcufft.so.11", cufft11));
    setenv("MATHFUSE_CUBLASLT", lt, 1);
    cr_assert(mfi_library_load(MFI_LIB_CUBLASLT)->found);
    snprintf(path, sizeof path, "%.300s/root", root);
    cr_assert_eq(mf_library_path(path), MF_OK);
    const mfi_library_info *info = mfi_library_load(MFI_LIB_CUFFT);
    cr_assert(info->found, "%s", info->missing);
    cr_expect_str_eq(info->path, fft);
    cr_expect_eq(info->major, 12);
}

Test(loader, given_directories_and_wheel_layouts)
{
    char path[600], list[700];
    NEED(stub(path, "site/nvidia/cu13/lib/libcufft.so.12", "libcufft.so.12", cufft12));
    snprintf(list, sizeof list, "/no/such/place::%s/site/", root);
    cr_assert_eq(mf_library_path(list), MF_OK);
    const mfi_library_info *info = mfi_library_load(MFI_LIB_CUFFT);
    cr_assert(info->found, "%s", info->missing);
    cr_expect_str_eq(info->path, path);
    cr_expect_str_eq(info->how, "mf_library_path");
}

Test(loader, companions_come_from_the_same_place)
{
    char lt[600], fft[600];
    NEED(stub(lt, "x/libcublasLt.so.12", "libcublasLt.so.12", lt12));
    NEED(stub(fft, "x/libcufft.so.11", "libcufft.so.11", cufft11));
    setenv("MATHFUSE_CUBLASLT", lt, 1);
    cr_assert(mfi_library_load(MFI_LIB_CUBLASLT)->found);
    const mfi_library_info *info = mfi_library_load(MFI_LIB_CUFFT);
    cr_assert(info->found, "%s", info->missing);
    cr_expect_str_eq(info->path, fft);
    cr_expect_str_eq(info->how, "beside libcublasLt.so.12");
}

Test(loader, dependencies_are_loaded_from_beside)
{
    char dependency[600], path[600], command[2000];
    NEED(stub(dependency, "d/libcublasLt.so.12", "libcublasLt.so.12", "int from_beside(void){return 7;}"));
    snprintf(path, sizeof path, "%.300s/d/libcublas.so.12", root);
    snprintf(command, sizeof command,
             "printf 'int from_beside(void); int cublasGetProperty(int i,int*v){*v=i?0:12;return 0;} "
             "int cublasCreate_v2(void){return from_beside();}' | cc -shared -fPIC -w -Wl,-soname,libcublas.so.12 -x c "
             "-o '%s' - -x none '%s'",
             path, dependency);
    NEED(system(command) == 0);
    setenv("MATHFUSE_CUBLAS", path, 1);
    const mfi_library_info *info = mfi_library_load(MFI_LIB_CUBLAS);
    cr_assert(info->found, "%s", info->missing);
    int (*create)(void) = NULL;
    void *symbol = mfi_library_symbol(MFI_LIB_CUBLAS, "cublasCreate_v2");
    memcpy(&create, &symbol, sizeof symbol);
    cr_expect_eq(create(), 7);
}

Test(loader, the_toolkits_stub_is_no_driver)
{
    char path[600];
    NEED(stub(path, "lib64/stubs/libcuda.so.1", "libcuda.so.1", "int cuDriverGetVersion(int*v){*v=13000;return 0;}"));
    setenv("MATHFUSE_CUDA", path, 1);
    const mfi_library_info *info = mfi_library_load(MFI_LIB_CUDA);
    cr_expect_not(info->found);
    cr_expect(strstr(info->missing, "stub"), "%s", info->missing);
}

Test(loader, an_old_driver_gets_old_libraries)
{
    char driver[600], path[600];
    NEED(stub(driver, "driver/libcuda.so.1", "libcuda.so.1", "int cuDriverGetVersion(int*v){*v=12040;return 0;}"));
    NEED(stub(path, "root/nvidia/cu13/lib/libcufft.so.12", "libcufft.so.12", cufft12));
    NEED(stub(path, "root/nvidia/cufft/lib/libcufft.so.11", "libcufft.so.11", cufft11));
    setenv("MATHFUSE_CUDA", driver, 1);
    cr_assert_eq(mf_library_path(root), MF_OK);
    snprintf(driver, sizeof driver, "%.300s/root", root);
    cr_assert_eq(mf_library_path(driver), MF_OK);
    const mfi_library_info *info = mfi_library_load(MFI_LIB_CUFFT);
    cr_assert(info->found, "%s", info->missing);
    cr_expect_str_eq(info->path, path);
    cr_expect_str_eq(mfi_library_load(MFI_LIB_CUDA)->version, "12.4");
}

Test(loader, blas_with_scipys_prefix)
{
    char path[600];
    NEED(stub(path, "site/scipy_openblas32/lib/libscipy_openblas.so", "libscipy_openblas.so",
              "void scipy_cblas_sgemm(void){} void scipy_dpotrf_(void){} "
              "const char*scipy_openblas_get_config(void){return \"OpenBLAS 0.3.29 DYNAMIC_ARCH\";}"));
    setenv("MATHFUSE_BLAS", path, 1);
    const mfi_library_info *info = mfi_library_load(MFI_LIB_BLAS);
    cr_assert(info->found, "%s", info->missing);
    cr_expect_str_eq(info->name, "OpenBLAS (CBLAS)");
    cr_expect_str_eq(info->version, "0.3.29");
    cr_expect_not_null(mfi_library_symbol(MFI_LIB_BLAS, "cblas_sgemm"));
    info = mfi_library_load(MFI_LIB_LAPACK);
    cr_assert(info->found, "%s", info->missing);
    cr_expect_str_eq(info->how, "with CBLAS");
    cr_expect_not_null(mfi_library_symbol(MFI_LIB_LAPACK, "dpotrf_"));
}

Test(loader, blas_with_64_bit_integers_is_refused)
{
    char path[600];
    NEED(
        stub(path, "libopenblas.so.0", "libopenblas.so.0",
             "void cblas_sgemm(void){} const char*openblas_get_config(void){return \"OpenBLAS 0.3.21 USE64BITINT\";}"));
    setenv("MATHFUSE_BLAS", path, 1);
    const mfi_library_info *info = mfi_library_load(MFI_LIB_BLAS);
    cr_expect_not(info->found);
    cr_expect(strstr(info->missing, "64-bit integers"), "%s", info->missing);
}

Test(loader, cuda_path_beats_cuda_home)
{
    char wanted[600], other[600], value[600];
    NEED(stub(wanted, "p/lib64/libcufft.so.12", "libcufft.so.12", cufft12));
    NEED(stub(other, "h/lib64/libcufft.so.12", "libcufft.so.12", cufft12));
    snprintf(value, sizeof value, "%.300s/p", root);
    setenv("CUDA_PATH", value, 1);
    snprintf(value, sizeof value, "%.300s/h", root);
    setenv("CUDA_HOME", value, 1);
    const mfi_library_info *info = mfi_library_load(MFI_LIB_CUFFT);
    cr_assert(info->found, "%s", info->missing);
    if (strcmp(info->how, "system search") && strncmp(info->how, "beside", 6))
        cr_expect_str_eq(info->path, wanted);
}

Test(loader, every_library_answers)
{
    for (int i = 0; i < MFI_LIB_COUNT; i++) {
        const mfi_library_info *info = mfi_library_load((mfi_library)i);
        cr_expect(info->name && info->name[0], "library %d has no name", i);
        cr_expect(info->found ? info->path[0] && info->how[0] : info->missing[0] != 0,
                  "%s: found=%d path=%s missing=%s", info->name, info->found, info->path, info->missing);
    }
}
