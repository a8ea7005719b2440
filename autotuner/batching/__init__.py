"""A grey-box model of Triton's dynamic batcher: arrays in, predictions out, no I/O.

Triton's statistics give the compute time of each batch size; that curve, the arrivals and the batcher's rules predict
the latency of every configuration that was never tried. Trials correct the prediction.
"""
