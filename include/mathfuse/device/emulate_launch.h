// Launches of emulate.h: blocks one after the other, each from fresh threads and poisoned shared memory.
#ifndef MATHFUSE_DEVICE_EMULATE_LAUNCH_H
#define MATHFUSE_DEVICE_EMULATE_LAUNCH_H

#include "mathfuse/device/emulate_block.h"

namespace mf
{
namespace emulate
{

MF_EMULATE_OWN inline bool run_block()
{
    for (int i = 0; i < now.count; i++) {
        thread *t = now.threads + i;
        t->number = i;
        t->vote = 0;
        t->at = state::ready;
        t->copy_count = t->copy_group = 0;
        t->index = {(unsigned)i % now.shape.x, (unsigned)i / now.shape.x % now.shape.y,
                    (unsigned)i / now.shape.x / now.shape.y};
        now.memory.start(i, &t->f, fiber_main);
    }
    for (int i = 0; i < (now.count + 31) / 32; i++) {
        warp *w = now.warps + i;
        w->present = now.count - i * 32 >= 32 ? 0xffffffffu : (1u << (now.count - i * 32)) - 1;
        w->exited = w->ordered = 0;
        for (exchange &e : w->slot)
            e.mask = e.arrived = e.left = 0;
    }
    memset(now.shared, 0xff, now.shared_bytes); // NaN: nothing is there before the kernel writes it
    now.epoch++;
    now.last_barrier = {nullptr, 0};
    for (;;) {
        int running = 0, left = 0;
        for (int i = 0; i < now.count && !now.failed; i++) {
            if (now.threads[i].at == state::ready) {
                now.self = now.threads + i;
                switch_fiber(&now.scheduler, &now.threads[i].f, false);
                running++;
            }
            left += now.threads[i].at != state::done;
        }
        if (now.failed)
            return false;
        if (left == 0)
            return true;
        if (running == 0 && !release_barrier())
            return false;
    }
}

MF_EMULATE_OWN inline bool prepare(dim3 grid, dim3 block, size_t shared_bytes)
{
    now.failed = false;
    now.block = {0, 0, 0};
    uint64_t threads = (uint64_t)block.x * block.y * block.z, blocks = (uint64_t)grid.x * grid.y * grid.z;
    if (threads == 0 || threads > 1024 || blocks == 0 || shared_bytes > 227 * 1024)
        report("a launch of %llu blocks of %llu threads with %zu bytes of shared memory; allowed are at least one "
               "block, 1 "
               "to 1024 threads, up to 232448 bytes",
               (unsigned long long)blocks, (unsigned long long)threads, shared_bytes);
    else if (!now.memory.reserve((int)threads))
        report("no memory for the stacks of %llu threads", (unsigned long long)threads);
    if (now.failed)
        return false;
    if (now.capacity < (int)threads) {
        now.release();
        now.threads = (thread *)calloc(threads, sizeof(thread));
        now.warps = (warp *)calloc((threads + 31) / 32, sizeof(warp));
        now.capacity = now.threads && now.warps ? (int)threads : 0;
    }
    size_t room = (shared_bytes + 1023) / 1024 * 1024 + 2 * margin;
    now.arena = (unsigned char *)aligned_alloc(1024, room);
    if (!now.capacity || !now.arena) {
        report("no memory for a block of %llu threads", (unsigned long long)threads);
        return false;
    }
    now.shared = now.arena + margin;
#ifdef MF_EMULATE_ASAN
    __asan_poison_memory_region(now.arena, margin);
    __asan_poison_memory_region(now.shared + shared_bytes, room - margin - shared_bytes);
#endif
    now.shared_bytes = shared_bytes;
    now.count = (int)threads;
    now.grid = grid;
    now.shape = block;
    return true;
}

MF_EMULATE_OWN inline const char *run_grid(dim3 grid, dim3 block, size_t shared_bytes, void (*body)(void *),
                                           void *argument)
{
    now.arena = now.shared = nullptr;
    now.body = body;
    now.argument = argument;
    bool ok = prepare(grid, block, shared_bytes);
    for (unsigned z = 0; ok && z < grid.z; z++)
        for (unsigned y = 0; ok && y < grid.y; y++)
            for (unsigned x = 0; ok && x < grid.x; x++) {
                now.block = {x, y, z};
                ok = run_block();
            }
#ifdef MF_EMULATE_ASAN
    if (now.arena)
        __asan_unpoison_memory_region(now.arena, (shared_bytes + 1023) / 1024 * 1024 + 2 * margin);
#endif
    free(now.arena);
    now.arena = now.shared = nullptr;
    now.shared_bytes = 0;
    now.self = nullptr;
    return now.failed ? now.message : nullptr;
}

template <class F> MF_EMULATE_OWN void call(void *f)
{
    (*(F *)f)();
}

// Runs the kernel block after block; returns NULL, or what went wrong first (valid until this thread's next launch).
template <class... P, class... A>
const char *launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, A... args)
{
    auto body = [&] { kernel((P)args...); };
    return run_grid(grid, block, shared_bytes, call<decltype(body)>, &body);
}

} // namespace emulate
} // namespace mf

#endif
