"""Who a server says it is: program, version, model, its ranks, speculative decoding, and whether it is busy.

SGLang 0.5.23 answers `/server_info` with its resolved arguments and one `internal_states` entry for each data-parallel
rank, and our own server alike; older ones had `/get_server_info`. vLLM answers `/version` and `/v1/models` (its
documentation; not tried).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from dsv4prof.errors import InputError, UsageError
from dsv4prof.target.remote.client import Answer, Client, netloc_of, path_of, printable

Kind = Literal["sglang", "dsv4prof", "vllm", "unknown"]
_NAMES = {"sglang": "SGLang", "dsv4prof": "dsv4prof", "vllm": "vLLM", "unknown": "a server"}
# A scheduler answers between two steps; a long prefill is one step.
FACTS_TIMEOUT = 20.0
# The largest deployments have some thousands.
MOST_RANKS = 1 << 16
_SPECULATIVE = ("algorithm", "num_steps", "eagle_topk", "num_draft_tokens")


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a server told of itself. Sizes are 1 when it told none; `speculative` is empty without it.

    `accept_length` is the server's own average over all it served since its start.
    """

    kind: Kind
    version: str | None = None
    model: str | None = None
    device: str | None = None
    tp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    nodes: int = 1
    dp_attention: bool = False
    generates: bool = True
    speculative: dict[str, Any] = {}
    accept_length: float | None = None

    @property
    def name(self) -> str:
        """`SGLang 0.5.23`."""
        return _NAMES[self.kind] + (f" {self.version}" if self.version else "")

    @property
    def sizes(self) -> dict[str, int]:
        return {"tp": self.tp, "dp": self.dp, "pp": self.pp, "ep": self.ep}

    def words(self) -> str:
        """The server in one line: `SGLang 0.5.23, llama on cpu, TP 1, DP 2, EAGLE with 4 draft tokens`."""
        # A model served from a folder is called by its whole path.
        name = (self.model or "").rstrip("/").rpartition("/")[2]
        model = " ".join(filter(None, [name, f"on {self.device}" if self.device else None]))
        sizes = [f"{key.upper()} {size}" for key, size in self.sizes.items() if size > 1 or key == "tp"]
        attention = ["DP attention"] if self.dp_attention else []
        told = self.kind == "sglang" or (self.kind == "dsv4prof" and self.model is not None)
        known = [*sizes, *attention, self._speculative_words()] if told else []
        return ", ".join(filter(None, [self.name, model, *known]))

    def _speculative_words(self) -> str:
        if not self.speculative:
            return "no speculative decoding"
        drafts = self.speculative.get("num_draft_tokens")
        told = f" with {drafts} draft tokens" if drafts else ""
        accept = f", accept length {self.accept_length:.2f} since its start" if self.accept_length else ""
        return f"{self.speculative.get('algorithm', 'speculative decoding')}{told}{accept}"


def ask_facts(client: Client) -> ServerFacts:
    """Find out what answers.

    Raises NoAnswerError when nothing does, UsageError when it wants a key or is no serving engine, InputError when what
    it says of its ranks cannot be.
    """
    answers = {"/profile_status": _asked(client, "/profile_status")}
    own = answers["/profile_status"].object()
    if own.get("server") == "dsv4prof":
        return _own(own, _asked(client, "/server_info").object())
    for path in ("/server_info", "/get_server_info", "/model_info"):
        answers[path] = _asked(client, path)
        info = answers[path].object()
        if path != "/model_info" and "tp_size" in info:
            return _sglang(info, _asked(client, "/model_info").object())
    for path in ("/version", "/v1/models"):
        answers[path] = _asked(client, path)
    version = answers["/version"].object().get("version")
    models = answers["/v1/models"].object().get("data")
    first = models[0] if isinstance(models, list) and models and isinstance(models[0], dict) else {}
    if isinstance(version, str):
        return ServerFacts(kind="vllm", version=_text(version), model=_text(first.get("id")))
    if not any(answer.ok and answer.object() for answer in answers.values()):
        raise _no_engine(client.url, answers)
    return ServerFacts(kind="unknown", model=_text(first.get("id")))


def _own(status: dict[str, Any], info: dict[str, Any]) -> ServerFacts:
    """A program with our manager in it; one that serves tells of itself as SGLang does."""
    served = _sglang(info, {}) if "tp_size" in info else ServerFacts(kind="dsv4prof")
    return msgspec.structs.replace(served, kind="dsv4prof", version=_text(status.get("version")))


