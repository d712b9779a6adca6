"""examples/device/*.py: each has make(target), which gives its kernel first, and main(library), which gives its error."""

import functools
import importlib.util
import pathlib
import shutil
import subprocess

import mathfuse as mf
import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples/device"
EXAMPLES = sorted(p.stem for p in FOLDER.glob("*.py"))
EMULATED = [name for name in EXAMPLES if "REQUIRES =" not in (FOLDER / f"{name}.py").read_text()]


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def needs_nvrtc():
    try:
        mf.Kernel('extern "C" __global__ void nothing() {}', "nothing", arch="sm_90a").compile()
    except mf.errors.MissingError as error:
        pytest.skip(str(error))


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("name", EMULATED)
def test_emulated(name, monkeypatch):
    if "device_header" in (FOLDER / f"{name}.py").read_text():
        needs_nvrtc()
    monkeypatch.setattr(mf, "Kernel", functools.partial(mf.Kernel, check=True))  # watched for races
    assert load(name).main("numpy") < 1e-5


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_compiles_without_local_memory(name, target):
    needs_nvrtc()
    made = load(name).make(target)[0]
    if isinstance(made, mf.Ltoir):
        assert made.arch == target
    else:
        assert made.spills == 0


@pytest.mark.gpu
@pytest.mark.parametrize("name", EXAMPLES)
def test_on_the_gpu(name):
    module = load(name)
    for package in ("cupy", *getattr(module, "REQUIRES", ())):
        pytest.importorskip(package)
    assert module.main("cupy") < 1e-5


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_block_fft_by_nvcc(tmp_path):
    program = tmp_path / "block_fft"
    command = [
        "nvcc",
        "-std=c++17",
        "-O3",
        "-arch=native",
        "-I",
        mf.get_include(),
        str(FOLDER / "block_fft.cu"),
        "-o",
        str(program),
    ]
    subprocess.run(command, check=True)
    assert ": right" in subprocess.run([program], capture_output=True, text=True, check=True).stdout


@pytest.mark.gpu
def test_own_kernel_from_c(tmp_path):
    library, program = next(pathlib.Path(mf.get_include()).parent.glob("libmathfuse.so*")), tmp_path / "own_kernel"
    subprocess.run(
        ["cc", "-std=c11", str(FOLDER.parent / "c/own_kernel.c"), f"-I{mf.get_include()}", str(library),
         f"-Wl,-rpath,{library.parent}", "-lm", "-o", str(program)],
        check=True,
    )  # fmt: skip
    assert "ran, largest error" in subprocess.run([program], capture_output=True, text=True, check=True).stdout
