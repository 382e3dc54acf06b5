"""pytest's view of host syncs: `@pytest.mark.max_syncs(0)` fails a test that waits for the device, and says where.

pytest loads this in every run, so it imports nothing until a test asks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dsv4prof.sync.runtime.watch import SyncWatch

_MARK = "max_syncs"
_OPTION = "--dsv4prof-no-gpu"
_MOST_SHOWN = 20
_MOST_FRAMES = 6
_USAGE = "max_syncs takes one number and gpu=, vendor= or region="
_VENDORS = ("cuda", "hip")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("dsv4prof").addoption(
        _OPTION,
        action="store_true",
        help="run tests marked max_syncs on tensors that say cuda and compute on the CPU, even where there is a GPU",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_MARK}(N, *, gpu=None, vendor='cuda', region=None): fail when the test waits for the device more than N "
        "times; without a GPU it runs on shadow tensors (gpu=True skips it there), region counts one region alone",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        # A worker of xdist cannot end the run in a sentence: the test fails with it instead.
        return
    for item in items:
        mark = item.get_closest_marker(_MARK)
        if mark is not None and not _fits(mark):
            raise pytest.UsageError(f"{item.nodeid}: {_USAGE}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Without a GPU the test's fixtures need the shadow device as well; only what its body waits for counts."""
    mark = item.get_closest_marker(_MARK)
    if mark is None or not _fits(mark) or not _shadowed(item, mark):
        return (yield)
    with _watch(item.config, False, mark.kwargs.get("vendor", "cuda")):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before its fixtures, which may need the GPU as well."""
    mark = item.get_closest_marker(_MARK)
    if mark is None:
        return
    if not _fits(mark):
        pytest.fail(_USAGE, pytrace=False)
    pytest.importorskip("torch", reason="watching for host syncs needs torch")
    from dsv4prof.sync.runtime.watch.choice import there_is_a_gpu

    if mark.kwargs.get("gpu") is True and not there_is_a_gpu():
        pytest.skip("max_syncs(gpu=True): torch sees no GPU here")


def _shadowed(item: pytest.Item, mark: pytest.Mark) -> bool:
    if find_spec("torch") is None or mark.kwargs.get("gpu") is True:
        return False
    from dsv4prof.sync.runtime.watch.choice import there_is_a_gpu

    return bool(item.config.getoption(_OPTION)) or mark.kwargs.get("gpu") is False or not there_is_a_gpu()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    mark = item.get_closest_marker(_MARK)
    if mark is None:
        return (yield)
    limit, region = mark.args[0], mark.kwargs.get("region")
    with _watch(item.config, mark.kwargs.get("gpu"), mark.kwargs.get("vendor", "cuda")) as watch:
        result = yield
    waits = [event for event in watch.events if _counts(event, region)]
    found = sum(event.times for event in waits)
    if found > limit:
        where = f" in region {region}" if region else ""
        syncs = "host sync" if found == 1 else "host syncs"
        pytest.fail(f"{found} {syncs}{where}, and {limit} are allowed\n{_listed(waits)}", pytrace=False)
    return result


@pytest.fixture
def sync_watch(request: pytest.FixtureRequest) -> Iterator[SyncWatch]:
    """A watch of the test: `sync_watch.events` and `sync_watch.syncs` say what waited so far."""
    with _watch(request.config, None, "cuda") as watch:
        yield watch


def _fits(mark: pytest.Mark) -> bool:
    """Whether the mark is one number and keywords that it knows."""
    limit = mark.args[0] if len(mark.args) == 1 else None
    number = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
    return number and set(mark.kwargs) <= {"gpu", "vendor", "region"} and mark.kwargs.get("vendor", "cuda") in _VENDORS


def _watch(config: pytest.Config, gpu: bool | None, vendor: Any) -> SyncWatch:
    pytest.importorskip("torch", reason="watching for host syncs needs torch")
    from dsv4prof.sync.runtime.watch import SyncWatch

    if config.getoption(_OPTION):
        gpu = False
    return SyncWatch(gpu=gpu, vendor=vendor, strict=False)


def _counts(event: Any, region: str | None) -> bool:
    if not event.kind.waits or event.allowed_by or event.level == "allow":
        return False
    return region is None or region in (event.region, *event.region.split("/"))


def _ours(file: str) -> bool:
    """Pytest's own frames say nothing of the program."""
    return "/_pytest/" in file or "/pluggy/" in file


def _listed(waits: list[Any]) -> str:
    """Each site with how often it waited and the innermost frames, as pytest writes places."""
    sites: dict[Any, int] = {}
    for event in waits:
        key = (event.code, event.op, event.reason, event.region, event.stack[:_MOST_FRAMES])
        sites[key] = sites.get(key, 0) + event.times
    lines = []
    for (code, op, reason, region, stack), count in sorted(sites.items(), key=lambda item: -item[1])[:_MOST_SHOWN]:
        within = f" in region {region}" if region else ""
        lines.append(f"{count}x {code} {op}: {reason}{within}" if op else f"{count}x {code} {reason}{within}")
        lines += [f"    {frame.file}:{frame.line}: in {frame.function}" for frame in stack if not _ours(frame.file)]
    more = len(sites) - _MOST_SHOWN
    return "\n".join([*lines, f"... and {more} more places"] if more > 0 else lines)
