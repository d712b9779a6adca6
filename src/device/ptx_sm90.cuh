// The sm_90a instructions that the kernels use: mbarriers, tensor-map copies, wgmma, register reallocation.
// No headers but types.cuh, so that NVRTC compiles it as it is.
#ifndef MATHFUSE_PTX_SM90_CUH
#define MATHFUSE_PTX_SM90_CUH

#include "mathfuse/device/types.cuh"

namespace mf
{

// Same size and alignment as the driver's CUtensorMap, which the host encodes.
struct alignas(64) tensor_map {
    u64 opaque[16];
};

MF_DEVICE u32 shared_address(const void *p)
{
    return (u32)__cvta_generic_to_shared(p);
}

// ---- mbarriers; `bar` is a shared address ----

MF_DEVICE void barrier_init(u32 bar, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

MF_DEVICE void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

MF_DEVICE void barrier_arrive(u32 bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

MF_DEVICE void barrier_arrive_bytes(u32 bar, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

// Arrives at the same barrier of block `rank` of the cluster. Orders no ordinary memory accesses beyond this block (a
// wider release costs a fence over the whole GPU): enough to hand back what only tensor cores and copies have touched.
MF_DEVICE void barrier_arrive_at(u32 bar, u32 rank)
{
    asm volatile("{\n.reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(bar),
                 "r"(rank)
                 : "memory");
}

MF_DEVICE bool barrier_try(u32 bar, u32 parity)
{
    u32 done;
    asm volatile("{\n.reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return done != 0;
}

// Waits until the phase of this parity has completed. A fresh barrier counts parity 1 as completed.
// MF_SPIN_LIMIT_NS turns a wait that lasts longer into a trap: a wrong pipeline then fails instead of hanging.
MF_DEVICE void barrier_wait(u32 bar, u32 parity)
{
#if defined(MF_SPIN_LIMIT_NS)
    u64 start = 0;
    for (u32 tries = 1; !barrier_try(bar, parity); tries++) {
        if (tries % 64 != 0)
            continue;
        u64 now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        start = start ? start : now;
        if (now - start > MF_SPIN_LIMIT_NS)
            __trap();
    }
#else
    while (!barrier_try(bar, parity)) {
    }
#endif
}

// Named barrier over `threads` threads of the block.
MF_DEVICE void named_barrier(u32 id, u32 threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- clusters ----

MF_DEVICE void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where `address` lies in block `rank` of the cluster.
MF_DEVICE u32 cluster_address(u32 address, u32 rank)
{
    u32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}

// Shared memory of this block to that of another of the cluster, counted by a barrier there; `to` and `bar` at cluster addresses.
// In multiples of 16 bytes.
MF_DEVICE void copy_remote(u32 to, u32 from, u32 bytes, u32 bar)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "r"(from), "r"(bytes), "r"(bar)
        : "memory");
}

MF_DEVICE void store_shared(u32 address, u32 word)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

MF_DEVICE u32 load_shared(u32 address)
{
    u32 word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}

// ---- tensor-map copies ----

MF_DEVICE void map_prefetch(const tensor_map &map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"((u64)&map) : "memory");
}

MF_DEVICE void map_load(u32 dst, const tensor_map &map, u32 bar, i32 inner, i32 outer)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            dst),
        "l"((u64)&map), "r"(bar), "r"(inner), "r"(outer)
        : "memory");
}

MF_DEVICE void map_load(u32 dst, const tensor_map &map, u32 bar, i32 inner, i32 outer, i32 item)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
        "[%2];" ::"r"(dst),
        "l"((u64)&map), "r"(bar), "r"(inner), "r"(outer), "r"(item)
        : "memory");
}

// Lands at the same offset, and signals the same barrier, in each block of `mask`.
MF_DEVICE void map_load_multicast(u32 dst, const tensor_map &map, u32 bar, i32 inner, i32 outer, u16 mask)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(dst),
                 "l"((u64)&map), "r"(bar), "r"(inner), "r"(outer), "h"(mask)
                 : "memory");
}

MF_DEVICE void map_load_multicast(u32 dst, const tensor_map &map, u32 bar, i32 inner, i32 outer, i32 item, u16 mask)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(dst),
                 "l"((u64)&map), "r"(bar), "r"(inner), "r"(outer), "r"(item), "h"(mask)
                 : "memory");
}

MF_DEVICE void map_store(const tensor_map &map, u32 src, i32 inner, i32 outer, i32 item)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"((u64)&map),
                 "r"(src), "r"(inner), "r"(outer), "r"(item)
                 : "memory");
}

MF_DEVICE void map_store(const tensor_map &map, u32 src, i32 inner, i32 outer)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"((u64)&map),
                 "r"(src), "r"(inner), "r"(outer)
                 : "memory");
}

MF_DEVICE void store_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until at most `pending` of this thread's stores still read shared memory.
template <int pending> MF_DEVICE void store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

MF_DEVICE void store_wait_all()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Makes this thread's ordinary shared-memory writes visible to the copy engine and the tensor cores.
MF_DEVICE void async_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- registers ----

template <int count> MF_DEVICE void registers_grow()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

template <int count> MF_DEVICE void registers_shrink()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

