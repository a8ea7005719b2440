"""The statistics of a verdict: arrays and counts in, small results out; no I/O, no clock."""
