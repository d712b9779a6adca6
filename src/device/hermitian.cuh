/* Before a complex-to-real FFT: make the planes k_last = 0 and n/2 Hermitian, z_k = (z_k + conj z_-k) / 2, in place. What the
 * symmetry forbids (in one dimension the imaginary parts of DC and Nyquist) has no real counterpart and is dropped. */
#ifndef MF_DEVICE_HERMITIAN_CUH
#define MF_DEVICE_HERMITIAN_CUH

struct mf_hermitian_args {
    void *data; /* [batch, n0, n1, bins] complex, contiguous */
    long long batch, n0, n1, bins;
    long long planes, step; /* planes lie `step` bins apart, from bin 0 */
};

template <typename T> __device__ void mf_hermitian(const mf_hermitian_args &a)
{
    struct complex {
        T re, im;
    };
    long long total = a.batch * a.planes * a.n0 * a.n1, stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += stride) {
        long long k1 = i % a.n1, k0 = i / a.n1 % a.n0, rest = i / a.n1 / a.n0;
        long long m1 = k1 ? a.n1 - k1 : 0, m0 = k0 ? a.n0 - k0 : 0;
        if (m0 < k0 || (m0 == k0 && m1 < k1))
            continue; /* the thread of -k does both */
        complex *plane = (complex *)a.data + rest / a.planes * a.n0 * a.n1 * a.bins + rest % a.planes * a.step;
        complex *z = plane + (k0 * a.n1 + k1) * a.bins, *w = plane + (m0 * a.n1 + m1) * a.bins;
        T re = (z->re + w->re) / 2, im = (z->im - w->im) / 2;
        *z = complex{re, im};
        *w = complex{re, -im};
    }
}

#endif
