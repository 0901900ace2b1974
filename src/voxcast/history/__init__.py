"""The history: what is known of a run, as one row, wherever it was measured."""
