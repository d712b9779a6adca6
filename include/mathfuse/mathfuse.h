/* mathfuse: plans chains of linear algebra and FFT calls and runs each in as few kernels as it can.
 * This header includes the whole public C API; device headers are under mathfuse/device/. */
#ifndef MATHFUSE_H
#define MATHFUSE_H

#include "mathfuse/status.h"
#include "mathfuse/dtype.h"
#include "mathfuse/tensor.h"
#include "mathfuse/context.h"
#include "mathfuse/graph.h"
#include "mathfuse/plan.h"
#include "mathfuse/kernel.h"
#include "mathfuse/tune.h"

#define MF_VERSION_MAJOR 0
#define MF_VERSION_MINOR 1
#define MF_VERSION_PATCH 0
#define MF_VERSION_STRING "0.1.0"

#endif
