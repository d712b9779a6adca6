/* The portable FFT as an engine of fft_cpu.c. */
#include "ref.h"

typedef struct ref_lines {
    mfi_line_plan *plan;
    mfi_line_geometry geometry;
} ref_lines;

static void free_lines(void *plan)
{
    ref_lines *r = plan;
    if (r)
        mfi_line_plan_free(r->plan);
    mf_free(r);
}

static mf_status plan_lines(void **out, const mfi_line_geometry *geometry)
{
    ref_lines *r = mfi_calloc(1, sizeof *r);
    if (!r)
        return MFI_NO_MEMORY(sizeof *r);
    r->geometry = *geometry;
    mf_status status = mfi_line_plan_new(&r->plan, geometry->kind, geometry->n, geometry->f64);
    *out = r;
    if (status != MF_OK) {
        free_lines(r);
        *out = NULL;
    }
    return status;
}

static size_t lines_scratch(const void *plan)
{
    return mfi_line_scratch(((const ref_lines *)plan)->plan);
}

static mf_status run_lines(void *plan, void *in, void *out, int64_t count, void *scratch)
{
    const ref_lines *r = plan;
    mfi_lines from = {in, r->geometry.in_stride, r->geometry.in_dist};
    mfi_lines to = {out, r->geometry.out_stride, r->geometry.out_dist};
    mfi_line_run(r->plan, from, to, count, scratch);
    return MF_OK;
}

const mfi_fft_engine mfi_ref_fft_engine = {"ref", true, plan_lines, lines_scratch, run_lines, free_lines};
