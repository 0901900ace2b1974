"""The applications that come with voxcast: one file each, run as ``python -m``."""
