"""Measured runs: each a separate process tree, measured from outside and recorded once."""
