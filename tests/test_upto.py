"""`upto` counts as `range` does."""

import numpy as np
import pytest
from numba.core.errors import TypingError

from undamped.kernels.shared.compilers import LOOP
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.upto import upto

UNKEPT = LOOP | {"cache": False}


@njit(**UNKEPT)
def write_places(stop, inner, found):
    place = 0
    for i in upto(stop):
        if i == 3:
            continue
        for j in upto(inner):
            found[place] = 10 * i + j
            place += 1
            if j == 2:
                break
    return place


@pytest.mark.parametrize("number", [int, np.int32, np.uint8])
@pytest.mark.parametrize(("stop", "inner"), [(0, 2), (1, 0), (5, 2), (6, 4)])
def test_upto_counts_as_range_does(number, stop, inner):
    found = np.full(40, -1)
    wanted = [10 * i + j for i in range(stop) if i != 3 for j in range(min(inner, 3))]
    assert write_places(number(stop), number(inner), found) == len(wanted)
    assert found[: len(wanted)].tolist() == wanted


def test_a_negative_number_is_none_at_all():
    assert write_places(-2, 3, np.zeros(1, int)) == 0


def test_half_a_step_is_refused():
    with pytest.raises(TypingError):
        write_places(2.5, 1, np.zeros(1, int))
