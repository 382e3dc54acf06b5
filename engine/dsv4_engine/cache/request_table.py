"""Which pages a request's tokens lie in: one row a slot, one column for each `page_size` positions.

SGLang's `req_to_token` names a slot of the token pool for every single token. Here pages are never split between
requests, so the page says it all: raw_out_loc = page * page_size + position % page_size. The table is a 256th of the
size, growth by a page is one write, and an upload a step is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dsv4_engine.cache.layout import CacheLayout
from dsv4_engine.cache.staging import NO_FAULTS, Faults, StagingRing
from dsv4_engine.errors import EngineError
from dsv4_engine.plan import TableWrite


class RequestTable:
    """pages: (num_slots, pages_per_request) int32 on the device; 0, the padding page, where nothing is assigned.

    A page that is taken from a request stays in its row until another write; no read goes beyond a request's length.
    """

    def __init__(
        self, layout: CacheLayout, *, device: torch.device, staging: StagingRing, faults: Faults = NO_FAULTS
    ) -> None:
        self._layout, self._staging = layout, staging
        self._wait_for_readers = not faults.no_war_barrier
        self.pages = torch.zeros(layout.num_slots, layout.pages_per_request, dtype=torch.int32, device=device)
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def apply(self, writes: Sequence[TableWrite]) -> None:
        """Enter pages, with one upload. On a GPU a stream of its own does it, after all that was launched before
        (unless that barrier is taken away, see `Faults`) and before all that is launched from now on."""
        if not writes:
            return
        self._require_in_range(writes)
        if self._stream is None:
            self._write(writes)
            return
        current = torch.cuda.current_stream(self.pages.device)
        if self._wait_for_readers:
            self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._write(writes)
        current.wait_stream(self._stream)

    def identity(self) -> None:
        """Give each slot a fixed run of pages: how tests and single-user tools do without a scheduler."""
        layout = self._layout
        needed = (layout.num_slots - 1) * layout.pages_per_request
        if layout.num_pages - 1 < needed:
            raise EngineError(
                f"{layout.num_pages - 1} pages do not give every slot its own, which takes {needed}",
                hint="leave num_pages out, or let a scheduler fill the request table",
            )
        pages = torch.arange(1, needed + 1, dtype=torch.int32, device=self.pages.device)
        self.pages[1:] = pages.view(-1, layout.pages_per_request)

    def _write(self, writes: Sequence[TableWrite]) -> None:
        columns = zip(*((write.slot, write.column, write.page) for write in writes), strict=True)
        slot, column, page = self._staging.upload(tuple(columns)).tensor()
        self.pages[slot, column] = page.to(torch.int32)

    def _require_in_range(self, writes: Sequence[TableWrite]) -> None:
        layout = self._layout
        for write in writes:
            inside = (
                0 < write.slot < layout.num_slots
                and 0 <= write.column < layout.pages_per_request
                and 0 <= write.page < layout.num_pages
            )
            if not inside:
                raise EngineError(
                    f"{write} lies outside the request table of {layout.num_slots - 1} slots, "
                    f"{layout.pages_per_request} columns and {layout.num_pages - 1} pages",
                    hint="the scheduler and the caches must be made with the same sizes",
                )
