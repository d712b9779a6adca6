/* The tuning database for people: listing, merging, clearing, verifying. */
#include "choice.h"
#include "tune_db_file.h"

#include <sys/stat.h>

mf_status mf_tune_database(char **out)
{
    char path[MFI_PATH_BYTES + 16];
    *out = NULL;
    MF_REQUIRE(mfi_db_user_path(path), MF_E_IO, "none of MATHFUSE_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
    *out = mfi_strdup(path);
    return *out ? MF_OK : MFI_NO_MEMORY(strlen(path));
}

mf_status mf_tune_records(char **out, const char *path, const char *filter, int whole)
{
    mfi_database d = {0};
    sqlite3_stmt *q;
    *out = NULL;
    MF_TRY(mfi_db_open(&d, path, false));
    if (!d.db) {
        *out = mfi_strdup("[]");
        return *out ? MF_OK : MFI_NO_MEMORY(3);
    }
#define OBJECT                                                                                                         \
    "json_object('problem', problem, 'device', device, 'libraries', libraries, 'title', title, 'winner', winner,"      \
    " 'default', baseline, 'winner_us', winner_us, 'default_us', default_us, 'seconds', seconds, 'complete', "         \
    "complete,"                                                                                                        \
    " 'created', created"
    const char *sql = whole ? "SELECT json_group_array(" OBJECT ", 'candidates', json(measured))) FROM"
                              " (SELECT * FROM record" MATCHES " ORDER BY created DESC, problem)"
                            : "SELECT json_group_array(" OBJECT ")) FROM"
                              " (SELECT * FROM record" MATCHES " ORDER BY created DESC, problem)";
#undef OBJECT
    mf_status status = mfi_db_prepare(&d, &q, sql, &filter, 1);
    if (status == MF_OK) {
        status = d.lite->step(q) == SQLITE_ROW ? MF_OK : mfi_db_error(&d, "reading");
        *out = status == MF_OK ? mfi_db_column(&d, q, 0) : NULL;
        d.lite->finalize(q);
        if (status == MF_OK && !*out)
            status = MFI_NO_MEMORY(1);
    }
    mfi_db_shut(&d);
    return status;
}

/* Run `sql` with one text, count the rows it changed. */
static mf_status change(const char *path, bool create, const char *sql, const char *text, int *count)
{
    mfi_database d = {0};
    sqlite3_stmt *q;
    *count = 0;
    MF_TRY(mfi_db_open(&d, path, create));
    if (!d.db)
        return MF_OK;
    mf_status status = mfi_db_prepare(&d, &q, sql, &text, 1);
    if (status == MF_OK)
        status = mfi_db_finish(&d, q);
    if (status == MF_OK)
        *count = d.lite->changes(d.db);
    mfi_db_shut(&d);
    return status;
}

mf_status mf_tune_import(const char *path, const char *json, int *count)
{
#define FIELD(name) "json_extract(value, '$." name "')"
    return change(
        path, true,
        "INSERT INTO record(" COLUMNS
        ") SELECT " FIELD("problem") ", " FIELD("device") ", " FIELD("libraries") ", " FIELD("title") ", " FIELD(
            "winne"
            "r") ", " FIELD("default") ", " FIELD("winner_us") ", " FIELD("default_us") ", " FIELD("seconds") ","
                                                                                                              " " FIELD("complete") ", " FIELD(
                                                                                                                  "cand"
                                                                                                                  "idat"
                                                                                                                  "es") ", " FIELD("created") " FROM json_each(?1) WHERE true" UPSERT,
        json, count);
#undef FIELD
}

mf_status mf_tune_merge(const char *path, const char *other, int *count)
{
    char *records = NULL;
    struct stat file;
    *count = 0;
    MF_REQUIRE(other && stat(other, &file) == 0, MF_E_IO, "there is no file %s to merge", other ? other : "(NULL)");
    MF_TRY(mf_tune_records(&records, other, NULL, 1));
    mf_status status = mf_tune_import(path, records, count);
    mf_free(records);
    return status;
}

mf_status mf_tune_clear(const char *path, const char *filter, int *count)
{
    return change(path, false, "DELETE FROM record" MATCHES, filter, count);
}

/* ---- verification ---- */

static void check_record(const mfi_database *d, sqlite3_stmt *q, mfi_text *faults)
{
    mfi_choice choice;
    const char *problem = (const char *)d->lite->column_text(q, 0);
    for (int i = 1; i < 3; i++) {
        const char *text = (const char *)d->lite->column_text(q, i);
        if (!text || !mfi_choice_parse(&choice, text))
            mfi_text_add(faults, "record %s: \"%s\" is no choice that can be read\n", problem ? problem : "?",
                         text ? text : "");
    }
    if (!(d->lite->column_double(q, 3) > 0) || !(d->lite->column_double(q, 4) > 0))
        mfi_text_add(faults, "record %s: a time is not positive\n", problem ? problem : "?");
    if (!d->lite->column_int64(q, 5))
        mfi_text_add(faults, "record %s: its measurements are no JSON array\n", problem ? problem : "?");
}

static mf_status each(const mfi_database *d, const char *sql,
                      void (*fn)(const mfi_database *, sqlite3_stmt *, mfi_text *), mfi_text *faults)
{
    sqlite3_stmt *q;
    MF_TRY(mfi_db_prepare(d, &q, sql, NULL, 0));
    int result;
    while ((result = d->lite->step(q)) == SQLITE_ROW)
        fn(d, q, faults);
    mf_status status = result == SQLITE_DONE ? MF_OK : mfi_db_error(d, "reading");
    d->lite->finalize(q);
    return status;
}

static void integrity(const mfi_database *d, sqlite3_stmt *q, mfi_text *faults)
{
    const char *text = (const char *)d->lite->column_text(q, 0);
    if (text && strcmp(text, "ok") != 0)
        mfi_text_add(faults, "%s\n", text);
}

mf_status mf_tune_verify(char **out, const char *path)
{
    mfi_database d = {0};
    mfi_text faults = {0};
    *out = NULL;
    MF_TRY(mfi_db_open(&d, path, false));
    mfi_text_add(&faults, "%s", "");
    mf_status status = MF_OK;
    if (d.db) {
        status = each(&d, "PRAGMA integrity_check", integrity, &faults);
        if (status == MF_OK)
            status = each(&d,
                          "SELECT problem, winner, baseline, winner_us, default_us,"
                          " CASE WHEN json_valid(measured) THEN json_type(measured) = 'array' ELSE 0 END FROM record",
                          check_record, &faults);
    }
    mfi_db_shut(&d);
    *out = status == MF_OK ? mfi_text_take(&faults) : NULL;
    mfi_text_free(&faults);
    return status != MF_OK ? status : *out ? MF_OK : MFI_NO_MEMORY(1);
}
