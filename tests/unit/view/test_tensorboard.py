"""The log folder that the TensorBoard plugin reads, and the child that serves it."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from dsv4prof.errors import InputError, UsageError
from dsv4prof.view import tensorboard
from dsv4prof.view.tensorboard import TensorBoard, make_log_folder
from dsv4prof.view.tensorboard_faults import FAULTS, MEASURED_WITH, notes
from traces import document, op, write


def rank_file(folder: Path, name: str, rank: int) -> Path:
    return write(folder / name, document([op("aten::mm", 10 + rank, 5)], rank=rank, world=2))


def test_links_have_names_that_the_plugin_reads(tmp_path: Path) -> None:
    pattern = pytest.importorskip("torch_tb_profiler.consts").WORKER_PATTERN
    node = pytest.importorskip("torch_tb_profiler.consts").NODE_PROCESS_PATTERN
    files = [
        (0, None, rank_file(tmp_path, "a-TP-0.trace.json.gz", 0)),
        (1, "node.a_1", rank_file(tmp_path, "rank1.json", 1)),
    ]
    links = make_log_folder(tmp_path / "log", files, run="traces/local/1 of 2")
    assert [link.parent.name for link in links] == ["traces-local-1-of-2"] * 2
    workers = [pattern.match(link.name) for link in links]
    assert [match[1] for match in workers] == ["rank_0", "node-a-1_1"]
    assert [match[2] is not None for match in workers] == [True, True]
    assert node.match(workers[1][1]).groups() == ("node-a-1", "1")
    assert [link.read_bytes() for link in links] == [path.read_bytes() for _, _, path in files]


def stored(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "end"),
    [("x.json", b"\x1f\x8b\x08", ".json.gz"), ("x.json.gz", b'\n {"a":1}', ".json"), ("x", b"\xef\xbb\xbf[]", ".json")],
)
def test_the_content_decides_what_a_link_is_called(name: str, content: bytes, end: str, tmp_path: Path) -> None:
    (link,) = make_log_folder(tmp_path / "log", [(0, None, stored(tmp_path / name, content))], run="r")
    assert link.name.endswith(".pt.trace" + end)


@pytest.mark.parametrize("content", [b"\x28\xb5\x2f\xfd....", b"", b"\n\n\n\n", b"PK\x03\x04"])
def test_what_the_plugin_cannot_read_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither JSON nor gzip"):
        make_log_folder(tmp_path / "log", [(0, None, stored(tmp_path / "x.json.gz", content))], run="r")


def test_a_user_is_told_what_the_page_will_not_show() -> None:
    told = notes()
    assert "gstatic.com" in told[0]
    assert any("/memory_curve and /memory_events on a ROCm trace" in line for line in told)
    # The others fail on traces for which the page does not ask for them.
    assert not any("/operation/stack" in line for line in told)
    assert {fault.route for fault in FAULTS} > {"/operation/stack", "/module"}
    assert MEASURED_WITH["torch-tb-profiler"] == "0.4.3"


def test_a_long_folder_is_not_for_sockets() -> None:
    deep = Path("/tmp", "x" * 70)
    assert tensorboard._temporary(deep) == str(deep)
    assert len(f"{deep}/pymp-12345678/listener-12345678") <= 107
    assert tensorboard._temporary(Path("/tmp", "x" * 71)) == "/tmp"


@pytest.mark.slow
def test_a_plugin_that_does_not_load_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_tb_profiler")
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    # What happens to its sockets in a folder with a long name, if it is told to use one.
    monkeypatch.setattr(tensorboard, "_temporary", str)
    with pytest.raises(UsageError, match="the PyTorch plugin did not load: EOFError"):
        TensorBoard(tmp_path, deep)
    monkeypatch.undo()
    board = TensorBoard(tmp_path, deep)
    board.close()
    assert board.process.returncode is not None


def test_a_child_that_does_not_come_up_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match=r"TensorBoard did not come up: .*in use"):
            TensorBoard(tmp_path, tmp_path, port=taken.getsockname()[1])


ROUTES = {
    "/overview": {},
    "/operation": {"group_by": "Operation"},
    "/operation/table": {"group_by": "Operation"},
    "/operation/stack": {"group_by": "Operation", "op_name": "aten::empty"},
    "/kernel": {},
    "/kernel/table": {"group_by": "Kernel"},
    "/kernel/tc_pie": {},
    "/trace": {},
    "/memory": {},
    "/memory_curve": {},
    "/memory_events": {},
    "/module": {},
    "/tree": {},
    "/distributed/gpuinfo": {"worker": "All"},
    "/distributed/overlap": {"worker": "All"},
    "/distributed/waittime": {"worker": "All"},
    "/distributed/commops": {"worker": "All"},
}
MEMORY = {"/memory", "/memory_curve", "/memory_events"}
DISTRIBUTED = {route for route in ROUTES if route.startswith("/distributed")}
# By file or folder of the reference traces: the endpoints that fail there.
MEASURED = {
    "h200_2rank_tp2/before*": {"/operation/stack", "/module"} | MEMORY,
    "torch213_gloo_4rank_cpu/*": {"/operation/stack"},
    "mi300x_qwen05b_memory_events.json.gz": {"/operation/stack", "/memory_curve", "/memory_events"} | DISTRIBUTED,
    "mi300x_sglang_decode_hipgraph.json.gz": {"/operation/stack"} | MEMORY | DISTRIBUTED,
}


@pytest.mark.slow
def test_what_is_said_to_fail_fails_and_nothing_else(shared: Path, tmp_path: Path) -> None:
    for package, version in MEASURED_WITH.items():
        installed = pytest.importorskip("importlib.metadata").version(package)
        if package == "torch-tb-profiler" and installed != version:
            pytest.skip(f"measured with {package} {version}")
    runs = {}
    for number, (pattern, failing) in enumerate(MEASURED.items()):
        files = [(rank, None, path) for rank, path in enumerate(sorted((shared / "traces").glob(pattern)))]
        make_log_folder(tmp_path / "log" / str(number), files, run="run")
        runs[f"{number}/run"] = failing
    board = TensorBoard(tmp_path / "log", tmp_path)
    try:
        end = time.monotonic() + 240
        while set(board.runs()[0]) != set(runs) and time.monotonic() < end:
            time.sleep(1)
        known = {fault.route: set() for fault in FAULTS}
        for fault in FAULTS:
            known[fault.route].add(fault.status)
        for run, failing in runs.items():
            failed = {}
            for route, query in ROUTES.items():
                status, _ = board.ask(route, **{"run": run, "worker": "rank_0", "span": "1", **query})
                if status != 200:
                    failed[route] = status
            assert set(failed) == failing, run
            assert all(status in known[route] for route, status in failed.items()), run
    finally:
        board.close()
    assert board.process.returncode is not None
