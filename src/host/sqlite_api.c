/* SQLite's functions, found once. */
#include "sqlite_api.h"
#include "loader.h"

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static mfi_sqlite api;
static bool complete;

static void load(void)
{
    complete = mfi_library_load(MFI_LIB_SQLITE)->found;
#define LOAD(name)                                                                                                     \
    do {                                                                                                               \
        void *symbol_ = complete ? mfi_library_symbol(MFI_LIB_SQLITE, "sqlite3_" #name) : NULL;                        \
        memcpy(&api.name, &symbol_, sizeof symbol_);                                                                   \
        complete &= symbol_ != NULL;                                                                                   \
    } while (0)
    LOAD(open_v2);
    LOAD(close_v2);
    LOAD(busy_timeout);
    LOAD(exec);
    LOAD(prepare_v2);
    LOAD(step);
    LOAD(finalize);
    LOAD(bind_text);
    LOAD(bind_double);
    LOAD(bind_int64);
    LOAD(column_text);
    LOAD(column_double);
    LOAD(column_int64);
    LOAD(errmsg);
    LOAD(changes);
    LOAD(extended_errcode);
#undef LOAD
}

const mfi_sqlite *mfi_sqlite_get(void)
{
    pthread_once(&once, load);
    return complete ? &api : NULL;
}
