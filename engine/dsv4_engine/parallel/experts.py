"""How the rows of all replicas reach the experts, and how the experts' results come back.

With one replica every rank has the same rows, so only results are summed. With several (attention DP) each has rows of
its own: they are gathered first, padded to the longest replica's number, which the host knows before the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from dsv4_engine.parallel.group import TensorParallelGroup
from dsv4_engine.parallel.place import Place


@dataclass(frozen=True, kw_only=True)
class ExpertGroup:
    """world: all ranks. peers: this rank's counterparts, one of each replica, in the order of replicas."""

    place: Place
    world: TensorParallelGroup
    peers: TensorParallelGroup

    def gather(
        self, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor, peer_rows: int | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rows x (T, D), their expert ids and weights (T, k) -> the same of all replicas, dp * peer_rows rows.

        Rows of padding are zero with weights of zero. Without several replicas everything comes back as it is.
        """
        if self.peers.size == 1:
            return x, experts, weights
        assert peer_rows is not None and peer_rows >= len(x), (peer_rows, len(x))
        missing = (0, 0, 0, peer_rows - len(x))
        # Ids are far below 2**24, so float32 carries them exactly, and one collective less is needed.
        routing = F.pad(torch.cat((weights.float(), experts.float()), 1), missing)
        gathered = self.peers.all_gather(routing, 0)
        weights, ids = gathered.chunk(2, 1)
        return self.peers.all_gather(F.pad(x, missing), 0), ids.to(torch.int64), weights

    def combine(self, partial: torch.Tensor, num_rows: int, peer_rows: int | None) -> torch.Tensor:
        """Sum the ranks' parts of the gathered rows; returns this replica's own `num_rows` of them."""
        total = self.world.all_reduce(partial)
        if self.peers.size == 1:
            return total
        assert peer_rows is not None
        first = self.place.dp_rank * peer_rows
        return total[first : first + num_rows]
