"""Phases of runs: stretches with one behaviour."""
