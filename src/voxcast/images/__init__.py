"""Image sets: headers, characteristics on a coarse grid, and the sources of volumes.

This room is independent of applications, runs and models.
"""

MAX_VOXELS = 10**9  # of a volume whose voxels are read, unless a user allows more
