"""The forms in which a hang is told by those who wait: queues, remote calls, watchdogs, collectives, heartbeats.

Whoever waits and gives up is never the cause: these name what to look behind.
"""

from __future__ import annotations

import re

from dsv4prof.faultrecord.fault_forms import Form
from dsv4prof.faultrecord.message import Role

_SECONDS = (
    r"(?:for |in |of |after )?(?P<waited_s>\d+(?:\.\d+)?)\s*(?P<code>ms|milliseconds|s\b|sec\b|seconds?|minutes?)"
)

# A timeout that happened, and not one that is set or described.
_GAVE_UP = r"(?:timed[ -]?out|timeout[ :,]*(?:error|exceeded|expired|reached|after|waiting|\(|!|$)|timeouterror)"


def _form(kind: str, pattern: str, *, role: Role = "consequence") -> Form:
    return Form(kind, role, "", re.compile(pattern, re.IGNORECASE))


COLLECTIVES = (
    _form(
        "collective-timeout",
        r"watchdog caught collective operation timeout:\s*WorkNCCL\(SeqNum=(?P<sequence>\d+),\s*"
        r"OpType=(?P<collective>\w+).*?ran for (?P<waited_s>\d+) (?P<code>milliseconds)",
    ),
    _form(
        "collective-progress",
        r"(?:timeout at nccl work: |at work(?: sequence id)?: )(?P<sequence>\d+).*?last enqueued (?:nccl )?work: "
        r"(?P<enqueued>\d+), last completed (?:nccl )?work: (?P<completed>\d+)",
    ),
    _form(
        "collective-progress",
        r"last enqueued nccl work: (?P<enqueued>\d+), last completed nccl work: (?P<completed>\d+)",
    ),
    _form(
        "collective-timeout", r"timed out waiting (?P<waited_s>\d+)\s*(?P<code>ms) for (?P<collective>\w+) operation"
    ),
    _form(
        "collective-timeout",
        r"(?:nccl|rccl|gloo|collective|barrier|all_?reduce|all_?gather|broadcast)\b[^\n]*?\b"
        rf"{_GAVE_UP}"
        rf"(?:[^\n]*?{_SECONDS})?",
    ),
    _form("collective-timeout", r"(?P<collective>deep_?ep|nvshmem|rocshmem|\bmori)\b[^\n]*?\btimeout\b"),
    _form("peer-lost", r"connection closed by peer|connection reset by peer|remote process exited"),
)

WAITERS = (
    _form("queue-timeout", rf"shm_broadcast[^\n]*?(?:no message|no available|timed? ?out|timeout)[^\n]*?{_SECONDS}"),
    _form("queue-timeout", rf"no available (?:shared memory broadcast )?block found[^\n]*?{_SECONDS}"),
    _form("queue-timeout", rf"shm_broadcast[^\n]*?(?:{_GAVE_UP}|timeout\b|considered dead)"),
    _form(
        "queue-timeout",
        r"(?:\bzmq|zeromq|message queue|\bqueue|\bsocket|\bpipe|\bipc)\b[^\n]*?"
        rf"(?:\bno message|{_GAVE_UP}|resource temporarily unavailable|EAGAIN)(?:[^\n]*?{_SECONDS})?",
    ),
    _form("queue-timeout", r"zmq\.(?:error\.)?Again"),
    _form("rpc-timeout", rf"\brpc\b[^\n]*?{_GAVE_UP}(?:[^\n]*?{_SECONDS})?"),
    _form("health-timeout", rf"(?:health|liveness)[ _-]?check[^\n]*?(?:fail|{_GAVE_UP})(?:[^\n]*?{_SECONDS})?"),
    _form("heartbeat-timeout", rf"heart ?beat[^\n]*?(?:{_GAVE_UP}|missed|lost|stale)(?:[^\n]*?{_SECONDS})?"),
    _form("watchdog-timeout", rf"watch ?dog[^\n]*?{_GAVE_UP}(?:[^\n]*?{_SECONDS})?"),
    _form(
        "engine-dead",
        r"engine ?(?:core)?[^\n]*?(?:considered dead|died|is dead|dead ?error|not respond)|EngineDeadError",
    ),
    _form("rpc-timeout", rf"\b(?:TimeoutError|asyncio\.TimeoutError|deadline exceeded)\b(?:[^\n]*?{_SECONDS})?"),
)
DRIVERS = (
    _form("gpu-hang", r"\bring \S+ timeout|gpu reset begin|GPU hang|fence wait loop timeout|"
          r"failed to evict process queues|unsuccessful queues? preemption|queue preemption time", role="symptom"),
)  # fmt: skip
