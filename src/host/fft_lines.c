/* Strided lines through the portable FFT: gathering columns, complex and real transforms, scattering the result. */
#include "fft_ref.h"

/* Lines go side by side, as many as fit the second-level cache; contiguous ones from some length on one by one, real
 * ones later, as splitting their spectra is slow alone. */
enum { COLUMNS = 16, PLANE_BYTES = 64 << 10, LONE_LENGTH = 1024, LONE_REAL_LENGTH = 4096 };

struct mfi_line_plan {
    mf_fft_kind kind;
    int64_t n;
    bool f64, halved; /* an even real signal goes as a complex one of half the length */
    int64_t m;        /* length of the complex transform */
    mfi_fft1 *fft;
    double *turn; /* halved: cos and sin of 2 pi k / n, k < m, interleaved */
};

mf_status mfi_line_plan_new(mfi_line_plan **out, mf_fft_kind kind, int64_t n, bool f64)
{
    *out = NULL;
    mfi_line_plan *plan = mfi_calloc(1, sizeof *plan);
    if (!plan)
        return MFI_NO_MEMORY(sizeof *plan);
    *plan = (mfi_line_plan){.kind = kind, .n = n, .f64 = f64, .m = n};
    plan->halved = (kind == MF_RFFT || kind == MF_IRFFT) && n >= 2 && n % 2 == 0;
    if (plan->halved)
        plan->m = n / 2;
    mf_status status = mfi_fft1_new(&plan->fft, plan->m, f64);
    mfi_unit *unit = NULL;
    if (status == MF_OK && plan->halved) {
        plan->turn = mfi_alloc_aligned(2 * (size_t)plan->m * sizeof(double));
        unit = mfi_unit_new(n);
        if (!plan->turn || !unit)
            status = MFI_NO_MEMORY(2 * (size_t)plan->m * sizeof(double));
        for (int64_t k = 0; status == MF_OK && k < plan->m; k++)
            mfi_unit_get(unit, k, &plan->turn[2 * k], &plan->turn[2 * k + 1]);
    }
    mfi_unit_free(unit);
    if (status == MF_OK)
        *out = plan;
    else
        mfi_line_plan_free(plan);
    return status;
}

void mfi_line_plan_free(mfi_line_plan *plan)
{
    if (!plan)
        return;
    mfi_fft1_free(plan->fft);
    mfi_free_aligned(plan->turn);
    mf_free(plan);
}

#define T float
#define FN(name) name##_f32
#include "fft_lines_move.h"
#define T double
#define FN(name) name##_f64
#include "fft_lines_move.h"

/* Elements of the re and im planes: spectra of halved transforms have one more than the transform. */
static int64_t plane(const mfi_line_plan *plan, int64_t columns)
{
    return (plan->m + 1) * columns;
}

static int64_t most_columns(const mfi_line_plan *plan)
{
    int64_t lanes = plan->f64 ? 4 : 8, size = plan->f64 ? 8 : 4;
    return plane(plan, COLUMNS) * size > PLANE_BYTES ? lanes : COLUMNS;
}

static size_t planes_bytes(const mfi_line_plan *plan)
{
    size_t size = plan->f64 ? sizeof(double) : sizeof(float);
    return mfi_align_up(2 * (size_t)plane(plan, most_columns(plan)) * size, 64);
}

size_t mfi_line_scratch(const mfi_line_plan *plan)
{
    return planes_bytes(plan) + mfi_fft1_scratch(plan->fft, most_columns(plan));
}

void mfi_line_run(const mfi_line_plan *plan, mfi_lines in, mfi_lines out, int64_t count, void *scratch)
{
    bool real = plan->kind == MF_RFFT || plan->kind == MF_IRFFT;
    bool lone = plan->m >= (real ? LONE_REAL_LENGTH : LONE_LENGTH) && in.stride == 1 && out.stride == 1;
    int64_t step = lone ? 1 : most_columns(plan);
    void *rest = (char *)scratch + planes_bytes(plan);
    for (int64_t l = 0; l < count; l += step) {
        int64_t columns = mfi_min64(step, count - l);
        if (plan->f64)
            transform_f64(plan, in, out, l, columns, scratch, (double *)scratch + plane(plan, columns), rest);
        else
            transform_f32(plan, in, out, l, columns, scratch, (float *)scratch + plane(plan, columns), rest);
    }
}
