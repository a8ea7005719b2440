"""The place of a grey-box model of Triton's dynamic batcher: arrays in, predictions out, no I/O. No code yet."""
