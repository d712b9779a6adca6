"""cuBLASLt, cuFFT and cuSOLVER called directly, through ctypes, on PyTorch's tensors and stream.

cuBLASLt shows the fastest of the 32 algorithms that its heuristic lists, chosen by a round of timing; where its epilogues cannot say
the problem, the bare product, as a reference.
"""

from __future__ import annotations

import ctypes
import functools
import json
import statistics
from collections.abc import Callable
from typing import Any, TypeAlias

import mathfuse as mf
from mathfuse._peers import Call, Made, Peer
from mathfuse._problems import Problem

WORKSPACE = 64 << 20
CANDIDATES = 32
C_INT, C_POINTER, C_SIZE = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
Handle: TypeAlias = ctypes.c_void_p

# From library_types.h, cublas_api.h and cublasLt.h; a test compares them with the headers.
TYPES = {"CUDA_R_32F": 0, "CUDA_R_64F": 1, "CUDA_R_16F": 2, "CUDA_R_16BF": 14, "CUDA_R_8F_E4M3": 28}
LT = {
    "CUBLAS_COMPUTE_32F": 68, "CUBLAS_COMPUTE_64F": 70, "CUBLASLT_MATMUL_DESC_TRANSA": 3, "CUBLASLT_MATMUL_DESC_EPILOGUE": 7,
    "CUBLASLT_MATMUL_DESC_BIAS_POINTER": 8, "CUBLASLT_MATMUL_DESC_A_SCALE_POINTER": 17, "CUBLASLT_MATMUL_DESC_B_SCALE_POINTER": 18,
    "CUBLASLT_MATMUL_DESC_FAST_ACCUM": 25, "CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE": 26, "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT": 5,
    "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET": 6, "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": 1, "CUBLASLT_EPILOGUE_DEFAULT": 1,
    "CUBLASLT_EPILOGUE_RELU": 2, "CUBLASLT_EPILOGUE_BIAS": 4, "CUBLASLT_EPILOGUE_RELU_BIAS": 6, "CUBLASLT_EPILOGUE_GELU": 32,
    "CUBLASLT_EPILOGUE_GELU_BIAS": 36,
}  # fmt: skip
EPILOGUES = {
    (): "DEFAULT", ("relu",): "RELU", ("bias",): "BIAS", ("bias", "relu"): "RELU_BIAS", ("gelu",): "GELU",
    ("bias", "gelu"): "GELU_BIAS",
}  # fmt: skip
TYPE_OF = {"f32": "CUDA_R_32F", "f64": "CUDA_R_64F", "f16": "CUDA_R_16F", "bf16": "CUDA_R_16BF", "e4m3": "CUDA_R_8F_E4M3"}
FFT = {"CUFFT_R2C": 0x2A, "CUFFT_C2R": 0x2C, "CUFFT_C2C": 0x29, "CUFFT_D2Z": 0x6A, "CUFFT_Z2D": 0x6C, "CUFFT_Z2Z": 0x69}


class Algorithm(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8), ("workspace", C_SIZE), ("status", C_INT), ("waves", ctypes.c_float),
        ("reserved", C_INT * 4),
    ]  # fmt: skip


def library(name: str) -> ctypes.CDLL:
    """The one that mathfuse calls, too; CUDA's libraries find each other beside it."""
    for entry in json.loads(mf.info(json=True))["libraries"]:
        if entry["name"] == name and entry["found"]:
            return ctypes.CDLL(entry["path"], mode=ctypes.RTLD_GLOBAL)
    raise ImportError(f"{name} was not found; mathfuse info says where it was looked for")


def checked(library: ctypes.CDLL, name: str, *types: Any) -> Callable[..., None]:
    function = getattr(library, name)
    function.argtypes, function.restype = types, C_INT

    def call(*arguments: Any) -> None:
        status = function(*arguments)
        if status:
            raise RuntimeError(f"{name} failed with status {status}")

    return call


def _stream() -> int:
    import torch

    stream: int = torch.cuda.current_stream().cuda_stream
    return stream


def _clock(call: Call, samples: int = 5) -> float:
    """Microseconds, to choose by."""
    import torch

    call()
    spans = []
    for _ in range(samples):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(100_000)
        first.record()
        call()
        last.record()
        spans.append((first, last))
    torch.cuda.synchronize()
    return float(statistics.median(1e3 * a.elapsed_time(b) for a, b in spans))


# ---- cuBLASLt ----


