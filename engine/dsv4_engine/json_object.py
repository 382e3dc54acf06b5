"""JSON files that must hold an object: whatever is wrong with one is a sentence that names it, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dsv4_engine.errors import EngineError


def read_json_object(path: Path, *, hint: str) -> dict[str, Any]:
    """The object in a UTF-8 file; EngineError with `hint` where it cannot be read, parsed or is something else."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(f"{path} cannot be read: {error}", hint=hint) from None
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise EngineError(f"{path} is not JSON: {error.msg} at line {error.lineno}", hint=hint) from None
    except RecursionError:
        raise EngineError(f"{path} is nested too deeply to be read", hint=hint) from None
    except ValueError as error:  # an integer with more digits than Python converts
        raise EngineError(f"{path} cannot be read: {error}", hint=hint) from None
    if not isinstance(values, dict):
        raise EngineError(f"{path} holds no JSON object", hint=hint)
    return values
