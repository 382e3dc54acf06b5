"""One rank's record and what the logs say, put together: whose memory the address is, who did it, what is unsure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dsv4prof.faultrecord.addresses import Place, place_address
from dsv4prof.faultrecord.layout import Cell, Kind
from dsv4prof.faultrecord.message import Message
from dsv4prof.faultrecord.messages import telling
from dsv4prof.faultrecord.reader import FaultRecord, Launch
from dsv4prof.faultrecord.reruns import Rerun, reruns
from dsv4prof.faultrecord.suspects import Suspect, in_collective, pending, suspects


class Diagnosis(msgspec.Struct, frozen=True):
    """What is known of one rank's end. `record` or `message` may be missing: then only the other speaks.

    `message` is the most telling one. `unsure` are sentences that bound what the rest may be taken for.
    """

    record: FaultRecord | None
    message: Message | None
    messages: tuple[Message, ...]
    place: Place | None
    suspects: tuple[Suspect, ...]
    unsure: tuple[str, ...]
    reruns: tuple[Rerun, ...]
    notes: tuple[str, ...] = ()

    @property
    def suspect(self) -> Suspect | None:
        return self.suspects[0] if self.suspects else None


def diagnose_fault(record: FaultRecord | None, messages: Sequence[Message], *, hang: bool = False) -> Diagnosis:
    """Judge a death, or with `hang` a rank that does not move."""
    ordered = telling(messages)
    message = next((each for each in ordered if each.role != "consequence"), None)
    addressed = next((each for each in ordered if each.address is not None), None)
    place = None
    if record is not None and addressed is not None and addressed.address is not None:
        place = place_address(record, addressed.address, page_bytes=addressed.page_bytes)
    found = suspects(record, place, ordered) if record is not None else []
    return Diagnosis(
        record,
        message,
        tuple(ordered),
        place,
        tuple(found),
        tuple(_unsure(record, message, addressed, place, found, hang=hang)),
        tuple(reruns(_vendor(record, ordered), _argv(record), hang=hang, triton=_has_triton(record))),
        _notes(record),
    )


def state_words(record: FaultRecord) -> str:
    """Where the rank was, as one sentence."""
    last = record.last
    if last is None:
        written = record.cells[Cell.LAST]
        return f"{written:,} records were written and none can be read" if written else "nothing was launched"
    where = (
        f"in {step_words(record, last)}" if record.cells[Cell.STEP] > record.cells[Cell.STEPS_DONE] else "between steps"
    )
    words = [where, f"last launch {last.name} (number {last.number})"]
    if last.number > record.cells[Cell.RETURNED]:
        words.append("the host was still in that call")
    if record.follows_device:
        words += [f"stream {each.stream:#x} complete up to launch {each.done}" for each in record.streams]
        if not record.streams:
            words.append("no marker was reached: nothing is known of what the device has done")
    return ", ".join(words)


def step_words(record: FaultRecord, launch: Launch) -> str:
    """`step 12 (decode requests=4 rows=16), phase target_verify, span build_metadata`."""
    if launch.step < 0:
        return "no step"
    begun = next(
        (each for each in reversed(record.launches) if each.kind is Kind.STEP and each.step == launch.step), None
    )
    step = f"step {launch.step}" + (f" ({begun.kernel})" if begun is not None and begun.kernel else "")
    phase = f", phase {launch.phase}" if launch.phase else ""
    return step + phase + (f", span {launch.span}" if launch.span else "")


def _unsure(
    record: FaultRecord | None,
    message: Message | None,
    addressed: Message | None,
    place: Place | None,
    found: Sequence[Suspect],
    *,
    hang: bool,
) -> list[str]:
    said = []
    if record is None:
        said.append("there is no fault record: which work was in flight, and whose memory it was, is not known")
        return said
    if message is None and not hang:
        said.append("no message of the device was found in the logs: the death may have nothing to do with it")
    if message is not None and addressed is None and message.kind not in ("assert", "out-of-memory"):
        said.append("the message tells no address, so no buffer can be named by it")
    if message is not None and message.role == "symptom":
        said.append("the message was raised by a later call than the one at fault: errors of a device come late")
    if place is not None and place.page_bytes > 1 and place.address:
        said.append("the address is that of a page of 4,096 bytes: the offset in a buffer is known to that much")
    if place is not None and place.relation in ("after", "before"):
        said.append("a wild index can land beside any buffer: the nearest one need not be the one that was meant")
    if place is not None and place.freed:
        said.append(
            "the buffer was freed on the host; work launched before that may use it rightly, and torch's cache keeps "
            "its memory mapped unless it was given back to the device"
        )
    if record.facts.get("shadows"):
        said.append("the program ran on shadow tensors without a device: the addresses are of the host's memory")
    waiting = pending(record)
    if record.follows_device and len(waiting) > 1:
        first, last = waiting[0], waiting[-1]
        said.append(
            f"certain is that what came before launch {first.number} (step {first.step}) was complete on its stream; "
            f"of the {len(waiting):,} from there to launch {last.number} (step {last.step}) one is at fault, and the "
            "order here is a guess by the evidence shown"
        )
    if record.launches and record.launches[0].number > 1 and pending(record)[:1] == list(record.launches[:1]):
        said.append("the ring had wrapped: older launches that were not complete are no longer in it")
    if record.missing_bytes:
        said.append(
            f"the record was cut short: {record.missing_bytes:,} bytes are missing, the latest launches perhaps"
        )
    if record.torn:
        said.append(f"{record.torn} torn records were left out")
    if record.cells[Cell.NAMES_LOST]:
        said.append("there was no room for more names: some operators and shapes are unnamed")
    if found and found[0].launch.kind is Kind.GRAPH and not found[0].inside:
        said.append("of a graph's kernels none can be told apart; they ran in one replay")
    said.append("kernels that other libraries launch from their own C++ code are not in the record")
    return said


def _vendor(record: FaultRecord | None, messages: Sequence[Message]) -> str:
    told = next((each.vendor for each in messages if each.vendor), "")
    known = str(record.facts.get("vendor", "")) if record is not None else ""
    return told or known


def _argv(record: FaultRecord | None) -> list[str]:
    argv = record.facts.get("argv") if record is not None else None
    return [str(each) for each in argv] if isinstance(argv, list) else []


def _has_triton(record: FaultRecord | None) -> bool:
    return record is not None and any(each.kind is Kind.KERNEL for each in (*record.launches, *record.captured))


def _notes(record: FaultRecord | None) -> tuple[str, ...]:
    if record is None:
        return ()
    notes = [each.kernel for each in record.launches if each.kind is Kind.NOTE]
    if record.device_error:
        notes.append(f"the program's last error: {record.device_error}")
    last = record.last
    if last is not None and in_collective(last):
        notes.append("the last launch waits for other ranks: look at the rank that did not arrive")
    return tuple(dict.fromkeys(notes))
