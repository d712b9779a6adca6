/* mathfuse-bench: measures problems in a line, or files of them, through the C API; results as `mathfuse bench` writes them. */
#define _GNU_SOURCE
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "bench_measure.h"

static const char usage[] =
    "usage: mathfuse-bench [--device cpu|cuda|cuda:1] [--tune SECONDS] [--budget SECONDS] [--rounds N] [--output "
    "FILE]\n"
    "                      PROBLEM...\n\n"
    "PROBLEM is such as matmul:f32:512x512x512+bias+gelu, or a file with one a line; see docs/tuning.md for the "
    "grammar.\n"
    "Every result is verified. --tune: each plan is tuned first, for so long at most, and raced with the untuned one.\n"
    "--budget: for all problems; what is not reached is listed. --output: JSON, as `mathfuse report` reads it.\n"
    "Exit status: 0; 1 if a problem failed or was wrong; 2 if something given makes no sense.\n";

typedef struct driver {
    bench_options bench;
    double budget; /* seconds; 0: no end */
    const char *output;
    char **texts; /* problems */
    int count, room;
    int argc;
    char **argv;
    double started;
    bench_text rows;
} driver;

static void add_problem(driver *d, const char *text, size_t length)
{
    if (d->count == d->room) {
        d->room = d->room ? 2 * d->room : 64;
        d->texts = realloc(d->texts, (size_t)d->room * sizeof *d->texts);
    }
    if (!d->texts || !(d->texts[d->count] = strndup(text, length))) {
        fputs("mathfuse-bench: out of memory\n", stderr);
        exit(EXIT_FAILURE);
    }
    d->count++;
}

/* One problem a line; what follows # is a remark, what follows ! is for the Python driver. */
static int add_file(driver *d, const char *path)
{
    char line[1024];
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "mathfuse-bench: %s is no problem, and no file of them that can be read\n", path);
        return 1;
    }
    while (fgets(line, sizeof line, file)) {
        char *start = line + strspn(line, " \t");
        size_t length = strcspn(start, "#!\r\n");
        while (length && strchr(" \t", start[length - 1]))
            length--;
        if (length)
            add_problem(d, start, length);
    }
    (void)fclose(file);
    return 0;
}

static int number_of(const char *text, double least, double *out)
{
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= least)) {
        fprintf(stderr, "mathfuse-bench: %s is not a number from %g on\n", text, least);
        return 1;
    }
    return 0;
}

static int option(driver *d, const char *name, const char *value)
{
    double number = 0;
    if (!value) {
        fprintf(stderr, "mathfuse-bench: %s needs a value\n", name);
        return 1;
    }
    if (!strcmp(name, "--device"))
        d->bench.device = value;
    else if (!strcmp(name, "--output"))
        d->output = value;
    else if (!strcmp(name, "--tune"))
        return number_of(value, 0, &d->bench.tune);
    else if (!strcmp(name, "--budget"))
        return number_of(value, 0.001, &d->budget);
    else if (!strcmp(name, "--rounds")) {
        if (number_of(value, 1, &number))
            return 1;
        d->bench.rounds = number > 99 ? 99 : (int)number;
    } else {
        fprintf(stderr, "mathfuse-bench: there is no option %s\n%s", name, usage);
        return 1;
    }
    return 0;
}

static int read_arguments(driver *d, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--", 2)) {
            if (option(d, argv[i], i + 1 < argc ? argv[i + 1] : NULL))
                return 1;
            i++;
        } else if (strchr(argv[i], ':'))
            add_problem(d, argv[i], strlen(argv[i]));
        else if (add_file(d, argv[i]))
            return 1;
    }
    if (!d->count)
        fputs(usage, stderr);
    return !d->count;
}

/* ---- where ---- */

static void processor(bench_text *out)
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
            char *name = strchr(line, ':') + 1;
            name += strspn(name, " ");
            name[strcspn(name, "\n")] = 0;
            text_string(out, name);
            (void)fclose(file);
            return;
        }
    if (file)
        (void)fclose(file);
    text_add(out, "\"unknown\"");
}

static void command_line(bench_text *out, const driver *d)
{
    bench_text text = {0};
    text_add(&text, "mathfuse-bench");
    for (int i = 1; i < d->argc; i++) {
        const char *slash = strrchr(d->argv[i], '/');
        text_add(&text, " %s", d->argv[i][0] == '/' && slash ? slash + 1 : d->argv[i]); /* no folders of this machine */
    }
    text_string(out, text.data);
    text_clear(&text);
}

/* The GPU's name and driver, as the driver's tool says; null without one. */
static void gpu(bench_text *out, const driver *d)
{
    char line[256] = "";
    FILE *tool = mf_context_device(d->bench.context, NULL) == MF_CUDA
                     ? popen("nvidia-smi --query-gpu=name,driver_version --format=csv,noheader", "r")
                     : NULL;
    char *comma = tool && fgets(line, sizeof line, tool) ? strchr(line, ',') : NULL;
    if (tool)
        (void)pclose(tool);
    if (!comma) {
        text_add(out, "null");
        return;
    }
    *comma = 0;
    comma += 1 + strspn(comma + 1, " ");
    comma[strcspn(comma, "\n")] = 0;
    text_add(out, "{\"name\": ");
    text_string(out, line);
    text_add(out, ", \"driver_version\": ");
    text_string(out, comma);
    text_add(out, "}");
}

