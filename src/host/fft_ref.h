/* Portable FFT of any length: mixed radix (Stockham) and, where a prime factor is large, Bluestein's algorithm. */
#ifndef MFI_FFT_REF_H
#define MFI_FFT_REF_H

#include "core.h"

/* What one length needs, in one precision. Immutable: shared by any number of threads. */
typedef struct mfi_fft1 mfi_fft1;
mf_status mfi_fft1_new(mfi_fft1 **out, int64_t n, bool f64);
void mfi_fft1_free(mfi_fft1 *plan);

/* Transform `columns` complex signals at once, unnormalised and in place: element j of column c is at
 * [j * columns + c] of `re` and `im`, floats or doubles as planned. */
size_t mfi_fft1_scratch(const mfi_fft1 *plan, int64_t columns);
void mfi_fft1_run(const mfi_fft1 *plan, void *re, void *im, int64_t columns, bool inverse, void *scratch);

/* cos and sin of 2 pi k / n, 0 <= k < n, good to the last bit of a double. `unit` is made by mfi_unit_new. */
typedef struct mfi_unit mfi_unit;
mfi_unit *mfi_unit_new(int64_t n);
void mfi_unit_get(const mfi_unit *unit, int64_t k, double *cosine, double *sine);
void mfi_unit_free(mfi_unit *unit);

/* A set of strided lines (fft_lines.c): element j of line l is at [l * dist + j * stride], complex numbers interleaved.
 */
typedef struct mfi_lines {
    void *data;
    int64_t stride, dist;
} mfi_lines;

/* Transforms of lines of one kind and length n (of the signal; spectra of real signals have n / 2 + 1 elements).
 * Inputs are never written, except where out.data == in.data. MF_IRFFT ignores the imaginary parts of the first
 * element and, for even n, of the last. Unnormalised. */
typedef struct mfi_line_plan mfi_line_plan;
mf_status mfi_line_plan_new(mfi_line_plan **out, mf_fft_kind kind, int64_t n, bool f64);
void mfi_line_plan_free(mfi_line_plan *plan);
size_t mfi_line_scratch(const mfi_line_plan *plan); /* bytes that one thread needs, 64-byte aligned */
void mfi_line_run(const mfi_line_plan *plan, mfi_lines in, mfi_lines out, int64_t count, void *scratch);

#endif
