// The state of an emulated block: threads, barriers, exchanges between the lanes of a warp, and the report of what went
// wrong.
#ifndef MATHFUSE_DEVICE_EMULATE_BLOCK_H
#define MATHFUSE_DEVICE_EMULATE_BLOCK_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "mathfuse/device/emulate_fiber.h"

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace mf
{
namespace emulate
{

struct site { // a place in the source
    const char *file;
    int line;
};

// One collective operation of some lanes of a warp: each leaves its value, and all read when the last has come.
struct exchange {
    static constexpr size_t bytes = 64; // per lane
    const char *what;
    site where;
    uint32_t mask, arrived, left; // free when left == mask
    alignas(16) unsigned char data[32][bytes];
};

struct warp {
    static constexpr int slots = 65; // one open and one unread exchange for each lane, at most
    uint32_t present, exited;
    uint32_t ordered; // counts __syncwarp, for checked mode
    exchange slot[slots];
};

static constexpr size_t margin = 16 << 10; // bytes around the dynamic shared memory that no kernel may touch

enum class state { ready, at_barrier, in_warp, done };

// An asynchronous copy that was asked for and not waited for. src NULL: zeros.
struct pending_copy {
    void *dst;
    const void *src;
    int bytes, group;
};

struct thread {
    fiber f;
    uint3 index;
    int number, vote;
    state at;
    const char *what;
    site where;
    pending_copy *copies; // oldest first; memory is kept from block to block
    int copy_count, copy_room, copy_group;
};

struct machine {
    stacks memory;
    fiber scheduler;
    thread *threads = nullptr;
    warp *warps = nullptr;
    int capacity = 0, count = 0;
    thread *self = nullptr;
    uint3 block = {0, 0, 0};
    dim3 grid, shape;
    void (*body)(void *) = nullptr;
    void *argument = nullptr;
    unsigned char *arena = nullptr, *shared = nullptr; // the dynamic shared memory, and a margin before and after it
    size_t shared_bytes = 0;
    uint32_t epoch = 0;       // counts barriers and blocks, for checked mode
    int votes[3] = {0, 0, 0}; // of the last barrier: sum, all, any
    site last_barrier = {nullptr, 0};
    bool failed = false;
    char message[1024] = "";

    MF_EMULATE_OWN ~machine() { release(); }
    MF_EMULATE_OWN void release()
    {
        for (int i = 0; i < capacity; i++)
            free(threads[i].copies);
        capacity = 0;
        free(threads);
        free(warps);
        threads = nullptr;
        warps = nullptr;
    }
};

inline thread_local machine now; // of the host thread that launches

// Records the first error; the block is abandoned when the fiber that met it returns to the scheduler.
MF_EMULATE_OWN __attribute__((format(printf, 1, 2))) inline void report(const char *format, ...)
{
    if (now.failed)
        return;
    now.failed = true;
    int n = snprintf(now.message, sizeof now.message, "block (%u, %u, %u): ", now.block.x, now.block.y, now.block.z);
    va_list args;
    va_start(args, format);
    vsnprintf(now.message + n, sizeof now.message - (size_t)n, format, args);
    va_end(args);
}

MF_EMULATE_OWN inline void wait_as(state s, const char *what, site where)
{
    thread *me = now.self;
    me->at = s;
    me->what = what;
    me->where = where;
    switch_fiber(&me->f, &now.scheduler, false);
}

// After a report: never comes back.
MF_EMULATE_OWN inline void give_up()
{
    thread *me = now.self;
    me->at = state::done;
    switch_fiber(&me->f, &now.scheduler, true);
    abort();
}

MF_EMULATE_OPAQUE inline void barrier(const char *what, site where, int vote)
{
    now.self->vote = vote;
    wait_as(state::at_barrier, what, where);
}

MF_EMULATE_OWN inline exchange *open_exchange(warp *w, uint32_t mask, uint32_t bit, const char *what, site where)
{
    exchange *unused = nullptr;
    for (exchange &e : w->slot) {
        if (e.left == e.mask)
            unused = unused ? unused : &e;
        else if (e.arrived != e.mask && (e.mask & bit)) { // some lane already waits for this one
            if (e.mask != mask || strcmp(e.what, what) != 0)
                report("thread %d is at %s with mask %08x (%s:%d), others of its warp wait for it at %s with mask %08x "
                       "(%s:%d)",
                       now.self->number, what, mask, where.file, where.line, e.what, e.mask, e.where.file,
                       e.where.line);
            return &e;
        }
    }
    unused->what = what;
    unused->where = where;
    unused->mask = mask;
    unused->arrived = unused->left = 0;
    return unused;
}

// Leaves `bytes` of `mine` for the lanes of `mask`, waits for all of them, and copies what each left to `all`.
MF_EMULATE_OPAQUE inline void meet(const char *what, site where, uint32_t mask, const void *mine, size_t bytes,
                                   unsigned char (*all)[exchange::bytes])
{
    thread *me = now.self;
    warp *w = now.warps + me->number / 32;
    uint32_t bit = 1u << (me->number % 32);
    if (!(mask & bit))
        report("thread %d calls %s with mask %08x, which leaves it out (%s:%d)", me->number, what, mask, where.file,
               where.line);
    exchange *e = open_exchange(w, mask & w->present, bit, what, where);
    if (now.failed)
        give_up();
    memcpy(e->data[me->number % 32], mine, bytes);
    e->arrived |= bit;
    if (e->arrived == e->mask) {
        for (int lane = 0; lane < 32; lane++)
            if (e->mask >> lane & 1)
                now.threads[me->number / 32 * 32 + lane].at = state::ready;
        w->ordered += strcmp(what, "__syncwarp") == 0;
    } else {
        wait_as(state::in_warp, what, where);
    }
    if (all)
        memcpy(all, e->data, sizeof e->data);
    e->left |= bit;
}

MF_EMULATE_OWN inline void fiber_main()
{
    arrived_from(&now.scheduler);
    now.body(now.argument);
    thread *me = now.self;
    me->at = state::done;
    now.warps[me->number / 32].exited |= 1u << (me->number % 32);
    switch_fiber(&me->f, &now.scheduler, true);
    abort();
}

// Nobody can run on: either all are at one barrier, or the kernel would hang or worse.
MF_EMULATE_OWN inline bool release_barrier()
{
    const thread *first = nullptr, *other = nullptr, *gone = nullptr;
    int sum = 0;
    for (int i = 0; i < now.count; i++) {
        const thread *t = now.threads + i;
        if (t->at == state::done)
            gone = gone ? gone : t;
        else if (!first)
            first = t;
        else if (t->at != first->at || t->where.line != first->where.line ||
                 strcmp(t->where.file, first->where.file) != 0)
            other = other ? other : t;
        sum += t->vote != 0;
    }
    if (other)
        report("divergence: thread %d waits at %s (%s:%d), thread %d at %s (%s:%d)", first->number, first->what,
               first->where.file, first->where.line, other->number, other->what, other->where.file, other->where.line);
    else if (gone)
        report("divergence: thread %d waits at %s (%s:%d), thread %d has returned from the kernel", first->number,
               first->what, first->where.file, first->where.line, gone->number);
    else if (first->at == state::in_warp)
        report("thread %d waits at %s (%s:%d) for lanes that never come", first->number, first->what, first->where.file,
               first->where.line);
    if (now.failed)
        return false;
    now.votes[0] = sum;
    now.votes[1] = sum == now.count;
    now.votes[2] = sum != 0;
    now.last_barrier = first->where;
    now.epoch++;
    for (int i = 0; i < now.count; i++)
        now.threads[i].at = state::ready;
    return true;
}

} // namespace emulate
} // namespace mf

#endif
