"""The README's code blocks run as they stand, the Python ones one after another as a reader would; so do the examples."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import mathfuse as mf
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLES = [
    pytest.param(p.name, marks=[pytest.mark.compiles] if p.name == "plan_elsewhere.py" else [])
    for p in sorted((ROOT / "examples").glob("*.py"))
]
PACKAGE = pathlib.Path(mf.get_include()).parent


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def compile_and_run(source, directory):
    """A C program against the installed package."""
    library = next(PACKAGE.glob("libmathfuse.so*"))
    program = directory / "program"
    subprocess.run(
        ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-x", "c", "-", "-x", "none", f"-I{mf.get_include()}", str(library),
         f"-Wl,-rpath,{library.parent}", "-lm", "-o", str(program)],
        input=source, text=True, check=True,
    )  # fmt: skip
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def test_python_blocks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "readme"}
    assert blocks("python")
    for block in blocks("python"):
        try:
            exec(compile(block, "README.md", "exec"), scope)
        except mf.errors.UnsupportedError as error:
            assert "device_header" in block
            assert "NVRTC" in str(error) or "built without CUDA" in str(error)
    assert "step 1" in capsys.readouterr().out


def test_python_blocks_of_concepts(capsys):
    found = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/concepts.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found
    for block in found:
        exec(compile(block, "concepts.md", "exec"), {"__name__": "concepts"})
    assert "cho_solve" in capsys.readouterr().out


def test_c_blocks(tmp_path):
    assert blocks("c")
    for block in blocks("c"):
        compile_and_run(block, tmp_path)


def test_cuda_blocks(tmp_path):
    """Compiled by nvcc where there is one; else as C++, with the words that only CUDA knows defined away."""
    assert blocks("cuda")
    for block in blocks("cuda"):
        source = tmp_path / "kernel.cu"
        source.write_text(block)
        if shutil.which("nvcc"):
            command = ["nvcc", "-std=c++17", "-arch=sm_80", "-cubin", "-I", mf.get_include(), str(source), "-o", os.devnull]
        else:
            indices = "struct { int x; } blockIdx, blockDim, threadIdx;"
            source.write_text(f"#define __global__\n{indices}\n{block}")
            command = ["c++", "-std=c++17", "-fsyntax-only", "-I", mf.get_include(), "-x", "c++", str(source)]
        subprocess.run(command, check=True)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, tmp_path):
    result = subprocess.run([sys.executable, ROOT / "examples" / name], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout
    if name == "demo.py":
        assert (tmp_path / "out/demo.png").stat().st_size > 10_000
        accuracy = float(re.search(r"accuracy ([\d.]+)%", result.stdout)[1])
        assert accuracy > 95
        errors = [float(e) for e in re.findall(r"\d\.\de-\d+", result.stdout)]
        assert errors
        assert max(errors) < 1e-5


C_EXAMPLES = {"linear.c": "step 1", "own_kernel.c": r"largest error|not compiled"}


@pytest.mark.parametrize("name", sorted(p.name for p in (ROOT / "examples/c").glob("*.c")))
def test_c_example(name, tmp_path):
    assert re.search(C_EXAMPLES[name], compile_and_run((ROOT / "examples/c" / name).read_text(), tmp_path))
