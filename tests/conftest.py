"""Fixtures that every test may use."""

import pytest


@pytest.fixture(scope="session")
def torch_oracle():
    """The real PyTorch 2.13, where it is installed (`make parity`): a second opinion, never needed by `make test`."""
    torch = pytest.importorskip("torch", reason="the oracle torch==2.13.0 is not installed: make parity installs it")
    if not torch.__version__.startswith("2.13."):
        pytest.skip(f"the oracle is torch 2.13, this is {torch.__version__}")
    return torch
