// The sm_90a matmul beside cuBLASLt: checks every configuration, then times it on the shapes that the goals name.
// nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Iinclude -Isrc bench/device/gemm_bench.cu -o gemm_bench
//      -lcublasLt -lcuda
// gemm_bench [--json FILE] [--only CONFIGURATION] [--seconds N]
// Each configuration runs in a process of its own, ended after N seconds (20): one that hangs or traps loses only its
// rows.
#define MF_SPIN_LIMIT_NS 2000000000ull
#include "gemm_launch.cuh"

#include <cmath>
#include <cstdlib>
#include <string>

#include <signal.h>
#include <sys/wait.h>

// ---- timing ----

struct stopwatch {
    cudaEvent_t start, stop;
    stopwatch()
    {
        CHECK(cudaEventCreate(&start));
        CHECK(cudaEventCreate(&stop));
    }
    template <class F> double microseconds(int launches, F launch)
    {
        CHECK(cudaEventRecord(start));
        for (int i = 0; i < launches; i++)
            launch(i);
        CHECK(cudaEventRecord(stop));
        CHECK(cudaEventSynchronize(stop));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, start, stop));
        return ms * 1e3 / launches;
    }
};

static double median(std::vector<double> x)
{
    std::sort(x.begin(), x.end());
    return x.empty() ? 0 : x[x.size() / 2];
}

static int sets_for(const shape &s)
{
    i64 bytes = (s.m * s.k + s.n * s.k + 2 * s.m * s.n) * 2;
    return (int)std::min<i64>(16, std::max<i64>(2, (200ll << 20) / bytes + 1));
}

static int launches_for(const shape &s)
{
    double us = 2.0 * s.m * s.n * s.k / 700e6;
    return std::max(2, std::min(40, (int)(1500 / us)));
}

// What tuning found, handed from the first process to the others.
struct tuned {
    int valid;
    cublasLtMatmulAlgo_t algo[3]; // B (n, k); B (k, n); B (k, n) with bias and gelu
};

static tuned tune(const shape &s)
{
    tuned out = {};
    stopwatch watch;
    for (int kind = 0; kind < 3; kind++) {
        operands o(s, false, false, kind > 0, 2, sets_for(s), false);
        library lib(o, kind == 2, false);
        int sets = (int)o.a.size(), launches = std::max(2, launches_for(s) / 4);
        double best = 1e30;
        for (const cublasLtMatmulAlgo_t &algo : lib.candidates()) {
            if (lib.run(o, 0, o.d[0], &algo) != 0)
                continue;
            double us = 1e30;
            for (int round = 0; round < 2; round++)
                us = std::min(us,
                              watch.microseconds(launches, [&](int i) { lib.run(o, i % sets, o.d[i % sets], &algo); }));
            if (us < best)
                best = us, out.algo[kind] = algo, out.valid |= 1 << kind;
        }
    }
    return out;
}

// ---- one configuration ----

struct tally {
    int cases = 0, wrong = 0;
    double worst = 0;
};

static void report_wrong(const configuration &c, const variant &v, int epilogue, const operands &o,
                         const verdict &found)
{
    i64 row = (i64)found.first / o.ldd, col = (i64)found.first % o.ldd;
    printf("WRONG %s: %s, B %s, %lldx%lldx%lld: %llu elements, %llu of padding; ", c.name, epilogue_names[epilogue],
           o.b_mn ? "(k,n)" : "(n,k)", (long long)o.s.m, (long long)o.s.n, (long long)o.s.k, found.wrong,
           found.spilled);
    if (found.wrong)
        printf("first (%lld, %lld): tile (%lld, %lld) at (%lld, %lld)", (long long)row, (long long)col,
               (long long)row / v.bm, (long long)col / v.bn, (long long)row % v.bm, (long long)col % v.bn);
    printf("\n");
    fflush(stdout);
}

