"""Programs that do the same work with and without the order that makes it right: only one of each two is a hazard."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")

from hazard_programs import watched_on_shadows  # noqa: E402


def double_buffered_staging(clean):
    """Each half is waited for; the event has to stand behind its copy."""
    halves = [(torch.zeros(64, pin_memory=True), torch.empty(64, device="cuda"), torch.cuda.Event()) for _ in range(2)]
    for turn in range(6):
        staging, target, copied = halves[turn % 2]
        if turn >= 2:
            copied.synchronize()
        staging.fill_(turn)
        if not clean:
            copied.record()
        target.copy_(staging, non_blocking=True)
        if clean:
            copied.record()


def work_handed_over(clean):
    """Another stream waits for the first, and the first has to wait for it in turn."""
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    values = torch.ones(64, device="cuda")
    for _ in range(3):
        values.add_(1)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            values.mul_(2)
        if clean:
            main.wait_stream(side)


def prefetched_batches(clean):
    """A batch that another stream uploaded is used before the stream that uses it has waited."""
    side = torch.cuda.Stream()
    batches = [torch.full((256,), float(each)).pin_memory() for each in range(4)]
    model = torch.nn.Linear(256, 4).cuda()

    def load(each):
        with torch.cuda.stream(side):
            return batches[each].to("cuda", non_blocking=True)

    following = load(0)
    for each in range(4):
        if clean:
            torch.cuda.current_stream().wait_stream(side)
        batch = following
        batch.record_stream(torch.cuda.current_stream())
        following = load(each + 1) if each < 3 else None
        model(batch).sum().backward()


def polled_ring(clean):
    """Slots of a ring are written through numpy; polling an event is as good as waiting for it."""
    ring = [(torch.zeros(32, dtype=torch.int32, pin_memory=True), torch.cuda.Event()) for _ in range(3)]
    target = torch.empty(32, dtype=torch.int32, device="cuda")
    for turn in range(7):
        slot, copied = ring[turn % 3]
        while clean and turn >= 3 and not copied.query():
            continue
        slot.numpy()[:] = turn
        target.copy_(slot, non_blocking=True)
        copied.record()


def copied_through_the_host(clean):
    """The second copy's source is the target of the first, on another stream."""
    values, pinned = torch.arange(128.0, device="cuda"), torch.empty(128, pin_memory=True)
    side = torch.cuda.Stream()
    pinned.copy_(values, non_blocking=True)
    if clean:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        pinned.to("cuda", non_blocking=True)
    side.synchronize()


def uploaded_by_a_thread(clean):
    """A thread queues the upload on a stream of its own; that it has ended orders nothing on the device."""
    pinned, target, copied = torch.zeros(64, pin_memory=True), torch.empty(64, device="cuda"), torch.cuda.Event()

    def upload():
        with torch.cuda.stream(torch.cuda.Stream()):
            pinned.fill_(1)
            target.copy_(pinned, non_blocking=True)
            copied.record()

    thread = threading.Thread(target=upload)
    thread.start()
    thread.join()
    if clean:
        torch.cuda.current_stream().wait_event(copied)
    target.sum()


def read_back_a_step_later(clean):
    """The event has to stand behind the copy."""
    waiting = []
    for turn in range(4):
        values, copied = torch.full((8,), turn, device="cuda"), torch.cuda.Event()
        if not clean:
            copied.record()
        host = values.to("cpu", non_blocking=True)
        if clean:
            copied.record()
        waiting.append((host, copied))
    for host, copied in reversed(waiting):
        copied.synchronize()
        host.tolist()


def replayed_graph(clean):
    """A graph runs on the stream that launches it, not on that of its capture, and writes its outputs each time."""
    model, inputs = torch.nn.Linear(8, 8).cuda(), torch.zeros(2, 8, device="cuda")
    graph, reader = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.graph(graph):
        outputs = model(inputs)
    batches = [torch.full((2, 8), float(each)).pin_memory() for each in range(3)]
    for batch in batches:
        inputs.copy_(batch, non_blocking=True)
        if clean:
            torch.cuda.current_stream().wait_stream(reader)
        graph.replay()
        reader.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(reader):
            host = outputs.to("cpu", non_blocking=True)
    reader.synchronize()
    expected = torch.nn.functional.linear(batches[-1], model.weight.cpu(), model.bias.cpu())
    assert torch.allclose(host, expected)


def upload_in_a_graph(clean):
    """The staging buffer is read at each replay, so it may be written only when the replay is over."""
    pinned, target = torch.zeros(8, pin_memory=True), torch.zeros(8, device="cuda")
    graph, done = torch.cuda.CUDAGraph(), torch.cuda.Event()
    with torch.cuda.graph(graph):
        target.copy_(pinned, non_blocking=True)
        doubled = target * 2
    for turn in range(3):
        if clean and turn:
            done.synchronize()
        pinned.fill_(turn)
        graph.replay()
        done.record()
    assert doubled.tolist() == [4.0] * 8


def staged_beside_another_upload(clean):
    """An upload of little pageable memory that need not wait does not wait for what was queued before it."""
    pinned, target, other = torch.zeros(64, pin_memory=True), torch.empty(64, device="cuda"), torch.zeros(4)
    for turn in range(3):
        pinned.fill_(turn)
        target.copy_(pinned, non_blocking=True)
        other.to("cuda", non_blocking=not clean)


PROGRAMS = {
    staged_beside_another_upload: "DSV203",
    double_buffered_staging: "DSV203",
    work_handed_over: "DSV204",
    prefetched_batches: "DSV204",
    polled_ring: "DSV203",
    copied_through_the_host: "DSV204",
    uploaded_by_a_thread: "DSV204",
    read_back_a_step_later: "DSV202",
    replayed_graph: "DSV204",
    upload_in_a_graph: "DSV203",
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "hazard"])
def test_only_the_program_without_the_order_is_reported(program, clean):
    with watched_on_shadows() as watch:
        program(clean)
    found = watch.hazards()
    assert {hazard.code for hazard in found} == (set() if clean else {PROGRAMS[program]})
    for hazard in found:
        assert program.__name__ in hazard.second.stack[0].function and hazard.first.stack[0].file == __file__


@pytest.mark.parametrize(
    "program",
    [
        lambda: [torch.empty(64, device="cuda").copy_(torch.ones(64).pin_memory(), non_blocking=True) for _ in "abc"],
        lambda: [torch.tensor([each, 1], pin_memory=True).to("cuda", non_blocking=True) for each in range(4)],
        lambda: [torch.ones(64).fill_(each).to("cuda", non_blocking=True) for each in range(4)],
    ],
    ids=["torch keeps what it copies", "lists", "pageable bytes are taken at once"],
)
def test_temporary_sources_of_torchs_own_copies_are_no_hazard(program):
    with watched_on_shadows() as watch:
        program()
    assert not watch.hazards()


def test_rows_of_one_buffer_are_apart():
    def staged(rows):
        pinned, target = torch.zeros(4, 64, pin_memory=True), torch.empty(4, 64, device="cuda")
        for row in rows:
            pinned[row].fill_(row)
            target[row].copy_(pinned[row], non_blocking=True)

    with watched_on_shadows() as apart:
        staged([0, 1, 2, 3])
    with watched_on_shadows() as same:
        staged([1, 2, 1])
    assert not apart.hazards() and {hazard.code for hazard in same.hazards()} == {"DSV203"}
