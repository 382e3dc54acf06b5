"""A step's name is an annotation that is open while the step runs; whoever records must close it before the stop."""

from __future__ import annotations

from typing import Any

from dsv4prof.recorder.marks import step_name


class StepMark:
    """The one open annotation of a window, through torch's `record_function`."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._open: Any = None

    def move(self, step: int | None) -> None:
        """Close what is open, and open `step`'s name unless it is None."""
        mark, self._open = self._open, None
        if mark is not None:
            mark.__exit__(None, None, None)
        if step is not None:
            self._open = self._torch.profiler.record_function(step_name(step))
            self._open.__enter__()

    def forget(self) -> Any:
        """What is open, which is nobody's to close any more."""
        mark, self._open = self._open, None
        return mark
