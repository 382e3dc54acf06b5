"""Real forms of messages, each found with what it tells; harmless lines are left alone."""

from __future__ import annotations

import pytest

from dsv4prof.faultrecord.messages import is_timeout, read_messages, telling

CASES = {
    "Memory access fault by GPU node-1 (Agent handle: 0x1f829860) on address 0x7a8a4be00000. Reason: Page not present "
    "or supervisor privilege.": {"kind": "memory-fault", "role": "cause", "vendor": "amd", "gpu": "1",
                                 "address": 0x7A8A4BE00000, "reason": "Page not present or supervisor privilege"},
    "Memory access fault by GPU node-2 on address (nil). Reason: Unknown.": {"kind": "memory-fault", "address": 0},
    "Memory access fault by GPU node-8 (Agent handle: 0x55) on address 0x7f00dead0000. Reason: Write access to a "
    "read-only page.": {"reason": "Write access to a read-only page", "page_bytes": 4096},
    "HW Exception by GPU node-1 (Agent handle: 0x55d0) reason :GPU Hang": {"kind": "gpu-hang", "gpu": "1"},
    ":0:rocdevice.cpp            :2786: 3085293756 us: [pid:12 tid:0x7f1] Callback: Queue 0x7f2e aborting with error : "
    "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016":
        {"kind": "queue-abort", "code": "HSA_STATUS_ERROR_EXCEPTION", "pid": 12, "role": "symptom"},
    "RuntimeError: HIP error: an illegal memory access was encountered":
        {"kind": "illegal-access", "vendor": "amd", "role": "symptom"},
    "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1553: indexSelectSmallIndex: block: [0,0,0], thread: [106,0,0] "
    "Assertion `srcIndex < srcSelectDimSize` failed.":
        {"kind": "assert", "kernel": "indexSelectSmallIndex", "thread": "106,0,0", "vendor": "nvidia", "role": "cause",
         "place": "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1553"},
    "../aten/src/ATen/native/cuda/IndexKernel.cu:92: operator(): block: [4,0,0], thread: [3,0,0] Assertion `-sizes[i] "
    '<= index && index < sizes[i] && "index out of bounds"` failed.': {"kind": "assert", "block": "4,0,0"},
    "C:/w/THC/THCTensorIndex.cu:218: block: [0,0,0], thread: [106,0,0] Assertion `srcIndex < srcSelectDimSize` failed.":
        {"kind": "assert", "place": "C:/w/THC/THCTensorIndex.cu:218"},
    "torch.AcceleratorError: CUDA error: device-side assert triggered": {"kind": "assert", "role": "symptom"},
    "RuntimeError: CUDA error: misaligned address": {"kind": "misaligned"},
    "RuntimeError: CUDA error: unspecified launch failure": {"kind": "launch-failure"},
    "[rank3]:[E830 17:28:57.137971692 ProcessGroupNCCL.cpp:1515] [PG 3 Rank 3] Process group watchdog thread "
    "terminated with exception: CUDA error: an illegal memory access was encountered":
        {"kind": "illegal-access", "rank": 3, "role": "symptom"},
    "NVRM: Xid (PCI:0000:18:00): 31, pid=1234, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS "
    "GPCCLIENT_T1_0 faulted @ 0x7f12_34567000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ":
        {"kind": "page-fault", "address": 0x7F1234567000, "access": "read", "pid": 1234, "code": "31"},
    "NVRM: Xid (PCI:0000:18:00): 43, pid=1234, name=python, Ch 00000008": {"kind": "channel-reset",
                                                                          "role": "consequence"},
    "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa`":
        {"kind": "library", "kernel": "cublasGemmEx"},
    "h1:26024:27098 [1] include/alloc.h:125 NCCL WARN Cuda failure 710 'device-side assert triggered'":
        {"kind": "assert", "role": "symptom"},
    "[rank3]:[E1012 22:31:22.267261276 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=203441, OpType=GATHER, NumelIn=32064, NumelOut=0, Timeout(ms)=600000) ran for 600020 "
    "milliseconds before timing out.": {"kind": "collective-timeout", "sequence": 203441, "collective": "GATHER",
                           "rank": 3, "waited_s": 600.02, "role": "consequence"},
    "[rank0]:[E822 16:31:16.132547721 ProcessGroupNCCL.cpp:2271] [PG ID 4 PG GUID 67 Rank 0]  failure detected by "
    "watchdog at work sequence id: 5730 PG status: last enqueued work: 6464, last completed work: 5729":
        {"sequence": 5730, "enqueued": 6464, "completed": 5729, "rank": 0},
    "t=65.0 ERROR shm_broadcast: no message in 60 s, engine core considered dead":
        {"kind": "queue-timeout", "waited_s": 60.0, "time_s": 65.0, "role": "consequence"},
    "(EngineCore pid=2025) INFO 08-13 11:27:02 [shm_broadcast.py:802] No available shared memory broadcast block found "
    "in 60 seconds. This typically happens when some processes are hanging": {"kind": "queue-timeout", "pid": 2025},
    "TimeoutError: RPC call to execute_model timed out.": {"kind": "rpc-timeout"},
    "[2026-08-01 10:00:00 TP3] Watchdog timeout (self.watchdog_last_forward_ct=3)": {"kind": "watchdog-timeout",
                                                                                   "rank": 3},
    "Timed out waiting 300000ms for recv operation to complete": {"kind": "collective-timeout", "waited_s": 300.0},
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.": {"kind": "out-of-memory"},
    "zmq.error.Again: Resource temporarily unavailable": {"kind": "queue-timeout"},
    "RuntimeError: Triton Error [HIP]:  Code: 700, Messsage: an illegal memory access was encountered":
        {"kind": "illegal-access", "vendor": "amd", "role": "symptom"},
    "RuntimeError: Triton Error [CUDA]: misaligned address": {"kind": "misaligned", "vendor": "nvidia"},
    "Failed: Cuda error /w/custom_all_reduce.cuh:455 'an illegal memory access was encountered'":
        {"kind": "illegal-access", "vendor": "nvidia"},
    "CUDA error (/x/y.cpp:12): an illegal memory access was encountered": {"kind": "illegal-access"},
    "GPUassert: an illegal memory access was encountered foo.cu 12": {"kind": "illegal-access", "role": "symptom"},
    "CUDA Exception: Warp Illegal Address": {"kind": "warp-exception", "reason": "Warp Illegal Address", "kernel": ""},
    "wave_12: pc=0x7f0010 (kernel_code_entry=0x7f0000) (stopped, reason: MEMORY_VIOLATION)":
        {"kind": "warp-exception", "vendor": "amd", "reason": "MEMORY_VIOLATION"},
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed": {"kind": "collective-error"},
    "ncclRemoteError: A call failed possibly due to a network error": {"kind": "peer-lost", "role": "consequence"},
    "DeepEP timeout check failed: rank = 4, thread = 1, expected = 2":
        {"kind": "collective-timeout", "rank": 4, "role": "consequence"},
    "amdgpu: qcm fence wait loop timeout expired": {"kind": "gpu-hang", "role": "symptom"},
    "amdgpu: Failed to evict process queues": {"kind": "gpu-hang"},
    "[7.5] Out of memory: Killed process 8123 (python3) total-vm:1kB": {"kind": "host-crash", "pid": 8123},
    "python3[8123]: segfault at 0 ip 00007f sp 00007f error 4 in libtorch_cpu.so": {"kind": "host-crash"},
    "NVRM: Xid (PCI:0000:0f:00): 63, pid='<unknown>', name=<unknown>, Row remapping": {"role": "symptom"},
}  # fmt: skip