class Lt:
    def __init__(self) -> None:
        lt = library("cuBLASLt")
        p, i, s = C_POINTER, C_INT, C_SIZE
        self.create = checked(lt, "cublasLtCreate", p)
        self.desc_create = checked(lt, "cublasLtMatmulDescCreate", p, i, i)
        self.desc_set = checked(lt, "cublasLtMatmulDescSetAttribute", p, i, p, s)
        self.layout_create = checked(lt, "cublasLtMatrixLayoutCreate", p, i, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64)
        self.layout_set = checked(lt, "cublasLtMatrixLayoutSetAttribute", p, i, p, s)
        self.preference_create = checked(lt, "cublasLtMatmulPreferenceCreate", p)
        self.preference_set = checked(lt, "cublasLtMatmulPreferenceSetAttribute", p, i, p, s)
        self.heuristic = checked(lt, "cublasLtMatmulAlgoGetHeuristic", p, p, p, p, p, p, p, i, p, p)
        self.matmul = checked(lt, "cublasLtMatmul", p, p, p, p, p, p, p, p, p, p, p, p, p, p, s, p)
        self.handle = C_POINTER()
        self.create(ctypes.byref(self.handle))

    def describe(self, compute: str, scale: str) -> Handle:
        made = C_POINTER()
        self.desc_create(ctypes.byref(made), LT[compute], TYPES[scale])
        return made

    def attribute(self, description: Handle, name: str, value: Any) -> None:
        self.desc_set(description, LT[f"CUBLASLT_MATMUL_DESC_{name}"], ctypes.byref(value), ctypes.sizeof(value))

    def layout(self, dtype: str, rows: int, columns: int, batch: int = 1, apart: int = 0) -> Handle:
        """Column-major, dense."""
        made = C_POINTER()
        self.layout_create(ctypes.byref(made), TYPES[TYPE_OF[dtype]], rows, columns, rows)
        if batch > 1:
            for name, value in (("BATCH_COUNT", C_INT(batch)), ("STRIDED_BATCH_OFFSET", ctypes.c_int64(apart))):
                key = LT[f"CUBLASLT_MATRIX_LAYOUT_{name}"]
                self.layout_set(made, key, ctypes.byref(value), ctypes.sizeof(value))
        return made

    def algorithms(self, description: Handle, layouts: list[Handle]) -> list[Algorithm]:
        a, b, d = layouts
        preference, found, count = C_POINTER(), (Algorithm * CANDIDATES)(), C_INT()
        self.preference_create(ctypes.byref(preference))
        size = C_SIZE(WORKSPACE)
        key = LT["CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES"]
        self.preference_set(preference, key, ctypes.byref(size), ctypes.sizeof(size))
        self.heuristic(self.handle, description, a, b, d, d, preference, CANDIDATES, found, ctypes.byref(count))
        return [found[i] for i in range(count.value) if found[i].status == 0]


@functools.cache
def lt() -> Lt:
    return Lt()


@functools.cache
def _workspace() -> Any:
    import torch

    return torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")


def lt_calls(problem: Problem, arrays: list[Any], epilogue: str) -> list[Call]:
    """The product of arrays[0] and arrays[1] by each algorithm. Row-major (m, k) by (k, n) is column-major (n, k) by (k, m): the
    second comes first, and the bias runs along D's rows."""
    import torch

    from mathfuse._peers import torch_dtype

    x, w = arrays[0], arrays[1]
    dtype = problem.specs[0].dtype
    fp8 = problem.kind == "scaled_matmul"
    m, k, n = x.shape[-2], x.shape[-1], w.shape[-2] if fp8 else w.shape[-1]
    batch = x.shape[0] if x.dim() == 3 else 1
    y = torch.empty((*x.shape[:-1], n), device=x.device, dtype=torch_dtype("bf16" if fp8 else dtype))
    library, double = lt(), dtype == "f64"
    description = library.describe(
        "CUBLAS_COMPUTE_64F" if double else "CUBLAS_COMPUTE_32F", TYPE_OF["f64" if double else "f32"]
    )
    library.attribute(description, "EPILOGUE", C_INT(LT[f"CUBLASLT_EPILOGUE_{epilogue}"]))
    if fp8:
        library.attribute(description, "TRANSA", C_INT(1))
        library.attribute(description, "A_SCALE_POINTER", C_POINTER(arrays[3].data_ptr()))
        library.attribute(description, "B_SCALE_POINTER", C_POINTER(arrays[2].data_ptr()))
    if "BIAS" in epilogue:
        library.attribute(description, "BIAS_DATA_TYPE", C_INT(TYPES[TYPE_OF[dtype]]))
        library.attribute(description, "BIAS_POINTER", C_POINTER(arrays[2].data_ptr()))
    first = library.layout(dtype, k, n) if fp8 else library.layout(dtype, n, k, batch, k * n)
    layouts = [first, library.layout(dtype, k, m, batch, m * k), library.layout("bf16" if fp8 else dtype, n, m, batch, m * n)]
    number = ctypes.c_double if double else ctypes.c_float
    one, zero, workspace = number(1), number(0), _workspace()

    def call(algorithm: Algorithm) -> Any:
        library.matmul(
            library.handle, description, ctypes.byref(one), w.data_ptr(), layouts[0], x.data_ptr(), layouts[1], ctypes.byref(zero),
            y.data_ptr(), layouts[2], y.data_ptr(), layouts[2], ctypes.byref(algorithm), workspace.data_ptr(), WORKSPACE, _stream(),
        )  # fmt: skip
        return y

    return [functools.partial(call, found) for found in library.algorithms(description, layouts)]


