/* The array of addresses that batched library calls take: out[i] = base + i * step bytes. */
#ifndef MF_DEVICE_POINTERS_CUH
#define MF_DEVICE_POINTERS_CUH

struct mf_pointers_args {
    void **out;
    char *base;
    long long step, count;
};

static __device__ void mf_pointers(const mf_pointers_args &a)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.count)
        a.out[i] = a.base + i * a.step;
}

#endif
