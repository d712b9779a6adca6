/* Strided views that the caller owns. */
#include "core.h"

mf_status mf_tensor_init(mf_tensor *out, void *data, mf_dtype dtype, int ndim, const int64_t *shape)
{
    MF_REQUIRE(out && (shape || ndim <= 0), MF_E_INVALID, "mf_tensor_init: %s is NULL", out ? "shape" : "out");
    memset(out, 0, sizeof *out);
    MF_REQUIRE((unsigned)dtype < MF_DTYPE_COUNT, MF_E_TYPE, "dtype %d is none of the %d there are", (int)dtype,
               (int)MF_DTYPE_COUNT);
    MF_REQUIRE(ndim >= 0 && ndim <= MF_MAX_DIMS, MF_E_SHAPE, "a tensor has 0 to %d dimensions, not %d", MF_MAX_DIMS,
               ndim);
    for (int d = 0; d < ndim; d++)
        MF_REQUIRE(shape[d] >= 0, MF_E_SHAPE, "extent %lld of dimension %d is negative", (long long)shape[d], d);
    out->data = data;
    out->dtype = dtype;
    out->ndim = ndim;
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        out->shape[d] = shape[d];
        out->strides[d] = step;
        step *= mfi_max64(1, shape[d]);
    }
    return MF_OK;
}

int64_t mf_tensor_elements(const mf_tensor *tensor)
{
    int64_t count = 1;
    for (int d = 0; d < tensor->ndim; d++)
        count *= tensor->shape[d];
    return count;
}
