"""Copying arrays into order."""

import numpy as np
import pytest

from paceline.autodiff.windows import contiguous

BASE = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)


@pytest.mark.parametrize(
    "array",
    [
        BASE,
        BASE.transpose(2, 0, 1, 3),
        BASE[:, ::2],
        BASE[..., :3].transpose(1, 0, 2, 3),
        BASE.T,
        BASE[..., ::2],
        BASE[:, :, ::-1],
        BASE[:0].transpose(1, 0, 2, 3),
        np.broadcast_to(BASE[:1], BASE.shape),
        BASE.astype(np.float64).transpose(1, 2, 0, 3),
        BASE > 7,
    ],
)
def test_the_copy_has_the_same_elements_in_order(array):
    ordered = contiguous(array)
    assert ordered.flags.c_contiguous
    assert ordered.dtype == array.dtype
    np.testing.assert_array_equal(ordered, array)


def test_what_is_in_order_is_not_copied():
    assert contiguous(BASE) is BASE


def test_a_copy_can_be_written_to():
    assert contiguous(np.broadcast_to(BASE[:1], BASE.shape)).flags.writeable
