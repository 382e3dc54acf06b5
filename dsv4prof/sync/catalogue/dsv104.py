"""DSV104: a device tensor becomes a NumPy array."""

from __future__ import annotations

from dsv4prof.sync.catalogue.form import Fix, Form
from dsv4prof.sync.catalogue.shows import TO_HOST, free, waits

_CODE = "DSV104"
_FIX = Fix("non_blocking copy into pinned memory, an event, and .numpy() after it", "changes timing")

FORMS: tuple[Form, ...] = (
    waits(
        TO_HOST,
        _CODE,
        "numpy-force",
        "copy to a NumPy array",
        ("t.numpy(force=True)",),
        "t is on the device",
        event=("aten::to", "aten::_to_copy", "aten::copy_"),
        measured=("numpy_force",),
        fix=_FIX,
    ),
    waits(
        TO_HOST,
        _CODE,
        "cpu-numpy",
        "copy to the host and on to NumPy",
        ("t.cpu().numpy()", "np.asarray(t.cpu())", "t.detach().cpu().numpy()"),
        "t is on the device; it is .cpu() that blocks",
        event=("aten::to", "aten::_to_copy", "aten::copy_"),
        source="Copy.cu: a copy that is not non_blocking ends in memcpy_and_sync",
        measured=("np_asarray_cpu", "detach_cpu_numpy"),
        fix=_FIX,
    ),
    free(
        _CODE,
        "numpy-of-host",
        "a NumPy view of host memory",
        ("host.numpy()", "np.asarray(host)", "torch.from_numpy(array)"),
        "the tensor is in host memory; of a device tensor it raises TypeError, and waits for nothing",
        measured=("numpy_cpu", "from_numpy"),
    ),
)