// ---- 8x8 matrices of 16-bit elements between registers and shared memory ----

MF_DEVICE void matrix_store(u32 address, const u32 (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

MF_DEVICE void matrix_load(u32 (&r)[4], u32 address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// ---- wgmma ----

// Descriptor of an operand in 128-byte swizzled shared memory, 1024-byte aligned. `group` is the distance in bytes
// between groups of eight 128-byte rows; `leading` that between 64-element column blocks, used only when the operand is
// not K-major.
MF_DEVICE u64 wgmma_descriptor(u32 address, u32 leading, u32 group)
{
    return (u64)((address & 0x3ffffu) >> 4) | (u64)(leading >> 4) << 16 | (u64)(group >> 4) << 32 | 1ull << 62;
}

MF_DEVICE void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

MF_DEVICE void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int pending> MF_DEVICE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Keeps uses of an accumulator from moving above the wait before it.
template <int count> MF_DEVICE void wgmma_pin(float (&d)[count])
{
    MF_UNROLL
    for (int i = 0; i < count; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

#define MF_WGMMA_SLOTS_32                                                                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MF_WGMMA_SLOTS_64                                                                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                                 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                 \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define MF_WGMMA_SLOTS_96                                                                                              \
    MF_WGMMA_SLOTS_64 ", "                                                                                             \
                      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "               \
                      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define MF_WGMMA_SLOTS_128                                                                                             \
    MF_WGMMA_SLOTS_96 ", "                                                                                             \
                      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "   \
                      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define MF_WGMMA_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MF_WGMMA_D16(i) MF_WGMMA_D4(i), MF_WGMMA_D4(i + 4), MF_WGMMA_D4(i + 8), MF_WGMMA_D4(i + 12)
#define MF_WGMMA_D32(i) MF_WGMMA_D16(i), MF_WGMMA_D16(i + 16)
#define MF_WGMMA_D64(i) MF_WGMMA_D16(i), MF_WGMMA_D16(i + 16), MF_WGMMA_D16(i + 32), MF_WGMMA_D16(i + 48)
#define MF_WGMMA_D96(i) MF_WGMMA_D64(i), MF_WGMMA_D16(i + 64), MF_WGMMA_D16(i + 80)
#define MF_WGMMA_D128(i) MF_WGMMA_D64(i), MF_WGMMA_D64(i + 64)

#define MF_WGMMA_ISSUE(shape, types, slots, outputs, a_slot, b_slot, keep_slot, ta_slot, tb_slot)                      \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " keep_slot ", 0;\n"                                          \
                 "wgmma.mma_async.sync.aligned." shape types " {" slots "}, " a_slot ", " b_slot                       \
                 ", keep, 1, 1, " ta_slot ", " tb_slot ";\n}"                                                          \
                 : outputs                                                                                             \
                 : "l"(a), "l"(b), "r"(keep), "n"(a_mn), "n"(b_mn))

#define MF_WGMMA(columns, registers, a_slot, b_slot, keep_slot, ta_slot, tb_slot)                                      \
    template <class T, int a_mn, int b_mn> MF_DEVICE void wgmma(float(&d)[registers], u64 a, u64 b, i32 keep)          \
    {                                                                                                                  \
        if constexpr (same<T, bf16>)                                                                                   \
            MF_WGMMA_ISSUE("m64n" #columns "k16.f32", ".bf16.bf16", MF_WGMMA_SLOTS_##registers,                        \
                           MF_WGMMA_D##registers(0), a_slot, b_slot, keep_slot, ta_slot, tb_slot);                     \
        else                                                                                                           \
            MF_WGMMA_ISSUE("m64n" #columns "k16.f32", ".f16.f16", MF_WGMMA_SLOTS_##registers,                          \
                           MF_WGMMA_D##registers(0), a_slot, b_slot, keep_slot, ta_slot, tb_slot);                     \
    }

// d[m64, n] (+)= a[m64, k16] * b[n, k16]^T, n = twice the number of accumulators; `keep` 0 starts a new sum.
// a_mn, b_mn: 1 when the operand is contiguous along m or n rather than k.
MF_WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68")
MF_WGMMA(192, 96, "%96", "%97", "%98", "%99", "%100")
MF_WGMMA(256, 128, "%128", "%129", "%130", "%131", "%132")

#define MF_WGMMA_ISSUE_NARROW(types)                                                                                   \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %34, 0;\n"                                                    \
                 "wgmma.mma_async.sync.aligned.m64n64k32.f32" types " {" MF_WGMMA_SLOTS_32                             \
                 "}, %32, %33, keep, 1, 1;\n}"                                                                         \
                 : MF_WGMMA_D32(0)                                                                                     \
                 : "l"(a), "l"(b), "r"(keep))

// d[m64, n64] (+)= a[m64, k32] * b[n64, k32]^T of 8-bit floats, both contiguous along k.
template <class T> MF_DEVICE void wgmma_narrow(float (&d)[32], u64 a, u64 b, i32 keep)
{
    if constexpr (same<T, e4m3>)
        MF_WGMMA_ISSUE_NARROW(".e4m3.e4m3");
    else
        MF_WGMMA_ISSUE_NARROW(".e5m2.e5m2");
}

} // namespace mf
#endif