HARMLESS = [
    "INFO heartbeat ok",
    'INFO: 127.0.0.1 - "GET /health HTTP/1.1" 200 OK',
    "setting nccl timeout to 600 seconds",
    "DeprecationWarning: the timeout parameter is deprecated",
    "CUDA kernel errors might be asynchronously reported at some other API call",
    "loading shards: 100 % done, queue has 4 requests",
    "frame #3: c10d::ProcessGroupNCCL::WorkNCCL::isCompleted() + 0x70 (0x7f05)",
    "INFO: health check ok, no timeout",
    "if (err != cudaErrorNotReady) return hipError_t(0)",
    "#queue-req: 0, cuda graph: True",
    "expert 3 faulty? no: 0 errors, memory 12 GB",
]


@pytest.mark.parametrize("line", CASES, ids=range(len(CASES)))
def test_a_form_tells_what_it_tells(line: str) -> None:
    found = read_messages(f"some line before\n{line}\nsome line behind")
    assert len(found) == 1, found
    for field, value in CASES[line].items():
        assert getattr(found[0], field) == value, field
    assert found[0].line == 2


@pytest.mark.parametrize("line", HARMLESS)
def test_a_harmless_line_is_no_message(line: str) -> None:
    assert read_messages(line) == []


DMESG = """\
[  629.844077] amdgpu 0000:0b:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32770, for process python pid 1796 thread python pid 1796)
[  629.844087] amdgpu 0000:0b:00.0: amdgpu:   in page starting at address 0x00007f5279bab000 from client 0x1b (UTCL2)
[  629.844090] amdgpu 0000:0b:00.0: amdgpu: GCVM_L2_PROTECTION_FAULT_STATUS:0x00801031
[  629.844099] amdgpu 0000:0b:00.0: amdgpu: \t RW: 0x1
[  630.727732] amdgpu 0000:0e:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:173 vmid:8 pasid:32791)
[  630.727739] amdgpu 0000:0e:00.0: amdgpu:  for process pt_main_thread pid 12924 thread pt_main_thread pid 12924)
[  630.727743] amdgpu 0000:0e:00.0: amdgpu:   in page starting at address 0x00007febd6383000 from client 10
"""  # noqa: E501


