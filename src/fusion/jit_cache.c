/* The disk cache: one checksummed file a blob. Whatever goes wrong here costs a compilation, never a result: every
 * failure is a miss, told to the log only. */
#define _GNU_SOURCE
#include "fusion.h"

#include "cache_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define DEFAULT_LIMIT ((int64_t)1 << 30)
#define MAX_BLOB ((int64_t)1 << 28)

/* In front of each blob. A file that is cut short, overwritten or of another version fails one of these. */
typedef struct header {
    char magic[8];
    uint64_t bytes, checksum, key_hi, key_lo;
} header;
static const char MAGIC[8] = "mfcach1";

static void file_name(char *out, const char *kind, uint64_t hi, uint64_t lo)
{
    snprintf(out, 96, "%.40s-%016llx%016llx", kind, (unsigned long long)hi, (unsigned long long)lo);
}

/* ---- reading ---- */

static bool read_all(int fd, void *data, size_t bytes)
{
    char *p = data;
    while (bytes) {
        ssize_t n = read(fd, p, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        bytes -= (size_t)n;
    }
    return true;
}

static void *read_blob(int fd, size_t *bytes, uint64_t hi, uint64_t lo)
{
    header h;
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || !read_all(fd, &h, sizeof h) ||
        memcmp(h.magic, MAGIC, sizeof MAGIC) != 0 || h.key_hi != hi || h.key_lo != lo || st.st_size < (off_t)sizeof h ||
        h.bytes != (uint64_t)st.st_size - sizeof h || h.bytes > (uint64_t)MAX_BLOB)
        return NULL;
    void *data = mfi_alloc((size_t)h.bytes);
    if (data && (!read_all(fd, data, (size_t)h.bytes) || XXH3_64bits(data, (size_t)h.bytes) != h.checksum)) {
        mf_free(data);
        data = NULL;
    }
    *bytes = (size_t)h.bytes;
    return data;
}

mf_status mfi_cache_get(void **data, size_t *bytes, const char *kind, uint64_t key_hi, uint64_t key_lo)
{
    char path[MFI_PATH_BYTES];
    *data = NULL;
    *bytes = 0;
    if (!mfi_cache_directory(path))
        return MF_E_MISSING;
    size_t length = strlen(path);
    path[length] = '/';
    file_name(path + length + 1, kind, key_hi, key_lo);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return MF_E_MISSING;
    *data = read_blob(fd, bytes, key_hi, key_lo);
    if (*data)
        (void)futimens(fd, NULL); /* eviction takes what was not used for longest */
    close(fd);
    if (!*data) {
        mfi_log(MFI_LOG_CACHE, "%s is damaged or of another version; it is removed", path);
        unlink(path);
        *bytes = 0;
        return MF_E_MISSING;
    }
    mfi_log(MFI_LOG_CACHE, "hit %s (%zu bytes)", path, *bytes);
    return MF_OK;
}

/* ---- eviction ---- */

typedef struct entry {
    char name[256];
    int64_t time, bytes;
} entry;

static int64_t limit(void)
{
    const char *text = mfi_variable("MATHFUSE_CACHE_LIMIT");
    char *end = NULL;
    if (!text)
        return DEFAULT_LIMIT;
    long long value = strtoll(text, &end, 10);
    int shift = *end == 'K' || *end == 'k' ? 10 : *end == 'M' || *end == 'm' ? 20 : *end == 'G' || *end == 'g' ? 30 : 0;
    if (end == text || value < 0 || value > INT64_MAX >> shift) {
        mfi_log(MFI_LOG_CACHE, "MATHFUSE_CACHE_LIMIT=%s is no size; give bytes, or a number with K, M or G", text);
        return DEFAULT_LIMIT;
    }
    return (int64_t)value << shift;
}

static int older(const void *a, const void *b)
{
    int64_t x = ((const entry *)a)->time, y = ((const entry *)b)->time;
    return (x > y) - (x < y);
}

