"""The error that a hang shows is the timeout of whoever waited; the cause lies a minute earlier and elsewhere.

A log of steps tells which step never ended, what the device was doing meanwhile, what had changed before it, and
whether the numbers it was given were sane. The messages of other logs are sorted into what follows from that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import msgspec

from dsv4prof.faultrecord.changes import changed
from dsv4prof.faultrecord.message import Message
from dsv4prof.faultrecord.messages import is_timeout
from dsv4prof.faultrecord.metadata import BadValue, check_step
from dsv4prof.faultrecord.steplog import Heartbeat, Step, StepLog

# A step that takes this long is no slow step any more, whatever the others took.
_LEAST_S = 10.0
_TIMES_USUAL = 20
_WAITING_KERNEL = re.compile(
    r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier|cross_device|one_?shot|two_?shot|nvshmem|"
    r"deep_?ep|msccl|quick_?reduce",
    re.IGNORECASE,
)


class Stall(msgspec.Struct, frozen=True):
    """A gap that ended by itself: slow, and no hang."""

    after: Step
    seconds: float


class Hang(msgspec.Struct, frozen=True):
    """What the logs say of a hang; with `hung` false, why it is none.

    `step` never ended, as far as the logs tell, and began at `since_s` on their clock. `seconds` is how long it is
    known to have lasted, `kernel` what the device ran meanwhile and `kernel_s` for how long. `collective` says that
    this kernel waits for other ranks. `changed` compares with the step before.
    """

    hung: bool
    reason: str
    step: Step | None = None
    since_s: float | None = None
    seconds: float | None = None
    kernel: str = ""
    kernel_s: float | None = None
    util: float | None = None
    collective: bool = False
    changed: tuple[str, ...] = ()
    previous: Step | None = None
    bad: tuple[BadValue, ...] = ()
    earlier_bad: tuple[BadValue, ...] = ()
    consequences: tuple[Message, ...] = ()
    causes: tuple[Message, ...] = ()
    ranks: tuple[str, ...] = ()
    stalls: tuple[Stall, ...] = ()

    @property
    def suspicion(self) -> str:
        """What is most likely, said as a guess where it is one."""
        if self.causes:
            return f"the log names a fault: {self.causes[0].text}"
        if self.bad:
            return self._of_bad_value()
        if self.collective or self.ranks:
            return "a collective waits: look at the rank that did not arrive, not at those that wait"
        if self.earlier_bad:
            return "the logs do not say why; an earlier step was given a bad value, and ended all the same"
        return "the logs do not say why; the values that they list are in order"

    def _of_bad_value(self) -> str:
        kind = "a padding slot" if self.bad[0].padding else "a slot"
        before = {(each.field, each.padding) for each in self.earlier_bad}
        if self.collective:
            return (
                "a collective waits: look at the rank that did not arrive, not at those that wait; that rank may be "
                f"stuck in a kernel that read the bad value of {kind} (not proven by these logs)"
            )
        if (self.bad[0].field, self.bad[0].padding) in before:
            return (
                f"possible: {self.kernel or 'a kernel'} read the bad value of {kind}; but earlier steps were given "
                "such a value as well, and ended"
            )
        return (
            f"likely: {self.kernel or 'a kernel'} read the bad value of {kind}; blocks of one group that branch apart "
            "on it wait for each other for ever (not proven by these logs)"
        )


def diagnose(log: StepLog, messages: Sequence[Message] = ()) -> Hang:
    """Judge a log of steps, with what other logs of the same run said."""
    last = log.steps[-1]
    beats = [each for each in log.heartbeats if each.line > last.line or _names(each, last)]
    seconds = _seconds(log, last, beats, messages)
    stalls = tuple(_stalls(log))
    bad = [bad for step in log.steps for bad in check_step(step)]
    ends = {step.rank: step.line for step in log.steps}
    at_last = tuple(each for each in bad if each.line in ends.values())
    earlier = tuple(each for each in bad if each.line not in ends.values())
    causes = tuple(each for each in messages if each.role == "cause")
    consequences = tuple(each for each in messages if is_timeout(each) or each.role == "consequence")
    problem = _no_hang(log, last, beats, seconds, consequences, causes)
    if problem:
        return Hang(
            False, problem, bad=at_last, earlier_bad=earlier, causes=causes, consequences=consequences, stalls=stalls
        )
    teller = next((each for each in reversed(beats) if each.kernel), beats[-1] if beats else None)
    previous = next(
        (each for each in reversed(log.steps[:-1]) if each.rank == last.rank and _is_other(each, last)), None
    )
    kernel = teller.kernel if teller is not None else ""
    return Hang(
        True,
        f"{last.name} began and nothing says that it ended",
        step=last,
        since_s=last.time_s,
        seconds=seconds,
        kernel=kernel,
        kernel_s=teller.age_s if teller is not None else None,
        util=teller.util if teller is not None else None,
        collective=bool(kernel and _WAITING_KERNEL.search(kernel)),
        changed=changed(log.steps, previous, last),
        previous=previous,
        bad=at_last,
        earlier_bad=earlier,
        consequences=consequences,
        causes=causes,
        ranks=(*_behind(log), *rank_words(messages)),
        stalls=stalls,
    )


def rank_words(messages: Sequence[Message]) -> tuple[str, ...]:
    """What the watchdogs of collectives tell of the ranks: who waits in which, who is behind, who has said nothing."""
    told: dict[int, Message] = {}
    for each in messages:
        if each.rank is not None and each.sequence is not None and each.kind.startswith("collective"):
            known = told.get(each.rank)
            if known is None or (each.collective and not known.collective):
                told[each.rank] = each
    words = [
        f"rank {rank} waits in collective {each.sequence}" + (f" ({each.collective})" if each.collective else "")
        for rank, each in sorted(told.items())
    ]
    sequences = {each.sequence for each in told.values() if each.sequence is not None}
    kinds = {each.collective for each in told.values() if each.collective}
    if len(sequences) > 1:
        behind = [rank for rank, each in sorted(told.items()) if each.sequence == min(sequences)]
        words.append(f"the ranks wait in different collectives: {_ranks(behind)} furthest behind")
    elif len(kinds) > 1:
        words.append("the ranks are in one collective with different kinds: their order of calls differs")
    enqueued = {each.rank: each.enqueued for each in messages if each.enqueued is not None and each.rank is not None}
    if len(set(enqueued.values())) > 1:
        least = min(enqueued.values())
        behind = sorted(rank for rank, number in enqueued.items() if number == least)
        words.append(f"{_ranks(behind)} launched fewest collectives ({least}): look there first")
    return tuple(words)


def _behind(log: StepLog) -> tuple[str, ...]:
    """In a log of several ranks, those that never began the last step."""
    last = {step.rank: step.index for step in log.steps if step.rank is not None and step.index is not None}
    most = max(last.values(), default=0)
    return tuple(
        f"rank {rank} never began step {most}: its last one was {index}, look there first"
        for rank, index in sorted(last.items())
        if index < most
    )


def _is_other(step: Step, last: Step) -> bool:
    """Whether it is another step and says what was in it: some logs write a line for the end of a step as well."""
    return (step.index is None or step.index != last.index) and (step.running is not None or last.running is None)


def _ranks(numbers: Sequence[int]) -> str:
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(map(str, numbers))


def _names(beat: Heartbeat, step: Step) -> bool:
    return beat.last_step is not None and beat.last_step == step.index


def _seconds(log: StepLog, last: Step, beats: Sequence[Heartbeat], messages: Sequence[Message]) -> float | None:
    """How long the last step is known to have been going on, from anything that was said after it began."""
    if last.time_s is None:
        ages = [each.age_s for each in beats if each.age_s is not None]
        return max(ages, default=None)
    later = [each.time_s - last.time_s for each in beats if each.time_s is not None]
    # Another log counts the same time only if its times can be compared at all.
    later += [each.time_s - last.time_s for each in messages if each.time_s is not None and _same_clock(each, last)]
    known = [each for each in later if each >= 0]
    return max(known, default=None)


def _same_clock(message: Message, step: Step) -> bool:
    return message.time_s is not None and step.time_s is not None and abs(message.time_s - step.time_s) < 86_400


def _usual(log: StepLog) -> float | None:
    """The usual time between steps."""
    gaps = [b.time_s - a.time_s for a, b in pairwise(log.steps) if a.time_s is not None and b.time_s is not None]
    positive = [gap for gap in gaps if gap > 0]
    return median(positive) if positive else None


def _limit(log: StepLog) -> float:
    return max(_LEAST_S, _TIMES_USUAL * (_usual(log) or 0.0))


def _stalls(log: StepLog) -> list[Stall]:
    limit = _limit(log)
    timed = [
        Stall(a, b.time_s - a.time_s) for a, b in pairwise(log.steps) if a.time_s is not None and b.time_s is not None
    ]
    return [stall for stall in timed if stall.seconds > limit]


def _no_hang(
    log: StepLog,
    last: Step,
    beats: Sequence[Heartbeat],
    seconds: float | None,
    consequences: Sequence[Message],
    causes: Sequence[Message],
) -> str:
    """Why this is no hang; "" where it is one."""
    if log.over:
        return "the log says that the server was stopped in good order"
    if last.ended:
        return f"{last.name} ended, and no later one began: the server was idle or was stopped, not hung"
    if any(each.last_step is not None and last.index is not None and each.last_step > last.index for each in beats):
        return f"a heartbeat names a later step than {last.name}: the log of steps ends before the run did"
    busy = [each for each in beats if each.kernel or (each.util or 0) >= 0.9]
    idle = [
        each
        for each in beats
        if not each.kernel and (each.running == 0 or (each.util is not None and each.util < 0.05))
    ]
    if last.running == 0 or (idle and not busy and not consequences):
        return "no request was running after the last step: the server was idle"
    limit = _limit(log)
    if seconds is not None and seconds < limit and not any(each.age_s and each.age_s >= limit for each in beats):
        return f"the last step is known to have lasted {seconds:g} s, which is not long enough to call it a hang"
    if seconds is None and not consequences and not busy:
        return "nothing was logged after the last step, and nobody reports a wait: the log may simply end there"
    return ""
