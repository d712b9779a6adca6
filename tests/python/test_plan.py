"""plan, spec, explain, targets that are not here, info, the command line, and that the stubs tell the truth."""

import json
import re
import subprocess
import sys
from pathlib import Path

import mathfuse as mf
import numpy as np
import pytest
from mathfuse import _core, errors
from tools import assert_close


def layer(x, w, b, r):
    return np.tanh(x @ w + b) + r


@pytest.fixture
def arrays(rng):
    return tuple(rng.normal(size=s).astype(np.float32) for s in ((8, 4), (4, 6), (6,), (8, 6)))


def test_run(arrays):
    p = mf.plan(layer, *arrays)
    out = np.empty((8, 6), np.float32)
    assert p.run(*arrays, out=out) is out
    assert_close(out, layer(*arrays), scale=4)
    assert_close(p.run(*arrays), out)
    assert p.launches >= 1 and p.workspace >= 0 and p.target == "cpu"
    assert p.outputs == (((8, 6), "float32"),)
    assert "cpu" in repr(p)


def test_specs(arrays):
    p = mf.plan(layer, *(mf.spec(a.shape, a.dtype) for a in arrays))
    assert_close(p.run(*arrays), layer(*arrays), scale=4)
    assert repr(mf.spec(3, "bfloat16")) == "spec((3,), 'bf16')"
    with pytest.raises(TypeError, match="int7"):
        mf.spec((2,), "int7")


def test_other_layouts_are_planned_for(arrays):
    p = mf.plan(layer, *arrays)
    x = arrays[0]
    for view in (np.asfortranarray(x), np.ascontiguousarray(x[::-1])[::-1], np.repeat(x, 2, 1)[:, ::2]):
        assert_close(p.run(view, *arrays[1:]), layer(*arrays), scale=4)


def test_wrong_arrays(arrays):
    p = mf.plan(layer, *arrays)
    with pytest.raises(ValueError, match=r"input 0 has shape \(4, 4\); the plan was made for \(8, 4\)"):
        p.run(arrays[0][:4], *arrays[1:])
    with pytest.raises(TypeError, match="input 1"):
        p.run(arrays[0], arrays[1].astype(np.float64), *arrays[2:])
    with pytest.raises(ValueError, match="3 arrays were given; the plan takes 4"):
        p.run(*arrays[:3])
    with pytest.raises(TypeError, match="out"):
        p.run(*arrays, out=np.empty((8, 6)))


def check_json(text):
    told = json.loads(text)
    assert {"target", "launches", "bytes", "workspace", "steps"} <= told.keys()
    for step in told["steps"]:
        assert {
            "anchor",
            "provider",
            "kernel",
            "launches",
            "bytes",
            "workspace",
            "registers",
            "shared",
            "spills",
            "refusals",
        } <= step.keys()
        for refusal in step["refusals"]:
            assert {"provider", "reason", "detail"} <= refusal.keys()
    assert sum(step["launches"] for step in told["steps"]) == told["launches"]
    return told


def test_explain(arrays):
    p = mf.plan(layer, *arrays)
    assert check_json(p.explain("json"))["target"] == "cpu"
    fused = mf.fuse(layer)
    assert fused.explain(*arrays) == p.explain()
    check_json(fused.explain(*arrays, format="json"))
    with pytest.raises(ValueError, match="xml"):
        p.explain("xml")


def test_fusion_is_one_step(arrays):
    told = check_json(mf.plan(layer, *arrays).explain("json"))
    assert len(told["steps"]) == 1 and told["steps"][0]["anchor"] == "matmul"
    assert len(check_json(mf.plan(layer, *arrays, no_fusion=True).explain("json"))["steps"]) > 1


def test_providers(arrays):
    only = check_json(mf.plan(layer, *arrays, providers="ref").explain("json"))
    assert {step["provider"] for step in only["steps"]} == {"ref"}
    without = check_json(mf.plan(layer, *arrays, providers="-blas").explain("json"))
    assert "blas" not in {step["provider"] for step in without["steps"]}


@pytest.mark.compiles
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_planning_for_a_gpu_that_is_not_here(target):
    specs = [mf.spec(s, "bfloat16") for s in ((1024, 512), (512, 256), (256,), (1024, 256))]
    p = mf.plan(layer, *specs, target=target)
    assert check_json(p.explain("json"))["target"] == p.target == target
    with pytest.raises((RuntimeError, ValueError), match="not here|cannot run|does not run"):
        p.run(*[np.ones(s.shape, np.float32) for s in specs])


