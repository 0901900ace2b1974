"""Models of runtime and memory: families, tuning, calibration, selection; no tracking."""
