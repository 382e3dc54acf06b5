"""What a client of `/start_profile` asks for, as a plan, or one sentence that says which field makes no sense.

Clients of SGLang send its `ProfileReq` (fields and their meaning: SGLang 0.5.23, `srt/managers/io_struct.py`); a field
that is mistyped or has another type must not end in a recording of something else.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from dsv4prof.errors import UsageError
from dsv4prof.model.phase import Phase
from dsv4prof.recorder.plan import RecordPlan

# A server that is asked "by stage" and not which ones means these two.
_STAGES = (Phase.PREFILL, Phase.DECODE)
_START, _STOP = 1, 2

_Kind = tuple[Any, str]
_FLAG: _Kind = (bool, "true or false")
# A larger number is no number of steps, and JSON could not hold it again.
_Whole = Annotated[int, msgspec.Meta(gt=-(1 << 31), lt=1 << 31)]
_COUNT: _Kind = (_Whole, "a whole number below 2147483648")
_NUMBER: _Kind = (float, "a number")
_TEXT: _Kind = (str, "a text")
_WORDS: _Kind = (str | list[str], "a list of texts")
_RANKS: _Kind = (str | list[_Whole], '"all", "node" or a list of whole numbers')
_TYPE: _Kind = (int | str, f"{_START} (start)")

# Fields of RecordPlan that a request may set under their own name, with what JSON has to hold.
PLAN_FIELDS: dict[str, _Kind] = {
    "wait": _COUNT,
    "warmup": _COUNT,
    "active": _COUNT,
    "start_step": _COUNT,
    "windows": _COUNT,
    "stages": _WORDS,
    "ranks": _RANKS,
    "activities": _WORDS,
    "with_stack": _FLAG,
    "record_shapes": _FLAG,
    "profile_memory": _FLAG,
    "with_flops": _FLAG,
    "with_modules": _FLAG,
    "size_limit_mb": _COUNT,
    "time_limit_s": _NUMBER,
    "release": _TEXT,
}
# The rest of SGLang's, and `session`, which names an existing session's folder.
_OTHER_FIELDS: dict[str, _Kind] = {
    "output_dir": _TEXT,
    "num_steps": _COUNT,
    "profile_by_stage": _FLAG,
    "profile_id": _TEXT,
    "profile_prefix": _TEXT,
    "profile_stages": _WORDS,
    "merge_profiles": _FLAG,
    "detailed_annotations": _FLAG,
    "req_type": _TYPE,
    "rid": _TEXT,
    "http_worker_ipc": _TEXT,
    "session": _TEXT,
}
_FIELDS = PLAN_FIELDS | _OTHER_FIELDS
# Which steps are recorded is told by the request alone; everything else it may leave to the server's own plan.
_STEPS = ("wait", "warmup", "active", "start_step", "windows", "stages")


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that makes sense. `root`, `name` and `session` are None when not said.

    `notes` are sentences for the client about what it asked and will not get in that form.
    """

    plan: RecordPlan
    root: str | None = None
    name: str | None = None
    session: str | None = None
    notes: list[str] = []


def parse_start(body: bytes, base: RecordPlan | None = None) -> StartRequest:
    """The body of a start request; null stands for not said, an empty body for nothing said.

    `base` is what the server records when a request does not say otherwise, its steps apart: those that are not said
    mean at once and until stopped, as in SGLang. Stacks are on and shapes off without `base`.
    Raises UsageError for what is no JSON object, an unknown field, a wrong type, and an impossible plan.
    """
    said = _decoded(body)
    if said.get("req_type", _START) not in (_START, "START_PROFILE"):
        raise UsageError("req_type asks for something else than a start", hint="to stop, POST /stop_profile")
    if "session" in said and "output_dir" in said:
        raise UsageError("session and output_dir both say where the trace goes", hint="give one of them")
    notes: list[str] = []
    chosen = {name: getattr(base, name) for name in PLAN_FIELDS if name not in _STEPS} if base is not None else {}
    chosen |= {name: said[name] for name in PLAN_FIELDS if name in said}
    chosen |= _steps(said)
    if "activities" in said:
        chosen["activities"] = _activities(said["activities"], notes)
    if chosen.get("size_limit_mb") == 0:
        chosen["size_limit_mb"] = None
    if said.get("merge_profiles"):
        notes.append("merge_profiles: ranks are merged afterwards, by `dsv4prof merge` and the session's folder")
    if said.get("detailed_annotations"):
        notes.append("detailed_annotations: nothing is added to what the program annotates by itself")
    root = said.get("output_dir")
    name = "-".join(part for part in (said.get("profile_prefix"), said.get("profile_id")) if part)
    return StartRequest(
        plan=RecordPlan(**chosen),
        root=_home_resolved(root) if root else None,
        name=name or None,
        session=said.get("session") or None,
        notes=notes,
    )


