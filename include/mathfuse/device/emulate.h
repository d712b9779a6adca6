// Host emulation: include this first and a kernel over the device headers compiles as C++17 and runs on the CPU, block
// by block, each thread a fiber. mf::emulate::launch(kernel, grid, block, shared_bytes, args...) returns NULL or a
// message.
//
// Reported: threads at different barriers or gone from one, collectives with differing masks or missing lanes, and,
// under AddressSanitizer, accesses beyond the dynamic shared memory. Compiled with -fsanitize=thread -DMF_EMULATE_CHECK
// and linked without it (one source file of the program), also races between two barriers and shared accesses out of
// bounds. Dynamic shared memory: MF_DYNAMIC_SHARED(type, name) in the kernel, the same on the device. Not emulated:
// blocks that wait for each other, raw asm.
#ifndef MATHFUSE_DEVICE_EMULATE_H
#define MATHFUSE_DEVICE_EMULATE_H

#if defined(__CUDACC__)
#error "emulate.h is for host compilers; nvcc and NVRTC need no emulation"
#endif

#include <math.h>
#include "mathfuse/device/emulate_launch.h"
#ifdef MF_EMULATE_CHECK
#include "mathfuse/device/emulate_check.h"
#endif

#define MF_EMULATE 1

// ---- the language ----

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n))) // and alignas does not follow __shared__ in standard C++
#define __shared__ thread_local // static within a function, and one copy for each host thread that launches
#define MF_DYNAMIC_SHARED(type, name) type *name = (type *)::mf::emulate::now.shared

#define threadIdx (::mf::emulate::now.self->index)
#define blockIdx (::mf::emulate::now.block)
#define blockDim (::mf::emulate::now.shape)
#define gridDim (::mf::emulate::now.grid)
#define warpSize 32

#define MF_EMULATE_HERE (::mf::emulate::site{__FILE__, __LINE__})
#define __syncthreads() ::mf::emulate::barrier("__syncthreads", MF_EMULATE_HERE, 0)
#define __syncthreads_count(p) ::mf::emulate::vote_barrier("__syncthreads_count", MF_EMULATE_HERE, (p) != 0, 0)
#define __syncthreads_and(p) ::mf::emulate::vote_barrier("__syncthreads_and", MF_EMULATE_HERE, (p) != 0, 1)
#define __syncthreads_or(p) ::mf::emulate::vote_barrier("__syncthreads_or", MF_EMULATE_HERE, (p) != 0, 2)
#define __syncwarp(...) ::mf::emulate::warp_barrier{MF_EMULATE_HERE}(__VA_ARGS__)
#define __shfl_sync(...) ::mf::emulate::shuffle_index(MF_EMULATE_HERE, __VA_ARGS__)
#define __shfl_up_sync(...) ::mf::emulate::shuffle_up(MF_EMULATE_HERE, __VA_ARGS__)
#define __shfl_down_sync(...) ::mf::emulate::shuffle_down(MF_EMULATE_HERE, __VA_ARGS__)
#define __shfl_xor_sync(...) ::mf::emulate::shuffle_exclusive(MF_EMULATE_HERE, __VA_ARGS__)
#define __ballot_sync(mask, p) ::mf::emulate::ballot("__ballot_sync", MF_EMULATE_HERE, mask, (p) != 0)
#define __any_sync(mask, p) (::mf::emulate::ballot("__any_sync", MF_EMULATE_HERE, mask, (p) != 0) != 0)
#define __all_sync(mask, p) (::mf::emulate::ballot("__all_sync", MF_EMULATE_HERE, mask, (p) == 0) == 0)
#define __match_any_sync(mask, x) ::mf::emulate::match("__match_any_sync", MF_EMULATE_HERE, mask, x)
#define __activemask() ::mf::emulate::active_mask()

