"""Ranges of embeddings that are copied between pools."""

import numpy as np
import pytest

from dodona import compat
from dodona.compat import sgl_kernel


def test_ranges_of_rows_are_copied_and_nothing_else():
    src, dst = np.arange(84, dtype=np.float32).reshape(28, 3), np.full((16, 3), -1, np.float32)
    assert sgl_kernel.kvcacheio.transfer_embedding_ranges_direct(src, dst, [1, 11, 23], [2, 6, 10], [4, 4, 2]) is None
    wanted = np.full((16, 3), -1, np.float32)
    wanted[2:6], wanted[6:10], wanted[10:12] = src[1:5], src[11:15], src[23:25]
    assert np.array_equal(dst, wanted)


@pytest.mark.parametrize(
    "change, told",
    [
        ({"dst": np.zeros((16, 4), np.float32)}, "dst is float32 \\[16, 4\\], expected float32 rows of 3"),
        ({"dst": np.zeros((16, 3), np.float16)}, "dst is float16"),
        ({"src": np.zeros(3, np.float32)}, "src is float32 \\[3\\], expected rows"),
        ({"lengths": [1]}, "lengths has 1 numbers for 2 and 2 beginnings"),
        ({"src_starts": [0, 27]}, "src_starts holds 27, of 2 rows, expected ranges within 28"),
        ({"dst_starts": [-1, 3]}, "dst_starts holds -1"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(change, told):
    dst = np.full((16, 3), -1, np.float32)
    given = {"src": np.zeros((28, 3), np.float32), "dst": dst, "src_starts": [0, 4], "dst_starts": [0, 4], "lengths": [2, 2], **change}
    with pytest.raises(compat.Refused, match=f"^transfer_embedding_ranges_direct: {told}"):
        sgl_kernel.kvcacheio.transfer_embedding_ranges_direct(**given)
    assert (dst == -1).all()
