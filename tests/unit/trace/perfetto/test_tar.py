"""The experimental TAR: the text of files untouched, a manifest as documented, equal bytes for equal input."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest
from isal import igzip

from dsv4prof.errors import InputError, OutputError, UsageError
from dsv4prof.trace.perfetto.tar import TarMember, manifest, write_tar
from traces import document, op, write


def _members(folder: Path) -> list[TarMember]:
    files = [write(folder / f"rank{n}.json.gz", document([op("a", n, 1)], rank=n, world=2)) for n in range(2)]
    return [TarMember(files[0], "node0 rank 0", 100), TarMember(files[1], "node0 rank 1", -250)]


def test_files_are_untouched_and_offsets_are_relative_to_the_first(tmp_path: Path) -> None:
    members = _members(tmp_path)
    with tarfile.open(write_tar(members, tmp_path / "out.tar")) as tar:
        names = tar.getnames()
        contents = {name: tar.extractfile(name).read() for name in names}  # type: ignore[union-attr]
    assert names == ["perfetto_manifest.json", "rank0.json", "rank1.json"]
    assert contents["rank1.json"] == igzip.decompress(members[1].path.read_bytes())
    assert "".join(contents[names[0]].decode().split()).startswith('{"perfetto_manifest"')
    assert json.loads(contents[names[0]]) == {
        "perfetto_manifest": {
            "version": 1,
            "files": [
                {"path": "rank0.json", "machine": {"name": "node0 rank 0"}},
                {
                    "path": "rank1.json",
                    "machine": {"name": "node0 rank 1"},
                    "clocks": {"sync_to": {"file": "rank0.json"}, "offset_ns": -350},
                },
            ],
        }
    }


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    members = _members(tmp_path)
    first = write_tar(members, tmp_path / "a.tar").read_bytes()
    os.utime(members[0].path, (1, 1))
    assert write_tar(members, tmp_path / "b.tar").read_bytes() == first


def test_long_names_fit_every_reader(tmp_path: Path) -> None:
    name = "host-" + "x" * 150 + "-TP-1.trace.json"
    member = TarMember(write(tmp_path / name, document([op("a", 0, 1)])), "m")
    with tarfile.open(write_tar([member], tmp_path / "out.tar")) as tar:
        (_, short) = tar.getnames()
    assert len(short) == 100 and short.endswith("-TP-1.trace.json")
    assert json.loads(manifest([member]))["perfetto_manifest"]["files"][0]["path"] == short


def test_refusals(tmp_path: Path) -> None:
    member = _members(tmp_path)[0]
    with pytest.raises(UsageError, match="no file to pack"):
        write_tar([], tmp_path / "out.tar")
    with pytest.raises(UsageError, match="two files are called rank0"):
        write_tar([member, member], tmp_path / "out.tar")
    with pytest.raises(InputError, match="cannot read"):
        write_tar([TarMember(tmp_path / "absent.json", "m")], tmp_path / "out.tar")
    with pytest.raises(OutputError, match="cannot write"):
        write_tar([member], tmp_path / "no" / "out.tar")
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(member.path.read_bytes()[:-20])
    with pytest.raises(InputError, match="cannot read"):
        write_tar([TarMember(cut, "m")], tmp_path / "out.tar")
    assert not list(tmp_path.glob("*.tar")) and not list(tmp_path.glob(".*.tmp"))
