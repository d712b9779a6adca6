/* One connection to a tuning database. */
#ifndef MFI_TUNE_DB_FILE_H
#define MFI_TUNE_DB_FILE_H

#include "cache_dir.h"
#include "sqlite_api.h"

typedef struct mfi_database {
    const mfi_sqlite *lite;
    sqlite3 *db;
    char path[MFI_PATH_BYTES + 16];
} mfi_database;

/* The user's own, false: no place for it is known; the site's. */
bool mfi_db_user_path(char out[MFI_PATH_BYTES + 16]);
void mfi_db_site_path(char out[MFI_PATH_BYTES + 16]);
/* d->path. A file that does not exist is made if `create`; else d->db stays NULL and that is no error. */
mf_status mfi_db_open_file(mfi_database *d, bool create);
mf_status mfi_db_open(mfi_database *d, const char *path, bool create); /* path NULL: the user's own */
void mfi_db_shut(mfi_database *d);
mf_status mfi_db_error(const mfi_database *d, const char *doing);

/* A statement with texts for its first parameters; the caller finalizes it, or runs it to its end with mfi_db_finish. */
mf_status mfi_db_prepare(const mfi_database *d, sqlite3_stmt **out, const char *sql, const char *const *text,
                         int count);
mf_status mfi_db_finish(const mfi_database *d, sqlite3_stmt *q);
char *mfi_db_column(const mfi_database *d, sqlite3_stmt *q, int i); /* mf_free */

/* Newer stays; an unfinished one gives way to a complete one, never the reverse. */
#define UPSERT                                                                                                         \
    " ON CONFLICT(problem, device, libraries) DO UPDATE SET title = excluded.title, winner = excluded.winner,"         \
    " baseline = excluded.baseline, winner_us = excluded.winner_us, default_us = excluded.default_us,"                 \
    " seconds = excluded.seconds, complete = excluded.complete, measured = excluded.measured,"                         \
    " created = excluded.created WHERE excluded.complete > complete OR"                                                \
    " (excluded.complete = complete AND excluded.created >= created)"
#define COLUMNS                                                                                                        \
    "problem, device, libraries, title, winner, baseline, winner_us, default_us, seconds, complete, measured, created"
#define MATCHES " WHERE ?1 = '' OR instr(problem, ?1) OR instr(title, ?1) OR instr(device, ?1) OR instr(winner, ?1)"

#endif
