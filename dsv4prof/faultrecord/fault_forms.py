"""The forms in which AMD's and NVIDIA's stacks tell of a fault; facts about their messages, each with a made example.

None was provoked on an AMD device here: those forms are as public reports show them.
"""

from __future__ import annotations

import re

import msgspec

from dsv4prof.faultrecord.message import PAGE_BYTES, Role, Vendor


class Form(msgspec.Struct, frozen=True):
    """A message's form. Named groups of `pattern` are fields of Message; `follow` looks at the lines after it."""

    kind: str
    role: Role
    vendor: Vendor
    pattern: re.Pattern[str]
    page_bytes: int = 1
    follow: tuple[re.Pattern[str], ...] = ()
    stop: re.Pattern[str] | None = None


def _form(
    kind: str,
    role: Role,
    vendor: Vendor,
    pattern: str,
    *,
    page_bytes: int = 1,
    follow: tuple[re.Pattern[str], ...] = (),
    stop: re.Pattern[str] | None = None,
) -> Form:
    return Form(kind, role, vendor, re.compile(pattern, re.IGNORECASE), page_bytes, follow, stop)


def _lines(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(each, re.IGNORECASE) for each in patterns)


# Sentences that a runtime says of no harmless error, however its caller prints them.
_SAID = (
    r"(?:an )?illegal memory access|misaligned address|(?:an )?illegal instruction|unspecified launch failure|"
    r"device-side assert triggered"
)
_HEX = r"0x[0-9a-f_]+"
_AGENT = rf"(?:\s*\(agent handle: {_HEX}\))?"
_KERNEL_NAME = _lines(r"kernel name:\s*(?P<kernel>[^\s,]+)")
_NEXT_MESSAGE = re.compile(r"memory access fault|aborting with error|hw exception|page fault", re.IGNORECASE)

AMD = (
    _form(
        "memory-fault",
        "cause",
        "amd",
        rf"memory access fault by (?:gpu|agent)[ -]*(?:node-)?(?P<gpu>\d+)?{_AGENT}.*?on address "
        rf"(?P<address>\(nil\)|{_HEX})\.?(?:\s*reason:?\s*(?P<reason>[^.\n]+))?",
        page_bytes=PAGE_BYTES,
        follow=_KERNEL_NAME,
        stop=_NEXT_MESSAGE,
    ),
    _form("memory-fault", "cause", "amd", r"memory access fault by (?:gpu|agent)[ -]*(?:node-)?(?P<gpu>\d+)"),
    _form(
        "memory-error",
        "cause",
        "amd",
        rf"memory critical error by agent (?:node-)?(?P<gpu>\d+)?{_AGENT}.*?on address (?P<address>\(nil\)|{_HEX})\.?"
        r"(?:\s*reason:?\s*(?P<reason>[^.\n]+))?",
        page_bytes=PAGE_BYTES,
    ),
    _form(
        "gpu-hang",
        "cause",
        "amd",
        rf"hw exception by gpu (?:node-)?(?P<gpu>\d+)?{_AGENT}\s*reason\s*:\s*(?P<reason>[^.\n]+)",
    ),
    _form(
        "page-fault",
        "cause",
        "amd",
        r"\[(?P<gpu>(?:gfx|mm)hub\d*)\].*?page fault(?:.*?(?:for |in )?process (?P<process>\S+) pid (?P<pid>\d+))?"
        rf"(?:.*?address (?P<address>{_HEX}))?",
        page_bytes=PAGE_BYTES,
        follow=_lines(
            rf"(?:in page starting at address|at page) (?P<address>{_HEX})",
            r"process (?P<process>\S+) pid (?P<pid>\d+)",
            r"\bRW:\s*(?P<access>0x[0-9a-f]+)",
        ),
        stop=re.compile(r"page fault \(|page fault.*src_id", re.IGNORECASE),
    ),
    _form("memory-error", "cause", "amd", r"amdgpu.*(?P<reason>uncorrectable hardware errors? detected.*)"),
    _form(
        "warp-exception",
        "cause",
        "amd",
        rf"\bwave_\d+\b:?.*?pc=(?P<code>{_HEX}).*?stopped,? reason:\s*(?P<reason>(?!breakpoint|none)\w+)",
        follow=_lines(r"disassembly for function (?P<kernel>[^\s:(]+)"),
        stop=re.compile(r"\bwave_\d+\b.*pc=", re.IGNORECASE),
    ),
    _form(
        "queue-abort",
        "symptom",
        "amd",
        rf"queue {_HEX} aborting with error\s*:\s*(?P<code>HSA_STATUS_\w+)(?::\s*(?P<reason>.*?))?"
        r"(?:\s*code:\s*0x[0-9a-f]+.*)?$",
        follow=_KERNEL_NAME,
        stop=_NEXT_MESSAGE,
    ),
    _form(
        "hsa-error",
        "symptom",
        "amd",
        r"(?P<code>HSA_STATUS_ERROR\w*)(?::\s*(?P<reason>.*?))?(?:\s*code:\s*0x[0-9a-f]+.*)?$",
        follow=_KERNEL_NAME,
        stop=_NEXT_MESSAGE,
    ),
    _form(
        "assert",
        "cause",
        "amd",
        r"(?:(?P<place>[^\s:]+:\d+):\s*)?(?P<kernel>[^:]*?):?\s*device-side assertion [`'](?P<reason>.*?)['`] failed",
    ),
)

