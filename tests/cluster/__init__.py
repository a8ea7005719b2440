"""A cluster in memory: an API server with its controllers, and a simulated Triton in each of its pods."""
