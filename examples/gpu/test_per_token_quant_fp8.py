"""The Triton kernel, judged by the oracle. BUG=1 in the environment switches its bug on."""

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("triton", reason="needs Triton")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device: PyTorch finds none", allow_module_level=True)
if torch.cuda.get_device_capability() < (8, 9):
    pytest.skip("needs a device that converts to FP8, of compute capability 8.9 or later", allow_module_level=True)

from per_token_quant_fp8 import per_token_quant_fp8

BUG = os.environ.get("BUG") == "1"


def on_gpu(array):
    if array.dtype.itemsize == 2 and array.dtype != np.float16:  # bfloat16, as ml_dtypes has it or as raw codes
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).cuda()
    return torch.from_numpy(array).cuda()


def quantize(case, bug):
    codes, scales = per_token_quant_fp8(on_gpu(case.arguments()["input"]), bug)
    return {"output_q": codes.cpu(), "output_s": scales.cpu()}


@pytest.mark.dodona(
    "sgl_per_token_quant_fp8 M=16 K=7168 --seed 1",
    "sgl_per_token_quant_fp8 M=7 K=1536 --dist outliers --seed 2",
    "sgl_per_token_quant_fp8 M=64 K=512 --dtype input=f32 --seed 3",
    "sgl_per_token_quant_fp8 M=9 K=2056 --dtype input=f16 --seed 4",
    "sgl_per_token_quant_fp8 M=16 K=576 --dist wide-exponent --seed 5",
)
def test_per_token_quant_fp8(dodona):
    dodona.check(quantize(dodona.case, BUG))


def test_the_oracle_notices_the_bug(dodona):
    case = dodona.gen("sgl_per_token_quant_fp8 M=16 K=7168 --seed 1")
    assert not case.check(quantize(case, bug=True))
