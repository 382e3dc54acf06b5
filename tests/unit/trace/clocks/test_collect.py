"""Which slices count, and what is kept of them."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from dsv4prof.model.event import Slice, Track
from dsv4prof.model.session import RankCoordinates
from dsv4prof.trace.clocks import collect, is_candidate

COLLECTIVES = [
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
    "void sglang::cross_device_reduce_1stage<__nv_bfloat16, 8>(RankData*, RankSignals, Signal*, int)",
    "void aiter::cross_device_reduce_2stage_naive<__hip_bfloat16, 8>(RankData*, int)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<...>",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, long*)",
    "void deep_ep::internode_ll::combine<true, 7168, 9>(void*, void*)",
]
OTHERS = [
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >",
    "fused_moe_kernel",
    "triton_red_fused_rmsnorm_2",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >",
    "dispatch_attention",
]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collective_kernels_are_known_by_name(name):
    assert is_candidate(name, "kernel")
    assert not is_candidate(name, "cpu_op")


@pytest.mark.parametrize("name", OTHERS)
def test_other_kernels_are_not(name):
    assert not is_candidate(name, "kernel")


def test_gloo_is_known_by_annotation_and_nccl_annotations_of_the_host_are_not():
    assert is_candidate("gloo:all_reduce", "user_annotation")
    assert not is_candidate("nccl:all_reduce", "user_annotation")
    assert not is_candidate("nccl:all_reduce", "gpu_user_annotation")


def kernel(name: str, start: int, dur: int, stream: int = 7, **args) -> Slice:
    raw = {key.replace("_", " "): value for key, value in args.items()}
    return Slice(name, "kernel", Track(0, stream), start, dur, msgspec.Raw(json.dumps(raw).encode()))


def test_group_seq_and_size_are_read():
    ranks = {"Process_Group_Ranks": "[0, 1]", "Process_Group_Name": "3", "Collective_name": "allreduce"}
    slices = [
        kernel("add", 5, 5),
        kernel("ncclA", 100, 50, Seq=9, In_msg_nelems=64, **ranks),
        kernel("ncclA", 200, 50, Seq=10, In_msg_nelems=128, **ranks),
    ]
    got = collect(slices, RankCoordinates(rank=4, host="n1"), {}, start_ns=3)
    assert (got.rank, got.host, got.start_ns) == (4, "n1", 3)
    assert got.rows["seq"].tolist() == [9, 10]
    assert got.rows["ordinal"].tolist() == [1, 2]
    assert got.rows["end"].tolist() == [150, 250]
    assert len(set(got.rows["key"].tolist())) == 2
    assert got.groups == ["3[0,1]"]


def test_a_long_groups_ranks_come_from_the_files_description():
    info = {"pg_config": [{"pg_name": "3", "ranks": [0, 1, 2]}]}
    one = kernel("ncclA", 1, 1, Process_Group_Name="3", Process_Group_Ranks="[0, ..., 2]")
    assert collect([one], RankCoordinates(rank=0), {"distributedInfo": json.dumps(info)}).groups == ["3[0,1,2]"]


def test_uneven_collectives_match_whatever_their_size():
    one, other = (kernel("ncclA", at, 1, Collective_name="all_to_allv", In_msg_nelems=at) for at in (1, 2))
    got = collect([one, other], RankCoordinates(rank=0), {})
    assert got.rows["key"].tolist() == [0, 0]


def test_kernels_of_one_graph_launch_are_told_apart_by_place():
    slices = [kernel("ncclA", at * 10, 5, correlation=77) for at in range(3)]
    slices += [kernel("ncclA", 100 + at * 10, 5, correlation=78) for at in range(3)]
    slices += [kernel("ncclA", 200 + at * 10, 5, correlation=0) for at in range(2)]
    assert collect(slices, RankCoordinates(rank=0), {}).rows["key"].tolist() == [0, 1, 2, 0, 1, 2, 0, 0]


def test_rows_are_in_order_of_their_ends_and_arguments_may_be_bad():
    slices = [
        Slice("ncclA", "kernel", Track(0, 7), 50, 100, msgspec.Raw(b'{"correlation": NaN}')),
        Slice("ncclB", "kernel", Track(0, 8), 60, 10),
        kernel("ncclC", 1, 2, Seq="9", correlation="x"),
    ]
    got = collect(slices, RankCoordinates(rank=0), {"distributedInfo": "{"})
    assert got.rows["end"].tolist() == [3, 70, 150]
    assert got.rows["seq"].tolist() == [-1, -1, -1]
    assert got.start_ns == 1


def test_no_collectives():
    got = collect([kernel("add", 1, 1)], RankCoordinates(rank=0), {})
    assert len(got.rows) == 0
    assert got.rows.dtype.itemsize == 36
    assert np.array_equal(got.rows["end"], [])
