/* Trying a candidate where it can do no harm. A process that forked can run CPU plans, but no CUDA: there a hang is noticed by
 * its deadline, and a crash by the note in the database. */
#define _GNU_SOURCE
#include "tune_probe.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void set(mfi_probe *p, mfi_verdict verdict, const char *detail)
{
    p->verdict = verdict;
    snprintf(p->detail, sizeof p->detail, "%s", detail);
}

/* Make it, run it, compare. */
static void attempt(mfi_probe *p, mf_plan **plan, mfi_tune_data *d, const mf_plan *like, const mfi_choice *choice,
                    double allowed, double seconds)
{
    bool hung = false;
    mf_plan_options o = mfi_plan_options_of(like);
    mf_status status = mfi_plan_make_chosen(plan, like->context, like->graph, &o, choice);
    if (status == MF_OK)
        status = mfi_tune_run(d, *plan, 0, seconds, &hung);
    if (status == MF_OK && hung) {
        set(p, MFI_HUNG, "it did not end in time");
        return;
    }
    if (status == MF_OK)
        status = mfi_tune_error(&p->error, d);
    p->status = status;
    if (status != MF_OK)
        set(p, MFI_FAILED, mf_error_message(status));
    else if (p->error <= allowed)
        set(p, MFI_RIGHT, "");
    else
        snprintf(p->detail, sizeof p->detail, "its relative error is %.2g, %.2g is allowed", p->error, allowed);
    if (status == MF_OK && !(p->error <= allowed))
        p->verdict = MFI_WRONG;
}

/* ---- in a child ---- */

static bool read_probe(int fd, mfi_probe *p)
{
    char *at = (char *)p;
    size_t left = sizeof *p;
    while (left) {
        ssize_t n = read(fd, at, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        left -= (size_t)n;
    }
    return true;
}

/* False: it had to be killed. */
static bool wait_for(pid_t child, double seconds, int *status)
{
    double waited = 0;
    long nap_ns = 200000;
    while (waitpid(child, status, WNOHANG) == 0) {
        if (waited > seconds) {
            kill(child, SIGKILL);
            waitpid(child, status, 0);
            return false;
        }
        nanosleep(&(struct timespec){0, nap_ns}, NULL);
        waited += 1e-9 * (double)nap_ns;
        nap_ns = nap_ns < 5000000 ? nap_ns * 2 : nap_ns;
    }
    return true;
}

static void in_child(int fd, mfi_tune_data *d, const mf_plan *like, const mfi_choice *choice, double allowed,
                     double seconds)
{
    mf_plan *plan = NULL;
    mfi_probe p = {0};
    attempt(&p, &plan, d, like, choice, allowed, seconds);
    ssize_t written = write(fd, &p, sizeof p); /* less than PIPE_BUF: whole or not at all */
    _exit(written == (ssize_t)sizeof p ? 0 : 1);
}

void mfi_tune_try_apart(mfi_probe *p, mfi_tune_data *d, const mf_plan *like, const mfi_choice *choice, double allowed,
                        double seconds)
{
    int ends[2], status = 0;
    memset(p, 0, sizeof *p);
    if (pipe(ends)) {
        set(p, MFI_FAILED, "no pipe to a child process could be made");
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        in_child(ends[1], d, like, choice, allowed, seconds);
    }
    close(ends[1]);
    if (child < 0) {
        set(p, MFI_FAILED, "no child process could be started");
    } else if (!wait_for(child, seconds, &status)) {
        set(p, MFI_HUNG, "it did not end in time and was killed");
    } else if (!read_probe(ends[0], p)) {
        char text[96];
        snprintf(text, sizeof text, WIFSIGNALED(status) ? "it died of signal %d" : "it ended with status %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        set(p, MFI_CRASHED, text);
    }
    close(ends[0]);
}

void mfi_tune_try(mfi_probe *out, mf_plan **plan, mfi_tune_data *d, const mf_plan *like, const mfi_choice *choice,
                  double allowed, double seconds)
{
    *plan = NULL;
    memset(out, 0, sizeof *out);
    attempt(out, plan, d, like, choice, allowed, seconds);
    if (out->verdict != MFI_RIGHT && out->verdict != MFI_HUNG) { /* what hangs still uses what it was given */
        if (*plan)
            mfi_plan_release(*plan);
        *plan = NULL;
    }
}
