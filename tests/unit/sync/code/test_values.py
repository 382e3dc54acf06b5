"""The lattice of values."""

from __future__ import annotations

from dsv4prof.sync.code.values import (
    ANYTHING,
    CERTAIN,
    HOST,
    HOST_NUMBER,
    LIKELY,
    NONE,
    NOTHING,
    ON_DEVICE,
    PAGEABLE,
    POSSIBLE,
    SEQUENCE,
    TENSOR,
    UNKNOWN,
    Value,
    Why,
    constant,
    join,
    join_all,
    mapping_of,
    sequence,
    sequence_of,
    settled,
    tensor,
)

DEVICE = tensor(ON_DEVICE, CERTAIN, Why("made there"), dtype="int", ndim=1, same="lens")
COPY = tensor(PAGEABLE, CERTAIN, dtype="int", ndim=1, same="lens")


def test_a_value_joined_with_itself_is_itself() -> None:
    assert join(DEVICE, DEVICE) is DEVICE


def test_device_on_one_path_and_host_on_the_other_keeps_both() -> None:
    both = join(DEVICE, COPY)
    assert both.places == ON_DEVICE | PAGEABLE
    assert (both.strength, both.dtype, both.ndim, both.same) == (CERTAIN, "int", 1, "lens")
    assert both.why == DEVICE.why


def test_the_stronger_claim_of_the_device_counts() -> None:
    weak = tensor(ON_DEVICE, POSSIBLE)
    assert join(weak, DEVICE).strength == join(DEVICE, weak).strength == CERTAIN


def test_none_leaves_the_facts_of_the_other() -> None:
    optional = join(constant(None), DEVICE)
    assert optional.kinds == TENSOR | NONE
    assert (optional.strength, optional.ndim) == (CERTAIN, 1)


def test_constants_agree_or_go() -> None:
    assert join(constant(1), constant(1)).const == 1
    assert join(constant(1), constant(2)).const is NOTHING
    assert join(constant(1), constant(True)).const is NOTHING
    assert join(constant(1), constant(2)).kinds == HOST


def test_items_stay_beside_what_has_none() -> None:
    pair = sequence((DEVICE, HOST_NUMBER))
    assert join(constant(None), pair).items == pair.items
    assert join(Value(kinds=SEQUENCE), pair).items == pair.items
    assert join(sequence_of(HOST_NUMBER), pair).items is None
    assert join(pair, sequence((DEVICE,))).items is None
    joined = join(pair, sequence((COPY, HOST_NUMBER))).items
    assert joined is not None and joined[0].places == ON_DEVICE | PAGEABLE


def test_of_nothing_anything() -> None:
    assert join_all([]) is ANYTHING
    assert join_all([ANYTHING, DEVICE]).kinds == TENSOR | UNKNOWN


def test_containers_are_as_sure_as_their_elements() -> None:
    assert sequence_of(tensor(ON_DEVICE, LIKELY)).strength == LIKELY
    assert mapping_of(DEVICE).element is DEVICE


def test_settled() -> None:
    early = Value(kinds=TENSOR, places=PAGEABLE, pending=True)
    assert not settled(early).pending
    assert settled(DEVICE) is DEVICE


def test_a_chain_begins_with_its_first_step() -> None:
    chain = Why("third", before=Why("second", before=Why("first"))).chain()
    assert [step.text for step in chain] == ["first", "second", "third"]
