"""Phases of runs: intervals of homogeneous behaviour."""
