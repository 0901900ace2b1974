"""Imports of other histories into rows of the history, one module per kind of source."""