def _decoded(body: bytes) -> dict[str, Any]:
    """The fields that were said, each of its type."""
    if not body.strip():
        return {}
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the request's body is no JSON: {error}", hint='for example {"num_steps": 5}') from error
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise UsageError("the request's body is no JSON object", hint='for example {"num_steps": 5}')
    for name in given:
        if name not in _FIELDS:
            raise UsageError(f"unknown field {_short(name)}", hint=_meant(name))
    return {name: _typed(name, value) for name, value in given.items() if value is not None}


def _typed(name: str, value: object) -> Any:
    kind, words = _FIELDS[name]
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise UsageError(f"{name} has to be {words}, not {_short(value)}", hint="null leaves it out") from None


def _steps(said: dict[str, Any]) -> dict[str, Any]:
    """Which steps, in the plan's words."""
    if (said.get("num_steps") or None) is not None and "active" in said and said["active"] != said["num_steps"]:
        raise UsageError("num_steps and active are the same thing with two values", hint="give one of them")
    active = said.get("active", said.get("num_steps") or None)
    stages = _stages(said)
    if stages and active is None:
        raise UsageError("profile_by_stage needs a number of steps for each stage", hint="give num_steps")
    steps: dict[str, Any] = {"active": active, "stages": stages}
    # 0 is SGLang's "at once" as well, and beside `wait` it says nothing.
    steps["start_step"] = said.get("start_step") or None
    return steps


def _stages(said: dict[str, Any]) -> tuple[str, ...]:
    named = [_words(said[name]) for name in ("stages", "profile_stages") if name in said]
    if len(named) == 2 and named[0] != named[1]:
        raise UsageError("stages and profile_stages are the same thing with two values", hint="give one of them")
    stages = tuple(named[0]) if named else ()
    if stages and said.get("profile_by_stage") is False:
        raise UsageError("stages are named and profile_by_stage is false", hint="leave one of them out")
    if said.get("profile_by_stage") and not stages:
        return tuple(stage.value for stage in _STAGES)
    return stages


def _activities(given: str | list[str], notes: list[str]) -> str:
    """A list is SGLang's, where [CPU, GPU] is what everybody sends, with a GPU or without: the plan's "auto"."""
    if isinstance(given, str):
        return given
    words = [word.strip().lower() for word in given]
    if {"cpu", "gpu"} <= set(words):
        notes.append("activities: the CPU, and the GPU if torch can trace one here")
        words = ["auto", *(word for word in words if word not in ("cpu", "gpu", "auto"))]
    return "+".join(words)


def _words(given: str | Sequence[str]) -> list[str]:
    words = given.replace("+", ",").split(",") if isinstance(given, str) else list(given)
    return [word.strip() for word in words if word.strip()]


def _home_resolved(root: str) -> str:
    try:
        return str(Path(root).expanduser())
    except RuntimeError as error:
        raise UsageError(f"output_dir {_short(root)} has no home folder: {error}", hint="give a full path") from error


def _meant(name: str) -> str:
    close = difflib.get_close_matches(name.lower()[:60], _FIELDS, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "one of " + ", ".join(sorted(_FIELDS))


def _short(value: object) -> str:
    """A client's own words in a sentence: whatever it sent, no more than a line."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
