"""Measured cases under a detector: does it say what the device said?

`detector` is the seam: shadows without a device, the layers of SyncWatch with one. `child` runs cases in a process of
its own, `campaign` goes on where a case takes such a process down, `agreement` counts. Verdicts rest on a case's
prelude, setup and call alone; what was measured is looked at only to compare. Only what a child imports needs torch.
"""