_ASSERTION = (
    r"(?:(?P<kernel>[^\s:][^`]*?):\s*)?block:\s*\[(?P<block>[\d, ]+)\],?\s*thread:\s*\[(?P<thread>[\d, ]+)\]\s*"
    r"assertion [`'](?P<reason>.*?)[`'] failed"
)
NVIDIA = (
    _form("assert", "cause", "nvidia", rf"(?P<place>(?:\b[a-z]:)?[^\s:]+\.\w+:\d+):\s*{_ASSERTION}"),
    _form("assert", "cause", "nvidia", _ASSERTION),
    _form(
        "sanitizer",
        "cause",
        "nvidia",
        r"=+\s*invalid __(?P<reason>\w+)__ (?P<access>read|write|atomic)\w* of size (?P<code>\d+)",
        follow=_lines(
            r"=+\s+at (?P<kernel>[\w:]+)\S*?(?:\(|\+|\s+in)",
            r"by thread \((?P<thread>[\d, ]+)\) in block \((?P<block>[\d, ]+)\)",
            rf"address (?P<address>{_HEX})",
            rf"is (?P<after_bytes>[\d,]+) bytes? after the nearest allocation at (?P<allocation>{_HEX}) of size "
            r"(?P<allocation_bytes>[\d,]+)",
        ),
        stop=re.compile(r"=+\s*invalid __", re.IGNORECASE),
    ),
    _form(
        "xid",
        "cause",
        "nvidia",
        r"xid \((?:pci:)?(?P<gpu>[^)]*)\):\s*(?P<code>\d+),\s*(?:pid='?(?P<pid>\d+)'?,?\s*)?(?P<reason>.*)",
        page_bytes=PAGE_BYTES,
    ),
    _form(
        "warp-exception",
        "cause",
        "nvidia",
        rf"(?:cuda_exception_\d+,|cuda exception:)\s*(?P<reason>[\w ]+)(?:.*?pc (?P<code>{_HEX}))?",
    ),
    _form("library", "symptom", "nvidia", r"(?P<code>(?:CUBLAS|CUDNN|CUSPARSE|CUSOLVER)_STATUS_(?!SUCCESS)\w+)"
          r"(?:.*?when calling `?(?P<kernel>\w+))?"),
    _form("collective-error", "symptom", "nvidia", r"nccl warn cuda failure (?:\d+ )?'(?P<reason>[^']+)'"),
)  # fmt: skip

