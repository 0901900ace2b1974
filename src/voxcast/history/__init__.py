"""The history: one row per run, in one schema for measured, recorded and imported runs."""
