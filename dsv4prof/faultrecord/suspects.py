"""Of all the work that was launched and not known to be done, one launch did it: put the likeliest first, and say why.

On a stream the device works in order, so the one at fault lies behind the last launch known to be complete. What the
message names, and whose memory the address touches, tell them apart; what is not known is said with each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from dsv4prof.faultrecord.addresses import Place
from dsv4prof.faultrecord.layout import HOST, Cell, Kind
from dsv4prof.faultrecord.message import Message
from dsv4prof.faultrecord.reader import FaultRecord, Launch, Touch

MOST = 10
# Which operators run the device functions whose assertions torch's own kernels print.
_FUNCTIONS = (
    (r"indexSelect|index_select", "index_select|embedding"),
    (r"vectorized_gather|IndexKernelUtils", "index_select|embedding|gather|index"),
    (r"ScatterGatherKernel|gather|scatter", "gather|scatter|take_along_dim"),
    (r"IndexKernel|index_elementwise|index_put|index_out_of_bounds|index out of bounds", "index|index_put|take|put"),
    (r"Repeat\.(?:cu|hip)|compute_(?:cuda|hip)_kernel", "repeat_interleave"),
    (r"Embedding", "embedding"),
    (r"Loss", "nll_loss|cross_entropy"),
    (r"masked_scatter|MaskedScatter", "masked_scatter"),
    (r"Multinomial|sampleMultinomial", "multinomial"),
    (r"_assert_async|TensorCompare", "_assert_async"),
    (r"indexAdd|indexCopy|indexFill|indexFunc", "index_add|index_copy|index_fill"),
    (r"Bucketization|searchsorted", "searchsorted|bucketize"),
)
_INDEXED = re.compile(r"index|gather|scatter|embedding|take|put_|masked_select|repeat_interleave|nonzero")
_COLLECTIVE = re.compile(
    r"c10d::|nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|broadcast|all_?to_?all", re.IGNORECASE
)
# What was asked last may be old by the time of the fault: less telling than the rest.
_ALONE = 20


class Suspect(msgspec.Struct, frozen=True):
    """A launch that may be the one. `weight` orders suspects and means nothing else."""

    launch: Launch
    weight: int
    evidence: tuple[str, ...]
    inside: tuple[Launch, ...] = ()


def pending(record: FaultRecord) -> list[Launch]:
    """The launches not known to be complete, oldest first.

    Where completion was followed on the device, those behind the last completed one of their stream; else only those
    that did not come back to the host.
    """
    launches = [each for each in record.launches if each.kind.launches]
    returned = record.cells[Cell.RETURNED]
    on_host = HOST if record.follows_device else None
    return [
        each
        for each in launches
        if each.number > (returned if on_host in (None, each.stream) else record.done.get(each.stream, 0))
    ]


def suspects(record: FaultRecord, place: Place | None, messages: Iterable[Message]) -> list[Suspect]:
    """Pending launches, most suspect first, at most ten. `place` is where the fault's address lies, if there is one."""
    told = [each for each in messages if each.role != "consequence"]
    waiting = pending(record)
    if not waiting and not record.follows_device:
        waiting = _last_back(record)
    open_numbers = {each.number for each in waiting}
    before = {_key(each) for each in record.launches if each.kind.launches and each.number not in open_numbers}
    found = [_judge(record, launch, place, told, new=_key(launch) not in before) for launch in waiting]
    return sorted(found, key=lambda each: (-each.weight, each.launch.number))[:MOST]


def in_collective(launch: Launch) -> bool:
    """Whether the launch waits for other ranks."""
    return bool(_COLLECTIVE.search(launch.name))


def _last_back(record: FaultRecord) -> list[Launch]:
    return [record.last] if record.last is not None else []


def _key(launch: Launch) -> tuple[str, int, tuple[int, ...]]:
    """The same work on the same memory."""
    return launch.operator or launch.kernel, launch.graph, tuple(each.address for each in launch.touches)


