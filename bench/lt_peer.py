"""cuBLASLt called directly (peers/lt_direct.c), on torch's tensors."""

import ctypes
import glob
import os
import pathlib
import subprocess
import sysconfig
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def folders(pattern):
    """Where the toolkit or the nvidia-* wheels keep their headers or libraries."""
    roots = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", *glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/*")]
    return [f for root in roots if root for f in glob.glob(f"{root}/{pattern}") if os.path.isdir(f)]


def loaded(name):
    """The path of a library that this process has loaded already."""
    with open("/proc/self/maps") as lines:
        return next((line.split()[-1] for line in lines if name in line), None)


def build():
    """The peer as a shared library; the cuBLASLt that torch loaded is the one it calls."""
    target = os.path.join(tempfile.mkdtemp(prefix="lt_direct"), "lt_direct.so")
    headers = [f"-I{f}" for f in folders("include")]
    subprocess.run(
        ["cc", "-std=c11", "-O2", "-shared", "-fPIC", *headers, str(HERE / "peers/lt_direct.c"), "-o", target], check=True
    )
    library = loaded("libcublasLt.so") or "libcublasLt.so"
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    peer = ctypes.CDLL(target)
    peer.lt_new.restype = ctypes.c_void_p
    peer.lt_new.argtypes = [ctypes.c_int] * 4 + [ctypes.c_void_p]
    peer.lt_workspace.restype = ctypes.c_long
    peer.lt_count.argtypes = [ctypes.c_void_p]
    peer.lt_run.argtypes = [ctypes.c_void_p, ctypes.c_int] + [ctypes.c_void_p] * 5
    return peer


class Problem:
    """y = gelu(x @ w + bias), or the bare product, in bf16."""

    def __init__(self, peer, m, n, k, gelu_bias):
        import torch

        self.peer, self.gelu_bias = peer, gelu_bias
        self.workspace = torch.empty(peer.lt_workspace(), dtype=torch.uint8, device="cuda")
        self.handle = peer.lt_new(m, n, k, int(gelu_bias), self.workspace.data_ptr())
        if not self.handle:
            raise RuntimeError(f"cuBLASLt has no algorithm for {m}×{n}×{k}")
        self.count = peer.lt_count(self.handle)

    def run(self, index, x, w, bias, y):
        import torch

        pointer = bias.data_ptr() if self.gelu_bias else None
        stream = torch.cuda.current_stream().cuda_stream
        return self.peer.lt_run(self.handle, index, x.data_ptr(), w.data_ptr(), pointer, y.data_ptr(), stream)
