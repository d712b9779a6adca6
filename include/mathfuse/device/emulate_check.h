// Checked mode of emulate.h: the compiler's thread-sanitizer calls at every access lead here. Two threads of a block
// that touch the same byte between two barriers, one of them writing, are reported; so are shared accesses out of
// bounds.
#ifndef MATHFUSE_DEVICE_EMULATE_CHECK_H
#define MATHFUSE_DEVICE_EMULATE_CHECK_H

#include "mathfuse/device/emulate_block.h"

namespace mf
{
namespace emulate
{

struct access {
    uint32_t epoch, ordered; // of the block's barriers, of the warp's
    int thread;
};
struct cell {                       // of one byte
    access written, read, read_too; // the last write, and reads by two different threads
};
struct page {
    uintptr_t number;
    cell *cells;
};
static constexpr uintptr_t page_bytes = 4096;

// Pages of shadow by address, in an open hash table that only grows.
struct shadow {
    page *pages = nullptr;
    size_t size = 0, used = 0;

    MF_EMULATE_OWN ~shadow()
    {
        for (size_t i = 0; i < size; i++)
            free(pages[i].cells);
        free(pages);
    }
    MF_EMULATE_OWN page *find(uintptr_t number)
    {
        size_t i = (size_t)(number * 0x9e3779b97f4a7c15ull) & (size - 1);
        while (pages[i].cells && pages[i].number != number)
            i = (i + 1) & (size - 1);
        return pages + i;
    }
    MF_EMULATE_OWN void grow()
    {
        page *old = pages;
        size_t before = size;
        size = size ? size * 2 : 1024;
        pages = (page *)calloc(size, sizeof(page));
        if (!pages)
            abort();
        for (size_t i = 0; i < before; i++)
            if (old[i].cells)
                *find(old[i].number) = old[i];
        free(old);
    }
    MF_EMULATE_OWN cell *at(uintptr_t address)
    {
        if (2 * used >= size)
            grow();
        page *p = find(address / page_bytes);
        if (!p->cells) {
            p->number = address / page_bytes;
            p->cells = (cell *)calloc(page_bytes, sizeof(cell));
            if (!p->cells)
                abort();
            used++;
        }
        return p->cells + address % page_bytes;
    }
};
inline thread_local shadow watched;

// A barrier of the block, or of the warp for threads of one warp, puts an order between two accesses.
MF_EMULATE_OWN inline bool races(const access &a, const access &mine)
{
    if (a.epoch != mine.epoch || a.thread == mine.thread)
        return false;
    return a.thread / 32 != mine.thread / 32 || a.ordered == mine.ordered;
}

MF_EMULATE_OWN inline void report_race(const access &other, const char *did, const char *does, uintptr_t byte)
{
    uintptr_t base = (uintptr_t)now.shared;
    const char *what = byte - base < now.shared_bytes ? "byte of dynamic shared memory" : "address";
    report("race: thread %d %s %s %#llx, which thread %d %s, with no barrier in between (after %s:%d)",
           now.self->number, does, what, (unsigned long long)(byte - base < now.shared_bytes ? byte - base : byte),
           other.thread, did, now.last_barrier.file ? now.last_barrier.file : "the kernel's start",
           now.last_barrier.line);
}

// Returns false when the thread must not go on.
MF_EMULATE_OWN inline bool check_access(void *address, size_t bytes, bool write)
{
    thread *me = now.self;
    if (!me || now.failed || now.memory.holds(address))
        return true;
    uintptr_t first = (uintptr_t)address, base = (uintptr_t)now.shared;
    bool near_shared = now.shared_bytes && first + margin >= base && first < base + now.shared_bytes + margin;
    if (near_shared && (first < base || first + bytes > base + now.shared_bytes)) {
        report("thread %d %s %zu bytes at byte %lld of %zu bytes of dynamic shared memory", me->number,
               write ? "writes" : "reads", bytes, (long long)(first - base), now.shared_bytes);
        return false;
    }
    access mine = {now.epoch, now.warps[me->number / 32].ordered, me->number};
    for (uintptr_t byte = first; byte < first + bytes && !now.failed; byte++) {
        cell *c = watched.at(byte);
        if (races(c->written, mine))
            report_race(c->written, "wrote", write ? "writes" : "reads", byte);
        if (!write) {
            if (c->read.thread != mine.thread || c->read.epoch != mine.epoch)
                c->read_too = c->read;
            c->read = mine;
            continue;
        }
        if (races(c->read, mine))
            report_race(c->read, "read", "writes", byte);
        if (races(c->read_too, mine))
            report_race(c->read_too, "read", "writes", byte);
        c->written = mine;
    }
    return !now.failed;
}

inline __thread bool
    checking; // the checker's own accesses, and those that set up this thread's state, are not its business

MF_EMULATE_OWN inline void on_access(void *address, size_t bytes, bool write)
{
    if (checking)
        return;
    checking = true;
    bool fine = check_access(address, bytes, write);
    checking = false;
    if (!fine)
        give_up();
}

} // namespace emulate
} // namespace mf

// What compiled code calls under -fsanitize=thread. The names are the compiler's own functions, whose types differ from
// version to version, so ours have other names and these symbols.
#define MF_EMULATE_SYMBOL(name, ...)                                                                                   \
    extern "C" void mf_emulate_##name(__VA_ARGS__) __asm__("__tsan_" #name);                                           \
    extern "C" MF_EMULATE_OWN void mf_emulate_##name(__VA_ARGS__)
#define MF_EMULATE_HOOK(kind, size, write)                                                                             \
    MF_EMULATE_SYMBOL(kind##size, void *p)                                                                             \
    {                                                                                                                  \
        mf::emulate::on_access(p, size, write);                                                                        \
    }
#define MF_EMULATE_HOOKS(size)                                                                                         \
    MF_EMULATE_HOOK(read, size, false)                                                                                 \
    MF_EMULATE_HOOK(write, size, true)                                                                                 \
    MF_EMULATE_HOOK(volatile_read, size, false)                                                                        \
    MF_EMULATE_HOOK(volatile_write, size, true)                                                                        \
    MF_EMULATE_HOOK(unaligned_read, size, false)                                                                       \
    MF_EMULATE_HOOK(unaligned_write, size, true)
MF_EMULATE_HOOKS(1)
MF_EMULATE_HOOKS(2)
MF_EMULATE_HOOKS(4)
MF_EMULATE_HOOKS(8)
MF_EMULATE_HOOKS(16)
MF_EMULATE_SYMBOL(read_range, void *p, size_t n)
{
    mf::emulate::on_access(p, n, false);
}
MF_EMULATE_SYMBOL(write_range, void *p, size_t n)
{
    mf::emulate::on_access(p, n, true);
}
MF_EMULATE_SYMBOL(vptr_update, void **, void *) {}
MF_EMULATE_SYMBOL(vptr_read, void **) {}
MF_EMULATE_SYMBOL(func_entry, void *) {}
MF_EMULATE_SYMBOL(func_exit, void *) {}
MF_EMULATE_SYMBOL(init, void) {}
#undef MF_EMULATE_HOOKS
#undef MF_EMULATE_HOOK
#undef MF_EMULATE_SYMBOL

#endif
