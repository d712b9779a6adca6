"""mathfuse-bench, the benchmark suite's driver in C: compiled against the package, its results read by the same reports."""

import json
import pathlib
import shutil
import subprocess

import mathfuse as mf
import pytest
from mathfuse import _report

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
SPOILED = """
/* The measured plans' results, spoiled; the first run of a problem is the reference's. */
#include <mathfuse/mathfuse.h>
mf_status __real_mf_plan_run(mf_plan *plan, const mf_tensor *tensors, int count, void *stream);
mf_status __wrap_mf_plan_run(mf_plan *plan, const mf_tensor *tensors, int count, void *stream);
mf_status __wrap_mf_plan_run(mf_plan *plan, const mf_tensor *tensors, int count, void *stream)
{
    static int runs;
    mf_status status = __real_mf_plan_run(plan, tensors, count, stream);
    if (!status && count > 2 && runs++ > 0)
        ((float *)tensors[count - 1].data)[0] += 1;
    return status;
}
"""


def build(target, *more):
    library = next(pathlib.Path(mf.get_include()).parent.glob("libmathfuse.so*"))
    sources = sorted(map(str, (ROOT / "bench/c").glob("*.c")))
    subprocess.run(
        ["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *sources, *more, f"-I{mf.get_include()}",
         str(library), f"-Wl,-rpath,{library.parent}", "-lm", "-o", str(target)], check=True,
    )  # fmt: skip
    return target


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    return build(tmp_path_factory.mktemp("driver") / "mathfuse-bench")


@pytest.fixture(autouse=True)
def own_database(tmp_path, monkeypatch):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MATHFUSE_SITE_DIR", str(tmp_path / "none"))


def run(driver, *arguments, status=0):
    done = subprocess.run([str(driver), *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_smoke(driver, tmp_path):
    output = tmp_path / "out.json"
    run(driver, "--device", "cpu", "--tune", 0.2, "--rounds", 5, "--output", output, ROOT / "bench/problems/smoke.txt")
    result = _report.load(output)
    problems = [line for line in (ROOT / "bench/problems/smoke.txt").read_text().splitlines() if not line.startswith("#")]
    assert [row["problem"] for row in result["rows"]] == problems
    for row in result["rows"]:
        assert set(row["us"]) == {"mathfuse", "mathfuse, tuned"} and row["verified_by"] == "ref"
        assert all(low <= row["us"][name] <= high for name, (low, high) in row["interval"].items())
        assert all(error < 1e-5 for error in row["error"].values())
        assert row["bytes"] > 0 and row["io_bytes"] > 0 and row["copy_gb_s"] > 0 and row["tuning"]["winner"]
        assert row["copy_percent"] > 0 and ("matmul_percent" in row) == row["problem"].startswith(("matmul", "swiglu"))
    where = result["provenance"]
    assert where["versions"]["mathfuse"] == mf.__version__ and where["call_us"] > 0 and str(tmp_path) not in where["command"]
    text = _report.markdown(result)
    assert all(f"| `{p}` |" in text for p in problems) and "µs for a call of nothing" in text
    assert _report.compare(result, result) and not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize(
    "problem, position, what",
    [
        ("matmull:f32:8x6x4", 0, "not a kind of problem"),
        ("matmul:f33:8x6x4", 10, "dtype"),
        ("matmul:f32:8x6", 14, "m x n x k"),
        ("matmul:f32:8x6x", 15, "number"),
        ("matmul:f32:8x6*4x2", 13, "batches"),
        ("matmul:f32:8x6x4+sillu", 17, "not known to this driver"),
        ("matmul:f32:8x6x4bias", 16, "'+'"),
        ("solve:f32:8", 11, "right-hand sides"),
        ("qr:f32:8", 0, "mathfuse bench knows more"),
        ("fno:f32:3*4x32x6", 0, "mathfuse bench knows more"),
        ("numpy:tanh(f32[3])", 0, "no Python"),
    ],
)
def test_what_it_does_not_know_is_told(driver, problem, position, what):
    lines = run(driver, "--device", "cpu", problem, status=1).splitlines()
    assert what in lines[1] and lines[2].strip() == problem and lines[3].index("^") == position + 2


def test_senseless_arguments(driver):
    for arguments in ([], ["no-such-file"], ["--tune"], ["--tune", "-1", "map:f32:8"], ["--fast", "1", "map:f32:8"],
                      ["--device", "sm_90a", "map:f32:8"], ["--device", "abacus", "map:f32:8"]):  # fmt: skip
        assert run(driver, *arguments, status=2)


def test_an_error_costs_one_problem_and_time_ends(driver, tmp_path):
    output = tmp_path / "out.json"
    run(driver, "--device", "cpu", "--rounds", 3, "--output", output, "map:f32:8+tanh", "qr:f32:8", "map:f32:9+tanh", status=1)
    assert [("failed" in r, "us" in r) for r in json.loads(output.read_text())["rows"]] == [
        (False, True),
        (True, False),
        (False, True),
    ]
    run(driver, "--device", "cpu", "--budget", 0.001, "--output", output, "matmul:f32:300x300x300", "map:f32:9+tanh")
    rows = json.loads(output.read_text())["rows"]
    assert rows[-1]["not_reached"] and "Not reached in time" in _report.markdown(_report.load(output))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "c64", "c128"])
def test_dtypes(driver, dtype):
    run(driver, "--device", "cpu", "--rounds", 3, f"matmul:{dtype}:16x24x8+bias", f"sum:{dtype}:20x30")


def test_a_wrong_result_is_told_and_not_timed(tmp_path):
    source = tmp_path / "spoiled.c"
    source.write_text(SPOILED)
    driver = build(tmp_path / "spoiled", str(source), "-Wl,--wrap=mf_plan_run")
    text = run(driver, "--device", "cpu", "matmul:f32:16x24x8+tanh", status=1)
    assert "mathfuse is wrong: its error is" in text and " us " not in text
