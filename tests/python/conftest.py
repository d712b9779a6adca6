"""Shared fixtures. GPU tests are marked `gpu` and skip where no CUDA device is usable."""

import os
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
    config.addinivalue_line("markers", "gpu: needs a CUDA device")


def cuda_usable():
    try:
        return mf.Context("cuda").can_run
    except mf.Error:
        return False


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not cuda_usable():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture
def rng():
    return np.random.default_rng(7)
