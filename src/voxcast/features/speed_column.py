"""The column of the training table that says how fast its machine was during a run.

It is filled by `voxcast.features.usual_speed`.
"""

SPEED_DEVIATION = "speed_deviation"
TIMES = ("cpu_s", "runtime_s")  # which follow the speed of the machine
