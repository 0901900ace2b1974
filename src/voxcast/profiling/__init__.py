"""Measured runs: each its own process, looked at from outside, recorded once."""
