"""Where text comes from: plain, gzip, zstd, several members, other file systems."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dsv4prof.errors import InputError
from dsv4prof.trace.chunks import DamagedError, chunks, listed
from dsv4prof.trace.load import load_rank
from traces import document, op, write

TEXT = b"0123456789" * 1000


@pytest.mark.parametrize("form", ["plain", "gzip", "members", "zstd", "frames"])
def test_text_comes_in_pieces_of_the_size_asked_for(tmp_path: Path, form: str) -> None:
    zstandard = pytest.importorskip("zstandard")
    compress = zstandard.ZstdCompressor().compress
    data = {
        "plain": TEXT,
        "gzip": gzip.compress(TEXT),
        "members": gzip.compress(TEXT[:77]) + gzip.compress(TEXT[77:]),
        "zstd": compress(TEXT),
        "frames": compress(TEXT[:77]) + compress(TEXT[77:]),
    }[form]
    path = tmp_path / "t"
    path.write_bytes(data)
    pieces = list(chunks(path, 4096))
    assert b"".join(pieces) == TEXT
    assert max(map(len, pieces)) <= 4096


def test_what_is_cut_is_damaged_after_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(gzip.compress(TEXT)[:-9])
    with pytest.raises(DamagedError):
        list(chunks(path, 4096))


def test_a_zstd_file_loads_and_a_cut_one_keeps_its_whole_events(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    import json
    import random

    # Text that does not compress away, so that half the file is half of the events.
    events = [op(f"{random.Random(n).getrandbits(512):x}", n, 1) for n in range(4000)]
    data = zstandard.ZstdCompressor().compress(json.dumps(document(events)).encode())
    path = tmp_path / "rank0.json.zst"
    path.write_bytes(data)
    assert len(load_rank(path).slices) == 4000
    path.write_bytes(data[: len(data) // 2])
    cut = load_rank(path)
    assert not cut.complete and 0 < len(cut.slices) < 4000
    assert "file ends early" in cut.notes[-1]


def test_files_of_another_file_system(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    content = write(tmp_path / "rank0.json.gz", document([op("a", 1, 1)])).read_bytes()
    for rank in (0, 1):
        system.pipe(f"/run/rank{rank}.json.gz", content)
    found = listed("memory://run", (".json.gz",))
    assert [Path(name).name for name in found] == ["rank0.json.gz", "rank1.json.gz"]
    assert [load_rank(name).coordinates.rank for name in found] == [0, 1]
    with pytest.raises(InputError, match="cannot read memory://run/none"):
        load_rank("memory://run/none.json")
    with pytest.raises(InputError, match="cannot read nosuch://x"):
        load_rank("nosuch://x/y.json")
