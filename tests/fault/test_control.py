"""The long-lived manager as its clients meet it, over HTTP and by signal: each case in a child process, judged by the
child's exit status and by the files it left.
"""

from __future__ import annotations

import gzip
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from recorded_child import only_session, record_of, run_child

CONTROL = """
import json, urllib.request, urllib.error
from dsv4prof.recorder.control import ProfilerManager
from dsv4prof.recorder.control_http import ControlServer
from dsv4prof.recorder.control_signal import listen
def ask(path, **fields):
    request = urllib.request.Request(server.url + path, json.dumps(fields).encode() if fields else None, method="POST")
    if path == "/profile_status":
        request = urllib.request.Request(server.url + path)
    try:
        with urllib.request.urlopen(request, timeout=40) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
def serve(stage=None):
    manager.begin_step(stage); work(); manager.end_step()
def until_idle():
    end = time.time() + 20
    while not manager.wait(0.01) and time.time() < end:
        manager.poll(); time.sleep(0.01)
    return manager.status()
def until_recording():
    end = time.time() + 40
    while manager.status().state != "recording" and time.time() < end:
        time.sleep(0.01)
class Worker(threading.Thread):
    '''Serves until it is told to end, on a thread that knows nothing of the control.'''
    def __init__(self):
        super().__init__()
        self.over = threading.Event()
        self.start()
        while self.ident is None or not manager.status().total_steps:
            time.sleep(0.001)
    def run(self):
        while not self.over.is_set():
            serve(); time.sleep(0.001)
    def end(self):
        self.over.set(); self.join()
def say(*what):
    print(json.dumps(what), flush=True)
"""
SERVER = CONTROL + "manager = ProfilerManager(root=root)\nserver = ControlServer(manager).start()\n"
CLOSE = "\nmanager.close(); server.close()\n"


def run(root: Path, body: str) -> list[list[Any]]:
    code, out, err = run_child(root, SERVER + body + CLOSE)
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def sessions(root: Path) -> list[Path]:
    return sorted((path for path in root.iterdir() if path.is_dir()), key=lambda path: path.stat().st_ctime_ns)


def operators(folder: Path, name: str = "rank0.trace.json.gz") -> list[dict[str, Any]]:
    events = json.loads(gzip.decompress((folder / name).read_bytes()))["traceEvents"]
    return [event for event in events if event.get("cat") == "cpu_op"]


def assert_whole(folder: Path) -> None:
    record = record_of(folder)
    assert record["windows"]
    for window in record["windows"]:
        assert any(event["name"] == "aten::_local_scalar_dense" for event in operators(folder, window["trace"]))
        assert window["release"]["freed"]
    assert list(folder.glob(".*")) == []


def test_a_start_over_http_records_the_thread_that_works(tmp_path: Path) -> None:
    body = """
worker = Worker()
code, answer = ask("/start_profile", num_steps=5, with_stack=False)
say(code, answer["success"], worker.native_id)
while manager.status().state != "idle" or manager.status().saving:
    time.sleep(0.01)
say(ask("/profile_status"))
worker.end()
"""
    (code, success, thread), (status,) = run(tmp_path, body)
    assert (code, success) == (200, True)
    last = status[1]["last"]
    assert (last["outcome"], last["ended_by"], last["steps"]) == ("complete", "max_steps", 5)
    found = operators(only_session(tmp_path))
    assert len([event for event in found if event["name"] == "aten::_local_scalar_dense"]) == 5 * 20
    assert {event["tid"] for event in found} == {thread}
    by_thread = last["windows"][0]["events_by_thread"]
    assert list(by_thread) == [str(thread)]
    assert by_thread[str(thread)] == len(found)


def test_a_trace_without_the_working_threads_operators_is_no_success(tmp_path: Path) -> None:
    body = """
def elsewhere():
    thread = threading.Thread(target=work); thread.start(); thread.join()
say(ask("/start_profile", with_stack=False)[0])
for _ in range(4):
    manager.begin_step(); elsewhere(); manager.end_step()
stopped = []
client = threading.Thread(target=lambda: stopped.append(ask("/stop_profile"))); client.start()
while client.is_alive():
    manager.poll(); time.sleep(0.01)
say(*stopped)
"""
    (_,), ((code, answer),) = run(tmp_path, body)
    assert code == 200
    assert answer["success"] is False
    assert answer["result"]["outcome"] == "failed"
    assert "recording is per thread" in answer["message"]


