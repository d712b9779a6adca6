"""The device headers under NVRTC, for each architecture that kernels are made for: they compile without the standard library, and
typical kernels (resources.py) use no local memory."""

import shutil
import subprocess

import pytest
from resources import ARCHITECTURES, HEAD, ROOT, SOURCES, compile_for, nvrtc, report

LIBRARY = nvrtc()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="NVRTC is not installed")

LARGE = "FILTER(float, 256) FILTER(float, 1024) FILTER(float, 8192) FILTER(float, 16384)"
REST = """
extern "C" __global__ void roots(c64 *table)
{
    table[threadIdx.x] = fft::block<float, 1013, fft::forward>::table_entry(threadIdx.x);
}
extern "C" __global__ void one_thread(c64 *x)
{
    c64 v[12];
    for (int i = 0; i < 12; i++)
        v[i] = x[i];
    fft::thread<float, 12, fft::forward>::run(v);
    for (int i = 0; i < 12; i++)
        x[i] = v[i];
}
"""


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("header", SOURCES)
def test_no_local_memory(header, arch):
    source = HEAD + SOURCES[header] + (LARGE if header == "fft" and arch == "sm_90a" else "")
    log = compile_for(LIBRARY, arch, source)
    figures = report(log)
    assert len(figures) >= 2, log
    assert "warning" not in log, log
    assert {kernel: local for kernel, (_, _, local) in figures.items() if local} == {}
    assert all(0 < registers <= 255 and shared <= 48 << 10 for registers, shared, _ in figures.values())


def test_the_report_sees_local_memory():
    log = compile_for(LIBRARY, "sm_90a", 'extern "C" __global__ void k(int *p) { int a[64]; for (int i = 0; i < 64; i++)'
                      " a[p[i]] = i; for (int i = 0; i < 64; i++) p[i] = a[i]; }")  # fmt: skip
    assert report(log)["k"][2] >= 256


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_rest_compiles(arch):
    assert len(report(compile_for(LIBRARY, arch, HEAD + REST))) == 2


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("header", SOURCES)
def test_compiles_with_nvcc(header, tmp_path):
    (tmp_path / "kernels.cu").write_text(HEAD + SOURCES[header])
    subprocess.run(
        ["nvcc", "-std=c++17", "-O3", "-arch=sm_90", "-Werror", "all-warnings", "-I", "include", "-cubin",
         "-o", str(tmp_path / "kernels.cubin"), str(tmp_path / "kernels.cu")],
        cwd=ROOT, check=True,
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_example_compiles_with_nvcc(tmp_path):
    subprocess.run(
        ["nvcc", "-std=c++17", "-O3", "-arch=sm_90", "-Werror", "all-warnings", "-I", "include", "-cubin",
         "-o", str(tmp_path / "example.cubin"), "examples/device/block_fft.cu"],
        cwd=ROOT, check=True,
    )  # fmt: skip
