"""Shared fixtures. GPU tests are marked `gpu` and skip where no CUDA device is usable."""

import os
import signal
import sys
from pathlib import Path

import mathfuse as mf
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # tools.py

settings.register_profile("default", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("MATHFUSE_HYPOTHESIS", "default"))


def pytest_configure(config):
    os.environ.setdefault("MATHFUSE_TUNE", "off")  # what this machine was tuned for is not what tests are about
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background starts without: tests interrupt themselves
    config.addinivalue_line("markers", "gpu: needs a CUDA device")
    config.addinivalue_line("markers", "compiles: plans for GPUs: needs CUDA's headers at build time, and NVRTC")


def cuda_usable():
    try:
        return mf.Context("cuda").can_run
    except mf.Error:
        return False


def plans_for_gpus():
    try:
        return bool(mf.plan(mf.tanh, mf.spec((64,)), target="sm_90a").cubins())
    except mf.Error:
        return False


def pytest_collection_modifyitems(items):
    for name, usable, reason in (
        ("gpu", cuda_usable, "no CUDA device"),
        ("compiles", plans_for_gpus, "built without CUDA's headers, or no NVRTC"),
    ):
        marked = [item for item in items if item.get_closest_marker(name)]
        if marked and not usable():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def rng():
    return np.random.default_rng(7)
