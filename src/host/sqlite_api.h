/* The part of SQLite's C interface that is used, through the loader. Its ABI is stable by promise (sqlite.org/capi3ref). */
#ifndef MFI_SQLITE_API_H
#define MFI_SQLITE_API_H

#include <stdint.h>

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;

enum {
    SQLITE_OK = 0,
    SQLITE_BUSY = 5,
    SQLITE_CORRUPT = 11,
    SQLITE_NOTADB = 26,
    SQLITE_ROW = 100,
    SQLITE_DONE = 101,
    SQLITE_OPEN_READONLY = 1,
    SQLITE_OPEN_READWRITE = 2,
    SQLITE_OPEN_CREATE = 4,
    SQLITE_OPEN_FULLMUTEX = 0x10000,
};

typedef struct mfi_sqlite {
    int (*open_v2)(const char *, sqlite3 **, int, const char *);
    int (*close_v2)(sqlite3 *);
    int (*busy_timeout)(sqlite3 *, int);
    int (*exec)(sqlite3 *, const char *, int (*)(void *, int, char **, char **), void *, char **);
    int (*prepare_v2)(sqlite3 *, const char *, int, sqlite3_stmt **, const char **);
    int (*step)(sqlite3_stmt *);
    int (*finalize)(sqlite3_stmt *);
    int (*bind_text)(sqlite3_stmt *, int, const char *, int, void (*)(void *));
    int (*bind_double)(sqlite3_stmt *, int, double);
    int (*bind_int64)(sqlite3_stmt *, int, int64_t);
    const unsigned char *(*column_text)(sqlite3_stmt *, int);
    double (*column_double)(sqlite3_stmt *, int);
    int64_t (*column_int64)(sqlite3_stmt *, int);
    const char *(*errmsg)(sqlite3 *);
    int (*changes)(sqlite3 *);
    int (*extended_errcode)(sqlite3 *);
} mfi_sqlite;

/* NULL: it is not on this machine; mfi_library_load(MFI_LIB_SQLITE)->missing says more. */
const mfi_sqlite *mfi_sqlite_get(void);

#endif
