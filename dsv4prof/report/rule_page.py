"""A rule as a page: prose, examples, and the forms that it covers, for a terminal or in Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from dsv4prof.report.style import Style

_WIDTH = 100
_ALL = ["cuda", "rocm"]
# The JSON has all.
_MOST_CASES = 3
_SEEN = (("source", "In source"), ("run", "At run time"), ("trace", "In a trace"))
Data = dict[str, Any]


def render_rule(data: Data, *, markdown: bool = False, color: bool = False) -> str:
    """The page of one rule, from the `data` of its report."""
    if markdown:
        return f"{markdown_rule(data['rule'])}\n{markdown_forms(data['forms'])}".rstrip() + "\n"
    style = Style(color)
    blocks = [*_text_rule(data["rule"], style), *_text_forms(data["forms"], style)]
    return "\n\n".join(blocks) + "\n"


def waits(form: Data) -> str:
    """How often a form waits, in words."""
    if not form["syncs"]:
        return "never"
    return {0: "once an element", 1: "once"}.get(form["times"], f"{form['times']} times")


def versions(form: Data) -> str:
    """The torch versions in which it waits."""
    parts = [f"from {form['since']}" if form["since"] else "", f"to {form['until']}" if form["until"] else ""]
    return " ".join(part for part in parts if part) or "all"


def known(form: Data) -> str:
    """On what the claim rests."""
    cases = form["measured"]
    more = f" and {len(cases) - _MOST_CASES} more" if len(cases) > _MOST_CASES else ""
    measured = "measured: " + ", ".join(cases[:_MOST_CASES]) + more if cases else ""
    mark = "" if form["mark"] == "measured" and measured else form["mark"]
    return "; ".join(part for part in (mark, form["source"], measured) if part)


def _text_rule(rule: Data, style: Style) -> list[str]:
    blocks = [
        f"{style.strong(rule['code'] + ' ' + rule['name'])} ({rule['severity']})\n{rule['summary']}",
        _fill(rule["doc"]),
    ]
    seen = [_fill(rule[key], f"{title}: ") for key, title in _SEEN if rule[key]]
    blocks += ["\n".join(seen)] if seen else []
    for key, title in (("bad", "Has the fault:"), ("good", "Has it not:")):
        if rule[key]:
            blocks.append(f"{title}\n" + textwrap.indent(rule[key], "    "))
    advice = [_fill(rule[key], f"{title}: ") for key, title in (("fix", "Fix"), ("unsafe", "Unsafe")) if rule[key]]
    blocks += ["\n".join(advice)] if advice else []
    return blocks + ([f"Met in: {', '.join(rule['references'])}"] if rule["references"] else [])


def _text_forms(forms: list[Data], style: Style) -> list[str]:
    waiting = [form for form in forms if form["syncs"]]
    free = [form for form in forms if not form["syncs"] and form["kineto_cuda"].startswith("no ")]
    hazards = [form for form in forms if not form["syncs"] and form not in free]
    blocks = []
    if waiting or hazards:
        blocks.append(style.strong("Forms that wait" if waiting else "Forms"))
        blocks += [_text_form(form, style) for form in waiting + hazards]
    if free:
        lines = [_fill(f"{form['id']}: {_syntax(form)}; {form['condition']}", "  ") for form in free]
        blocks.append("\n".join([style.strong("Look-alikes that do not wait"), *lines]))
    traces = _traces(waiting)
    if traces:
        lines = [
            _fill(f"CUDA: {cuda}. ROCm: {rocm}. Of {', '.join(ids)}.", "  ") for (cuda, rocm), ids in traces.items()
        ]
        blocks.append("\n".join([style.strong("In a trace"), *lines]))
    return blocks


def _text_form(form: Data, style: Style) -> str:
    facts = f"waits {waits(form)}; torch {versions(form)}" if form["syncs"] else "a hazard, not a wait"
    if list(form["vendors"]) != _ALL:
        facts += f"; only {', '.join(form['vendors'])}"
    lines = [style.strong(form["id"]) + f"  {_syntax(form)}", _fill(form["condition"], "    when: "), f"    {facts}"]
    if form["fix"]:
        automatic = ", automatic" if form["fix"]["automatic"] else ""
        lines.append(_fill(f"{form['fix']['text']} ({form['fix']['safety']}{automatic})", "    fix: "))
    lines.append(_fill(known(form), "    known from: "))
    return "\n".join(lines)


def _traces(forms: list[Data]) -> dict[tuple[str, str], list[str]]:
    """Forms that look the same in a trace, together."""
    found: dict[tuple[str, str], list[str]] = {}
    for form in forms:
        found.setdefault((form["kineto_cuda"], form["kineto_rocm"]), []).append(form["id"])
    return found


def _syntax(form: Data) -> str:
    return ", ".join(form["syntax"])


def _fill(text: str, start: str = "") -> str:
    indent = " " * (len(start) - len(start.lstrip())) + ("  " if start.strip() else "  " if start else "")
    return textwrap.fill(
        text, _WIDTH, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def markdown_rule(rule: Data, level: int = 2) -> str:
    """Heading and prose of one rule."""
    blocks = [
        f"{'#' * level} {rule['code']} {rule['name']}",
        f"{rule['summary']} ({rule['severity']})",
        rule["doc"].strip(),
    ]
    seen = [f"- **{title}**: {rule[key]}" for key, title in _SEEN if rule[key]]
    blocks += ["\n".join(seen)] if seen else []
    for key, title in (("bad", "Has the fault:"), ("good", "Has it not:")):
        if rule[key]:
            language = "diff" if rule[key].startswith(("- ", "+ ")) else "python"
            blocks.append(f"{title}\n\n```{language}\n{rule[key]}\n```")
    blocks += [f"**{title}**: {rule[key]}" for key, title in (("fix", "Fix"), ("unsafe", "Unsafe")) if rule[key]]
    if rule["references"]:
        blocks.append("Met in: " + ", ".join(rule["references"]))
    return "\n\n".join(blocks) + "\n"


def markdown_forms(forms: list[Data]) -> str:
    """The forms of one rule as tables: those that wait (or the hazard), then the look-alikes. Empty without forms."""
    waiting = [form for form in forms if form["syncs"] or not form["kineto_cuda"].startswith("no ")]
    free = [form for form in forms if form not in waiting]
    blocks = []
    if waiting:
        head = (
            "form",
            "written as",
            "when",
            "waits",
            "torch",
            "vendors",
            "CUDA trace",
            "ROCm trace",
            "fix",
            "safety",
            "known from",
        )
        blocks.append(_table(head, map(_markdown_cells, waiting)))
    if free:
        rows = ([_code(form["id"]), _codes(form), form["condition"], known(form)] for form in free)
        blocks.append("Do not wait:\n\n" + _table(("form", "written as", "when", "known from"), rows))
    return "\n\n".join(blocks) + "\n" if blocks else ""


def _markdown_cells(form: Data) -> list[str]:
    fix = form["fix"] or {"text": "", "safety": "", "automatic": False}
    return [
        _code(form["id"]),
        _codes(form),
        form["condition"],
        waits(form),
        versions(form) if form["syncs"] else "",
        ", ".join(form["vendors"]),
        form["kineto_cuda"],
        form["kineto_rocm"],
        fix["text"],
        fix["safety"] + (", automatic" if fix["automatic"] else ""),
        known(form),
    ]


def _table(head: Iterable[str], rows: Iterable[list[str]]) -> str:
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _codes(form: Data) -> str:
    return "<br>".join(map(_code, form["syntax"]))


def _code(text: str) -> str:
    return f"`{text}`"