/* Files of this cache. Temporary ones of writers that died an hour ago are removed on the way. */
static entry *list(const char *path, size_t *count, int64_t *total)
{
    DIR *dir = opendir(path);
    entry *entries = NULL;
    size_t capacity = 0;
    *count = 0;
    *total = 0;
    for (struct dirent *d; dir && (d = readdir(dir));) {
        struct stat st;
        if (d->d_name[0] == '.' && strncmp(d->d_name, ".tmp-", 5) != 0)
            continue;
        if (strlen(d->d_name) >= sizeof entries->name || fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
            !S_ISREG(st.st_mode))
            continue;
        if (d->d_name[0] == '.') {
            if (st.st_mtime + 3600 < time(NULL))
                unlinkat(dirfd(dir), d->d_name, 0);
            continue;
        }
        if (*count == capacity) {
            entry *more = mfi_realloc(entries, (capacity + 64) * 2 * sizeof *entries);
            if (!more)
                break;
            entries = more;
            capacity = (capacity + 64) * 2;
        }
        entry *e = &entries[(*count)++];
        snprintf(e->name, sizeof e->name, "%s", d->d_name);
        e->time = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        e->bytes = (int64_t)st.st_size;
        *total += e->bytes;
    }
    if (dir)
        closedir(dir);
    return entries;
}

static void evict(const char *path)
{
    size_t count, removed = 0;
    int64_t total, cap = limit();
    entry *entries = list(path, &count, &total);
    if (total > cap) {
        qsort(entries, count, sizeof *entries, older);
        for (; removed < count && total > cap - cap / 8; removed++) {
            char file[MFI_PATH_BYTES + 256];
            snprintf(file, sizeof file, "%s/%s", path, entries[removed].name);
            unlink(file);
            total -= entries[removed].bytes;
        }
        mfi_log(MFI_LOG_CACHE, "removed the %zu oldest of %zu files: the limit is %lld bytes", removed, count,
                (long long)cap);
    }
    mf_free(entries);
}

/* ---- writing ---- */

static bool write_all(int fd, const void *data, size_t bytes)
{
    const char *p = data;
    while (bytes) {
        ssize_t n = write(fd, p, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Complete on disk under a temporary name, then renamed: readers see all of it or nothing. */
static bool write_file(const char *directory_path, const char *name, const header *h, const void *data)
{
    static atomic_uint serial;
    char temporary[MFI_PATH_BYTES + 96], final[MFI_PATH_BYTES + 128];
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now); /* process numbers repeat, across containers too */
    snprintf(temporary, sizeof temporary, "%s/.tmp-%ld-%u-%ld", directory_path, (long)getpid(),
             atomic_fetch_add(&serial, 1), now.tv_nsec);
    snprintf(final, sizeof final, "%s/%s", directory_path, name);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool good = write_all(fd, h, sizeof *h) && write_all(fd, data, (size_t)h->bytes) && fsync(fd) == 0;
    int saved = errno;
    good = close(fd) == 0 && good && rename(temporary, final) == 0;
    if (!good) {
        saved = errno ? errno : saved;
        unlink(temporary);
        errno = saved;
    }
    return good;
}

void mfi_cache_put(const char *kind, uint64_t key_hi, uint64_t key_lo, const void *data, size_t bytes)
{
    char path[MFI_PATH_BYTES], name[96];
    header h = {.bytes = bytes, .checksum = XXH3_64bits(data, bytes), .key_hi = key_hi, .key_lo = key_lo};
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    if (bytes > (size_t)MAX_BLOB || limit() == 0 || !mfi_cache_directory(path))
        return;
    file_name(name, kind, key_hi, key_lo);
    if (!mfi_make_directories(path) || !write_file(path, name, &h, data)) {
        mfi_log(MFI_LOG_CACHE, "cannot write to %s: %s", path, strerror(errno));
        return;
    }
    mfi_log(MFI_LOG_CACHE, "stored %s/%s (%zu bytes)", path, name, bytes);
    evict(path);
}
