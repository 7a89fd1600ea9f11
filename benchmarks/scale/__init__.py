"""Search over a million vectors like real ones."""
