/* The tuning database: records, versions, damage, and many processes with some of them killed. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sqlite_api.h"
#include "tune_db.h"

static char directory[48], file[96];

static void set_up(void)
{
    snprintf(directory, sizeof directory, "/tmp/mathfuse-tune-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
    snprintf(file, sizeof file, "%s/tuning.db", directory);
    setenv("MATHFUSE_CACHE_DIR", directory, 1);
    setenv("MATHFUSE_SITE_DIR", "/nonexistent", 1);
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", directory, directory);
    cr_assert_eq(system(command), 0);
}

TestSuite(tune_db, .init = set_up, .fini = tear_down);

static mfi_tune_key key(int number)
{
    mfi_tune_key k = {.device = "a device", .libraries = "some libraries"};
    snprintf(k.problem, sizeof k.problem, "%032d", number);
    return k;
}

static mfi_tune_record record(double us, bool complete)
{
    static char title[] = "matmul", winner[] = "by_cost; ref/1/", baseline[] = "by_cost; ref/0/", measured[] = "[]";
    return (mfi_tune_record){title, winner, baseline, measured, us, 2 * us, 1.5, complete};
}

static void keep(int number, double us, bool complete)
{
    mfi_tune_key k = key(number);
    mfi_tune_record r = record(us, complete);
    mfi_tune_keep(&k, &r);
}

/* Winner's time, 0: not there. */
static double found(int number, const char *expected_source)
{
    mfi_tune_key k = key(number);
    mfi_tune_record r;
    const char *source;
    if (!mfi_tune_find(&k, &r, &source))
        return 0;
    cr_assert_str_eq(source, expected_source);
    cr_assert_str_eq(r.winner, "by_cost; ref/1/");
    double us = r.winner_us;
    mfi_tune_record_free(&r);
    return us;
}

static void sql(const char *path, const char *text)
{
    const mfi_sqlite *lite = mfi_sqlite_get();
    sqlite3 *db = NULL;
    cr_assert_eq(lite->open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    lite->busy_timeout(db, 5000);
    cr_assert_eq(lite->exec(db, text, NULL, NULL, NULL), SQLITE_OK, "%s", lite->errmsg(db));
    lite->close_v2(db);
}

static void expect_sound(int records)
{
    char *faults, *all;
    cr_assert_eq(mf_tune_verify(&faults, NULL), MF_OK, "%s", mf_error_message(MF_E_IO));
    cr_assert_str_eq(faults, "");
    mf_free(faults);
    cr_assert_eq(mf_tune_records(&all, NULL, NULL, 0), MF_OK);
    int count = 0;
    for (const char *at = all; (at = strstr(at, "\"problem\"")); at++)
        count++;
    cr_assert_eq(count, records, "%d records: %s", count, all);
    mf_free(all);
}

Test(tune_db, kept_and_found)
{
    cr_assert_eq(found(1, ""), 0, "an empty place has nothing");
    keep(1, 5, true);
    cr_assert_eq(found(1, "database"), 5);
    cr_assert_eq(found(2, ""), 0);
    mfi_tune_key other = key(1);
    strcpy(other.libraries, "newer libraries");
    mfi_tune_record r;
    const char *source;
    cr_assert_not(mfi_tune_find(&other, &r, &source), "a record of other versions is ignored");
    expect_sound(1);
}

Test(tune_db, a_file_just_begun_has_nothing)
{
    FILE *begun = fopen(file, "w"); /* as another process leaves it before it writes */
    cr_assert_not_null(begun);
    cr_assert_eq(fclose(begun), 0);
    expect_sound(0);
    keep(1, 5, true);
    expect_sound(1);
}

Test(tune_db, unfinished_records_do_not_replace_complete_ones)
{
    keep(1, 9, false);
    keep(1, 5, true);
    keep(1, 7, false);
    cr_assert_eq(found(1, "database"), 5);
    keep(1, 6, true);
    cr_assert_eq(found(1, "database"), 6);
}

Test(tune_db, a_site_database_serves_readers)
{
    char site[96];
    keep(1, 5, true);
    snprintf(site, sizeof site, "%s/site", directory);
    cr_assert_eq(mkdir(site, 0700), 0);
    setenv("MATHFUSE_SITE_DIR", site, 1);
    snprintf(site, sizeof site, "%s/site/tuning.db", directory);
    cr_assert_eq(rename(file, site), 0);
    chmod(site, 0400);
    cr_assert_eq(found(1, "database"), 5);
    keep(2, 6, true);
    cr_assert_eq(found(2, "database"), 6);
    cr_assert_eq(access(file, F_OK), 0, "what is new goes to the user's own");
}

Test(tune_db, list_clear_import_merge)
{
    char *all, other[128];
    int count;
    for (int i = 0; i < 5; i++)
        keep(i, i + 1, true);
    cr_assert_eq(mf_tune_records(&all, NULL, NULL, 1), MF_OK);
    cr_assert_eq(mf_tune_clear(NULL, "00003", &count), MF_OK);
    cr_assert_eq(count, 1);
    cr_assert_eq(found(3, ""), 0);
    cr_assert_eq(mf_tune_import(NULL, all, &count), MF_OK);
    cr_assert_eq(found(3, "database"), 4);
    snprintf(other, sizeof other, "%s/other.db", directory);
    cr_assert_eq(mf_tune_import(other, all, &count), MF_OK);
    cr_assert_eq(count, 5);
    cr_assert_eq(mf_tune_clear(NULL, NULL, &count), MF_OK);
    cr_assert_eq(count, 5);
    expect_sound(0);
    cr_assert_eq(mf_tune_merge(NULL, other, &count), MF_OK);
    cr_assert_eq(count, 5);
    expect_sound(5);
    cr_assert_eq(mf_tune_merge(NULL, "/nonexistent.db", &count), MF_E_IO);
    mf_free(all);
}

Test(tune_db, import_refuses_what_is_no_record)
{
    int count;
    cr_assert_eq(mf_tune_import(NULL, "[{\"problem\": \"x\"}]", &count), MF_E_IO);
    cr_assert_eq(mf_tune_import(NULL, "not json", &count), MF_E_IO);
    expect_sound(0);
}

Test(tune_db, faults_are_told)
{
    char *faults;
    keep(1, 5, true);
    keep(2, 5, true);
    sql(file, "UPDATE record SET winner = 'sideways' WHERE problem LIKE '%1'");
    sql(file, "UPDATE record SET winner_us = -1, measured = 'x' WHERE problem LIKE '%2'");
    cr_assert_eq(mf_tune_verify(&faults, NULL), MF_OK);
    cr_assert_not_null(strstr(faults, "sideways"));
    cr_assert_not_null(strstr(faults, "not positive"));
    cr_assert_not_null(strstr(faults, "JSON"));
    mf_free(faults);
}

static void write_file(const char *text, size_t bytes)
{
    FILE *f = fopen(file, "w");
    cr_assert_not_null(f);
    fwrite(text, 1, bytes, f);
    fclose(f);
}

Test(tune_db, a_damaged_file_is_set_aside)
{
    char *text;
    static const char junk[8192] = "this is no database at all";
    write_file(junk, sizeof junk);
    cr_assert_eq(found(1, ""), 0);
    cr_assert_eq(mf_tune_verify(&text, NULL), MF_E_IO);
    keep(1, 5, true);
    cr_assert_eq(found(1, "database"), 5);
    expect_sound(1);
    char command[160];
    snprintf(command, sizeof command, "ls %s/tuning.db.damaged-* > /dev/null", directory);
    cr_assert_eq(system(command), 0, "the damaged file is kept");
}

Test(tune_db, a_database_of_another_version_is_left_alone)
{
    keep(1, 5, true);
    sql(file, "PRAGMA user_version = 99");
    cr_assert_eq(found(1, ""), 0);
    keep(1, 7, true);
    cr_assert_eq(found(1, "memory"), 7, "this process still knows");
    char *text;
    cr_assert_eq(mf_tune_records(&text, NULL, NULL, 0), MF_E_IO);
    cr_assert_not_null(strstr(mf_error_message(MF_E_IO), "99"));
}

Test(tune_db, nowhere_to_write)
{
    setenv("MATHFUSE_CACHE_DIR", "/proc/nonexistent", 1);
    keep(1, 5, true);
    cr_assert_eq(found(1, "memory"), 5);
}

Test(tune_db, a_full_disk_costs_the_record_only)
{
    if (access("/dev/full", W_OK))
        cr_skip_test("no /dev/full");
    cr_assert_eq(symlink("/dev/full", file), 0);
    keep(1, 5, true);
    cr_assert_eq(found(1, "memory"), 5);
}

Test(tune_db, what_ends_the_process_twice_is_not_tried_again)
{
    mfi_tune_key k = key(1);
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            bool skip = mfi_tune_attempt(&k, "a candidate");
            _exit(skip ? 1 : 0); /* in the middle of it */
        }
        int status;
        waitpid(child, &status, 0);
        cr_assert_eq(WEXITSTATUS(status), 0, "attempt %d", i);
    }
    cr_assert(mfi_tune_attempt(&k, "a candidate"));
    cr_assert_not(mfi_tune_attempt(&k, "another"));
    mfi_tune_attempted(&k, "another");
    cr_assert_not(mfi_tune_attempt(&k, "another"), "it ended well");
    mfi_tune_give_up(&k, "a third");
    cr_assert(mfi_tune_attempt(&k, "a third"));
    cr_assert_neq(access(file, F_OK), 0, "notes are no business of the database");
}

