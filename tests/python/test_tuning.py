"""plan.tune(), policies, and the database from Python."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import mathfuse as mf
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def own_database(tmp_path, monkeypatch):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MATHFUSE_SITE_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("MATHFUSE_TUNE", raising=False)


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def layer(x, w, b):
    return mf.gelu(x @ w + b)


def expected(x, w, b):
    y = x.astype(np.float64) @ w + b
    return 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))


def test_tuned_plan_runs_and_is_remembered():
    x, w, b = arrays((192, 96), (96, 160), 160)
    p = mf.plan(layer, x, w, b)
    assert p.tuning["source"] == "default" and "not tuned" in str(p.tuning) and not p.tuning.tried
    report = p.tune(seconds=20)
    assert report["source"] == "tuned" and report["complete"]
    assert report["winner_us"] > 0 and report["default_us"] > 0 and report.speedup >= 1
    results = {c["result"] for c in report["candidates"]}
    assert "won" in results and not results & {"wrong", "crashed", "hung"}
    steps = [c for c in report["candidates"] if c["step"]]
    ways = {c["choice"].split("/")[0] for c in steps}
    assert ways and set(report.tried) == ways
    assert sum(sum(results.values()) for results in report.tried.values()) == len(steps)
    assert all(f"of {provider}: " in str(report) for provider in ways)
    np.testing.assert_allclose(p.run(x, w, b), expected(x, w, b), atol=2e-5)
    assert "(tuned)" in p.explain() and json.loads(p.explain("json"))["tuned"] is True
    assert mf.tuning.verify() == []
    (record,) = mf.tuning.records(whole=True)
    assert record["winner"] == report["winner"] and record["candidates"] == report["candidates"]


def in_another_process(code):
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_another_process_measures_nothing():
    p = mf.plan(layer, mf.spec((192, 96)), mf.spec((96, 160)), mf.spec(160))
    report = p.tune(seconds=20)
    seen = in_another_process("""
