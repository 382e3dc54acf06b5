"""The layers on a device as a detector of truth cases."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from dsv4prof.errors import UsageError  # noqa: E402
from dsv4prof.model.syncs import Kind  # noqa: E402
from dsv4prof.sync.runtime.judging.verdicts import counts  # noqa: E402
from dsv4prof.sync.runtime.watch import scopes  # noqa: E402
from dsv4prof.sync.runtime.watch.judging import GpuDetector  # noqa: E402


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_device_it_says_so() -> None:
    with pytest.raises(UsageError, match="no CUDA or HIP device"), GpuDetector():
        pass
    assert not scopes.watched()


@pytest.mark.gpu
def test_known_calls_on_a_device() -> None:
    with GpuDetector() as detector:
        assert set(detector.names()) >= {"warn", "explicit", "copies", "dispatch"}, detector.left_out
        x = torch.arange(1024.0, device="cuda")
        pageable = torch.empty(1024)
        event = torch.cuda.Event()
        event.record()
        lens = torch.tensor([1, 2, 3], device="cuda")
        torch.repeat_interleave(lens, lens)
        p = torch.nn.Parameter(torch.arange(1.0, 5.0, device="cuda"))
        p.prod().backward()
        idle = torch.cuda.Stream()
        small, there = torch.zeros(1 << 16, dtype=torch.uint8), torch.empty(1 << 16, dtype=torch.uint8, device="cuda")
        logs, labels = (
            torch.zeros(5, 2, 4, device="cuda").log_softmax(2),
            torch.ones(2, 2, dtype=torch.long, device="cuda"),
        )
        detector.between()
        cases = {
            "item": (lambda: x.sum().item(), True),
            "add": (lambda: x + 1, False),
            "pageable": (lambda: pageable.copy_(x, non_blocking=True), True),
            "synchronize": (torch.cuda.synchronize, True),
            "query": (event.query, False),
            "repeat": (lambda: torch.repeat_interleave(lens, lens), True),
            "exact": (lambda: torch.repeat_interleave(lens, lens, output_size=6), False),
            "backward of a product": (lambda: p.prod().backward(), True),
            "ctc_loss": (lambda: F.ctc_loss(logs, labels, (5, 5), (2, 2)), True),
            "idle stream": (idle.synchronize, False),
            "launch queue": (lambda: [x.add_(1) for _ in range(2000)], True),
            "pending uploads": (lambda: [there.copy_(small, non_blocking=True) for _ in range(256)], True),
            "unique_dim": (lambda: torch.unique(x.view(32, 32), dim=0), True),
        }
        for name, (call, waits) in cases.items():
            seen = detector.judge(call)
            if detector.again():
                seen = detector.judge(call)
            assert any(map(counts, seen)) == waits, (name, seen)
        layers = {each.layer for each in detector.judge(lambda: x.sum().item())}
        assert layers >= {"warn", "dispatch"}
        assert not [each for each in detector.judge(lambda: x.sum()) if each.kind is not Kind.SUSPECT]
