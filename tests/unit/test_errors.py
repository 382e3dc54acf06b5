"""What a user reads when something is wrong."""

from __future__ import annotations

import traceback

from dsv4prof.errors import Dsv4profError, MissingExtraError


def test_a_traceback_names_the_command_that_installs_what_is_missing() -> None:
    error = MissingExtraError("torch", "engine", purpose="recording")
    (line,) = traceback.format_exception_only(type(error), error)
    assert line.rstrip().endswith("needs the package 'torch', which is not installed: pip install 'dsv4prof[engine]'")
    assert error.hint == "pip install 'dsv4prof[engine]'"
    assert isinstance(error, Dsv4profError)
    assert error.exit_code == 2
