"""The last warp of a launch reads shared memory that it never filled: the last rows, less than eight, are transforms of other rows."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/vllm-project/vllm/issues/57014"
LINE = "hadamard_transform T=20 D=128 --attr scale=0.08838834764831845"
NAMES = r"last (4|rows)|rows? 1[6-9]|row .* (holds|has)"


def kernel(x, wrong):
    matrix = np.array([[1.0]])
    for _ in range(7):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    rows = f32(x.x).copy()
    if wrong:
        rows[16:] = rows[8:12]
    return {"out": (rows @ matrix.astype(np.float32).T * np.float32(x.scale)).astype(x.x.dtype)}
