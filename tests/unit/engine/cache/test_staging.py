"""Uploads through owned buffers, and the buffer that is freed too early."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.cache.staging import Faults, StagingRing, checksum_of
from engine_batches import CPU

INTS = st.integers(-(2**40), 2**40)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.lists(INTS, min_size=1, max_size=30), min_size=1, max_size=20))
def test_uploads_keep_their_values_however_many_follow(rows):
    ring = StagingRing(CPU, buffers=2)
    uploads = [ring.upload((row, row[::-1])) for row in rows]
    assert [upload.tensor().tolist() for upload in uploads] == [[row, row[::-1]] for row in rows]
    assert ring.waits == 0


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(INTS, min_size=1, max_size=30), st.data())
def test_a_checksum_sees_a_changed_and_a_swapped_value(values, data):
    faulty = StagingRing(CPU, faults=Faults(freed_staging=True))
    staged = faulty.upload((values,))
    assert staged.checksum == checksum_of(staged.tensor())
    index = data.draw(st.integers(0, len(values) - 1))
    changed = [*values]
    changed[index] += data.draw(st.integers(1, 2**20))
    assert checksum_of(torch.tensor(changed)) != staged.checksum
    swapped = [values[-1], *values[1:-1], values[0]] if len(values) > 1 else values
    if values[0] % (2**31 - 1) != values[-1] % (2**31 - 1):
        assert checksum_of(torch.tensor(swapped)) != staged.checksum


def test_a_freed_buffer_gives_the_first_upload_the_second_ones_values():
    faulty = StagingRing(CPU, faults=Faults(freed_staging=True))
    first, second = faulty.upload(([1, 2, 3],)), faulty.upload(([7, 8],))
    assert first.tensor().tolist() == [[7, 8, 3]] and second.tensor().tolist() == [[7, 8]]
    assert checksum_of(first.tensor()) != first.checksum and checksum_of(second.tensor()) == second.checksum


def test_a_freed_buffer_does_no_harm_once_its_copy_has_run():
    faulty = StagingRing(CPU, faults=Faults(freed_staging=True))
    first = faulty.upload(([1, 2, 3],))
    assert first.tensor().tolist() == [[1, 2, 3]]
    faulty.upload(([7, 8, 9],)).tensor()
    assert first.tensor().tolist() == [[1, 2, 3]]


class FakeEvent:
    """Never done until somebody waits."""

    waited = 0

    def query(self) -> bool:
        return self.waited > 0

    def synchronize(self) -> None:
        self.waited += 1


def test_a_buffer_is_not_written_before_its_copy_is_done():
    ring = StagingRing(CPU, buffers=2)
    ring.upload(([1],))
    event = FakeEvent()
    ring._buffers[0].copied = event
    ring.upload(([2],))
    assert event.waited == 0
    ring.upload(([3],))
    assert event.waited == 1 and ring.waits == 1


@pytest.mark.parametrize("fault", ["freed_staging", "padded_output_size", "no_war_barrier"])
def test_faults_are_off_unless_asked_for(fault):
    assert not getattr(Faults(), fault) and getattr(Faults(**{fault: True}), fault)
