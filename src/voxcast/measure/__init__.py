"""Measured runs: one process tree each, measured from outside and recorded once."""