static void check(const configuration &c, const variant &v, int epilogue, operands &o, tally &total)
{
    launcher launch(v, o);
    verdict *result, host = {0, 0, ~0ull, 0, 0};
    CHECK(cudaMalloc(&result, sizeof host));
    CHECK(cudaMemcpy(result, &host, sizeof host, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(o.d[0], 0xff, o.s.m * o.ldd * v.out_size));
    launch.run(0);
    compare<<<1024, 256>>>(result, o.d[0], v.out_size, o.f16, o.ldd, o.products, o.v, o.t[0], o.ldt, epilogue, o.s);
    cudaError_t status = cudaDeviceSynchronize();
    if (status != cudaSuccess) {
        printf("FAILED %s: %s, B %s, %lldx%lldx%lld: %s\n", c.name, epilogue_names[epilogue],
               o.b_mn ? "(k,n)" : "(n,k)", (long long)o.s.m, (long long)o.s.n, (long long)o.s.k,
               cudaGetErrorString(status));
        fflush(stdout);
        _exit(4);
    }
    CHECK(cudaMemcpy(&host, result, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(result));
    double error = sqrt(host.error2 / std::max(host.norm2, 1e-300));
    total.cases++;
    total.worst = error <= total.worst ? total.worst : error; // a NaN stays
    if (host.wrong || host.spilled) {
        total.wrong++;
        report_wrong(c, v, epilogue, o, host);
    }
}

static void check_small(const configuration &c, tally &total)
{
    for (int b_mn = 0; b_mn < 2; b_mn++)
        for (int e = 0; e < EPILOGUES; e++)
            for (const shape &s : checked_shapes) {
                const variant &v = c.by[b_mn][e];
                if (!v.kernel)
                    continue;
                operands o(s, v.f16, v.a_mn, b_mn, v.out_size, 1, true, v.alignment);
                reference_products<<<1024, 256>>>(o.products, o.a[0], o.b[0], v.f16, s, v.a_mn ? 1 : o.lda,
                                                  v.a_mn ? o.lda : 1, b_mn ? 1 : o.ldb, b_mn ? o.ldb : 1);
                check(c, v, e, o, total);
            }
}

// Medians of 15 rounds, everything in turn in each round; the library's bare call first, its gelu second, then ours.
struct medians {
    double bare, gelu, ours[EPILOGUES];
};

static medians measure_layout(const configuration &c, const shape &s, const tuned &best, int b_mn, tally &total)
{
    int sets = sets_for(s), launches = launches_for(s);
    operands o(s, false, false, b_mn, 2, sets, false);
    library bare_library(o, false, false), gelu_library(o, true, false), exact(o, false, true);
    std::vector<cublasLtMatmulAlgo_t> any = exact.candidates();
    CHECK(any.empty() ? 1 : exact.run(o, 0, o.products, &any[0]));
    launcher *ready[EPILOGUES] = {};
    for (int e = 0; e < EPILOGUES; e++)
        if (c.by[b_mn][e].kernel) {
            check(c, c.by[b_mn][e], e, o, total);
            ready[e] = new launcher(c.by[b_mn][e], o);
        }
    stopwatch watch;
    std::vector<double> samples[2 + EPILOGUES];
    auto library_us = [&](library &lib, const cublasLtMatmulAlgo_t &algo) {
        return watch.microseconds(launches, [&](int i) { lib.run(o, i % sets, o.d[i % sets], &algo); });
    };
    for (int round = 0; round < 18; round++) { // the first three warm up
        double now[2 + EPILOGUES] = {};
        now[0] = library_us(bare_library, best.algo[b_mn]);
        if (b_mn && (best.valid & 4))
            now[1] = library_us(gelu_library, best.algo[2]);
        for (int e = 0; e < EPILOGUES; e++)
            if (ready[e])
                now[2 + e] = watch.microseconds(launches, [&](int i) { ready[e]->run(i % sets); });
        for (int i = 0; i < 2 + EPILOGUES && round >= 3; i++)
            samples[i].push_back(now[i]);
    }
    medians out = {median(samples[0]), median(samples[1]), {}};
    for (int e = 0; e < EPILOGUES; e++) {
        out.ours[e] = median(samples[2 + e]);
        delete ready[e];
    }
    return out;
}

static void measure(const configuration &c, const shape &s, const tuned &best, tally &total, FILE *json)
{
    medians by[2];
    for (int b_mn = 0; b_mn < 2; b_mn++) {
        by[b_mn] = measure_layout(c, s, best, b_mn, total);
        for (int e = 0; e < EPILOGUES; e++)
            if (c.by[b_mn][e].kernel)
                fprintf(json,
                        "{\"m\": %lld, \"n\": %lld, \"k\": %lld, \"configuration\": \"%s\", \"b\": \"%s\", "
                        "\"epilogue\": \"%s\", \"us\": %.2f, \"cublaslt_us\": %.2f, \"cublaslt_gelu_bias_us\": %.2f}\n",
                        (long long)s.m, (long long)s.n, (long long)s.k, c.name, b_mn ? "kn" : "nk", epilogue_names[e],
                        by[b_mn].ours[e], by[b_mn].bare, by[b_mn].gelu);
    }
    const medians &nk = by[0], &kn = by[1];
    double flops = 2.0 * s.m * s.n * s.k * 1e-6;
    printf("%5lldx%5lldx%5lld %-21s %7.1f %5.3f | %7.1f %5.3f %4.0f %7.1f %5.3f %7.1f %5.3f | %7.1f %7.1f %7.1f\n",
           (long long)s.m, (long long)s.n, (long long)s.k, c.name, nk.ours[BARE], nk.ours[BARE] / nk.bare,
           kn.ours[BARE], kn.ours[BARE] / kn.bare, flops / kn.ours[BARE], kn.ours[BIAS_GELU],
           kn.ours[BIAS_GELU] / kn.bare, kn.ours[BIAS_SILU_RESIDUAL], kn.ours[BIAS_SILU_RESIDUAL] / kn.bare, nk.bare,
           kn.bare, kn.gelu);
    fflush(stdout);
    fflush(json);
}

static int child(int index, int fd)
{
    std::vector<configuration> all = configurations();
    FILE *json = fdopen(fd, "r+");
    tuned best[TIMED];
    if (!json)
        return 5;
    if (index < 0) {
        for (int i = 0; i < TIMED; i++)
            best[i] = tune(timed_shapes[i]);
        return fwrite(best, sizeof best, 1, json) == 1 && fflush(json) == 0 ? 0 : 5;
    }
    const configuration &c = all[index];
    tally total;
    check_small(c, total);
    printf("check %-21s %d small cases, %d wrong, worst relative error %.2e\n", c.name, total.cases, total.wrong,
           total.worst);
    fflush(stdout);
    if (c.timed) {
        rewind(json);
        if (fread(best, sizeof best, 1, json) != 1 || fseek(json, 0, SEEK_END) != 0)
            return 5;
        for (int i = 0; i < TIMED; i++)
            measure(c, timed_shapes[i], best[i], total, json);
    }
    return total.wrong != 0;
}

// ---- the parent: no CUDA here, so that it outlives every child ----

static int run_child(int index, int fd, int seconds)
{
    char number[16], descriptor[16];
    snprintf(number, sizeof number, "%d", index);
    snprintf(descriptor, sizeof descriptor, "%d", fd);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "gemm_bench", "--child", number, descriptor, (char *)nullptr);
        _exit(6);
    }
    for (int tenths = 0;; tenths++) {
        int status = 0;
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (tenths == seconds * 10) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return 124;
        }
        usleep(100000);
    }
}

