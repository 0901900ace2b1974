"""Sequences of requests: what to ask for first, and next if that was not enough."""
