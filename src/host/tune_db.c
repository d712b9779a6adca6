/* Records of the tuning database: finding and keeping them, and what happens where no file will have them. */
#define _GNU_SOURCE
#include "tune_db.h"
#include "tune_db_file.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { LOST_TWICE = 2 };

void mfi_tune_record_free(mfi_tune_record *r)
{
    mf_free(r->title);
    mf_free(r->winner);
    mf_free(r->baseline);
    mf_free(r->measured);
    memset(r, 0, sizeof *r);
}

/* ---- warnings: each text once in a process ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void warn(const char *consequence)
{
    static char told[4][256];
    static int count;
    const char *text = mf_error_message(MF_E_IO);
    if (!text[0])
        text = mf_error_message(MF_E_MISSING);
    pthread_mutex_lock(&lock);
    bool known = count == (int)MFI_COUNT(told);
    for (int i = 0; i < count; i++)
        known |= !strncmp(told[i], text, sizeof told[i] - 1);
    if (!known)
        snprintf(told[count++], sizeof told[0], "%s", text);
    pthread_mutex_unlock(&lock);
    if (!known)
        fprintf(stderr, "mathfuse: %s; %s\n", text, consequence);
}

/* ---- what could not be written ---- */

typedef struct remembered {
    mfi_tune_key key;
    mfi_tune_record record;
    struct remembered *next;
} remembered;
static remembered *memory;

static bool same_key(const mfi_tune_key *a, const mfi_tune_key *b)
{
    return !strcmp(a->problem, b->problem) && !strcmp(a->device, b->device) && !strcmp(a->libraries, b->libraries);
}

static bool copy_record(mfi_tune_record *out, const mfi_tune_record *r)
{
    *out = *r;
    out->title = mfi_strdup(r->title);
    out->winner = mfi_strdup(r->winner);
    out->baseline = mfi_strdup(r->baseline);
    out->measured = mfi_strdup(r->measured);
    if (out->title && out->winner && out->baseline && out->measured)
        return true;
    mfi_tune_record_free(out);
    return false;
}

static bool recall(const mfi_tune_key *key, mfi_tune_record *out)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const remembered *m = memory; m && !found; m = m->next)
        found = same_key(&m->key, key) && copy_record(out, &m->record);
    pthread_mutex_unlock(&lock);
    return found;
}

static void remember(const mfi_tune_key *key, const mfi_tune_record *record)
{
    remembered *m = mfi_calloc(1, sizeof *m);
    if (!m || !copy_record(&m->record, record)) {
        mf_free(m);
        return;
    }
    m->key = *key;
    pthread_mutex_lock(&lock);
    m->next = memory; /* in front of an older one for the same key */
    memory = m;
    pthread_mutex_unlock(&lock);
}

/* ---- finding and keeping ---- */

static mf_status look_up(mfi_database *d, const mfi_tune_key *key, mfi_tune_record *out, bool *found)
{
    const char *const texts[] = {key->problem, key->device, key->libraries};
    sqlite3_stmt *q;
    *found = false;
    MF_TRY(
        mfi_db_prepare(d, &q,
                       "SELECT title, winner, baseline, measured, winner_us, default_us, seconds, complete FROM record"
                       " WHERE problem = ?1 AND device = ?2 AND libraries = ?3",
                       texts, 3));
    int result = d->lite->step(q);
    mf_status status = result == SQLITE_ROW || result == SQLITE_DONE ? MF_OK : mfi_db_error(d, "reading");
    if (result == SQLITE_ROW) {
        *out = (mfi_tune_record){mfi_db_column(d, q, 0),       mfi_db_column(d, q, 1),
                                 mfi_db_column(d, q, 2),       mfi_db_column(d, q, 3),
                                 d->lite->column_double(q, 4), d->lite->column_double(q, 5),
                                 d->lite->column_double(q, 6), d->lite->column_int64(q, 7) != 0};
        *found = out->title && out->winner && out->baseline && out->measured;
    }
    d->lite->finalize(q);
    return status;
}

static bool find_in(mfi_database *d, const mfi_tune_key *key, mfi_tune_record *out)
{
    bool found = false;
    mf_status status = mfi_db_open_file(d, false);
    if (status == MF_OK && d->db)
        status = look_up(d, key, out, &found);
    if (status != MF_OK)
        warn("it is not used");
    mfi_db_shut(d);
    return found;
}

bool mfi_tune_find(const mfi_tune_key *key, mfi_tune_record *out, const char **source)
{
    mfi_database d;
    memset(out, 0, sizeof *out);
    *source = "memory";
    if (recall(key, out))
        return true;
    *source = "database";
    if (mfi_db_user_path(d.path) && find_in(&d, key, out))
        return true;
    mfi_tune_record_free(out);
    mfi_db_site_path(d.path);
    return find_in(&d, key, out);
}

static mf_status store(mfi_database *d, const mfi_tune_key *key, const mfi_tune_record *r)
{
    const char *const texts[] = {key->problem, key->device, key->libraries, r->title,
                                 r->winner,    r->baseline, r->measured};
    sqlite3_stmt *q;
    MF_TRY(mfi_db_prepare(
        d, &q,
        "INSERT INTO record(problem, device, libraries, title, winner, baseline, measured, winner_us,"
        " default_us, seconds, complete, created) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)" UPSERT,
        texts, 7));
    d->lite->bind_double(q, 8, r->winner_us);
    d->lite->bind_double(q, 9, r->default_us);
    d->lite->bind_double(q, 10, r->seconds);
    d->lite->bind_int64(q, 11, r->complete);
    d->lite->bind_int64(q, 12, (int64_t)time(NULL));
    return mfi_db_finish(d, q);
}