def _no_engine(url: str, answers: dict[str, Answer]) -> UsageError:
    """What answers none of the questions: in which way, and what to look at."""
    statuses = {answer.status for answer in answers.values()}
    if statuses == {404}:
        hint = f"{url.rsplit('://', 1)[0]}://{netloc_of(url)} without the path?" if path_of(url) else "check the port"
        return UsageError(f"{url} is no serving engine: it has none of {', '.join(answers)} (HTTP 404)", hint=hint)
    path, answer = next((path, answer) for path, answer in answers.items() if answer.status != 404)
    if 300 <= answer.status < 400:
        what, hint = f"a redirect (HTTP {answer.status})", "give the address that it leads to"
    elif not answer.ok:
        what, hint = f"HTTP {answer.status}", "its log has the reason; is it still starting?"
    elif answer.json() is None:
        page = answer.body[:200].lstrip().startswith(b"<")
        what, hint = "a web page" if page else "no JSON", "is it another program's port?"
    else:
        what, hint = "JSON that says nothing of a server", "is it another program's port?"
    return UsageError(f"{url} is no serving engine: it answers {path} with {what}", hint=hint)


def requests_in_progress(client: Client, kind: Kind) -> int | None:
    """Requests that run or wait on the server; None when it does not say."""
    if kind == "sglang":
        loads = client.get("/v1/loads", timeout=FACTS_TIMEOUT)
        counts = _counted(loads.object().get("loads"), ("num_running_reqs", "num_waiting_reqs"))
        if counts is not None or loads.status != 404:
            return counts
        # Before /v1/loads there was this one, with waiting requests inside num_reqs.
        return _counted(client.get("/get_load", timeout=FACTS_TIMEOUT).json(), ("num_reqs",))
    if kind == "dsv4prof":
        states = client.get("/server_info", timeout=FACTS_TIMEOUT).object().get("internal_states")
        return _counted(states, ("num_running_reqs", "num_waiting_reqs"))
    if kind in ("vllm", "unknown"):
        return _from_metrics(client.get("/metrics", timeout=FACTS_TIMEOUT))
    return None


def _asked(client: Client, path: str) -> Answer:
    answer = client.get(path, timeout=FACTS_TIMEOUT)
    refuse_without_key(answer, client.url)
    return answer


def refuse_without_key(answer: Answer, url: str) -> None:
    """Raises UsageError for an answer that asks for a key."""
    if answer.status in (401, 403):
        raise UsageError(
            f"{url} refuses without the right key (HTTP {answer.status})",
            hint="--api-key KEY; where SGLang has an admin key, profiling needs that one",
        )


def _sglang(info: dict[str, Any], model: dict[str, Any]) -> ServerFacts:
    states = info.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    algorithm = info.get("speculative_algorithm")
    told = {key: _plain(info.get(f"speculative_{key}")) for key in _SPECULATIVE}
    facts = ServerFacts(
        kind="sglang",
        version=_text(info.get("version")),
        model=_text(model.get("served_model_name")) or _text(info.get("served_model_name")),
        device=_text(info.get("device")),
        tp=_size(info, "tp_size"),
        dp=_size(info, "dp_size"),
        pp=_size(info, "pp_size"),
        ep=_size(info, "ep_size"),
        nodes=_size(info, "nnodes"),
        dp_attention=info.get("enable_dp_attention") is True,
        generates=model.get("is_generation") is not False,
        speculative={key: value for key, value in told.items() if value is not None} if algorithm else {},
        accept_length=_length(state.get("avg_spec_accept_length")),
    )
    if facts.tp * facts.dp * facts.pp > MOST_RANKS:
        raise InputError(
            f"the server says that it has TP {facts.tp}, DP {facts.dp}, PP {facts.pp}: more than {MOST_RANKS} ranks",
            hint="is it SGLang?",
        )
    return facts


def _size(info: dict[str, Any], name: str) -> int:
    value = info.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else 1


def _text(value: object) -> str | None:
    return printable(value) if isinstance(value, str) and value else None


def _plain(value: object) -> str | int | None:
    """A number or a word: whatever else a server says there is nothing that we know."""
    if isinstance(value, int) and abs(value) < 1 << 53:
        return value
    return _text(value)


def _length(value: object) -> float | None:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 20
    return float(value) if fine else None  # type: ignore[arg-type]


def _counted(entries: object, keys: tuple[str, ...]) -> int | None:
    if not isinstance(entries, list) or not entries:
        return None
    told = [entry.get(key) for entry in entries if isinstance(entry, dict) for key in keys]
    values = [value for value in told if isinstance(value, int)]
    return sum(values) if values and len(values) == len(told) else None


def _from_metrics(answer: Answer) -> int | None:
    """Prometheus text, as vLLM names its gauges."""
    found = [
        line.rsplit(None, 1)[-1]
        for line in answer.body.decode("utf-8", "replace").splitlines()
        if line.startswith(("vllm:num_requests_running", "vllm:num_requests_waiting{"))
    ]
    try:
        return int(sum(map(float, found))) if answer.ok and found else None
    except ValueError:
        return None