def _judge(record: FaultRecord, launch: Launch, place: Place | None, told: list[Message], *, new: bool) -> Suspect:
    weight, evidence = 0, []
    inside = [each for each in record.captured if launch.kind is Kind.GRAPH and each.graph == launch.graph]
    for look, gain in ((_blocked, 300), (_touched, 200), (_named, 100), (_running, _ALONE)):
        said = look(record, launch, inside, place, told)
        if said:
            weight += gain
            evidence.append(said)
    # Something else has to speak for it: in most steps something is new.
    if new and weight > _ALONE and record.follows_device:
        weight += 30
        evidence.append("the same work on the same memory had not been completed before")
    if launch.kind is Kind.KERNEL:
        weight += 15
        evidence.append("it is a kernel of the program's own, whose bounds nobody checks")
    if any(_INDEXED.search(each.operator) for each in (launch, *inside)):
        weight += 10
        evidence.append("it addresses memory by values that the device holds")
    named = [each for each in inside if place is not None and _touch_at(each, place) is not None]
    return Suspect(launch, weight, tuple(evidence), tuple(named[:MOST]))


def _blocked(
    record: FaultRecord, launch: Launch, inside: list[Launch], place: Place | None, told: list[Message]
) -> str:
    if not record.facts.get("blocking") or launch.number <= record.cells[Cell.RETURNED]:
        return ""
    return "launches waited for their work in this run, and the host was in this call"


def _touched(
    record: FaultRecord, launch: Launch, inside: list[Launch], place: Place | None, told: list[Message]
) -> str:
    if place is None or place.address == 0:
        return ""
    for each in (launch, *inside):
        touch = _touch_at(each, place)
        if touch is not None:
            does = "writes" if touch.written else "reads"
            where = f" (captured as {each.name})" if each is not launch else ""
            return f"it {does} {touch.what or 'memory'} at {touch.address:#x}..{touch.end:#x}{where}, {_near(place)}"
    return ""


def _near(place: Place) -> str:
    return {
        "inside": "where the address lies",
        "after": f"and the address lies {place.offset:,} bytes past that buffer",
        "before": f"and the address lies {place.offset:,} bytes before that buffer",
        "unknown": "",
    }[place.relation]


def _touch_at(launch: Launch, place: Place) -> Touch | None:
    """The touch of the address itself, else of the buffer that it was mapped to."""
    last = place.address + place.page_bytes
    for touch in launch.touches:
        if touch.address < last and place.address < touch.end:
            return touch
    if place.buffer is None:
        return None
    return next(
        (
            each
            for each in launch.touches
            if place.buffer.address <= each.address < max(place.buffer.end, place.buffer.address + 1)
        ),
        None,
    )


def _named(record: FaultRecord, launch: Launch, inside: list[Launch], place: Place | None, told: list[Message]) -> str:
    for message in told:
        for each in (launch, *inside):
            if _names(message, each):
                what = message.kernel or message.place or message.reason
                return f"the message names {what}" + (f", which {each.name} runs" if what != each.name else "")
    return ""


def _names(message: Message, launch: Launch) -> bool:
    if message.kernel and launch.kernel and launch.kernel in message.kernel:
        return True
    short = launch.operator.rpartition("::")[2].partition(".")[0]
    said = f"{message.kernel} {message.place.rpartition('/')[2]}"
    if message.kind == "assert" and message.kernel == "":
        said += f" {message.reason}"
    for pattern, operators in _FUNCTIONS:
        if short and re.search(pattern, said) and re.fullmatch(rf"_?(?:{operators})(?:_\w+)?_?", short):
            return True
    return bool(short) and len(short) > 3 and re.search(rf"(?<![a-z]){re.escape(short)}", said) is not None


def _running(
    record: FaultRecord, launch: Launch, inside: list[Launch], place: Place | None, told: list[Message]
) -> str:
    if not record.follows_device:
        waiting = launch.number > record.cells[Cell.RETURNED]
        return "the host was in this call" if waiting else "it was the last call, and had come back to the host"
    done, marked = record.done.get(launch.stream, 0), record.marked.get(launch.stream, 0)
    if launch.number <= marked or marked <= done:
        return f"its stream was known to be complete up to launch {done} and not up to {max(marked, launch.number)}"
    return ""