def test_the_kernel_log_tells_over_several_lines() -> None:
    first, second = read_messages(DMESG)
    assert (first.address, first.access, first.process, first.pid) == (0x7F5279BAB000, "write", "python", 1796)
    assert first.time_s == pytest.approx(629.844077)
    assert (second.address, second.process, second.pid, second.access) == (0x7FEBD6383000, "pt_main_thread", 12924, "")


SANITIZER = """\
========= Invalid __global__ read of size 4 bytes
=========     at gather_rows(float *, int)+0x90 in x.cu:12
=========     by thread (31,0,0) in block (2,0,0)
=========     Address 0x7f0000000404 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7f0000000000 of size 1,024 bytes
"""


def test_the_sanitizer_tells_bytes_and_thread() -> None:
    (found,) = read_messages(SANITIZER)
    assert (found.kernel, found.address, found.page_bytes) == ("gather_rows", 0x7F0000000404, 1)
    assert (found.after_bytes, found.allocation, found.allocation_bytes) == (5, 0x7F0000000000, 1024)
    assert (found.thread, found.block, found.access) == ("31,0,0", "2,0,0", "read")


def test_a_kernel_name_belongs_to_the_message_before_it() -> None:
    text = (
        "Memory access fault by GPU node-1 on address 0x1000. Reason: Unknown.\n"
        "Queue 0x7f2 aborting with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: beyond the largest. code: 0x29\n"
        "Kernel Name: _ZN5mykern\n"
    )
    fault, queue = read_messages(text)
    assert fault.kernel == ""
    assert queue.kernel == "_ZN5mykern"


def test_equal_assertions_of_many_threads_are_one() -> None:
    line = "/p/Indexing.cu:1: f: block: [0,0,0], thread: [{},0,0] Assertion `a < b` failed."
    (found,) = read_messages("\n".join(line.format(each) for each in range(96)))
    assert found.times == 96


def test_causes_come_before_symptoms_and_those_before_consequences() -> None:
    text = (
        "t=65.0 ERROR shm_broadcast: no message in 60 s, engine core considered dead\n"
        "RuntimeError: HIP error: an illegal memory access was encountered\n"
        "Memory access fault by GPU node-1 on address 0x7a8a4be00000. Reason: Unknown.\n"
    )
    ordered = telling(read_messages(text))
    assert [each.role for each in ordered] == ["cause", "symptom", "consequence"]
    assert [is_timeout(each) for each in ordered] == [False, False, True]
