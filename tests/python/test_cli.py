"""The command line, the grammar of problems, benchmark rows, reports and comparisons."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mathfuse as mf
import numpy as np
import pytest
from mathfuse import _bench, _bench_data as data, _peers, _problems, _report
from mathfuse.__main__ import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_database(tmp_path, monkeypatch):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MATHFUSE_SITE_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("MATHFUSE_TUNE", raising=False)


def run(capsys, *arguments):
    status = main(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


# ---- the grammar ----


@pytest.mark.parametrize(
    "text, shapes, result",
    [
        ("matmul:f32:8x6x4", [(8, 4), (4, 6)], (8, 6)),
        ("matmul:f64:3*8x6x4+bias+gelu+residual", [(3, 8, 4), (3, 4, 6), (6,), (3, 8, 6)], (3, 8, 6)),
        ("fft:c64:5*16+filter+ifft", [(5, 16), (16,)], (5, 16)),
        ("rfft:f32:5*15+filter+abs", [(5, 15), (8,)], (5, 8)),
        ("rfft:f32:5*16+filter+irfft+bias", [(5, 16), (9,), (16,)], (5, 16)),
        ("irfft:c128:2*9+scale", [(2, 9)], (2, 16)),
        ("fft:c64:4*8x16", [(4, 8, 16)], (4, 8, 16)),
        ("conv:f32:4*50x7", [(4, 50), (7,)], (4, 56)),
        ("solve:f64:3*5x2", [(3, 5, 5), (3, 5, 2)], (3, 5, 2)),
        ("cholesky:f64:6", [(6, 6)], (6, 6)),
        ("det:f64:7*4", [(7, 4, 4)], (7,)),
        ("svdvals:f64:2*4", [(2, 4, 4)], (2, 4)),
        ("map:f32:1000+mul+tanh+residual", [(1000,), (1000,), (1000,)], (1000,)),
        ("softmax:f32:4x9", [(4, 9)], (4, 9)),
        ("rms_norm:f32:4x9+silu", [(4, 9)], (4, 9)),
        ("layer_norm:f32:2*4x9", [(2, 4, 9)], (2, 4, 9)),
        ("mean:f32:4x9", [(4, 9)], (4,)),
        ("swiglu:f32:8x6x4", [(8, 4), (4, 6), (4, 6)], (8, 6)),
        ("scaled_matmul:e4m3:8x6x16+gelu", [(8, 16), (6, 16), (), ()], (8, 6)),
        ("matmul:bf16:8x6x16+quantize", [(8, 16), (16, 6)], (8, 6)),
        ("matmul:f32:8x6x16+tanh+bf16", [(8, 16), (16, 6)], (8, 6)),
        ("fno:f32:3*4x32x6", [(3, 4, 32), (4, 4, 6)], (3, 4, 32)),
        ("fno:f32:3*4x16x16x5", [(3, 4, 16, 16), (4, 4, 5, 5)], (3, 4, 16, 16)),
        ("solve_pos:f64:3*5x2", [(3, 5, 5), (3, 5, 2)], (3, 5, 2)),
        ("ridge:f64:3*9x5x2", [(3, 9, 5), (3, 9, 2), (5, 5)], (3, 5, 2)),
        ("qr:f64:3*5", [(3, 5, 5)], (3, 5, 5)),
        ("eigh:f64:3*5", [(3, 5, 5)], (3, 5)),
    ],
)
def test_problems_are_what_they_say(text, shapes, result):
    problem = _problems.parse(text)
    assert [s.shape for s in problem.specs] == shapes
    maker = data.NumPyArrays()
    arrays = data.arrays_of(problem, maker)
    got = problem.plan().run(*arrays)
    first = got[0] if isinstance(got, tuple) else got
    assert np.asarray(first).shape == result
    want = data.exact(problem, arrays, maker)
    assert data.error_of(data.comparable(problem, arrays, got, maker), want) < data.allowed(problem)
    wide = maker.wide(first)
    for changed in (-1.001 * wide, wide + np.abs(wide).max()):
        wrong = (changed, *got[1:]) if isinstance(got, tuple) else changed
        assert data.error_of(data.comparable(problem, arrays, wrong, maker), want) > data.allowed(problem)


def test_every_elementwise_word():
    for name in _problems.UNARY:
        assert _problems.parse(f"map:f32:8+{name}").plan().launches == 1


@pytest.mark.parametrize(
    "text, position, what",
    [
        ("matmull:f32:8x6x4", 0, "kind of problem"),
        ("matmul", 6, "':'"),
        ("matmul:f33:8x6x4", 7, "dtype"),
        ("matmul:f32:8x6", 11, "m x n x k"),
        ("matmul:f32:8x6x", 15, "number"),
        ("matmul:f32:8x6*4x2", 14, "batches"),
        ("matmul:f32:8x6x4+sillu", 17, "silu"),
        ("matmul:f32:8x6x4 bias", 16, "'+'"),
        ("solve:f32:8", 10, "right-hand sides"),
        ("qr:f32:8+tanh", 9, "nothing can follow"),
        ("numpy:tanh(f32)", 11, "array is expected"),
        ("numpy:tanh(f99[3])", 11, "no dtype"),
        ("numpy:no_such(f32[3])", 0, "cannot be imported"),
        ("nowhere:f(f32[3])", 0, "cannot be imported"),
        ("matmul:f32:2x99999999999999999999x3", 13, "below 2**63"),
        ("numpy:tanh(f32[99999999999999999999])", 11, "below 2**63"),
    ],
)
def test_errors_point_at_the_place(text, position, what):
    with pytest.raises(_problems.ProblemError) as error:
        _problems.parse(text)
    assert error.value.position == position and what in str(error.value)
    assert str(error.value).splitlines()[-1].index("^") == position + 2


def test_files_of_problems(tmp_path):
    for name in ("cpu", "gpu", "smoke"):
        assert len(_problems.gather([str(ROOT / f"bench/problems/{name}.txt")])) > 5
    file = tmp_path / "mine.txt"
    file.write_text("# mine\nmap:f32:8+tanh  # one\n\nmap:f32:8+tangent\n")
    with pytest.raises(ValueError, match="line 4"):
        _problems.parse_file(file)


def test_a_function_of_a_module(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_layers.py").write_text("import numpy as np\ndef layer(x, w):\n    return np.tanh(x @ w)\n")
    monkeypatch.chdir(tmp_path)
    status, out, _ = run(capsys, "bench", "my_layers:layer(f32[16,8],f32[8,4])", "--peers", "NumPy", "--rounds", "3", "--json")
    row = json.loads(out)["rows"][0]
    assert status == 0 and row["error"]["mathfuse"] < 1e-5 and "NumPy" in row["skipped"]


# ---- commands ----


def test_plan_and_explain(capsys):
    status, out, _ = run(capsys, "plan", "matmul:f32:8x6x4+bias+relu", "--device", "cpu", "--json")
    (plan,) = json.loads(out)
    assert status == 0 and plan["target"] == "cpu" and plan["steps"][0]["anchor"] == "matmul"
    status, out, _ = run(capsys, "explain", "softmax:f32:8x6", "--providers", "ref", "--device", "cpu")
    assert status == 0 and "runs on ref" in out


@pytest.mark.compiles
def test_plan_for_a_gpu_that_is_not_here(capsys):
    status, out, _ = run(capsys, "plan", "fft:c64:64*256+filter+ifft", "--target", "sm_90a", "--json")
    assert status == 0 and json.loads(out)[0]["launches"] == 1


def test_errors_are_messages(capsys):
    for arguments in (["plan", "matmul:f32:8"], ["plan", "nothing.txt"], ["bench", "map:f32:8", "--peers", "MATLAB"],
                      ["cache", "export"], ["compare", "no.json", "no.json"]):  # fmt: skip
        status, out, err = run(capsys, *arguments)
        assert status == 1 and not out and err.startswith("mathfuse: ")


def test_tune_then_cache(capsys, tmp_path):
    status, out, _ = run(capsys, "tune", "matmul:f32:96x64x32+bias+tanh", "map:f32:5000+exp", "--seconds", "30", "--json",
                         "--device", "cpu")  # fmt: skip
    first = json.loads(out)
    assert status == 0 and [r["source"] for r in first] == ["tuned", "tuned"]
    status, out, _ = run(capsys, "tune", "matmul:f32:96x64x32+bias+tanh", "--json", "--device", "cpu")
    assert json.loads(out)[0]["seconds"] == first[0]["seconds"], "what is known is not measured again"
    assert json.loads(run(capsys, "cache", "list", "--json")[1])[0]["winner"]
    assert "2 records" in run(capsys, "cache", "list")[1]
    assert "known from" in run(capsys, "cache", "show", "map")[1]
    assert run(capsys, "cache", "verify")[:2] == (0, "sound\n")
    file = str(tmp_path / "all.jsonl")
    assert "2 records" in run(capsys, "cache", "export", file)[1]
    assert "2 records removed" in run(capsys, "cache", "clear")[1]
    assert "2 records" in run(capsys, "cache", "import", file)[1]
    other = str(tmp_path / "other.db")
    assert "2 records" in run(capsys, "cache", "import", file, "--database", other)[1]
    assert "2 records" in run(capsys, "cache", "merge", other)[1]
    assert run(capsys, "cache", "path")[1].strip() == mf.tuning.database()


def test_interrupted_tuning_keeps_what_was_measured():
    problems = ["matmul:f32:700x700x700+bias+tanh", *(f"matmul:f32:{n}x700x700+tanh" for n in range(500, 560))]
    process = subprocess.Popen(
        [sys.executable, "-m", "mathfuse", "tune", *problems, "--json", "--device", "cpu"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ,
    )  # fmt: skip
    deadline = time.time() + 60
    while not mf.tuning.records() and time.time() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    results = json.loads(out)
    assert 1 <= len(results) < len(problems) and all(r["winner"] for r in results[:-1])
    assert mf.tuning.verify() == [] and mf.tuning.records()


def test_profile(capsys):
    status, out, _ = run(capsys, "profile", "softmax:f32:64x100", "--seconds", "0.2", "--json", "--device", "cpu")
    assert status == 0 and json.loads(out)[0]["us"] > 0


def test_bench_report_compare(capsys, tmp_path):
    file, plots = tmp_path / "cpu.json", tmp_path / "plots"
    status, out, _ = run(capsys, "bench", "matmul:f32:64x48x32+bias+silu", "fft:c64:16*256", "--rounds", "7", "--device", "cpu",
                         "--tune", "2", "--output", str(file))  # fmt: skip
    assert status == 0 and "NumPy" in out
    result = json.loads(file.read_text())
    assert result["provenance"]["versions"]["mathfuse"] == mf.__version__ and len(result["rows"]) == 2
    for row in result["rows"]:
        assert {"mathfuse", "mathfuse, tuned", "NumPy"} <= row["us"].keys()
        assert all(low <= row["us"][name] <= high for name, (low, high) in row["interval"].items())
        assert all(error < 1e-5 for error in row["error"].values()) and row["bytes"] > 0 and row["flops"] > 0
    status, out, _ = run(capsys, "bench", "report", str(file))
    assert status == 0 and "| `fft:c64:16*256` |" in out
    status, out, _ = run(capsys, "bench", "compare", str(file), str(file), "--json")
    assert status == 0 and {c["verdict"] for c in json.loads(out)} == {"same"}
    slower = tmp_path / "slower.json"
    for factor, path in ((1, file), (3, slower)):
        for row in result["rows"]:
            row["us"] = {name: factor * us for name, us in row["us"].items()}
            row["interval"] = {name: [0.9 * us, 1.1 * us] for name, us in row["us"].items()}
        path.write_text(json.dumps(result))
    status, out, _ = run(capsys, "compare", str(file), str(slower))
    assert status == 1 and out.count("slower") == 2
    assert run(capsys, "compare", str(slower), str(file))[0] == 0
    pytest.importorskip("matplotlib")
    written = _report.plots(result, plots)
    assert len(written) == 3 and all(p.stat().st_size > 1000 for p in plots.iterdir())
    before = [p.read_bytes() for p in written]
    assert [p.read_bytes() for p in _report.plots(result, plots)] == before, "the same result, the same bytes"


def test_losing_rows_come_first():
    rows = [{"us": {"mathfuse": a, "NumPy": b}} for a, b in ((1, 2), (3, 1), (1, 1))]
    assert [_report.ratio(r) for r in _report.losing_first(rows)] == [3, 1, 0.5]


def test_wrong_results_are_told_and_not_timed(monkeypatch):
    problem = _problems.parse("map:f32:1000+tanh")
    monkeypatch.setattr(_peers.Operations, "unary", lambda self, name, x: x)  # NumPy's tanh, broken
    monkeypatch.setattr(_peers, "exact", lambda problem, arrays, xp: np.tanh(arrays[0]))
    row = _bench.measure(problem, "cpu", _peers.available("cpu", ["NumPy"]), rounds=3)
    assert "NumPy" not in row["us"] and "wrong" in row["skipped"]["NumPy"] and "mathfuse" in row["us"]


@pytest.mark.parametrize("command", ["plan", "explain", "bench", "tune"])
def test_what_is_no_problem_is_told(command, capsys, tmp_path):
    (tmp_path / "empty.txt").write_text("# nothing\n")
    for given, words in [("matmul", "neither a problem"), ("matmul 4 4", "neither a problem"), ("gone.txt", "nor a file"),
                         (str(tmp_path), "nor a file"), (str(tmp_path / "empty.txt"), "holds no problem")]:  # fmt: skip
        status, _, error = run(capsys, command, given)
        assert status == 1 and words in error and "Errno" not in error
