// Fibers for emulate.h: stacks with guard pages, and the switch between them; sanitizers are told of every switch.
#ifndef MATHFUSE_DEVICE_EMULATE_FIBER_H
#define MATHFUSE_DEVICE_EMULATE_FIBER_H

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define MF_EMULATE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MF_EMULATE_ASAN 1
#endif
#endif
#ifdef MF_EMULATE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// The emulator's own functions: never instrumented, as checked mode watches the kernel's accesses only.
#if defined(__clang__)
#define MF_EMULATE_OWN __attribute__((no_sanitize("thread")))
#define MF_EMULATE_OPAQUE __attribute__((noinline, no_sanitize("thread")))
#else
#define MF_EMULATE_OWN __attribute__((no_sanitize_thread))
#define MF_EMULATE_OPAQUE __attribute__((noipa, no_sanitize_thread))
#endif

namespace mf
{
namespace emulate
{

struct fiber {
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t context;
#endif
    void *fake_stack; // AddressSanitizer's, kept while the fiber rests
    const void *bottom;
    size_t size;
};

#if defined(__x86_64__)
// Callee-saved registers rest on the stack that is left; the red zone below it is skipped.
MF_EMULATE_OPAQUE inline void switch_stack(fiber *from, fiber *to)
{
    void **save = &from->sp, *next = to->sp;
    asm volatile("leaq -128(%%rsp), %%rsp\n\t"
                 "pushq %%rbp\n\t"
                 "pushq %%rbx\n\t"
                 "leaq 1f(%%rip), %%rdx\n\t"
                 "pushq %%rdx\n\t"
                 "movq %%rsp, (%%rdi)\n\t"
                 "movq %%rsi, %%rsp\n\t"
                 "popq %%rdx\n\t"
                 "jmpq *%%rdx\n"
                 "1:\n\t"
                 "popq %%rbx\n\t"
                 "popq %%rbp\n\t"
                 "leaq 128(%%rsp), %%rsp\n\t"
                 : "+D"(save), "+S"(next)
                 :
                 : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc", "xmm0",
                   "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
                   "xmm13", "xmm14", "xmm15");
}
#else
MF_EMULATE_OPAQUE inline void switch_stack(fiber *from, fiber *to)
{
    swapcontext(&from->context, &to->context);
}
#endif

// dying: `from` is never resumed.
MF_EMULATE_OWN inline void switch_fiber(fiber *from, fiber *to, bool dying)
{
#ifdef MF_EMULATE_ASAN
    __sanitizer_start_switch_fiber(dying ? nullptr : &from->fake_stack, to->bottom, to->size);
#else
    (void)dying;
#endif
    switch_stack(from, to);
#ifdef MF_EMULATE_ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

// First thing on a new stack: tells where the scheduler's stack lies.
MF_EMULATE_OWN inline void arrived_from(fiber *scheduler)
{
#ifdef MF_EMULATE_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &scheduler->bottom, &scheduler->size);
#else
    (void)scheduler;
#endif
}

// Stacks for the threads of one block, kept from launch to launch by the host thread that launches.
struct stacks {
    static constexpr size_t bytes = 512 << 10; // address space; only touched pages cost memory
    char *base = nullptr;
    int count = 0;

    ~stacks() { release(); }
    MF_EMULATE_OWN void release()
    {
        if (base)
            munmap(base, bytes * (size_t)count);
        base = nullptr;
        count = 0;
    }
    MF_EMULATE_OWN bool reserve(int threads)
    {
        if (threads <= count)
            return true;
        release();
        void *p = mmap(nullptr, bytes * (size_t)threads, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            return false;
        base = (char *)p;
        count = threads;
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        for (int i = 0; i < threads; i++)
            mprotect(base + bytes * (size_t)i, page, PROT_NONE); // an overflow faults instead of spoiling a neighbour
        return true;
    }
    MF_EMULATE_OWN bool holds(const void *p) const
    {
        return (const char *)p >= base && (const char *)p < base + bytes * (size_t)count;
    }
    MF_EMULATE_OWN void start(int i, fiber *f, void (*entry)())
    {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        char *bottom = base + bytes * (size_t)i + page;
        f->fake_stack = nullptr;
        f->bottom = bottom;
        f->size = bytes - page;
#ifdef MF_EMULATE_ASAN
        __asan_unpoison_memory_region(bottom, f->size); // of a fiber that was abandoned after an error
#endif
#if defined(__x86_64__)
        void **top = (void **)(bottom + f->size);
        *--top = nullptr; // alignment, and no caller
        *--top = nullptr;
        *--top = nullptr; // where a return address would lie
        *--top = (void *)entry;
        f->sp = top;
#else
        getcontext(&f->context);
        f->context.uc_stack.ss_sp = bottom;
        f->context.uc_stack.ss_size = f->size;
        f->context.uc_link = nullptr;
        makecontext(&f->context, entry, 0);
#endif
    }
};

} // namespace emulate
} // namespace mf

#endif