/* A file that SQLite cannot read is kept, under another name, and a new one begun. */
static bool set_aside(mfi_database *d)
{
    char aside[sizeof d->path + 40];
    int code = d->db ? d->lite->extended_errcode(d->db) & 0xff : 0;
    if (code != SQLITE_NOTADB && code != SQLITE_CORRUPT)
        return false;
    mfi_db_shut(d);
    snprintf(aside, sizeof aside, "%s.damaged-%lld", d->path, (long long)time(NULL));
    if (rename(d->path, aside))
        return false;
    fprintf(stderr, "mathfuse: the tuning database %s was damaged; it is now %s, and a new one is begun\n", d->path,
            aside);
    return true;
}

/* `path` or the user's own. */
static mf_status open_to_write(mfi_database *d, const char *path)
{
    mf_status status = mfi_db_open(d, path, true);
    if (status != MF_E_IO || !d->lite || !d->path[0])
        return status;
    /* open_file has shut it: ask again what is wrong. */
    if (d->lite->open_v2(d->path, &d->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX, NULL) == SQLITE_OK)
        d->lite->exec(d->db, "SELECT count(*) FROM record", NULL, NULL, NULL);
    bool again = set_aside(d);
    mfi_db_shut(d);
    return again ? mfi_db_open(d, path, true) : status;
}

void mfi_tune_keep(const mfi_tune_key *key, const mfi_tune_record *record)
{
    mfi_database d = {0};
    mf_status status = open_to_write(&d, NULL);
    if (status == MF_OK)
        status = store(&d, key, record);
    mfi_db_shut(&d);
    if (status != MF_OK) {
        warn("tuning results are kept in memory only");
        remember(key, record);
    }
}

/* ---- attempts ---- */

static bool alive(int64_t process, const char *host)
{
    char here[64] = "";
    gethostname(here, sizeof here - 1);
    return strcmp(here, host) ? true : kill((pid_t)process, 0) == 0 || errno == EPERM;
}

/* Two notes for each candidate: they must outlive the process, but not the machine, and so nothing waits for the disk. That may
 * cost a file when the power fails, so they have one of their own. */
static mf_status open_attempts(mfi_database *d)
{
    char directory[MFI_PATH_BYTES], path[MFI_PATH_BYTES + 16];
    MF_REQUIRE(mfi_cache_directory(directory), MF_E_IO, "there is no place for notes on attempts");
    mfi_make_directories(directory);
    snprintf(path, sizeof path, "%s/attempts.db", directory);
    MF_TRY(open_to_write(d, path));
    if (d->lite->exec(d->db, "PRAGMA synchronous = OFF", NULL, NULL, NULL) == SQLITE_OK)
        return MF_OK;
    mf_status status = mfi_db_error(d, "setting up");
    mfi_db_shut(d);
    return status;
}

/* How often the candidate's process ended in the middle of it. One that still runs is no loss. */
static int64_t losses(mfi_database *d, const char *const *texts)
{
    sqlite3_stmt *q;
    int64_t lost = 0;
    if (mfi_db_prepare(d, &q,
                       "SELECT lost, process, host FROM attempt WHERE problem = ?1 AND device = ?2 AND libraries = ?3"
                       " AND candidate = ?4",
                       texts, 4) != MF_OK)
        return 0;
    if (d->lite->step(q) == SQLITE_ROW) {
        int64_t process = d->lite->column_int64(q, 1);
        const char *host = (const char *)d->lite->column_text(q, 2);
        lost = d->lite->column_int64(q, 0) + (process && !alive(process, host ? host : ""));
    }
    d->lite->finalize(q);
    return lost;
}

static void note(mfi_database *d, const char *const *texts, int64_t lost, int64_t process)
{
    sqlite3_stmt *q;
    if (mfi_db_prepare(d, &q, "INSERT OR REPLACE INTO attempt VALUES(?1, ?2, ?3, ?4, ?6, ?7, ?5)", texts, 5) != MF_OK)
        return;
    d->lite->bind_int64(q, 6, lost);
    d->lite->bind_int64(q, 7, process);
    (void)mfi_db_finish(d, q);
}

void mfi_tune_give_up(const mfi_tune_key *key, const char *candidate)
{
    mfi_database d = {0};
    const char *const texts[] = {key->problem, key->device, key->libraries, candidate, ""};
    if (open_attempts(&d) == MF_OK)
        note(&d, texts, LOST_TWICE, 0);
    mfi_db_shut(&d);
}

bool mfi_tune_attempt(const mfi_tune_key *key, const char *candidate)
{
    char host[64] = "";
    mfi_database d = {0};
    gethostname(host, sizeof host - 1);
    const char *const texts[] = {key->problem, key->device, key->libraries, candidate, host};
    if (open_attempts(&d) != MF_OK)
        return false;
    int64_t lost = losses(&d, texts);
    if (lost < LOST_TWICE)
        note(&d, texts, lost, getpid());
    mfi_db_shut(&d);
    return lost >= LOST_TWICE;
}

void mfi_tune_attempted(const mfi_tune_key *key, const char *candidate)
{
    mfi_database d = {0};
    const char *const texts[] = {key->problem, key->device, key->libraries, candidate};
    sqlite3_stmt *q;
    if (open_attempts(&d) == MF_OK &&
        mfi_db_prepare(&d, &q,
                       "DELETE FROM attempt WHERE problem = ?1 AND device = ?2 AND libraries = ?3 AND candidate = ?4",
                       texts, 4) == MF_OK)
        (void)mfi_db_finish(&d, q);
    mfi_db_shut(&d);
}