def fastest(calls: list[Call]) -> Call:
    """Of those that run."""
    times = []
    for i, call in enumerate(calls):
        try:
            times.append((_clock(call), i))
        except RuntimeError:
            continue
    if not times:
        raise RuntimeError("cuBLASLt has no algorithm for this")
    return calls[min(times)[1]]


class CuBLASLt(Peer):
    name, module, devices = f"cuBLASLt, best of {CANDIDATES}", "torch", ("cuda",)

    def missing(self) -> str | None:
        try:
            lt()
        except Exception as error:
            return str(error).splitlines()[0]
        return super().missing()

    def can(self, problem: Problem) -> bool:
        dtypes = {"matmul": ("bf16", "f16", "f32", "f64"), "scaled_matmul": ("e4m3",)}.get(problem.kind, ())
        same_batches = len({len(s.shape) for s in problem.specs[:2]}) == 1 and len(problem.specs[0].shape) <= 3
        return problem.specs[0].dtype in dtypes and same_batches

    def prepare(self, problem: Problem, arrays: list[Any]) -> Made:
        if not self.can(problem):
            return "it is called for products only"
        parts = problem.parts[:-1] if problem.kind == "scaled_matmul" and problem.result == "bf16" else problem.parts
        epilogue = EPILOGUES.get(parts)
        if not epilogue or (problem.kind == "scaled_matmul" and parts):
            return "its epilogues do not say this"
        return fastest(lt_calls(problem, arrays, epilogue))

    def references(self, problem: Problem, arrays: list[Any]) -> dict[str, Call]:
        if not self.can(problem) or not problem.parts or (problem.kind == "scaled_matmul" and problem.parts == ("bf16",)):
            return {}
        return {f"bare product, {self.name}": fastest(lt_calls(problem, arrays, "DEFAULT"))}


# ---- cuFFT ----


class Fft:
    def __init__(self) -> None:
        cufft = library("cuFFT")
        p, i = C_POINTER, C_INT
        self.many = checked(cufft, "cufftPlanMany", p, i, p, p, i, i, p, i, i, i, i)
        self.stream = checked(cufft, "cufftSetStream", i, p)
        self.execute = {
            "CUFFT_C2C": checked(cufft, "cufftExecC2C", i, p, p, i), "CUFFT_Z2Z": checked(cufft, "cufftExecZ2Z", i, p, p, i),
            "CUFFT_R2C": checked(cufft, "cufftExecR2C", i, p, p), "CUFFT_C2R": checked(cufft, "cufftExecC2R", i, p, p),
            "CUFFT_D2Z": checked(cufft, "cufftExecD2Z", i, p, p), "CUFFT_Z2D": checked(cufft, "cufftExecZ2D", i, p, p),
        }  # fmt: skip

    def plan(self, kind: str, sizes: tuple[int, ...], batch: int) -> Callable[[Any, Any, int], None]:
        """A transform of dense arrays: call(from, to, direction)."""
        handle = C_INT()
        extents = (C_INT * len(sizes))(*sizes)
        self.many(ctypes.byref(handle), len(sizes), extents, None, 1, 0, None, 1, 0, FFT[kind], batch)
        execute, both = self.execute[kind], kind in ("CUFFT_C2C", "CUFFT_Z2Z")

        def call(x: Any, y: Any, direction: int) -> None:
            self.stream(handle, _stream())
            execute(handle, x.data_ptr(), y.data_ptr(), *((direction,) if both else ()))

        return call


@functools.cache
def fft() -> Fft:
    return Fft()


