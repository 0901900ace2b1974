"""HARP, the predictor of two papers, as published and corrected: a baseline for the zoo."""