@pytest.mark.compiles
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_machine_code(target):
    specs = [mf.spec((1024, 512), "bfloat16"), mf.spec((512,), "float32")]
    p = mf.plan(lambda x, b: mf.softmax(np.tanh(x) + b), *specs, target=target)
    assert p.cubins() and all(code[:4] == b"\x7fELF" for code in p.cubins().values())
    assert p.sources().keys() == p.cubins().keys()
    assert all(isinstance(text, str) and text for text in p.sources().values())


def test_unknown_target():
    with pytest.raises(ValueError, match="sm_90a"):
        mf.plan(lambda x: x + 1, mf.spec((2,)), target="sm_1")


def test_info_and_command_line():
    assert "mathfuse" in mf.info()
    json.loads(mf.info(json=True))
    command = [sys.executable, "-m", "mathfuse"]
    assert "mathfuse" in subprocess.run([*command, "info"], capture_output=True, text=True, check=True).stdout
    json.loads(subprocess.run([*command, "info", "--json"], capture_output=True, text=True, check=True).stdout)
    assert mf.__version__ in subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
    failed = subprocess.run([*command, "info", "nonsense"], capture_output=True, text=True)
    assert failed.returncode == 1 and "nonsense" in failed.stderr


def test_include_directory():
    assert (Path(mf.get_include()) / "mathfuse" / "mathfuse.h").exists()


def test_import_is_quick_and_leaves_numpy_alone():
    code = "import sys, mathfuse; print('numpy' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_every_operation_and_alias_is_public():
    for name, _, doc in _core.ops():
        function = getattr(mf, name)
        assert callable(function) and name in mf.__all__, name
        assert function.__doc__ and (name in ("where", "clip") or doc in function.__doc__)
    assert mf.abs is mf.absolute and mf.conj is mf.conjugate and mf.true_divide is mf.divide


def test_every_status_has_its_exception():
    for value, name, _, python in _core.statuses():
        if value == 0:
            continue
        found = errors.error_class(value)
        assert issubclass(found, mf.Error), name
        base = np.linalg.LinAlgError if python == "LinAlgError" else getattr(__import__("builtins"), python)
        assert issubclass(found, base), name


def test_the_stub_names_what_there_is():
    stub = (Path(mf.__file__).parent / "_core.pyi").read_text()
    for kind in ("Context", "Graph", "Plan", "Function"):
        body = stub.split(f"class {kind}:")[1].split("\n@final")[0].split("\ndef ")[0]
        told = set(re.findall(r"def (\w+)", body)) | set(re.findall(r"^    (\w+):", body, re.M))
        real = {n for n in vars(getattr(_core, kind)) if not n.startswith("__")}
        assert real <= told and {n for n in told if not n.startswith("__")} <= real, (kind, real ^ told)
    functions = set(re.findall(r"^def (\w+)", stub, re.M))
    assert functions == {n for n, v in vars(_core).items() if type(v).__name__ == "builtin_function_or_method"}
    for name in functions:
        signature = getattr(_core, name).__text_signature__
        told = re.search(rf"^def {name}\((.*?)\) ->", stub, re.M).group(1)
        assert [p.split(":")[0].strip() for p in told.split(",") if p] == [
            p.split("=")[0].strip() for p in signature.strip("()").split(",")[1:] if p.strip() != "/" or "/" in told
        ] or "/" in signature, name


def test_plans_are_shared(arrays):
    assert mf.plan(layer, *arrays).explain() == mf.plan(layer, *arrays).explain()


def test_plan_of_nested_arguments():
    p = mf.plan(lambda d, k: {"y": d["x"] * k}, {"x": mf.spec((3,), "f64")}, 2)
    np.testing.assert_array_equal(p.run({"x": np.arange(3.0)}, 2)["y"], [0, 2, 4])
    np.testing.assert_array_equal(p.run(np.arange(3.0))["y"], [0, 2, 4])


@pytest.mark.parametrize(("shape", "strides", "apart"), [((4, 3), (1, 1), False), ((4, 3), (2, 3), False), ((3, 2), (2, 3), True), ((4, 3), (-3, 1), True),
                                                          ((2, 4, 3), (12, 3, 1), True), ((2, 4, 3), (6, 3, 1), False), ((1, 3), (1, 1), True)])  # fmt: skip
def test_an_output_whose_elements_meet_is_refused(shape, strides, apart):
    memory = np.zeros(64, np.float32)
    out = np.lib.stride_tricks.as_strided(memory[16:], shape, [4 * s for s in strides])
    assert apart == (len({sum(i * s for i, s in zip(at, strides)) for at in np.ndindex(shape)}) == out.size)
    x = np.arange(out.size, dtype=np.float32).reshape(shape)
    if apart:
        assert mf.negative(x, out=out) is out
        np.testing.assert_array_equal(out, -x)
    else:
        with pytest.raises(mf.errors.LayoutError, match="on top of each other"):
            mf.negative(x, out=out)
