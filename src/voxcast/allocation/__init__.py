"""The cost of runs, and which allocation to request."""
