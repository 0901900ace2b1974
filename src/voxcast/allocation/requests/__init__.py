"""Sequences of requests: the first one, and the next after each failure."""
