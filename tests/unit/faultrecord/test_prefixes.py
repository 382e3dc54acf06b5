"""What carries a log changes its lines: the message, its rank and its process are found all the same."""

from __future__ import annotations

import json
import time

import pytest

from dsv4prof.faultrecord.messages import read_messages

FAULT = "Memory access fault by GPU node-5 (Agent handle: 0x9) on address 0x7f3a5c001000. Reason: Unknown."
ASSERTION = "/torch/cuda/Indexing.cu:9: gather: block: [1,0,0], thread: [2,0,0] Assertion `i < n` failed."
# A prefix, the rank it tells and the process.
CARRIERS = [
    ("", None, None),
    ("\x1b[1;31m", None, None),
    ("[rank3]: ", 3, None),
    ("[default3]:", 3, None),
    ("[3]:", 3, None),
    ("[1,3]<stderr>:", 3, None),
    ("3: ", 3, None),
    ("(Worker_TP3 pid=871) ", 3, 871),
    ("(Worker_DP0_TP3_EP3 pid=871) ", 3, 871),
    ("(Worker_PP1_TP3 pid=871) ", None, 871),
    ("\x1b[36m(RayWorkerWrapper pid=42, ip=10.0.0.3)\x1b[0m ", None, 42),
    ("[2026-08-10 11:22:33 TP3] ", 3, None),
    ("[2026-08-10 11:22:33 DP1 TP3 EP3] ", 3, None),
    ("[2026-08-10 11:22:33 DP1 TP0] ", None, None),
    ("[2026-08-10 11:22:33 PP1 TP0] ", None, None),
    ("Dec 01 12:00:00 node7 python3[18231]: ", None, 18231),
    ("2026-08-10T11:22:33.123456Z stderr F ", None, None),
    ("server-0  | ", None, None),
]


@pytest.mark.parametrize(("prefix", "rank", "pid"), CARRIERS)
@pytest.mark.parametrize("line", [FAULT, ASSERTION])
def test_a_prefix_hides_nothing_and_tells_the_rank(line: str, prefix: str, rank: int | None, pid: int | None) -> None:
    (found,) = read_messages(prefix + line)
    (bare,) = read_messages(line)
    assert (found.kind, found.address, found.reason, found.kernel) == (
        bare.kind,
        bare.address,
        bare.reason,
        bare.kernel,
    )
    assert found.place.endswith(bare.place)
    assert (found.rank, found.pid) == (rank, pid)
    assert "\x1b" not in found.text


def test_a_line_in_the_json_of_a_container_engine_is_read() -> None:
    line = json.dumps({"log": f"[rank1]: {FAULT}\n", "stream": "stderr", "time": "2026-08-10T11:22:33Z"})
    (found,) = read_messages(line)
    assert (found.kind, found.address, found.rank) == ("memory-fault", 0x7F3A5C001000, 1)
    assert read_messages('{"log": "broken error') == []


@pytest.mark.parametrize("cut", range(FAULT.index("(") + 1, FAULT.index(". Reason")))
def test_a_line_that_was_cut_claims_no_address_that_it_does_not_have(cut: int) -> None:
    (found,) = read_messages(FAULT[:cut])
    assert found.kind == "memory-fault"
    assert found.address in (None, 0x7F3A5C001000)


def test_what_follows_a_message_is_not_taken_from_another_rank() -> None:
    text = (
        "[rank0]: :0:rocdevice.cpp:1: Queue 0x7f00 aborting with error : HSA_STATUS_ERROR_EXCEPTION: bad\n"
        "[rank1]: Kernel Name: of_rank_one\n"
        "[rank0]: Kernel Name: of_rank_zero\n"
    )
    (found,) = read_messages(text)
    assert (found.rank, found.kernel) == (0, "of_rank_zero")


def test_millions_of_lines_that_look_like_messages_are_read_in_seconds() -> None:
    line = "[2026-08-10 11:22:33 TP{}] Decode batch, #running-req: {}, #queue-req: 0, timeout: none, errors: {}\n"
    long = "server_args: " + "a:1 error " * 20_000 + "\n"
    text = "".join(line.format(each % 8, each % 64, each) for each in range(100_000)) + long + FAULT
    began = time.perf_counter()
    found = read_messages(text)
    assert [(each.kind, each.line) for each in found] == [("memory-fault", 100_002)]
    assert time.perf_counter() - began < 5