BOTH = (
    _form("library", "symptom", "amd", r"(?P<code>(?:HIPBLAS|ROCBLAS|MIOPEN|rocblas)_status_(?!success)\w+)"),
    _form("out-of-memory", "cause", "", r"(?P<code>cuda|hip) out of memory|cudaErrorMemoryAllocation|"
          r"hipErrorOutOfMemory|HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
    _form("device-error", "symptom", "", r"(?P<code>cuda|hip) error:\s*(?P<reason>[^\n]+?)\.?\s*$"),
    _form("device-error", "symptom", "", r"(?P<code>cuda|hip) error \S+:\d+ '(?P<reason>[^'\n]+)'"),
    _form("device-error", "symptom", "", r"triton error \[(?P<code>cuda|hip)\]:\s*(?:code: \d+, )?(?:messs?age:\s*)?"
          r"(?P<reason>[^\n]+?)\.?\s*$"),
    _form("device-error", "symptom", "", rf"\b(?P<code>cuda|hip)[ _]?(?:runtime )?error(?:_t)?\b[^\n]*?"
          rf"(?P<reason>{_SAID})"),
    _form("device-error", "symptom", "", r"(?P<code>(?:cudaError|hipError|CUDA_ERROR_)(?!Success|NotReady|_t\b)\w+)"),
    _form("device-error", "symptom", "", rf"(?P<reason>{_SAID}) was encountered|gpu ?assert\w*:\s*(?P<code>[^\n]+)"),
    _form("peer-lost", "consequence", "", r"ncclRemoteError|Connection was likely closed|recvValue failed|broken pipe"),
    _form("collective-error", "symptom", "", r"(?P<code>nccl(?:System|Internal|UnhandledCuda|UnhandledSystem)Error)"),
    _form("collective-error", "symptom", "", r"(?:nccl|rccl) error[^:]*:.*?(?P<reason>unhandled cuda error|"
          r"unhandled system error|remote process exited[^,.]*|internal error|[\w ]+)"),
    _form("host-crash", "cause", "", r"(?P<reason>out of memory: killed|oom-kill)[: ].*?(?:\bpid=|process )"
          r"(?P<pid>\d+)"),
    _form("host-crash", "symptom", "", r"fatal python error:\s*(?P<reason>.+)|(?P<code>segmentation fault|segfault "
          r"(?:encountered|at [0-9a-f]+)|\*\*\* SIG(?:SEGV|BUS|ABRT|FPE|ILL) received)"),
)  # fmt: skip

# What a runtime's own sentence is called here, most telling first.
REASONS = (
    ("illegal-access", re.compile(r"illegal memory access|illegal ?address", re.IGNORECASE)),
    ("assert", re.compile(r"device-side assert|ErrorAssert", re.IGNORECASE)),
    ("misaligned", re.compile(r"misaligned", re.IGNORECASE)),
    ("launch-failure", re.compile(r"unspecified launch failure|launch_?failed|LaunchFailure", re.IGNORECASE)),
    ("launch-timeout", re.compile(r"launch timed out|launch_?timeout", re.IGNORECASE)),
    ("illegal-instruction", re.compile(r"illegal instruction|illegal_?instruction", re.IGNORECASE)),
    ("memory-fault", re.compile(r"APERTURE_VIOLATION|MEMORY_FAULT", re.IGNORECASE)),
    ("no-kernel", re.compile(r"no kernel image|invalid device function|NoBinaryForGpu", re.IGNORECASE)),
    ("memory-error", re.compile(r"ECC", re.IGNORECASE)),
)
XIDS = {
    8: ("gpu-hang", "cause"),
    13: ("illegal-access", "cause"),
    31: ("page-fault", "cause"),
    43: ("channel-reset", "consequence"),
    45: ("cleanup", "consequence"),
    48: ("memory-error", "cause"),
    63: ("memory-error", "symptom"),
    64: ("memory-error", "cause"),
    46: ("gpu-hang", "cause"),
    74: ("link-error", "cause"),
    79: ("device-lost", "cause"),
    94: ("memory-error", "cause"),
    95: ("memory-error", "cause"),
    109: ("gpu-hang", "cause"),
    119: ("gpu-hang", "cause"),
    120: ("gpu-hang", "cause"),
    137: ("link-error", "cause"),
    140: ("memory-error", "cause"),
    144: ("link-error", "symptom"),
    145: ("link-error", "symptom"),
    149: ("link-error", "symptom"),
    154: ("recovery", "consequence"),
}  # fmt: skip
XID_ADDRESS = re.compile(r"faulted @ (?P<address>0x[0-9a-f_]+)", re.IGNORECASE)
XID_ACCESS = re.compile(r"ACCESS_TYPE_(?:VIRT_|PHYS_)?(?P<access>READ|WRITE|ATOMIC)", re.IGNORECASE)
# A line that only repeats how to debug, or a frame of a C++ stack, says nothing by itself.
NOISE = re.compile(
    r"kernel errors might be asynchronously reported|For debugging consider|Compile with `?TORCH_USE|^frame #\d+|"
    r"^\s*#\d+ |Device-side assertion tracking|Search for `|\b(?:no|without|never) time(?:d )?-?outs?\b",
    re.IGNORECASE,
)