class CuFFT(Peer):
    """Transforms alone, and transform, filter, inverse: with the filter's division by n done before, in place."""

    name, module, devices = "cuFFT", "torch", ("cuda",)

    def missing(self) -> str | None:
        try:
            fft()
        except Exception as error:
            return str(error).splitlines()[0]
        return super().missing()

    def prepare(self, problem: Problem, arrays: list[Any]) -> Made:
        spec = problem.specs[0]
        single = spec.dtype in ("f32", "c64")
        forward = {"fft": "C2C" if single else "Z2Z", "rfft": "R2C" if single else "D2Z"}.get(problem.kind)
        if not forward or problem.parts not in ((), ("filter", "ifft"), ("filter", "irfft")):
            return "it is called for fft, rfft, and these with a filter and the inverse"
        import torch

        axes = problem.transforms
        sizes = tuple(spec.shape[-axes:])
        batch = int(torch.Size(spec.shape[:-axes]).numel())
        x, complex_type = arrays[0], torch.complex64 if single else torch.complex128
        kept = (*spec.shape[:-1], spec.shape[-1] // 2 + 1 if problem.kind == "rfft" else spec.shape[-1])
        there = fft().plan(f"CUFFT_{forward}", sizes, batch)
        spectrum = torch.empty(kept, dtype=complex_type, device=x.device)
        if not problem.parts:

            def transform() -> Any:
                there(x, spectrum, -1)
                return spectrum

            return transform
        real = "irfft" in problem.parts
        if (problem.kind == "rfft") != real or axes != 1 or (problem.kind == "rfft" and sizes[0] % 2):
            return "it is called for transforms over one axis and their own inverse"
        backward = {"C2C": "C2C", "Z2Z": "Z2Z", "R2C": "C2R", "D2Z": "Z2D"}[forward]
        back = fft().plan(f"CUFFT_{backward}", sizes, batch)
        h, y = arrays[1] / sizes[0], torch.empty_like(x)

        def chain() -> Any:
            there(x, spectrum, -1)
            spectrum.mul_(h)
            back(spectrum, y, 1)
            return y

        return chain


# ---- cuSOLVER ----


class Solver:
    def __init__(self) -> None:
        self.library = library("cuSOLVER")
        self.handle = C_POINTER()
        checked(self.library, "cusolverDnCreate", C_POINTER)(ctypes.byref(self.handle))
        self.stream = checked(self.library, "cusolverDnSetStream", C_POINTER, C_POINTER)

    def cholesky(self, letter: str) -> tuple[Callable[..., None], Callable[..., None], Callable[..., None]]:
        p, i = C_POINTER, C_INT
        size = checked(self.library, f"cusolverDn{letter}potrf_bufferSize", p, i, i, p, i, p)
        factor = checked(self.library, f"cusolverDn{letter}potrf", p, i, i, p, i, p, i, p)
        solve = checked(self.library, f"cusolverDn{letter}potrs", p, i, i, i, p, i, p, i, p)
        return size, factor, solve


@functools.cache
def solver() -> Solver:
    return Solver()


class CuSOLVER(Peer):
    """potrf and potrs of one matrix, on a copy, as inputs are not to be written."""

    name, module, devices = "cuSOLVER", "torch", ("cuda",)

    def missing(self) -> str | None:
        try:
            solver()
        except Exception as error:
            return str(error).splitlines()[0]
        return super().missing()

    def prepare(self, problem: Problem, arrays: list[Any]) -> Made:
        spec = problem.specs[0]
        if (
            problem.kind not in ("cholesky", "solve_pos")
            or problem.parts
            or len(spec.shape) != 2
            or spec.dtype not in ("f32", "f64")
        ):
            return "it is called for the Cholesky factor of one real matrix"
        import torch

        size, factor, solve = solver().cholesky("S" if spec.dtype == "f32" else "D")
        handle, n, a = solver().handle, spec.shape[0], arrays[0]
        upper = 1  # of the column-major matrix: the lower one of ours
        count = C_INT()
        size(handle, upper, n, a.data_ptr(), n, ctypes.byref(count))
        work = torch.empty(count.value, dtype=a.dtype, device=a.device)
        info = torch.empty(1, dtype=torch.int32, device=a.device)

        def call() -> Any:
            solver().stream(handle, _stream())
            f = a.clone()
            factor(handle, upper, n, f.data_ptr(), n, work.data_ptr(), count.value, info.data_ptr())
            if problem.kind == "cholesky":
                return f.tril_()
            x = arrays[1].t().contiguous()
            solve(handle, upper, n, x.shape[0], f.data_ptr(), n, x.data_ptr(), n, info.data_ptr())
            return x.t()

        return call


ALL: tuple[Peer, ...] = (CuBLASLt(), CuFFT(), CuSOLVER())
