"""When a line was written, by whatever clock its writer used: seconds that can be compared within one log."""

from __future__ import annotations

import re
from datetime import datetime, timezone

_ELAPSED = re.compile(r"^\W*(?:t|time|ts|elapsed)\s*[=:]\s*(\d+(?:\.\d+)?)\s*(ms|s)?\b", re.IGNORECASE)
_DATED = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s*(Z|[+-]\d\d:?\d\d)?")
_DAY = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_GLOG = re.compile(r"\[?[IWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6,9})")
_KERNEL = re.compile(r"^\[\s*(\d+\.\d{3,6})\]")


def time_of(line: str) -> float | None:
    """Seconds: those that the line counts itself, or those of its date (UTC where it names no zone). A line with
    neither has None; a date without a year is counted in 1972, which has every day.
    """
    if (match := _ELAPSED.search(line)) is not None:
        return float(match[1]) * (1e-3 if match[2] == "ms" else 1.0)
    if (match := _KERNEL.search(line)) is not None:
        return float(match[1])
    if (match := _DATED.search(line)) is not None:
        zone = (match[8] or "Z").replace("Z", "+00:00")
        return _stamp(f"{match[1]}-{match[2]}-{match[3]}T{match[4]}:{match[5]}:{match[6]}{zone}", match[7])
    if (match := _GLOG.search(line) or _DAY.search(line)) is not None:
        return _stamp(f"1972-{int(match[1]):02}-{match[2]}T{match[3]}:{match[4]}:{match[5]}+00:00", match[6])
    return None


def _stamp(text: str, fraction: str | None) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.astimezone(timezone.utc).timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
