"""The numbers of Perfetto's messages and fields that are written or read here (perfetto/protos, v52 to v56)."""

from __future__ import annotations


class Trace:
    PACKET = 1


class Packet:
    CLOCK_SNAPSHOT = 6
    TIMESTAMP = 8
    SEQUENCE = 10
    TRACK_EVENT = 11
    INTERNED = 12
    FLAGS = 13
    COMPRESSED = 50
    GPU_COUNTERS = 52
    GPU_STAGE = 53
    CLOCK = 58
    DEFAULTS = 59
    TRACK = 60
    # Not Perfetto's: what our reader wants to know and no viewer shows, as JSON. Others pass over it.
    OWN_NOTE = 9_900


# Flags of a packet's sequence.
STATE_CLEARED, NEEDS_STATE = 1, 2


class Clocks:
    CLOCKS = 1
    PRIMARY = 2


class ClockReading:
    CLOCK = 1
    TIME = 2


REALTIME, BOOTTIME = 1, 6


class Defaults:
    TRACK_EVENT = 11


class Track:
    UUID = 1
    NAME = 2
    PROCESS = 3
    THREAD = 4
    PARENT = 5
    COUNTER = 8
    STATIC_NAME = 10
    CHILD_ORDER = 11
    RANK = 12
    MERGE = 15
    MERGE_KEY = 17


CHILDREN_EXPLICIT = 3
MERGE_NONE, MERGE_BY_KEY = 2, 3


class Process:
    PID = 1
    SORT = 3
    NAME = 6
    LABELS = 8


class Thread:
    PID = 1
    TID = 2
    SORT = 3
    NAME = 5


class Event:
    CATEGORY_IDS = 3
    ANNOTATION = 4
    TYPE = 9
    NAME_ID = 10
    TRACK = 11
    CATEGORY = 22
    NAME = 23
    COUNTER = 30
    OLD_FLOWS = 36
    OLD_FLOW_ENDS = 42
    COUNTER_DOUBLE = 44
    FLOWS = 47
    FLOW_ENDS = 48
    # torch's launches: a message whose first field is the correlation of the kernels that they start.
    GPU_CORRELATION = 3_000


class Kind:
    BEGIN = 1
    END = 2
    INSTANT = 3
    COUNTER = 4


class Annotation:
    NAME_ID = 1
    BOOL = 2
    UINT = 3
    INT = 4
    DOUBLE = 5
    STRING = 6
    POINTER = 7
    NESTED = 8
    JSON = 9
    NAME = 10
    DICT_ENTRY = 11
    ARRAY_VALUE = 12
    STRING_ID = 17


class Interned:
    CATEGORIES = 1
    NAMES = 2
    ANNOTATION_NAMES = 3
    GPU_STAGES = 24
    ANNOTATION_STRINGS = 29
    GPU_COUNTERS = 47
    KERNELS = 1_000


class InternedString:
    ID = 1
    TEXT = 2


class Stage:
    EVENT_ID = 1
    DURATION = 2
    EXTRA = 6
    GPU = 11
    QUEUE = 13
    STAGE = 14
    NAME = 17
    KERNEL = 19
    NAME_ID = 20
    LAUNCH = 21


class GpuCounters:
    COUNTERS = 2
    GPU = 3
    DESCRIPTOR_ID = 4
