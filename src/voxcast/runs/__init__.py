"""The table of runs: measured, imported, or read from the accounting of a cluster."""
