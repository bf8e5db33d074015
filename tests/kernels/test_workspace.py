"""Room for long sequences: as large as asked for, shared by nobody, used again."""

import gc
import threading

import numpy as np
import pytest
import torch

from undamped.kernels.shared import allocate
from undamped.kernels.shared.allocate import IDLE_BYTES, LINE, PAGE, contiguous_copy, empty

LIKE = torch.zeros(1)


@pytest.fixture(autouse=True)
def nothing_idle():
    gc.collect()
    allocate._idle.buffers.clear()
    yield
    allocate._idle.buffers.clear()


@pytest.mark.slow
@pytest.mark.parametrize("size", [PAGE - 4, PAGE, PAGE + 4, 3 * PAGE])
def test_room_is_as_large_as_was_asked_for(size):
    rooms = [empty((size // 4, 1), LIKE) for _ in range(3)]
    for number, room in enumerate(rooms):
        assert room.shape == (size // 4, 1) and room.is_contiguous()
        assert room.data_ptr() % LINE == 0
        room.fill_(number)
    assert [float(room.sum()) for room in rooms] == [0.0, size // 4, size // 2]


@pytest.mark.slow
def test_room_is_used_again_when_nobody_looks_into_it():
    room = empty((PAGE,), LIKE)
    place, view, array = room.data_ptr(), room[5:7], room.numpy()
    del room
    assert empty((PAGE,), LIKE).data_ptr() != place
    del view
    assert empty((PAGE,), LIKE).data_ptr() != place
    del array
    assert empty((PAGE,), LIKE).data_ptr() == place


@pytest.mark.slow
def test_of_another_size_is_other_room():
    place = empty((PAGE,), LIKE).data_ptr()
    other = empty((PAGE + 1,), LIKE)
    assert other.data_ptr() != place
    assert empty((PAGE // 2,), LIKE.double()).data_ptr() == place  # as many bytes


@pytest.mark.slow
def test_little_is_kept():
    rooms = [empty((PAGE,), LIKE) for _ in range(IDLE_BYTES // (4 * PAGE) + 3)]
    del rooms
    idle = sum(one.size for one in allocate._idle.buffers)
    assert 0 < idle <= IDLE_BYTES
    del idle
    large = empty((IDLE_BYTES,), LIKE)
    del large
    assert not any(one.size > IDLE_BYTES for one in allocate._idle.buffers)


@pytest.mark.slow
def test_threads_do_not_get_the_same_room():
    failed = []

    def work(number):
        for _ in range(60):
            mine = [empty((PAGE // 4 + 16 * k,), LIKE) for k in range(3)]
            for room in mine:
                room.fill_(number)
            if any(bool((room != number).any()) for room in mine):
                failed.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.slow
def test_a_copy_is_a_copy():
    given = torch.from_numpy(np.arange(2 * PAGE, dtype=np.float32)).view(2, -1).t()
    copied = contiguous_copy(given)
    assert copied.is_contiguous() and torch.equal(copied, given)
