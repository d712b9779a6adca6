/* What the CPU's providers share: see cpu_step.h. */
#include "cpu_step.h"

mf_status mfi_noted(mfi_first_error *e, const char *what)
{
    mf_status status = (mf_status)atomic_load(&e->status);
    if (status == MF_E_MEMORY)
        return mfi_fail(status, "%s: out of memory for a thread's buffers", what);
    if (status != MF_OK)
        return mfi_fail(status, "%s: the library failed on a part of the work", what);
    return MF_OK;
}

int64_t mfi_product(const int64_t *values, int count)
{
    int64_t product = 1;
    for (int i = 0; i < count; i++)
        product *= values[i];
    return product;
}

mfi_batch mfi_batch_of(const mfi_view *view, int dims, const int64_t *shape)
{
    mfi_batch b = {0};
    for (int d = 0; d < dims; d++) {
        if (shape[d] == 1)
            continue;
        if (b.dims && b.strides[b.dims - 1] == view->strides[d] * shape[d]) {
            b.shape[b.dims - 1] *= shape[d];
            b.strides[b.dims - 1] = view->strides[d];
        } else {
            b.shape[b.dims] = shape[d];
            b.strides[b.dims++] = view->strides[d];
        }
    }
    return b;
}

int64_t mfi_batch_offset(const mfi_batch *b, int64_t index)
{
    int64_t offset = 0;
    for (int d = b->dims - 1; d >= 0; d--) {
        offset += index % b->shape[d] * b->strides[d];
        index /= b->shape[d];
    }
    return offset;
}

int64_t mfi_batch_run(const mfi_batch *b, int64_t index)
{
    return b->dims ? b->shape[b->dims - 1] - index % b->shape[b->dims - 1] : 1;
}

static int64_t row_points(const mfi_problem *p)
{
    return mfi_product(p->shape + p->ndim - p->nreduce, p->nreduce);
}

int64_t mfi_chain_unit(const mfi_problem *p, int64_t granule)
{
    /* both are products of trailing extents, so the larger is a multiple of the other */
    return mfi_max64(granule, row_points(p));
}

void mfi_chain_points(const mfi_problem *p, const mfi_cpu_chain *chain, void *const *slots, int64_t begin, int64_t end,
                      const void *data, int64_t base)
{
    int64_t row = row_points(p);
    mfi_acc_block block = {data, base};
    mfi_cpu_chain_run(chain, slots, begin / row, end / row, &block);
}

typedef struct chain_job {
    const mfi_cpu_chain *chain;
    void *const *slots;
    mfi_acc_block block;
    int64_t begin;
} chain_job;

static void chain_piece(void *context, int64_t begin, int64_t end)
{
    const chain_job *job = context;
    mfi_cpu_chain_run(job->chain, job->slots, job->begin + begin, job->begin + end, &job->block);
}

void mfi_chain_points_all(const mfi_problem *p, const mfi_cpu_chain *chain, void *const *slots, int64_t begin,
                          int64_t end, const void *data, int64_t base, int threads)
{
    int64_t row = row_points(p);
    chain_job job = {chain, slots, {data, base}, begin / row};
    mfi_parallel_for((end - begin) / row, mfi_ceil_div(8192, row), threads, chain_piece, &job);
}

typedef struct pack_job {
    char *dst;
    mfi_ctype ctype;
    const mfi_view *view;
    void *const *slots;
    int ndim;
    const int64_t *shape;
    int64_t row; /* points per index of the first dim */
} pack_job;

static void pack_piece(void *context, int64_t begin, int64_t end)
{
    const pack_job *job = context;
    mfi_view view = *job->view;
    int64_t shape[MF_MAX_DIMS];
    memcpy(shape, job->shape, sizeof *shape * (size_t)job->ndim);
    view.offset += begin * view.strides[0];
    view.alignment = (int32_t)mf_dtype_size(view.dtype);
    shape[0] = end - begin;
    mfi_pack(job->dst + begin * job->row * (int64_t)mfi_ctype_size(job->ctype), job->ctype, &view, job->slots,
             job->ndim, shape, NULL);
}

void mfi_pack_all(void *dst, mfi_ctype ctype, const mfi_view *view, void *const *slots, int ndim, const int64_t *shape,
                  int threads)
{
    pack_job job = {dst, ctype, view, slots, ndim, shape, mfi_product(shape + 1, ndim - 1)};
    mfi_parallel_for(shape[0], mfi_ceil_div(16384, mfi_max64(job.row, 1)), threads, pack_piece, &job);
}