def test_a_second_stop_is_told_that_nothing_records(tmp_path: Path) -> None:
    body = """
worker = Worker()
say(ask("/start_profile", with_stack=False)[0])
until_recording(); time.sleep(0.1)
say(ask("/stop_profile")); say(ask("/stop_profile")); say(ask("/profile_status"))
say(ask("/start_profile", num_steps=2, with_stack=False)[0])
while manager.status().state != "idle" or manager.status().saving: time.sleep(0.01)
worker.end()
"""
    (started,), (first,), (second,), (status,), (again,) = run(tmp_path, body)
    assert (started, first[0], again) == (200, 200, 200)
    assert first[1]["result"]["outcome"] == "complete"
    assert second[0] == 409
    assert second[1]["success"] is False
    assert second[1]["message"].startswith("not recording")
    assert status[1]["state"] == "idle"
    one, two = sessions(tmp_path)
    assert_whole(one)
    assert_whole(two)
    assert record_of(two)["windows"][0]["steps"] == 2


def test_of_two_stops_at_once_one_wins_and_the_trace_is_written_once(tmp_path: Path) -> None:
    body = """
worker = Worker()
for _ in range(5):
    ask("/start_profile", with_stack=False)
    until_recording(); time.sleep(0.03)
    gate, answers = threading.Barrier(4), []
    def stop():
        gate.wait(); answers.append(ask("/stop_profile"))
    clients = [threading.Thread(target=stop) for _ in range(4)]
    for each in clients: each.start()
    for each in clients: each.join()
    say(answers)
worker.end()
"""
    rounds = run(tmp_path, body)
    for (answers,) in rounds:
        assert sorted(code for code, _ in answers) == [200, 409, 409, 409]
        losers = [answer["message"] for code, answer in answers if code == 409]
        assert all(message.startswith("not recording") for message in losers)
        (folder,) = [answer["result"]["session"] for code, answer in answers if code == 200]
        assert_whole(Path(folder))
    assert len(sessions(tmp_path)) == 5


def test_a_session_that_ended_by_itself_leaves_room_for_the_next(tmp_path: Path) -> None:
    body = """
from dsv4prof.errors import LifetimeError
plan = lambda steps: RecordPlan(active=steps, with_stack=False)
def steps(n):
    for _ in range(n): serve()
manager.start(plan(3)); steps(6)
first = until_idle()
say(first.state, first.last.ended_by, first.last.steps)
manager.start(plan(2)); steps(4)
second = until_idle()
try:
    manager.stop()
except LifetimeError as error:
    say(error.message)
say(second.state, second.last.ended_by, second.last.steps, second.last.windows[0].first_step)
"""
    first, (message,), second = run(tmp_path, body)
    assert first == ["idle", "max_steps", 3]
    assert second == ["idle", "max_steps", 2, 0]
    assert message.startswith("not recording")
    for folder, steps in zip(sessions(tmp_path), (3, 2), strict=True):
        assert_whole(folder)
        found = [event for event in operators(folder) if event["name"] == "aten::_local_scalar_dense"]
        assert len(found) == steps * 20


def test_stages_over_http_know_a_verify_step_for_a_part_of_decode(tmp_path: Path) -> None:
    modes = ["EXTEND"] * 2 + ["TARGET_VERIFY"] * 8 + ["IDLE"] + ["EXTEND"] * 4 + ["TARGET_VERIFY"] * 4
    body = f"""
say(ask("/start_profile", profile_by_stage=True, num_steps=3, stages=["prefill", "decode"], with_stack=False))
seen = []
for number, mode in enumerate({modes!r}):
    manager.begin_step(mode)
    seen.append(manager.status().window)
    work()
until_idle()
say(seen); say(manager.status().last.outcome)
"""
    ((code, _),), (seen,), (outcome,) = run(tmp_path, body)
    assert code == 200
    assert seen == ["prefill"] * 2 + ["decode"] * 3 + [None] * 14
    assert outcome == "complete"
    prefill, decode = record_of(only_session(tmp_path))["windows"]
    assert (prefill["name"], prefill["steps"], prefill["ended_by"]) == ("prefill", 2, "stage_change")
    assert (decode["name"], decode["steps"], decode["ended_by"]) == ("decode", 3, "max_steps")
    for window in (prefill, decode):
        names = [event["name"] for event in operators(only_session(tmp_path), window["trace"])]
        assert names.count("aten::_local_scalar_dense") == window["steps"] * 20