import json, time, mathfuse as mf
def layer(x, w, b): return mf.gelu(x @ w + b)
mf.plan(layer, mf.spec((8, 8)), mf.spec((8, 8)), mf.spec(8)) # libraries are loaded now
begin = time.perf_counter()
p = mf.plan(layer, mf.spec((192, 96)), mf.spec((96, 160)), mf.spec(160), tune="require")
print(json.dumps({"ms": 1e3 * (time.perf_counter() - begin), **p.tuning}))
""")
    assert seen["source"] == "database" and seen["winner"] == report["winner"]
    assert seen["ms"] < 100, "looking a plan up is no measurement"


def test_arrays_find_what_specs_tuned():
    x, w, b = arrays((192, 96), (96, 160), 160)
    mf.plan(layer, mf.spec((192, 96)), mf.spec((96, 160)), mf.spec(160)).tune(seconds=20)
    assert mf.plan(layer, x, w, b, tune="require").tuning["source"] == "database"
    with pytest.raises(RuntimeError, match="no tuning record"):
        mf.plan(layer, x[:, ::-1], w, b, tune="require")


def test_policies(monkeypatch):
    x, w, b = arrays((64, 32), (32, 48), 48)
    with pytest.raises(RuntimeError, match="no tuning record"):
        mf.plan(layer, x, w, b, tune="require")
    with pytest.raises(ValueError, match="measure"):
        mf.plan(layer, x, w, b, tune="always")
    assert mf.plan(layer, x, w, b, tune="measure").tuning["source"] == "tuned"
    assert mf.plan(layer, x, w, b, tune="require").tuning["source"] == "database"
    assert mf.plan(layer, x, w, b, tune="off").tuning["source"] == "default"
    monkeypatch.setenv("MATHFUSE_TUNE", "sometimes")
    with pytest.raises(ValueError, match="sometimes"):
        mf.plan(layer, x[:8], w, b)


def test_progress_function_and_stop():
    p = mf.plan(layer, *arrays((256, 128), (128, 128), 128))
    events = []

    def progress(event):
        events.append(event)
        return len(events) >= 3

    report = p.tune(progress=progress)
    assert len(events) == 3 and not report["complete"]
    assert {"stage", "step", "steps", "candidate", "done", "count", "alive", "elapsed_s", "left_s"} <= events[0].keys()


def test_progress_that_raises():
    p = mf.plan(layer, *arrays((256, 128), (128, 128), 128))

    def progress(event):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        p.tune(progress=progress)
    assert p.tuning["source"] == "tuned", "what was measured is kept"


def test_progress_is_shown(capsys):
    mf.plan(layer, *arrays((64, 64), (64, 64), 64)).tune(progress=True, seconds=3)
    shown = capsys.readouterr().err
    assert str(mf.tuning.database()) in shown and "left" in shown


def test_interrupt_keeps_what_was_measured():
    p = mf.plan(layer, *arrays((512, 512), (512, 512), 512))
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(100):
            p.tune(seconds=30)
            time.sleep(0.001)
    assert len(mf.tuning.records()) == 1


def test_running_while_tuning():
    x, w, b = arrays((96, 96), (96, 96), 96)
    p = mf.plan(layer, x, w, b)
    want = expected(x, w, b)
    done = threading.Event()
    wrong = []

    def run():
        while not done.is_set():
            if not np.allclose(p.run(x, w, b), want, atol=1e-4):
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for t in threads:
        t.start()
    for _ in range(3):
        p.tune(seconds=1)
    done.set()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "bfloat16", "float8_e4m3fn"])
def test_dtypes(dtype):
    def f(x, w):
        return mf.cast(x @ w, dtype) if dtype.startswith("float8") else x @ w

    shapes = mf.spec((64, 32), dtype), mf.spec((32, 48), dtype)
    assert mf.plan(f, *shapes).tune(seconds=3)["source"] == "tuned"


def test_other_steps():
    def spectrum(x, h):
        return mf.fft.ifft(mf.fft.fft(x) * h)

    def solve(a, b):
        return mf.linalg.solve(a, b)

    def norm(x):
        return mf.softmax(x, axis=-1)

    for f, specs in (
        (spectrum, (mf.spec((64, 256), "c64"), mf.spec(256, "c64"))),
        (solve, (mf.spec((16, 12, 12), "f64"), mf.spec((16, 12, 3), "f64"))),
        (norm, (mf.spec((64, 1000)),)),
    ):
        assert mf.plan(f, *specs).tune(seconds=5)["source"] == "tuned"


def test_empty_and_strided():
    x = np.asfortranarray(arrays((40, 30))[0])
    assert mf.plan(lambda x: np.exp(x[::-1, ::2]), x[:, ::-1]).tune(seconds=2)["source"] == "tuned"
    assert mf.plan(np.exp, mf.spec((0, 5))).tune(seconds=2)["source"] == "tuned"


def test_export_load_merge_clear(tmp_path):
    mf.plan(np.exp, mf.spec((64, 64))).tune(seconds=2)
    mf.plan(np.exp, mf.spec((32, 64))).tune(seconds=2)
    file = tmp_path / "records.jsonl"
    assert mf.tuning.export(file) == 2
    assert mf.tuning.clear("64x64") == 1 or mf.tuning.clear() >= 1
    assert mf.tuning.load(file) >= 1 and len(mf.tuning.records()) == 2
    other = str(tmp_path / "other.db")
    assert mf.tuning.load(file, path=other) == 2 and mf.tuning.verify(other) == []
    mf.tuning.clear()
    assert mf.tuning.merge(other) == 2 and len(mf.tuning.records()) == 2
    file.write_text('{"problem": 1}\n')
    with pytest.raises(ValueError, match="line 1: no tuning record"):
        mf.tuning.load(file)
    file.write_text("{\n")
    with pytest.raises(ValueError, match="not JSON"):
        mf.tuning.load(file)
    with pytest.raises(OSError, match="no file"):
        mf.tuning.merge(tmp_path / "nothing.db")


@pytest.mark.compiles
def test_a_target_that_is_not_here_cannot_be_measured():
    with pytest.raises(RuntimeError, match="not on this machine"):
        mf.plan(np.exp, mf.spec((64, 64)), target="sm_90a").tune()


def test_bad_arguments():
    p = mf.plan(np.exp, mf.spec((4, 4)))
    with pytest.raises(ValueError, match="more than 0"):
        p.tune(seconds=0)
    with pytest.raises(TypeError):
        p.tune(speed=3)


def test_profile():
    p = mf.plan(lambda x, w, b: mf.softmax(layer(x, w, b), axis=0), *arrays((256, 128), (128, 192), 192))
    profile = p.profile(0.3)
    steps = json.loads(p.explain("json"))["steps"]
    assert [s["provider"] for s in profile["steps"]] == [s["provider"] for s in steps]
    assert profile["bytes"] == sum(s["bytes"] for s in profile["steps"]) > 0
    assert 2 * 256 * 128 * 192 <= profile["steps"][0]["flops"] < 3 * 256 * 128 * 192
    assert all(s["us"] > 0 and s["bound"] in ("memory", "arithmetic") for s in profile["steps"])
    assert 0 < profile["host_us"] and 0 < profile["us"] < 1e6
    assert "roofline" in str(profile) and str(profile).count("step ") == len(steps)
    with pytest.raises(ValueError, match="negative"):
        p.profile(-1)


def test_records_go_to_logging(caplog):
    x = arrays(37)[0]
    try:
        mf.log_records("plan, run")
        with caplog.at_level("INFO", logger="mathfuse"):
            mf.plan(mf.tanh, x).run(x)
        topics = {record.name for record in caplog.records}
        assert topics == {"mathfuse.plan", "mathfuse.run"}
        assert any("step 1 of 1" in record.message for record in caplog.records)
        with pytest.raises(ValueError, match="gossip"):
            mf.log_records("plan,gossip")
    finally:
        mf.log_records("")


@pytest.mark.parametrize(
    "topics, seen, unseen", [("plan", "mathfuse plan:", "mathfuse run:"), ("run", "mathfuse run:", "plan:")]
)
def test_verbose(topics, seen, unseen):
    run = subprocess.run(
        [sys.executable, "-c", "import numpy as np, mathfuse as mf; mf.tanh(np.ones(5))"],
        capture_output=True, text=True, check=True, env={**os.environ, "MATHFUSE_VERBOSE": topics, "MATHFUSE_NVTX": "1"},
    )  # fmt: skip
    assert seen in run.stderr and unseen not in run.stderr


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("name", ["eigh", "svd", "qr"])
def test_decompositions_whose_vectors_are_not_unique(name, dtype, rng, monkeypatch, tmp_path):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path))
    a = rng.standard_normal((3, 6, 6)).astype(dtype)
    plan = mf.plan(lambda a: getattr(mf.linalg, name)(a, check=False), a, providers="lapack,ref")
    results = {c["result"] for c in plan.tune(seconds=2)["candidates"]}
    assert "won" in results
    assert "wrong" not in results
