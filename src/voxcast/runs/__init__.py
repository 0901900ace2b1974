"""The table of runs, and the texts from which runs are imported."""
