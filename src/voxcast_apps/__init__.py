"""Applications that come with voxcast: programs to measure, each started as ``python -m``.

They use of voxcast only the log of phases, its errors, atomic files and the content cache.
"""
