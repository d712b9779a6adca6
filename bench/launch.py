"""What launching a kernel costs the host: mf.Kernel beside CuPy's RawKernel, with arrays of CuPy and PyTorch.

python bench/launch.py
"""

import importlib

import mathfuse as mf
from mathfuse._bench import host_us

SOURCE = 'extern "C" __global__ void f(const float *x, const float *gate, float *y, float scale, int n) {}'


def candidates():
    cupy, torch = importlib.import_module("cupy"), importlib.import_module("torch")
    x, t = cupy.zeros(8, "float32"), torch.zeros(8, device="cuda")
    kernel, raw = mf.Kernel(SOURCE, "f"), cupy.RawKernel(SOURCE, "f")
    kept = kernel[1, 32]
    return {
        "mf.Kernel, CuPy arrays": lambda: kernel[1, 32](x, x, x, 2.0, 8),
        "mf.Kernel, a kept launch, CuPy arrays": lambda: kept(x, x, x, 2.0, 8),
        "mf.Kernel, PyTorch tensors": lambda: kernel[1, 32](t, t, t, 2.0, 8),
        "cupy.RawKernel": lambda: raw((1,), (32,), (x, x, x, cupy.float32(2.0), 8)),
    }


if __name__ == "__main__":
    torch = importlib.import_module("torch")
    for name, call in candidates().items():
        print(f"{host_us(call, torch.cuda.synchronize, calls=200):6.2f} us  {name}")
