"""The benchmark suite: peers compute what they are asked to, the budget holds, errors and crashes cost one problem."""

import importlib.util
import json
import re
import subprocess
import sys
import time

import mathfuse as mf
import numpy as np
import pytest
from mathfuse import _bench, _bench_data as data, _peers, _peers_direct, _problems, _report
from mathfuse.__main__ import main

needs_torch = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs PyTorch")


@pytest.fixture(autouse=True)
def own_database(tmp_path, monkeypatch):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("MATHFUSE_TUNE", raising=False)


EVERY_KIND = [
    "matmul:f32:8x6x4", "matmul:f32:8x6x4+bias+gelu", "matmul:f32:2*8x6x4+bias+silu+residual", "matmul:f32:8x6x4+rms_norm",
    "swiglu:f32:8x6x4", "fft:c64:4*16+filter+ifft", "fft:c64:3*8x8", "rfft:f32:4*16+filter+irfft", "conv:f32:4*50x7",
    "fno:f32:3*4x32x6", "fno:f32:3*4x16x16x5", "solve:f32:3*5x2", "solve_pos:f32:3*5x2", "solve_pos:f64:6x1", "ridge:f32:3*9x5x2",
    "cholesky:f64:6", "inv:f64:2*4", "det:f64:2*4", "qr:f64:2*5", "eigh:f32:2*5", "eigvalsh:f64:2*5", "svdvals:f64:4",
    "map:f32:100+mul+tanh", "softmax:f32:4x9", "log_softmax:f32:4x9", "layer_norm:f32:4x9", "sum:f32:4x9", "max:f32:4x9",
]  # fmt: skip


@pytest.mark.parametrize("peer", [_peers.NumPy(), _peers.SciPy(), _peers.Torch()], ids=lambda p: p.name)
@pytest.mark.parametrize("text", EVERY_KIND)
def test_peers_are_right(peer, text):
    if peer.missing():
        pytest.skip(peer.missing())
    problem, maker = _problems.parse(text), data.NumPyArrays()
    arrays = data.arrays_of(problem, maker)
    call = peer.prepare(problem, arrays)
    if isinstance(call, str):
        assert peer.name == "SciPy" and call == "the same calls as NumPy's"
        return
    error = data.error_of(data.comparable(problem, arrays, call(), maker), data.exact(problem, arrays, maker))
    assert error <= data.allowed(problem)
    for reference in peer.references(problem, arrays).values():
        reference()


@needs_torch
@pytest.mark.parametrize("text", [*EVERY_KIND, "matmul:bf16:8x6x16+quantize", "matmul:f16:8x6x16+gelu+f32"])
def test_pytorch_verifies_as_numpy_does(text):
    problem, maker = _problems.parse(text), data.TorchArrays(device="cpu")
    arrays = data.arrays_of(problem, maker)
    want = data.exact(problem, arrays, maker)
    host = data.NumPyArrays()
    by_numpy = data.exact(problem, [_bits(a) for a in arrays], host)
    assert [tuple(w.shape) for w in want] == [w.shape for w in by_numpy]
    assert data.error_of([host.wide(w) for w in want], by_numpy) < 1e-9
    got = data.comparable(problem, arrays, problem.plan().run(*map(_bits, arrays)), maker)
    assert data.error_of(got, want, maker.xp) <= data.allowed(problem)
    assert data.error_of([g + g.abs().max() for g in got], want, maker.xp) > data.allowed(problem)


def _bits(tensor):
    """As NumPy has it, with ml_dtypes where NumPy has none."""
    import ml_dtypes

    if str(tensor.dtype) == "torch.bfloat16":
        return tensor.view(_peers.torch_dtype("i8")).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


# ---- time ----


class FakeClock:
    now = 100.0

    def __call__(self):
        return self.now


