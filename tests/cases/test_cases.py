"""The hard cases of cases.jsonl, each evaluated three ways: by separate calls, as one fused function, and as a plan with out=."""

import ast
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import mathfuse as mf
import ml_dtypes
import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
_spec = importlib.util.spec_from_file_location("cases", HERE / "cases.py")
cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cases)

LINES = {json.loads(line)["id"]: line for line in (HERE / "cases.jsonl").read_text().splitlines()}
LINALG = ("cholesky", "lu", "solve", "solve_triangular", "eigh", "svd", "lstsq")
FFT = [f"{i}{r}fft{n}" for i in ("", "i") for r in ("", "r") for n in ("", "2", "n")]
NARROW = {"bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn}
PARTS = {"cholesky": ("value", "info"), "solve": ("value", "info"), "solve_triangular": ("value", "info"),
         "lu": ("value", "perm", "info"), "eigh": ("w", "v", "info"), "svd": ("u", "s", "vh", "info"),
         "lstsq": ("value", "residuals", "rank", "s", "info")}  # fmt: skip


# ---- the functions that an op names, as mathfuse has them ----


def gemm(alpha, A, B, beta, C):
    return mf.matmul(A, B, C, alpha=alpha, beta=beta)


def solve_triangular(A, B, lower=False, unit=False):
    return mf.linalg.solve_triangular(A, B, lower=lower, unit_diagonal=unit, check=False)


def unchecked(name):
    return lambda *args, **kwargs: getattr(mf.linalg, name)(*args, check=False, **kwargs)


def lu(A):
    value, _, info = mf.linalg.lu_factor(A, check=False)
    return value, mf.linalg.lu(A, p_indices=True, check=False)[0], info


def svd(A, full_matrices=False):
    return mf.linalg.svd(A, full_matrices, check=False)


FUNCTIONS = {
    "gelu_tanh": mf.gelu,
    "gemm": gemm,
    "cast": lambda x: x,  # the store casts: params.out
    **{name: getattr(mf, name) for name in ("relu", "gelu_erf", "silu", "maximum", "minimum", "tanh", "einsum")},
    **{name: getattr(mf.fft, name) for name in FFT},
    **{name: unchecked(name) for name in LINALG if name not in ("solve_triangular", "svd", "lu")},
    "solve_triangular": solve_triangular,
    "svd": svd,
    "lu": lu,
}


class Eager:
    """An array whose operators are separate calls of mathfuse."""

    def __init__(self, array):
        self.array = array

    def __getitem__(self, index):
        return Eager(self.array[index])

    def __matmul__(self, other):
        return Product(self.array, other.array)

    def __neg__(self):
        return Eager(mf.negative(self.array))

    def __add__(self, other):
        return Eager(mf.add(self.array, plain(other)))

    def __radd__(self, other):
        return Eager(mf.add(plain(other), self.array))

    def __sub__(self, other):
        return Eager(mf.subtract(self.array, plain(other)))

    def __rsub__(self, other):
        return Eager(mf.subtract(plain(other), self.array))

    def __mul__(self, other):
        return Eager(mf.multiply(self.array, plain(other)))

    def __rmul__(self, other):
        return Eager(mf.multiply(plain(other), self.array))

    def __truediv__(self, other):
        return Eager(mf.divide(self.array, plain(other)))


class Product(Eager):
    """A matmul not called yet: what follows becomes its own arguments, as a caller would write it."""

    def __init__(self, a, b, **arguments):
        self.a, self.b, self.arguments = a, b, arguments

    @property
    def array(self):
        return mf.matmul(self.a, self.b, **self.arguments)

    def with_arguments(self, **more):
        return Product(self.a, self.b, **self.arguments, **more)

    def __rmul__(self, alpha):
        plain_product = not self.arguments and not isinstance(alpha, Eager)
        return self.with_arguments(alpha=alpha) if plain_product else super().__rmul__(alpha)

    def __add__(self, other):
        other = plain(other)
        shape = np.broadcast_shapes(self.a.shape[:-2], self.b.shape[:-2]) + (self.a.shape[-2], self.b.shape[-1])
        if not self.arguments.keys() & {"c", "bias", "activation"} and np.ndim(other):
            if other.shape == shape:
                return self.with_arguments(c=other, beta=1)
            if other.ndim in (1, len(shape)):
                return self.with_arguments(bias=other)
        return super().__add__(other)


def plain(x):
    return x.array if isinstance(x, Eager) else x


def eager(function, name):
    def call(*args, **kwargs):
        if name in ("relu", "gelu_erf", "gelu_tanh", "silu", "tanh") and isinstance(args[0], Product):
            return args[0].with_arguments(activation=name)
        return wrapped(function(*map(plain, args), **kwargs))

    return call


def wrapped(result):
    return result if isinstance(result, tuple) else Eager(result)


EAGER = {name: eager(function, name) for name, function in FUNCTIONS.items()}


# ---- one way of running a case's ops ----


class Runner:
    """Evaluates ops over the arrays of a case; `mode` is "eager", "fused" or "planned"."""

    def __init__(self, case, mode):
        self.case, self.mode, self.made = case, mode, {}
        self.arrays, self.buffers = {}, {}
        for name, x in case["arrays"].items():
            self.arrays[name], self.buffers[name] = brought(case["inputs"][name]["dtype"], x, case["buffers"][name])
        out = case["params"].get("out", {})
        self.dtype, self.saturate = out.get("dtype"), out.get("saturate", False)
        self.out = None
        if "out" in case:
            self.out, self.buffers["out"] = brought(self.dtype, case["out"], case["buffers"]["out"])
        elif "same_as" in out:
            self.out = self.arrays[out["same_as"]]
        self.lock = threading.Lock()

    def scalars(self):
        return {k: v for k, v in self.case["params"].items() if isinstance(v, (int, float))}

    def stored(self, value):
        if self.dtype is None or isinstance(value, tuple):
            return value
        return mf.cast(value, self.dtype, self.saturate)

    def function(self, op):
        """The op over a list of arrays, as one function to trace."""
        code = compile(op, "op", "eval")
        names = list(self.arrays)

        def whole(*arrays):
            return self.stored(eval(code, {**FUNCTIONS, **self.scalars(), **dict(zip(names, arrays))}))

        return whole

    def once(self, key, make):
        with self.lock:
            if key not in self.made:
                self.made[key] = make()
            return self.made[key]

    def evaluate(self, op, out=None):
        arrays = list(self.arrays.values())
        keyword = {} if out is None else {"out": out}
        if self.mode == "fused":
            return self.once(op, lambda: mf.fuse(self.function(op)))(*arrays, **keyword)
        if self.mode == "planned":
            plan = self.once(op, lambda: mf.plan(self.function(op), *arrays))
            if out is None and len(plan.outputs) == 1:
                shape, dtype = plan.outputs[0]
                out = np.empty(shape, mf._interop.numpy_dtype(mf._core.dtype(dtype)[1]))
            return plan.run(*arrays, out=out)
        scope = {**EAGER, **self.scalars(), **{name: Eager(x) for name, x in self.arrays.items()}}
        result = eval(compile(op, "op", "eval"), scope)
        if isinstance(result, tuple):
            return result
        if isinstance(result, Product) and self.dtype and not self.saturate:
            return mf.matmul(result.a, result.b, **result.arguments, out_dtype=self.dtype, **keyword)
        value = result.array
        if self.dtype:
            return mf.cast(value, self.dtype, self.saturate, **keyword)
        if out is not None:
            return mf.matmul(result.a, result.b, **result.arguments, out=out)
        return value

    def answer(self, case):
        """What cases.judge asks for: a dict of the parts, or the library's error."""
        try:
            result = self.evaluate(case["op"], self.out)
            samples = case["expect"].get("samples")
            if case["params"].get("large_bytes") and samples:
                whole = result if not isinstance(result, tuple) else parts(case["op"], result)[samples["of"]]
                got = {"samples": np.array([wide(whole[tuple(i)]) for i in samples["at"]])}
            else:
                got = parts(case["op"], result)
            got["then"] = [wide(self.evaluate(op)) for op in case["params"].get("then", [])]
        except mf.Error as error:
            return error
        self.hand_back()
        return got

    def hand_back(self):
        """Show the judge what became of buffers that are copies in another dtype."""
        for name, buffer in self.buffers.items():
            if buffer is not None:
                self.case["buffers"][name][...] = buffer.astype(self.case["buffers"][name].dtype)


def brought(dtype, view, buffer):
    """The view in its real dtype, with the same strides and offset; and its buffer, None where it is the case's own."""
    if dtype not in NARROW:
        return view, None
    item = np.dtype(NARROW[dtype])
    strides = [s // view.itemsize * item.itemsize for s in view.strides]
    offset = (view.ctypes.data - buffer.ctypes.data) // view.itemsize * item.itemsize
    huge = buffer.size >= cases.HUGE
    copy = np.zeros(buffer.size, item) if huge else buffer.astype(item)
    mine = np.ndarray(view.shape, item, copy, offset, strides)
    if huge:
        mine[...] = view.astype(item)
    return mine, None if huge else copy


def wide(x):
    """As NumPy's own dtypes, for the judge."""
    x = np.asarray(x)
    return x.astype(np.float32) if x.dtype in NARROW.values() else x


def parts(op, result):
    if not isinstance(result, tuple):
        return {"value": wide(result)}
    found = {name: wide(x) for name, x in zip(PARTS[op.split("(")[0]], result)}
    if "perm" in found:  # the rows of L for the rows of A; the judge asks for the rows of A
        found["perm"] = np.argsort(found["perm"], -1)
    return found


def missing(op):
    names = [node.id for node in ast.walk(ast.parse(op)) if isinstance(node, ast.Name)]
    return [n for n in names if n in LINALG and not hasattr(mf.linalg, n)]


def memory():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# ---- tests ----


@pytest.fixture
def load(tmp_path):
    def one(name):
        path = tmp_path / "case.jsonl"
        path.write_text(LINES[name] + "\n")
        return next(cases.load(path))

    return one


def parameters():
    for name, line in LINES.items():
        slow = json.loads(line)["params"].get("large_bytes", 0) > 1 << 30
        for mode in ("eager", "fused", "planned"):
            yield pytest.param(name, mode, id=f"{name}-{mode}", marks=[pytest.mark.slow] if slow else [])


def skip_unless_possible(line):
    for op in (line["op"], *line["params"].get("then", [])):
        if missing(op):
            pytest.skip(f"mathfuse.linalg has no {', '.join(missing(op))}")
    if line["params"].get("large_bytes", 0) > 1 << 30 and memory() < 16e9:
        pytest.skip("needs 16 GB of memory")


@pytest.mark.parametrize(("name", "mode"), list(parameters()))
def test_case(name, mode, load):
    skip_unless_possible(json.loads(LINES[name]))
    case = load(name)
    runner = Runner(case, mode)
    errors = []

    def run(case):
        answer = runner.answer(case)
        if isinstance(answer, Exception):
            errors.append(answer)
        return answer

    problems = cases.judge(case, run)
    assert not problems, f"{case['why']}\n" + "\n".join(problems)
    if "raises" in case["expect"]:
        assert isinstance(errors[0], ValueError), repr(errors[0])
        assert "length" in str(errors[0]) or "n " in str(errors[0]), str(errors[0])


@pytest.mark.parametrize("name", [n for n, line in LINES.items() if "threads" in json.loads(line)["params"]])
def test_threads_share_plans(name, load):
    case = load(name)
    runner = Runner(case, "planned")
    wanted = cases.reference(case)
    ops = [(case["op"], wanted["value"]), *zip(case["params"]["then"], wanted["then"])]
    runner.evaluate(case["op"])
    wrong, threads = [], case["params"]["threads"]
    start = threading.Barrier(threads["count"])

    def work():
        start.wait()
        for _ in range(threads["runs"]):
            for op, want in ops:
                problems = cases.differs(op, runner.evaluate(op), want, case["rtol"], case["atol"])
                wrong.extend(problems)

    workers = [threading.Thread(target=work) for _ in range(threads["count"])]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong, wrong[:3]


@pytest.mark.parametrize("name", [n for n, line in LINES.items() if "slower_than" in json.loads(line)["expect"]])
def test_not_much_slower(name, load):
    case = load(name)
    runner = Runner(case, "planned")
    slow = best_time(lambda: runner.evaluate(case["op"]))
    limit = case["expect"]["slower_than"]
    (only,) = runner.arrays
    runner = Runner(case, "planned")
    runner.arrays[only] = np.resize(runner.arrays[only], limit["n"])
    fast = best_time(lambda: runner.evaluate(case["op"]))
    assert slow <= limit["at_most"] * fast, f"{slow / fast:.1f} times the call at length {limit['n']}"


def best_time(call):
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def test_stored_answers_agree_with_the_reference():
    subprocess.run([sys.executable, HERE / "cases.py", "check"], check=True)