namespace mf
{
namespace emulate
{

// An asynchronous copy: nothing arrives before the wait, so that a missing one shows.
MF_EMULATE_OWN inline void later(void *dst, const void *src, int bytes)
{
    thread *t = now.self;
    if (t->copy_count == t->copy_room) {
        t->copy_room = t->copy_room ? 2 * t->copy_room : 16;
        t->copies = (pending_copy *)realloc(t->copies, (size_t)t->copy_room * sizeof *t->copies);
        if (!t->copies)
            abort();
    }
    t->copies[t->copy_count++] = {dst, src, bytes, t->copy_group};
}

// Takes the oldest copy of a group that is to be complete when `pending` groups may still be under way.
MF_EMULATE_OWN inline bool next_copy(int pending, int taken, pending_copy *out)
{
    const thread *t = now.self;
    if (taken >= t->copy_count || t->copies[taken].group >= t->copy_group - pending)
        return false;
    *out = t->copies[taken];
    return true;
}

MF_EMULATE_OWN inline void forget_copies(int taken)
{
    thread *t = now.self;
    if (taken == 0) /* there may be none, and no memory for them */
        return;
    memmove(t->copies, t->copies + taken, (size_t)(t->copy_count - taken) * sizeof *t->copies);
    t->copy_count -= taken;
}

inline int vote_barrier(const char *what, site where, int vote, int result)
{
    barrier(what, where, vote);
    return now.votes[result];
}

inline int lane()
{
    return now.self->number % 32;
}

inline uint32_t active_mask()
{
    const warp *w = now.warps + now.self->number / 32;
    return w->present & ~w->exited;
}

struct warp_barrier {
    site where;
    void operator()(uint32_t mask = 0xffffffffu) const
    {
        char none = 0;
        meet("__syncwarp", where, mask, &none, 1, nullptr);
    }
};

template <class T> T shuffle(const char *what, site where, uint32_t mask, T x, int source, bool inside)
{
    static_assert(sizeof(T) <= exchange::bytes, "too large to shuffle");
    alignas(16) unsigned char all[32][exchange::bytes];
    meet(what, where, mask, &x, sizeof x, all);
    if (!inside || !(now.warps[now.self->number / 32].present >> source & 1))
        return x;
    if (!(mask >> source & 1)) {
        report("thread %d reads lane %d by %s, which its mask %08x leaves out (%s:%d)", now.self->number, source, what,
               mask, where.file, where.line);
        give_up();
    }
    memcpy(&x, all[source], sizeof x);
    return x;
}

template <class T> T shuffle_index(site where, uint32_t mask, T x, int source, int width = 32)
{
    return shuffle("__shfl_sync", where, mask, x, lane() / width * width + (source & (width - 1)), true);
}

template <class T> T shuffle_up(site where, uint32_t mask, T x, unsigned delta, int width = 32)
{
    bool inside = lane() % width >= (int)delta;
    return shuffle("__shfl_up_sync", where, mask, x, inside ? lane() - (int)delta : lane(), inside);
}

template <class T> T shuffle_down(site where, uint32_t mask, T x, unsigned delta, int width = 32)
{
    bool inside = lane() % width + (int)delta < width;
    return shuffle("__shfl_down_sync", where, mask, x, inside ? lane() + (int)delta : lane(), inside);
}

// As on the device: lanes of lower groups can be read, of higher ones not.
template <class T> T shuffle_exclusive(site where, uint32_t mask, T x, int flip, int width = 32)
{
    int source = lane() ^ flip;
    bool inside = source < 32 && source / width <= lane() / width;
    return shuffle("__shfl_xor_sync", where, mask, x, inside ? source : lane(), inside);
}

inline uint32_t ballot(const char *what, site where, uint32_t mask, bool p)
{
    unsigned char all[32][exchange::bytes], mine = p;
    meet(what, where, mask, &mine, 1, all);
    uint32_t present = now.warps[now.self->number / 32].present, result = 0;
    for (int i = 0; i < 32; i++)
        if ((mask & present) >> i & 1)
            result |= (uint32_t)all[i][0] << i;
    return result;
}

template <class T> uint32_t match(const char *what, site where, uint32_t mask, T x)
{
    unsigned char all[32][exchange::bytes];
    meet(what, where, mask, &x, sizeof x, all);
    uint32_t present = now.warps[now.self->number / 32].present, result = 0;
    for (int i = 0; i < 32; i++)
        if (((mask & present) >> i & 1) && memcmp(all[i], &x, sizeof x) == 0)
            result |= 1u << i;
    return result;
}

} // namespace emulate
} // namespace mf

#include "mathfuse/device/emulate_functions.h"

#endif
