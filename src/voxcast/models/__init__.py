"""Models of runtime and memory: families, tuning, calibration, choice. No tracking in here."""
