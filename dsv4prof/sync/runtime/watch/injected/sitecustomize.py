"""Python runs this at its start where `dsv4prof audit run` put it first: it arms the process, and makes way.

Whatever goes wrong here is written down for the parent; the program itself runs as it would have.
"""

# pathlib would slow every start of Python.
# ruff: noqa: PTH100, PTH118, PTH120, PTH123
from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_ENV = "DSV4PROF_WATCH"


def _append(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "a", encoding="utf-8") as file:
        file.write(text.replace("\n", " ") + "\n")


def _arm(path: str) -> None:
    folder = os.path.dirname(path)
    _append(folder, "started", f"{os.getpid()} {' '.join(sys.orig_argv)}")
    try:
        try:
            import dsv4prof  # noqa: F401
        except ImportError:
            import json

            with open(path, encoding="utf-8") as file:
                sys.path.append(json.load(file)["root"])
        from dsv4prof.sync.runtime.watch.arming import prepare

        prepare(path)
    except ImportError as error:
        _append(folder, "problems", f"{sys.executable} cannot load the watch: {error}")


def _make_way() -> None:
    """The environment's own sitecustomize runs as if nothing stood before it."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    if sys.modules.get("sitecustomize") is not sys.modules.get(__name__):
        return
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get(_ENV) and __name__ == "sitecustomize":
    _arm(os.environ[_ENV])
    _make_way()