def test_placeholder_and_future_modes_end_nothing(tmp_path: Path) -> None:
    modes = ["PREBUILT", "DECODE", "PREBUILT", "DECODE", "IDLE", "SOME_FUTURE_MODE", "DECODE", "DECODE"]
    body = f"""
import warnings
ask("/start_profile", profile_by_stage=True, num_steps=3, profile_stages=["decode"], with_stack=False)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    seen = []
    for mode in {modes * 2!r}:
        manager.begin_step(mode); seen.append(manager.status().window); work()
    until_idle()
say(seen, [str(each.message) for each in told if "dsv4prof" in str(each.message)])
"""
    ((seen, told),) = run(tmp_path, body)
    assert seen == [None] + ["decode"] * 6 + [None] * 9
    assert len(told) == 1
    assert "some_future_mode" in told[0]
    (window,) = record_of(only_session(tmp_path))["windows"]
    assert window["steps"] == 3


def test_a_stop_on_a_server_without_steps_is_bounded(tmp_path: Path) -> None:
    body = """
def timed(path):
    began = time.time(); code, answer = ask(path)
    return code, answer, time.time() - began
ask("/start_profile")
say(*timed("/stop_profile")); say(ask("/profile_status"))
server.close(); server = ControlServer(manager, stop_wait_s=0.5).start()
ask("/start_profile", with_stack=False); serve(); manager.begin_step(); work()
say(*timed("/stop_profile")); say(*timed("/stop_profile"))
serve()
last = until_idle().last
say(last.outcome, last.ended_by, last.files)
"""
    pending, (status,), late, twice, (outcome, ended_by, files) = run(tmp_path, body)
    assert (pending[0], pending[1]["success"]) == (200, False)
    assert "before a step began" in pending[1]["message"]
    assert pending[2] < 1
    assert status[1]["state"] == "idle"
    assert late[0] == 202
    assert 0.4 < late[2] < 3
    assert twice[0] == 409
    assert (outcome, ended_by) == ("complete", "stop")
    first, second = sessions(tmp_path)
    assert "before a step began" in json.loads((first / "manifest.json").read_text())["reason"]
    assert files == [str(second / "rank0.trace.json.gz")]
    assert_whole(second)


def test_a_start_while_one_runs_or_that_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    body = """
(root / "file").write_text("")
say(ask("/start_profile", output_dir=str(root / "file" / "x"))); say(ask("/start_profile", num_step=3))
say(ask("/start_profile", with_stack=False)[0]); say(ask("/start_profile"))
serve(); say(ask("/start_profile"))
manager.close()
(root / "file").unlink()
"""
    unwritable, unknown, started, pending, recording = (line[0] for line in run(tmp_path, body))
    assert unwritable[0] == 507
    assert "cannot write to" in unwritable[1]["message"]
    assert (unknown[0], unknown[1]["hint"]) == (400, "did you mean 'num_steps'?")
    assert started == 200
    for code, answer in (pending, recording):
        assert code == 409
        assert "already" in answer["message"]
    assert_whole(only_session(tmp_path))


def test_a_folder_that_is_removed_costs_the_recording_and_not_the_server(tmp_path: Path) -> None:
    body = """
import shutil, warnings
warnings.simplefilter("ignore")
server.close(); server = ControlServer(manager, stop_wait_s=8).start()
worker = Worker()
folder = ask("/start_profile", with_stack=False)[1]["status"]["session"]
until_recording(); time.sleep(0.1); shutil.rmtree(folder)
say(*ask("/stop_profile"))
say(ask("/start_profile", num_steps=2, with_stack=False)[0])
end = time.time() + 10
while not manager.wait(0.01) and time.time() < end: time.sleep(0.01)
last = manager.status().last
say(worker.is_alive(), last and last.outcome)
worker.end()
"""
    (code, answer), (again,), (alive, outcome) = run(tmp_path, body)
    assert (code, answer["success"]) == (200, False)
    assert answer["result"]["outcome"] == "failed"
    assert again == 200
    assert (alive, outcome) == (True, "complete")
    assert_whole(only_session(tmp_path))


# Exit is delayed by no more than this, seconds, however it comes; the interpreter's own end and torch's are in it.
EXIT_BUDGET_S = 10.0
ENDINGS = [
    ("pass", 0),
    ("sys.exit(7)", 7),
    ("raise ValueError('boom')", 1),
    ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", 128 + signal.SIGTERM),
]


