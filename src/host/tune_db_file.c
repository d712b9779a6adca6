/* The tuning database in SQLite. A rollback journal, not a write-ahead log: that one needs shared memory, which network file
 * systems do not have. A connection lives as long as one call: none is carried over a fork, and a file that is replaced is
 * seen. */
#include "tune_db_file.h"
#include "loader.h"

#include <stdio.h>
#include <sys/stat.h>

enum { SCHEMA = 1, BUSY_MS = 20000 };

static const char schema[] =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE IF NOT EXISTS record(problem TEXT NOT NULL, device TEXT NOT NULL, libraries TEXT NOT NULL,"
    " title TEXT NOT NULL, winner TEXT NOT NULL, baseline TEXT NOT NULL, winner_us REAL NOT NULL, default_us REAL NOT "
    "NULL,"
    " seconds REAL NOT NULL, complete INTEGER NOT NULL, measured TEXT NOT NULL, created INTEGER NOT NULL,"
    " PRIMARY KEY(problem, device, libraries));"
    "CREATE TABLE IF NOT EXISTS attempt(problem TEXT NOT NULL, device TEXT NOT NULL, libraries TEXT NOT NULL,"
    " candidate TEXT NOT NULL, lost INTEGER NOT NULL, process INTEGER NOT NULL, host TEXT NOT NULL,"
    " PRIMARY KEY(problem, device, libraries, candidate));"
    "PRAGMA user_version = 1;"
    "COMMIT";

/* ---- opening ---- */

bool mfi_db_user_path(char out[MFI_PATH_BYTES + 16])
{
    char directory[MFI_PATH_BYTES];
    bool known = mfi_cache_directory(directory);
    if (known)
        snprintf(out, MFI_PATH_BYTES + 16, "%s/tuning.db", directory);
    return known;
}

void mfi_db_site_path(char out[MFI_PATH_BYTES + 16])
{
    const char *directory = mfi_variable("MATHFUSE_SITE_DIR");
    snprintf(out, MFI_PATH_BYTES + 16, "%.*s/tuning.db", MFI_PATH_BYTES - 1,
             directory ? directory : "/usr/share/mathfuse");
}

mf_status mfi_db_error(const mfi_database *d, const char *doing)
{
    return mfi_fail(MF_E_IO, "%s %s: %s; set MATHFUSE_CACHE_DIR to another directory, or move the file away", doing,
                    d->path, d->db ? d->lite->errmsg(d->db) : "out of memory");
}

void mfi_db_shut(mfi_database *d)
{
    if (d->db)
        d->lite->close_v2(d->db);
    d->db = NULL;
}

static mf_status scalar(const mfi_database *d, const char *sql, int64_t *out)
{
    sqlite3_stmt *q = NULL;
    int result = d->lite->prepare_v2(d->db, sql, -1, &q, NULL);
    if (result == SQLITE_OK)
        result = d->lite->step(q);
    mf_status status = result == SQLITE_ROW ? MF_OK : mfi_db_error(d, "reading");
    if (status == MF_OK)
        *out = d->lite->column_int64(q, 0);
    d->lite->finalize(q);
    return status;
}

static mf_status check_version(const mfi_database *d)
{
    int64_t version = 0;
    MF_TRY(scalar(d, "PRAGMA user_version", &version));
    MF_REQUIRE(version == SCHEMA, MF_E_IO, "%s is a tuning database of version %lld, this mathfuse reads version %d",
               d->path, (long long)version, SCHEMA);
    return MF_OK;
}

/* A file that does not exist, or that another process just begins, is made if `create`; else *d stays shut and that is no
 * error. */
mf_status mfi_db_open_file(mfi_database *d, bool create)
{
    struct stat file;
    d->db = NULL;
    d->lite = mfi_sqlite_get();
    bool there = stat(d->path, &file) == 0 && file.st_size > 0;
    if (!there && !create)
        return MF_OK;
    MF_REQUIRE(d->lite, MF_E_MISSING, "the tuning database needs SQLite: %s",
               mfi_library_load(MFI_LIB_SQLITE)->missing);
    int mode = create ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READWRITE;
    int result = d->lite->open_v2(d->path, &d->db, mode | SQLITE_OPEN_FULLMUTEX, NULL);
    if (result != SQLITE_OK && !create) {
        mfi_db_shut(d);
        result = d->lite->open_v2(d->path, &d->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_FULLMUTEX, NULL);
    }
    mf_status status = result == SQLITE_OK ? MF_OK : mfi_db_error(d, "opening");
    if (status == MF_OK) {
        d->lite->busy_timeout(d->db, BUSY_MS);
        if (create && !there && d->lite->exec(d->db, schema, NULL, NULL, NULL) != SQLITE_OK)
            status = mfi_db_error(d, "making");
    }
    if (status == MF_OK)
        status = check_version(d);
    if (status != MF_OK)
        mfi_db_shut(d);
    return status;
}

/* `path` or the user's own. */
mf_status mfi_db_open(mfi_database *d, const char *path, bool create)
{
    if (path)
        snprintf(d->path, sizeof d->path, "%s", path);
    else
        MF_REQUIRE(
            mfi_db_user_path(d->path), MF_E_IO,
            "there is no place for the tuning database: none of MATHFUSE_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
    if (create && !path) {
        char directory[MFI_PATH_BYTES];
        if (mfi_cache_directory(directory))
            mfi_make_directories(directory);
    }
    return mfi_db_open_file(d, create);
}

/* ---- statements ---- */

mf_status mfi_db_prepare(const mfi_database *d, sqlite3_stmt **out, const char *sql, const char *const *text, int count)
{
    *out = NULL;
    if (d->lite->prepare_v2(d->db, sql, -1, out, NULL) != SQLITE_OK)
        return mfi_db_error(d, "reading");
    for (int i = 0; i < count; i++)
        d->lite->bind_text(*out, i + 1, text[i] ? text[i] : "", -1, NULL);
    return MF_OK;
}

/* Run to the end. */
mf_status mfi_db_finish(const mfi_database *d, sqlite3_stmt *q)
{
    int result = d->lite->step(q);
    while (result == SQLITE_ROW)
        result = d->lite->step(q);
    mf_status status = result == SQLITE_DONE ? MF_OK : mfi_db_error(d, "writing");
    d->lite->finalize(q);
    return status;
}

char *mfi_db_column(const mfi_database *d, sqlite3_stmt *q, int i)
{
    const char *text = (const char *)d->lite->column_text(q, i);
    return mfi_strdup(text ? text : "");
}
