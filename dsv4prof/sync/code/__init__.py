"""Host syncs in source: what is on the host, what on the device, and which statement makes one wait for the other."""
