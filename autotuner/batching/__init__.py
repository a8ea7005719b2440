"""The grey-box model of Triton's dynamic batcher: arrays in, predictions out; no I/O, no clock."""
