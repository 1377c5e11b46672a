import json
import os
import struct
import subprocess

import numpy as np
import pytest

pytest_plugins = ["pytester"]


def torch_is_here():
    """A torch that has the element types; with DODONA_TEST_TORCH=1 it must be there."""
    if os.environ.get("DODONA_TEST_TORCH") == "1":
        return True
    try:
        import torch
    except ImportError:
        return False
    return hasattr(torch, "float8_e8m0fnu")


# The calls with torch tensors are a suite of their own, for a torch is large: `DODONA_TEST_TORCH=1 tools/test` installs one and runs them.
collect_ignore = [] if torch_is_here() else ["test_torch.py", "test_compat_torch.py", "test_sglang.py"]


@pytest.fixture(scope="session")
def command():
    """Runs the command; gives what it prints."""
    program = os.environ["DODONA_COMMAND"]
    return lambda *arguments: subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="session")
def stored():
    """The tensors of a safetensors file as bytes by name."""

    def read(path):
        content = path.read_bytes()
        (size,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + size])
        begin = 8 + size
        return {
            name: content[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]]
            for name, entry in header.items()
            if name != "__metadata__"
        }

    return read


@pytest.fixture
def rms():
    """A right rmsnorm call in fp32."""
    rng = np.random.default_rng(1)
    return {"input": rng.standard_normal((3, 16), np.float32), "weight": rng.standard_normal(16, np.float32)}
