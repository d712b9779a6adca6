"""Where a measurement was made: device, driver, versions, commit, command, date."""

import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
from typing import Any

import mathfuse as mf

PACKAGES = ("numpy", "scipy", "torch", "cupy-cuda12x", "cupy-cuda13x", "nvidia-cublas", "nvidia-cufft", "nvidia-cuda-nvrtc")
SETTINGS = ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MATHFUSE_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


def output_of(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "mathfuse": mf.__version__}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def gpu() -> dict[str, str] | None:
    query = "name,driver_version,memory.total"
    line = output_of("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader")
    return dict(zip(query.split(","), (part.strip() for part in line.splitlines()[0].split(",")))) if line else None


def commit() -> str | None:
    """MATHFUSE_COMMIT, or that of the repository that this runs in."""
    found = os.environ.get("MATHFUSE_COMMIT") or output_of("git", "rev-parse", "--short=12", "HEAD")
    dirty = output_of("git", "status", "--porcelain", "--untracked-files=no", "--", "src", "include", "python")
    return f"{found} with changes" if dirty else found


def command() -> str:
    """Without the folders of this machine."""
    program = os.path.basename(sys.argv[0])
    start = ["mathfuse"] if program in ("__main__.py", "mathfuse") else [os.path.basename(sys.executable), program]
    return shlex.join([*start, *(os.path.basename(a) if os.path.isabs(a) else a for a in sys.argv[1:])])


def collect() -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": command(),
        "commit": commit(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "gpu": gpu(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions(),
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
        "libraries": libraries(),
    }


def libraries() -> list[dict[str, Any]]:
    """What mathfuse loads, without the folders."""
    found = json.loads(mf.info(json=True)).get("libraries", [])
    keep = ("name", "library", "version", "found")
    return [{**{k: v for k, v in entry.items() if k in keep}, "file": os.path.basename(str(entry.get("path") or ""))}
            for entry in found]  # fmt: skip
