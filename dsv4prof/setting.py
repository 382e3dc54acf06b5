"""What one setting is: its name in every place that can give it, its kind, and how a value is read."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4prof.errors import UsageError

ENV_PREFIX = "DSV4PROF_"

# Settings that a TOML file may give as a list, and what stands between the entries in one text.
_LISTS = {"A,B": ",", "R,R": ",", "A+B": ",", "A;B": ";"}

Plain = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting: its name in Python and TOML (`max_new_tokens`), its kind, default and help line.

    The help has to fit beside the option on 80 columns, default included: 49 characters. `metavar` stands for a text.
    `option` is the flag where it is not the name's: those of one command stand in a table of their own in TOML
    (`audit_level` is `level` in [tool.dsv4prof.audit], and `--level`).
    """

    name: str
    kind: type
    default: Plain
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    metavar: str = "NAME"
    option: str = ""

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        return self.option or "--" + self.name.replace("_", "-")

    def parse(self, raw: object, source: str) -> Plain:
        """`raw` as this setting's kind; UsageError names the source and what was expected."""
        value = self._convert(raw, source)
        if self.choices and value not in self.choices:
            raise self._refuse(raw, source, "one of " + ", ".join(self.choices))
        if self.minimum is not None and isinstance(value, int | float) and value < self.minimum:
            raise self._refuse(raw, source, f"at least {self.minimum:g}")
        return value

    def _convert(self, raw: object, source: str) -> Plain:
        if self.kind is bool:
            return self._flag(raw, source)
        if self.kind is str:
            if isinstance(raw, list) and self.metavar in _LISTS:
                return _LISTS[self.metavar].join(map(str, raw))
            if not isinstance(raw, str):
                raise self._refuse(raw, source, "a text")
            return raw
        if isinstance(raw, bool) or (self.kind is int and isinstance(raw, float)):
            raise self._refuse(raw, source, "a whole number" if self.kind is int else "a number")
        try:
            number: int | float = self.kind(raw)
            return number
        except (TypeError, ValueError):
            raise self._refuse(raw, source, "a whole number" if self.kind is int else "a number") from None

    def _flag(self, raw: object, source: str) -> bool:
        if isinstance(raw, bool):
            return raw
        words = {
            "1": True,
            "true": True,
            "yes": True,
            "on": True,
            "0": False,
            "false": False,
            "no": False,
            "off": False,
        }
        word = str(raw).strip().lower()
        if word not in words:
            raise self._refuse(raw, source, "true or false")
        return words[word]

    def _refuse(self, raw: object, source: str, expected: str) -> UsageError:
        return UsageError(f"{source}: {self.name} = {raw!r} is not {expected}", hint=self.help)
