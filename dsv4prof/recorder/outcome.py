"""How a rank's recording ended, as one word and a sentence, from how its windows ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dsv4prof.errors import Dsv4profError
from dsv4prof.model.session import Outcome, RankRecord


class Ended(Protocol):
    """A window that is over."""

    name: str
    failure: Dsv4profError | None
    lack: str | None


def judge(
    record: RankRecord, windows: Sequence[Ended], cuts: Sequence[str], failure: Dsv4profError | None
) -> tuple[Outcome, str | None]:
    """Complete when every window that the plan wanted was saved and holds work.

    `cuts` say why the plan was not followed to its end, `failure` what ended it. Failed means that nothing of use was
    saved because of the recording itself; a plan that was cut before its first window is incomplete.
    """
    troubles = [_named(window, trouble) for window in windows if (trouble := _trouble(window)) is not None]
    reasons = list(dict.fromkeys([*cuts, *troubles]))
    if failure is not None and not any(failure.message in reason for reason in reasons):
        reasons.append(failure.message)
    if not reasons:
        return Outcome.COMPLETE, None
    useful = any(_is_useful(window, record) for window in windows)
    broken = bool(troubles) or failure is not None
    return (Outcome.FAILED if broken and not useful else Outcome.INCOMPLETE), "; ".join(reasons)


def _trouble(window: Ended) -> str | None:
    return window.failure.message if window.failure is not None else window.lack


def _named(window: Ended, trouble: str) -> str:
    return f"{window.name}: {trouble}" if window.name else trouble


def _is_useful(window: Ended, record: RankRecord) -> bool:
    """What was saved whole is of use, also where something went wrong after it."""
    saved = record.window(window.name)
    return saved is not None and window.lack is None and bool(saved.trace or saved.files)