Test(tune_db, damaged_notes_are_set_aside)
{
    char path[128], command[256];
    mfi_tune_key k = key(1);
    mfi_tune_give_up(&k, "a candidate");
    cr_assert(mfi_tune_attempt(&k, "a candidate"));
    snprintf(path, sizeof path, "%s/attempts.db", directory);
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    for (int i = 0; i < 4096; i++)
        fputc('x', f);
    cr_assert_eq(fclose(f), 0);
    cr_assert_not(mfi_tune_attempt(&k, "a candidate"));
    mfi_tune_give_up(&k, "a candidate");
    cr_assert(mfi_tune_attempt(&k, "a candidate"));
    snprintf(command, sizeof command, "ls %s/attempts.db.damaged-* > /dev/null", directory);
    cr_assert_eq(system(command), 0, "the damaged file is kept");
}

/* 16 processes keep records of the same 8 problems; a third of them is killed at some time. Whatever was told to be kept by
 * one that lived is there, and the file is sound. */
Test(tune_db, many_processes_and_kill, .timeout = 120)
{
    enum { PROCESSES = 16, PROBLEMS = 8, ROUNDS = 6 };
    pid_t child[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        child[p] = fork();
        if (child[p] == 0) {
            for (int i = 0; i < PROBLEMS * ROUNDS; i++)
                keep(i % PROBLEMS, 1 + p, true);
            _exit(0);
        }
    }
    for (int p = 0; p < PROCESSES; p += 3) {
        usleep(20000);
        kill(child[p], SIGKILL);
    }
    int lived = 0;
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        waitpid(child[p], &status, 0);
        lived += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    cr_assert_geq(lived, 10);
    for (int i = 0; i < PROBLEMS; i++)
        cr_assert_gt(found(i, "database"), 0, "problem %d", i);
    expect_sound(PROBLEMS);
}