def test_budget_is_shared_and_ends(monkeypatch):
    clock = FakeClock()
    budget = _bench.Budget(60, clock)
    seen = []

    def measure(problem, device, peers, *, tune, rounds, limit):
        seen.append((problem.text, tune, limit, [p.name for p in peers]))
        clock.now += 35
        return {"problem": problem.text}

    monkeypatch.setattr(_bench, "measure", measure)
    slow = _peers.TorchCompiled()
    monkeypatch.setattr(_peers, "available", lambda device, names: [_peers.NumPy(), slow])
    problems = [_problems.parse(f"map:f32:{n}+tanh") for n in (1, 2, 3)]
    rows = list(_bench.rows(problems, "cpu", None, tune=30, budget=budget))
    assert [r.get("not_reached", False) for r in rows] == [False, False, True]
    assert seen[0][1] == pytest.approx(8) and seen[1][1] == pytest.approx(5), "a part of the problem's share"
    assert all(limit <= 60 for _, _, limit, _ in seen) and all(names == ["NumPy"] for *_, names in seen)


def test_slow_peers_take_part_where_asked(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(_bench, "measure", lambda problem, device, peers, **_: seen.append([p.name for p in peers]) or {})
    monkeypatch.setattr(_peers, "available", lambda device, names: [_peers.NumPy(), _peers.TorchCompiled()])
    file = tmp_path / "problems.txt"
    file.write_text("map:f32:8+tanh !torch.compile  # slow\nmap:f32:9+tanh\n")
    problems = _problems.parse_file(file)
    list(_bench.rows(problems, "cpu", None, budget=_bench.Budget(1000)))
    list(_bench.rows(problems, "cpu", None))
    assert seen == [["NumPy", "torch.compile"], ["NumPy"], ["NumPy", "torch.compile"], ["NumPy", "torch.compile"]]


def test_what_does_not_get_ready_is_left():
    with pytest.raises(TimeoutError, match=r"0\.1 s"), _bench.within(0.1):
        while True:
            time.sleep(0.01)
    with _bench.within(float("inf")):
        pass


def test_long_calls_are_measured_once():
    calls = []

    class Slow(_peers.NumPy):
        name = "slow"

        def prepare(self, problem, arrays):
            return lambda: calls.append(time.sleep(0.6)) or np.tanh(arrays[0])

    row = _bench.measure(_problems.parse("map:f32:100+tanh"), "cpu", [Slow()], rounds=9)
    assert len(calls) == 2 and row["us"]["slow"] > 5e5 and row["interval"]["slow"][0] == row["us"]["slow"]


# ---- errors ----


class Broken(_peers.Peer):
    """Fails as told."""

    devices = ("cpu",)

    def __init__(self, name, prepare):
        self.name, self.prepare = name, prepare

    def missing(self):
        return None


def raises(*_):
    raise RuntimeError("no luck\nat all")


@pytest.mark.parametrize(
    "prepare, why",
    [
        (raises, "RuntimeError: no luck"),
        (lambda *_: raises, "RuntimeError: no luck"),
        (lambda *_: "not today", "not today"),
        (lambda p, a: lambda: np.zeros(3), "wrong: its error is inf"),
        (lambda p, a: lambda: a[0], "wrong"),
    ],
)
def test_a_peer_that_fails_costs_only_itself(prepare, why):
    row = _bench.measure(_problems.parse("map:f32:100+tanh"), "cpu", [Broken("peer", prepare), _peers.NumPy()], rounds=3)
    assert why in row["skipped"]["peer"] and {"mathfuse", "NumPy"} <= row["us"].keys() and "peer" not in row["us"]


def test_an_error_costs_one_problem(monkeypatch):
    real = data.arrays_of
    monkeypatch.setattr(data, "arrays_of", lambda p, m=None: raises() if p.kind == "fft" else real(p, m))
    problems = [_problems.parse(t) for t in ("map:f32:8+tanh", "fft:c64:4*8", "map:f32:9+tanh")]
    rows = list(_bench.rows(problems, "cpu", ["NumPy"], rounds=3))
    assert [("failed" in r) for r in rows] == [False, True, False] and "no luck" in rows[1]["failed"]


def test_every_row_is_kept_at_once_and_a_crash_is_survived(tmp_path, capsys):
    """A process that dies in the third problem leaves two rows; resumed, that one is not tried again and the rest is."""
    (tmp_path / "fatal.py").write_text("import os\ndef layer(x):\n    os._exit(9)\n")
    file, output = tmp_path / "problems.txt", tmp_path / "out.json"
    file.write_text("map:f32:8+tanh\nmap:f32:9+tanh\nfatal:layer(f32[4])\nmap:f32:10+tanh\n")
    command = [sys.executable, "-m", "mathfuse", "bench", str(file), "--device", "cpu", "--rounds", "3", "--peers", "NumPy"]
    command += ["--output", str(output)]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 9
    kept = json.loads(output.read_text())
    assert len(kept["rows"]) == 2 and kept["running"] == "fatal:layer(f32[4])"
    done = subprocess.run([*command, "--resume"], cwd=tmp_path, capture_output=True, text=True)
    result = json.loads(output.read_text())
    assert done.returncode == 1 and "running" not in result
    assert [r["problem"] for r in result["rows"] if "failed" in r] == ["fatal:layer(f32[4])"]
    assert [r["us"]["mathfuse"] for r in result["rows"][:2]] == [r["us"]["mathfuse"] for r in kept["rows"]]
    assert len(result["rows"]) == 4 and "ended" in done.stdout


def test_not_reached_is_listed(tmp_path, capsys):
    output = tmp_path / "out.json"
    problems = ["map:f32:8+tanh", "map:f32:9+tanh"]
    assert main(["bench", *problems, "--device", "cpu", "--peers", "none", "--budget", "0.01", "--output", str(output)]) == 0
    text = capsys.readouterr().out
    assert all(r["not_reached"] for r in json.loads(output.read_text())["rows"]) and "Not reached" in text


# ---- what calls libraries by their numbers ----


def test_numbers_of_cuda_libraries_are_those_of_their_headers(tmp_path):
    folder = next((f for f in _include_folders() if (f / "cublasLt.h").exists() and (f / "cufft.h").exists()), None)
    if not folder:
        pytest.skip("needs CUDA's headers")
    names = [*_peers_direct.TYPES, *_peers_direct.LT, *_peers_direct.FFT]
    lines = "\n".join(f'printf("{n} %d\\n", (int){n});' for n in names)
    source = tmp_path / "numbers.c"
    source.write_text(
        "#include <cublasLt.h>\n#include <cufft.h>\n#include <stdio.h>\nint main(void)\n{\n"
        f'{lines}\nprintf("size %zu\\n", sizeof(cublasLtMatmulHeuristicResult_t));\nreturn 0;\n}}\n'
    )
    subprocess.run(["cc", f"-I{folder}", str(source), "-o", str(tmp_path / "numbers")], check=True)
    text = subprocess.run([str(tmp_path / "numbers")], check=True, capture_output=True, text=True).stdout
    found = {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", text)}
    assert found.pop("size") == _peers_direct.ctypes.sizeof(_peers_direct.Algorithm)
    assert found == {**_peers_direct.TYPES, **_peers_direct.LT, **_peers_direct.FFT}


def _include_folders():
    import os
    import sysconfig
    from pathlib import Path

    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    return [Path(r) / "include" for r in roots if r] + [p / "include" for p in packages.glob("*")]


def test_direct_peers_say_what_they_do_not_do():
    for text in ("softmax:f32:4x9", "matmul:bf16:8x6x4+silu", "matmul:c64:8x6x4", "scaled_matmul:e4m3:8x6x16+gelu"):
        problem = _problems.parse(text)
        assert isinstance(_peers_direct.CuBLASLt().prepare(problem, []), str)
    for text in ("softmax:f32:4x9", "fft:c64:4*8+tanh", "ifft:c64:4*8"):
        assert isinstance(_peers_direct.CuFFT().prepare(_problems.parse(text), []), str)
    for text in ("softmax:f32:4x9", "cholesky:f32:4*8", "cholesky:c64:8"):
        assert isinstance(_peers_direct.CuSOLVER().prepare(_problems.parse(text), []), str)


# ---- on a GPU ----


@pytest.mark.gpu
@needs_torch
def test_on_a_gpu_every_peer_is_right():
    problems = ["matmul:bf16:256x128x64+bias+gelu", "matmul:f32:2*64x32x16", "scaled_matmul:e4m3:64x32x64", "fft:c64:64*256+filter+ifft",
                "rfft:f32:64*256+filter+irfft", "solve_pos:f64:50x3", "cholesky:f32:40", "matmul:bf16:64x32x64+quantize"]  # fmt: skip
    for row in _bench.rows([_problems.parse(t) for t in problems], "cuda", None, rounds=3, budget=_bench.Budget(60)):
        assert "failed" not in row and "mathfuse" in row["us"], row
        assert not [why for why in row["skipped"].values() if why.startswith("wrong")], row
        assert row["io_bytes"] > 0 and row["host"]["mathfuse"] > 0
    assert mf.Context("cuda").can_run


# ---- reports ----


def test_report_has_losses_first_references_and_gaps():
    def row(problem, ours, peer, **more):
        return {"problem": problem, "us": {"mathfuse": ours, "NumPy": peer}, "error": {"mathfuse": 1e-7}, "skipped": {}, **more}

    rows = [row("map:f32:8", 5.0, 10.0, host={"mathfuse": 1.5, "NumPy": 2.5}),
            row("matmul:f32:8x8x8+tanh", 30.0, 20.0, reference={"bare product, NumPy": 15.0}, io_bytes=10_000, copy_gb_s=1.0),
            {"problem": "map:f32:9", "not_reached": True}, {"problem": "map:f32:7", "failed": "no luck"}]  # fmt: skip
    where = {"processor": "P", "cores": 2, "versions": {"numpy": "2"}, "commit": "c", "date": "d", "command": "m"}
    text = "\n".join(_report.figures({"device": "cpu", "provenance": where, "rows": rows}, ["x/cpu-speedup.svg"]))
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert table[0] == "| problem | mathfuse | fastest peer | ratio | of the bare product | of one pass | host µs | error |"
    assert table[2] == "| `matmul:f32:8x8x8+tanh` | 30.00 µs | 20.00 µs (NumPy) | 1.50 | 2.00 | 3.00 | – | 1e-07 |"
    assert table[3] == "| `map:f32:8` | 5.00 µs | 10.00 µs (NumPy) | 0.50 | – | – | 1.5 | 1e-07 |"
    assert "- `map:f32:8`: mathfuse 1.5 µs, NumPy 2.5 µs" in text and "- `map:f32:7`: no luck" in text
    assert "Not reached in time: `map:f32:9`." in text and "](x/cpu-speedup.svg)" in text


def test_times_are_kept_when_the_roofline_fails(monkeypatch):
    monkeypatch.setattr(_bench, "_roofline", raises)
    row = _bench.measure(_problems.parse("map:f32:100+tanh"), "cpu", [], rounds=3)
    assert row["us"]["mathfuse"] > 0 and "no luck" in row["skipped"]["roofline and cost of a call"]


def test_a_lost_gpu_ends_the_process_and_the_next_goes_on(monkeypatch, tmp_path, capsys):
    output, lost = tmp_path / "out.json", ["", "illegal address"]
    monkeypatch.setattr(_bench, "_tidy", lambda device: lost.pop(0) if lost else "")
    command = ["bench", *(f"map:f32:{n}+tanh" for n in (8, 9, 10)), "--device", "cpu", "--peers", "none", "--rounds", "3"]
    command += ["--output", str(output)]
    assert main(command) == 3
    assert [r.get("failed") for r in json.loads(output.read_text())["rows"]] == [None, "the GPU failed in it: illegal address"]
    assert main([*command, "--resume"]) == 1
    rows = json.loads(output.read_text())["rows"]
    assert [bool(r.get("lost")) for r in rows] == [False, True, False] and rows[2]["us"]["mathfuse"] > 0
    assert "illegal address" in capsys.readouterr().out