static void provenance(bench_text *out, const driver *d)
{
    char date[32];
    struct utsname system;
    struct tm parts;
    cpu_set_t cores;
    double load = 0;
    time_t now = time(NULL);
    const char *commit = getenv("MATHFUSE_COMMIT");
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &parts));
    text_add(out, "{\"date\": \"%s\", \"driver\": \"C\", \"command\": ", date);
    command_line(out, d);
    text_add(out, ", \"commit\": ");
    text_string(out, commit ? commit : "unknown, MATHFUSE_COMMIT names it");
    text_add(out, ", \"processor\": ");
    processor(out);
    int count = sched_getaffinity(0, sizeof cores, &cores) ? 0 : CPU_COUNT(&cores);
    text_add(out, ", \"cores\": %d", count);
    if (getloadavg(&load, 1) == 1)
        text_add(out, ", \"load\": %.2f", load);
    text_add(out, ", \"gpu\": ");
    gpu(out, d);
    if (!uname(&system))
        text_add(out, ", \"system\": \"%s %s\"", system.sysname, system.machine);
    text_add(out, ", \"versions\": {\"mathfuse\": \"%s\"}, \"call_us\": %.3f}", mf_version(),
             measure_call_us(d->bench.context));
}

/* ---- results ---- */

/* The file is always whole: what was measured so far, or what was before. */
static int keep(const driver *d, const char *where)
{
    if (!d->output)
        return 0;
    bench_text name = {0};
    text_add(&name, "%s.new", d->output);
    FILE *file = fopen(name.data, "w");
    int bad = !file;
    if (file) {
        bad = fprintf(file, "{\"device\": \"%s\", \"provenance\": %s, \"rows\": [\n%s\n]}\n", d->bench.device, where,
                      d->rows.data ? d->rows.data : "") < 0;
        bad |= fclose(file) != 0;
    }
    if (bad || rename(name.data, d->output)) {
        perror(d->output);
        bad = 1;
    }
    text_clear(&name);
    return bad;
}

static double left(const driver *d)
{
    return d->budget > 0 ? d->budget - (bench_now() - d->started) : INFINITY;
}

/* One problem, as one row whatever happens. */
static int one(driver *d, int index)
{
    bench_text lines = {0};
    bench_problem problem;
    bench_options options = d->bench;
    int wrong = 0;
    text_add(&d->rows, "%s", index ? ",\n" : "");
    if (left(d) <= 0) {
        text_add(&d->rows, "{\"problem\": ");
        text_string(&d->rows, d->texts[index]);
        text_add(&d->rows, ", \"device\": \"%s\", \"not_reached\": true}", options.device);
        printf("%s\n    not reached in time\n", d->texts[index]);
        return 0;
    }
    options.tune = fmin(options.tune, 0.4 * left(d) / (d->count - index));
    if (problem_parse(&problem, d->texts[index])) {
        text_add(&d->rows, "{\"problem\": ");
        text_string(&d->rows, d->texts[index]);
        text_add(&d->rows, ", \"device\": \"%s\", \"failed\": ", options.device);
        text_string(&d->rows, problem.message);
        text_add(&d->rows, "}");
        printf("%s\n    FAILED: %s\n", d->texts[index], problem.message);
        wrong = 1;
    } else {
        wrong = measure_row(&d->rows, &lines, &problem, &options);
        fputs(lines.data, stdout);
    }
    (void)fflush(stdout);
    text_clear(&lines);
    problem_free(&problem);
    return wrong;
}

static mf_status open_contexts(driver *d)
{
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    options.device = "cpu";
    mf_status status = mf_context_new(&d->bench.cpu, &options);
    options.device = d->bench.device;
    if (!status)
        status = mf_context_new(&d->bench.context, &options);
    if (!status && !mf_context_can_run(d->bench.context)) {
        fprintf(stderr, "mathfuse-bench: %s is not here to be measured\n", d->bench.device);
        return MF_E_DEVICE;
    }
    if (!status && !d->bench.device)
        d->bench.device = mf_context_device(d->bench.context, NULL) == MF_CUDA ? "cuda" : "cpu";
    if (status)
        fprintf(stderr, "mathfuse-bench: %s\n", mf_error_message(status));
    return status;
}

int main(int argc, char **argv)
{
    driver d = {.bench.rounds = 15, .argc = argc, .argv = argv};
    bench_text where = {0};
    int bad = 0;
    if (argc > 1 && !strcmp(argv[1], "--help")) {
        fputs(usage, stdout);
        return EXIT_SUCCESS;
    }
    int refused = read_arguments(&d, argc, argv) || open_contexts(&d);
    if (!refused) {
        d.started = bench_now();
        provenance(&where, &d);
        for (int i = 0; i < d.count && bad < 2; i++) {
            bad |= one(&d, i);
            bad |= keep(&d, where.data) ? 2 : 0;
        }
        text_clear(&where);
    }
    for (int i = 0; i < d.count; i++)
        free(d.texts[i]);
    free(d.texts);
    text_clear(&d.rows);
    mf_context_free(d.bench.context);
    mf_context_free(d.bench.cpu);
    return refused ? 2 : bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
