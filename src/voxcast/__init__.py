"""voxcast: runtime and memory of neuroimaging applications, predicted per image."""

__version__ = "0.1.0"
