"""Names and shapes of encoders that others trained."""

import numpy as np
import pytest

from glow.encoders import distance_rows


@pytest.mark.parametrize(
    ("distance", "bucket"),
    # By hand: 8 distances have a bucket each way; then 8 + floor(8 log(d / 8) / log(16)), at most 15; keys behind are 16 further.
    [(0, 0), (1, 17), (-1, 1), (-7, 7), (-8, 8), (8, 24), (-12, 9), (20, 26), (-60, 13), (127, 31), (-128, 15), (299, 31)],
)  # fmt: skip
def test_a_distance_has_mpnets_bucket(distance: int, bucket: int) -> None:
    rows = distance_rows(np.arange(32, dtype=np.float32)[:, None], 300)
    assert rows.shape == (599, 1)
    assert rows[299 + distance].item() == bucket