@pytest.mark.parametrize(
    ("by", "ending", "status"),
    [
        pytest.param("signal", *ENDINGS[0], id="end of main"),
        pytest.param("signal", *ENDINGS[3], id="SIGTERM"),
        # Ends that these two stand for by default.
        pytest.param("signal", *ENDINGS[1], id="sys.exit", marks=pytest.mark.slow),
        pytest.param("signal", *ENDINGS[2], id="exception", marks=pytest.mark.slow),
        pytest.param("http", *ENDINGS[0], id="started over HTTP", marks=pytest.mark.slow),
    ],
)
def test_an_exit_soon_after_an_on_demand_start_keeps_the_trace(
    tmp_path: Path, by: str, ending: str, status: int
) -> None:
    trigger = "os.kill(os.getpid(), signal.SIGUSR2)" if by == "signal" else 'ask("/start_profile")'
    body = f"""
manager = ProfilerManager(root=root)
server = ControlServer(manager).start()
listen(manager)
manager.warm_up()
for _ in range(10): manager.step(); work(5)
{trigger}
while manager.status().state != "recording": manager.step(); work(5)
for _ in range(5): manager.step(); work(50)
print(time.time(), flush=True)
{ending}
"""
    code, out, err = run_child(tmp_path, CONTROL + body, thawed=True)
    left = time.time() - float(out)
    assert code == status, err
    assert left < EXIT_BUDGET_S
    folder = only_session(tmp_path)
    assert_whole(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["outcome"] in ("complete", "incomplete")
    assert record_of(folder)["windows"][0]["ended_by"] == "exit"


@pytest.mark.parametrize(
    ("by", "ending", "status"),
    [("http", *ENDINGS[0]), ("http", *ENDINGS[3]), ("signal", *ENDINGS[2])],
    ids=["end of main", "SIGTERM", "exception, started by signal"],
)
def test_an_exit_before_any_step_leaves_a_word_of_why_there_is_no_trace(
    tmp_path: Path, by: str, ending: str, status: int
) -> None:
    trigger = "os.kill(os.getpid(), signal.SIGUSR2)" if by == "signal" else 'ask("/start_profile")'
    body = f"""
manager = ProfilerManager(root=root)
server = ControlServer(manager).start()
listen(manager)
{trigger}
time.sleep(0.5)
print(time.time(), flush=True)
{ending}
"""
    code, out, err = run_child(tmp_path, CONTROL + body)
    # Nothing is recorded, and a SIGTERM may then as well end the process as it always would.
    assert code in ((status, -signal.SIGTERM) if status == 128 + signal.SIGTERM else (status,)), err
    assert time.time() - float(out) < EXIT_BUDGET_S
    folders = sessions(tmp_path)
    manifest = json.loads((folders[0] / "manifest.json").read_text())
    assert manifest["outcome"] == "incomplete"
    assert "before a step began" in manifest["reason"]
    assert not list(folders[0].glob("*.trace.json.gz"))


@pytest.mark.parametrize(
    ("ending", "status"),
    [pytest.param(*ENDINGS[0], id="end of main"), pytest.param(*ENDINGS[3], id="SIGTERM", marks=pytest.mark.slow)],
)
def test_an_exit_while_another_thread_works_waits_for_its_step(tmp_path: Path, ending: str, status: int) -> None:
    body = f"""
manager = ProfilerManager(root=root)
server = ControlServer(manager).start()
def loop():
    # A daemon thread inside torch at the interpreter's end aborts, profiler or not: it ends with its recording.
    while manager.status().last is None:
        serve()
threading.Thread(target=loop, daemon=True).start()
ask("/start_profile", with_stack=False)
until_recording(); time.sleep(0.1)
print(time.time(), flush=True)
{ending}
"""
    code, out, err = run_child(tmp_path, CONTROL + body, thawed=True)
    # Where another thread works, SIGTERM ends the process as it would have without us, the trace saved first.
    assert code == (status if status < 128 else -signal.SIGTERM), err
    assert time.time() - float(out) < EXIT_BUDGET_S
    assert_whole(only_session(tmp_path))


def test_a_signal_in_the_middle_of_a_step_starts_and_stops_at_the_boundaries(tmp_path: Path) -> None:
    body = """
listen(manager)
def kick():
    os.kill(os.getpid(), signal.SIGUSR2)
manager.begin_step(); work(); kick(); say(manager.status().state); work(); manager.end_step()
while manager.status().state != "recording": serve()
manager.begin_step(); work(); kick(); say(manager.status().state); work(); manager.end_step()
serve()
last = until_idle().last
say(last.outcome, last.ended_by, last.steps)
"""
    states = run(tmp_path, body)
    assert states[:2] == [["idle"], ["recording"]]
    assert states[2][:2] == ["complete", "stop"]
    assert states[2][2] >= 2
    assert_whole(only_session(tmp_path))
