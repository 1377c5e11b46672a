"""FlashInfer's selection of the largest scores, against NumPy's sort."""

import numpy as np
import pytest

from dodona import compat
from dodona.compat import flashinfer
from dodona.compat.flashinfer import topk

RANDOM = np.random.default_rng(31)


def i32(*values):
    return np.array(values, np.int32)


def wanted(row, k, later=False):
    """Places by falling value; of equals the first, or the last ones."""
    places = np.arange(len(row))
    order = sorted(places, key=lambda at: (-float(row[at]), -at if later else at))
    return sorted(order[:k])


@pytest.mark.parametrize("tie_break", [0, 1, 2])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_the_largest_of_rows(tie_break, kind):
    scores = RANDOM.integers(-3, 4, (5, 40)).astype(kind)  # with many equals
    values, places = flashinfer.top_k(scores, 11, tie_break=tie_break)
    assert values.dtype == kind and places.dtype == np.int64
    for row, found, at in zip(scores, values, places):
        assert at.tolist() == wanted(row, 11, tie_break == 2) and found.tolist() == row[at].tolist()
    values, places = flashinfer.top_k(scores, 11, sorted=True, tie_break=tie_break)
    assert (values[:, :-1] >= values[:, 1:]).all() and (np.take_along_axis(scores, places, 1) == values).all()
    indices, none = topk.topk_clusters_exact(scores, 11)
    assert indices.dtype == np.int32 and none is None
    scores[0, 17] = np.nan
    assert 17 in flashinfer.top_k(scores, 1)[1][0]
    for changes, told in (({"k": 41}, "k is 41, expected at most the 40 of a row"), ({"k": 0}, "k is 0"), ({"tie_break": 3}, "tie_break is 3"), ({"input": scores[0]}, "input has shape")):
        with pytest.raises(compat.Refused, match=told):
            flashinfer.top_k(**{"input": scores, "k": 3, **changes})


@pytest.mark.parametrize("page_size", [1, 4])
def test_places_in_pages(page_size):
    scores, lengths, starts = RANDOM.standard_normal((4, 48)).astype(np.float32), i32(3, 30, 17, 0), i32(8, 4, 0, 2)
    table, of = RANDOM.integers(0, 900, (2, 60)).astype(np.int32), i32(1, 0, 1, 0)
    first = i32(5, 0, 7, 1)
    raw, out = np.zeros((4, 6), np.int32), np.zeros((4, 6), np.int32)
    given = {"row_to_batch": of, "row_starts": starts, "page_table_row_starts": first, "page_size": page_size}
    assert topk.top_k_page_table_transform(scores, table, lengths, 6, **given, out=out, out_raw_indices=raw) is out
    offsets = i32(100, 200, 300, 400)
    ragged = topk.top_k_ragged_transform(scores, offsets, lengths, 6, row_starts=starts)
    for i in range(4):
        places = wanted(scores[i, starts[i] : starts[i] + lengths[i]], 6)
        assert raw[i].tolist() == places + [-1] * (6 - len(places))
        assert out[i, : len(places)].tolist() == [table[of[i], first[i] + at // page_size] * page_size + at % page_size for at in places]
        assert (out[i, len(places) :] == -1).all()
        assert ragged[i].tolist() == [at + offsets[i] for at in places] + [-1] * (6 - len(places))
    plain = topk.topk_clusters_page_table_transform(scores[:2], lengths[:2], table, 6)
    assert plain[0].tolist() == table[0, :3].tolist() + [-1] * 3
    assert topk.topk_clusters_ragged_transform(scores, lengths, offsets, 6)[0, :3].tolist() == [100, 101, 102]
    for changes, told in (
        ({"lengths": i32(3, 45, 17, 0)}, "row_starts asks for 45 scores from 4 on in row 1, which has 48"),
        ({"row_to_batch": i32(2, 0, 0, 0)}, "row_to_batch names request 2 of 2"),
        ({"page_size": 3}, "page_size is 3, expected a power of two"),
        ({"page_table_row_starts": i32(60, 0, 0, 0)}, "src_page_table has 60 pages in a row, expected one at"),
        ({"out": out[:2]}, "out has shape"),
    ):
        with pytest.raises(compat.Refused, match=told):
            topk.top_k_page_table_transform(**{"input": scores, "src_page_table": table, "lengths": lengths, "k": 6, **given, **changes})
