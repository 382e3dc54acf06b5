"""What is known at one point of a function: names, and dotted paths that this function assigned or tested.

One dict holds it all, because it is copied at every branch. A plain key is a local name. A key with a dot is a path
(`batch.seq_lens`): it counts over what the class says, until its head is assigned again. Keys that start with a mark
are no values: `@host` (only a CPU runs this), `@cold` (only somebody who debugs does), `?` and a text (this was read
back already), `&` and a name (the test whose outcome the name holds).
"""

from __future__ import annotations

from typing import Any

from dsv4prof.sync.code.values import Value, join, settled

Environment = dict[str, Any]

HOST_ONLY = "@host"
COLD = "@cold"
READ = "?"
TEST = "&"
_MARKS = "@?&"


def joined(left: Environment | None, right: Environment | None) -> Environment | None:
    """What holds where two paths meet; None is a path that ends before."""
    if left is None or right is None:
        return right if left is None else left
    result = dict(left)
    for key, value in right.items():
        other = left.get(key)
        if other is value:
            continue
        if other is None:
            if "." not in key and key[0] not in _MARKS:
                result[key] = value
        elif key[0] in _MARKS:
            if other != value:
                del result[key]
        else:
            result[key] = join(other, value)
    for key in left:
        if key not in right and ("." in key or key[0] in _MARKS):
            del result[key]
    return result


def forget_paths(env: Environment, head: str) -> None:
    """`head` was assigned: what was known of `head.x` speaks of another object now."""
    prefix = head + "."
    for key in [key for key in env if key.startswith(prefix)]:
        del env[key]


def settle(env: Environment) -> None:
    """The host waited: every copy on its way has arrived."""
    for key, value in env.items():
        if value.__class__ is Value and value.pending:
            env[key] = settled(value)


def changed(before: Environment, after: Environment) -> bool:
    """Whether another turn of a loop can find something new."""
    for key, value in after.items():
        if key[0] in _MARKS:
            continue
        old = before.get(key)
        if old is value:
            continue
        if old is None:
            return True
        if (
            old.kinds != value.kinds
            or old.places != value.places
            or old.strength != value.strength
            or old.ref != value.ref
            or old.dtype != value.dtype
        ):
            return True
    return False
