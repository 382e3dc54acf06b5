"""torch pastes metadata into its trace unchecked and turns every backslash into a slash (2.13): one escape in a JSON
text makes the whole file unreadable. So what we write needs none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

_HARMLESS = {**dict.fromkeys([*range(0x20), 0x7F], " "), ord('"'): "'", ord("\\"): "/"}


def pasteable(metadata: Mapping[str, object]) -> str:
    """JSON text without any escape: quotes become single, backslashes slashes, control characters spaces, and what JSON
    or UTF-8 cannot hold becomes text or a question mark.
    """
    return json.dumps(_plain(metadata), ensure_ascii=False, allow_nan=False)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {_clean(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _clean(value)


def _clean(value: object) -> str:
    return str(value).encode("utf-8", "replace").decode().translate(_HARMLESS)
