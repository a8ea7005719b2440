"""One small function a problem: what it takes to be called so, and why its thresholds are what they are."""
