"""Random numbers: a generator that says `cuda` and draws on the host."""

from __future__ import annotations

from typing import Any

import torch

from dsv4prof.sync.runtime.shadow.world import World

_Host: Any = torch.Generator


_HostMeta: Any = type(_Host)


class _Meta(_HostMeta):
    def __instancecheck__(cls, instance: object) -> bool:
        return issubclass(type(instance), _Host)


class ShadowGenerator(_Host, metaclass=_Meta):
    """Takes the place of `torch.Generator`."""

    said: torch.device

    def __new__(cls, device: Any = "cpu") -> ShadowGenerator:
        made = super().__new__(cls, "cpu")
        wanted = torch.device(device)
        made.said = torch.device("cuda", wanted.index or 0) if wanted.type == "cuda" else wanted
        return made

    def __init__(self, device: Any = "cpu") -> None:
        pass

    @property
    def device(self) -> torch.device:
        return self.said


class Generators:
    """The default generators of all devices. They are the host's own, from which a shadow draws, so that seeds mean the
    same as on the CPU and a state that is set is the state that is drawn from.
    """

    def __init__(self, world: World, devices: int) -> None:
        self._world = world
        self._default = tuple(_default(index) for index in range(devices))

    def type(self) -> type:
        return ShadowGenerator

    def functions(self) -> dict[str, Any]:
        """By their names in torch.cuda."""

        def seed_all(seed: int = 0) -> None:
            for one in self._default:
                one.manual_seed(int(seed))

        def get_state(device: Any = "cuda") -> torch.Tensor:
            return self._of(device).get_state()

        def set_state(state: torch.Tensor, device: Any = "cuda") -> None:
            self._of(device).set_state(state)

        def set_states(states: Any) -> None:
            for one, state in zip(self._default, states, strict=False):
                one.set_state(state)

        return {
            "default_generators": self._default,
            "manual_seed": lambda seed: self._of(None).manual_seed(int(seed)) and None,
            "manual_seed_all": seed_all,
            "seed": lambda: self._of(None).seed() and None,
            "seed_all": lambda: seed_all(self._of(None).seed()),
            "initial_seed": lambda: self._of(None).initial_seed(),
            "get_rng_state": get_state,
            "set_rng_state": set_state,
            "get_rng_state_all": lambda: [one.get_state() for one in self._default],
            "set_rng_state_all": set_states,
        }

    def _of(self, device: Any) -> torch.Generator:
        index = device if isinstance(device, int) else torch.device(device).index if device is not None else None
        return self._default[self._world.here.device if index is None else index]


class _Default(ShadowGenerator):
    def manual_seed(self, seed: int) -> torch.Generator:
        torch.default_generator.manual_seed(seed)
        return self

    def seed(self) -> int:
        return torch.default_generator.seed()

    def initial_seed(self) -> int:
        return torch.default_generator.initial_seed()

    def get_state(self) -> torch.Tensor:
        return torch.default_generator.get_state()

    def set_state(self, state: torch.Tensor) -> torch.Generator:
        torch.default_generator.set_state(state)
        return self


def _default(index: int) -> torch.Generator:
    return _Default(torch.device("cuda", index))
