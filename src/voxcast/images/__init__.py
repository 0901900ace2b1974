"""Image sets: headers, characteristics on a coarse grid, and the sources of volumes.

This room is independent of applications, runs and models.
"""
