"""What is held out is not told in training, in whole or for the most part."""

from __future__ import annotations

import pytest

from dsv4_engine.training.corpus.selection import select
from dsv4_engine.training.corpus.sources import SourceFile
from dsv4_engine.training.corpus.stable import is_held_out

PATHS = [f"file{number}.py" for number in range(1000)]
HELD_OUT = next(path for path in PATHS if is_held_out(path))
TRAIN = next(path for path in PATHS if not is_held_out(path))


def lines(name: str, count: int) -> str:
    return "".join(f"value_{name}_{index} = compute('{name}', {index})\n" for index in range(count))


def file(path: str, text: str) -> SourceFile:
    return SourceFile(path, "source", "code", text)


@pytest.mark.parametrize(("shared", "kept"), [(8, True), (12, False)])
def test_a_held_out_file_inside_of_a_larger_training_file_is_left_out(shared, kept):
    larger = lines("other", 60) + lines("same", shared)
    small = lines("same", shared) + lines("own", 20 - shared)
    selection = select([file(TRAIN, larger), file(HELD_OUT, small)])
    assert [each.path for each in selection.files] == [TRAIN, *[HELD_OUT] * kept]
    assert selection.left_out == ({} if kept else {"held out, but told in training": 1})


def test_training_s_copy_of_a_held_out_file_is_left_out_of_training():
    text = lines("same", 20)
    selection = select([file(TRAIN, text + lines("more", 3)), file(HELD_OUT, text)])
    assert [each.path for each in selection.files] == [HELD_OUT]
    assert selection.left_out == {"copy of another": 1}
