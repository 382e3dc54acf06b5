"""Living with findings: comments that allow them, names that outlive edits, labels that judge them."""
