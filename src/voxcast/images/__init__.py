"""Image sets: what headers say, what voxels show on a coarse grid, and where volumes come from.

Nothing here knows of applications, runs or models.
"""
