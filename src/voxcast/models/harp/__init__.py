"""HARP, a published walltime predictor, as released and with its defects corrected."""