static std::vector<std::string> read_rows(FILE *rows)
{
    std::vector<std::string> out;
    char line[512];
    fseek(rows, (long)(sizeof(tuned) * TIMED), SEEK_SET);
    while (fgets(line, sizeof line, rows)) {
        line[strcspn(line, "\n")] = 0;
        out.push_back(line);
    }
    return out;
}

static void write_json(const std::vector<std::string> &rows, const char *path)
{
    FILE *out = fopen(path, "w");
    if (!out)
        return;
    fprintf(out, "[");
    for (size_t i = 0; i < rows.size(); i++)
        fprintf(out, "%s\n %s", i ? "," : "", rows[i].c_str());
    fprintf(out, "\n]\n");
    fclose(out);
}

// For each shape, layout and epilogue the best configuration, beside the bare library call of that layout.
static void summary(const std::vector<std::string> &rows)
{
    printf("\nbest per row; ratio to the bare tuned cuBLASLt of the same layout and process\n");
    for (const shape &s : timed_shapes)
        for (const char *layout : {"nk", "kn"})
            for (const char *epilogue : epilogue_names) {
                double best = 0, best_us = 0;
                std::string best_name;
                for (const std::string &row : rows) {
                    long long m, n, k;
                    char name[64], b[8], e[32];
                    double us, bare_us;
                    if (sscanf(row.c_str(),
                               "{\"m\": %lld, \"n\": %lld, \"k\": %lld, \"configuration\": \"%63[^\"]\", \"b\": "
                               "\"%7[^\"]\", "
                               "\"epilogue\": \"%31[^\"]\", \"us\": %lf, \"cublaslt_us\": %lf",
                               &m, &n, &k, name, b, e, &us, &bare_us) != 8 ||
                        m != s.m || n != s.n || k != s.k || strcmp(b, layout) || strcmp(e, epilogue))
                        continue;
                    if (best == 0 || us / bare_us < best)
                        best = us / bare_us, best_us = us, best_name = name;
                }
                if (best > 0)
                    printf("%5lldx%5lldx%5lld %s %-18s %7.1f us %.3f  %s\n", (long long)s.m, (long long)s.n,
                           (long long)s.k, layout, epilogue, best_us, best, best_name.c_str());
            }
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "--child"))
        return child(atoi(argv[2]), atoi(argv[3]));
    const char *json = nullptr, *only = "";
    int seconds = 20, failed = 0, ran = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--json"))
            json = argv[i + 1];
        else if (!strcmp(argv[i], "--only"))
            only = argv[i + 1];
        else if (!strcmp(argv[i], "--seconds"))
            seconds = atoi(argv[i + 1]);
    }
    FILE *rows = tmpfile();
    int tuning = rows ? run_child(-1, fileno(rows), 2 * seconds) : 7;
    if (tuning != 0) {
        printf("FAILED: tuning cuBLASLt ended with %d\n", tuning);
        return 1;
    }
    printf("%-17s %-21s %13s | %18s %13s %13s | %7s %7s %7s\n", "m x n x k", "us, ratio to cuBLASLt", "B nk bare",
           "B kn bare, TF/s", "bias+gelu", "+silu+resid.", "Lt nk", "Lt kn", "Lt gelu");
    std::vector<configuration> all = configurations();
    for (size_t i = 0; i < all.size(); i++) {
        if (!strstr(all[i].name, only))
            continue;
        int status = run_child((int)i, fileno(rows), seconds);
        ran++;
        failed += status != 0;
        if (status != 0)
            printf("FAILED %s: ended with %d%s\n", all[i].name, status, status == 124 ? " (time limit)" : "");
    }
    std::vector<std::string> measured = read_rows(rows);
    summary(measured);
    if (json)
        write_json(measured, json);
    printf("%s: %d of %d configurations failed\n", failed ? "FAILED" : "ok", failed, ran);
    return failed != 0;
}
