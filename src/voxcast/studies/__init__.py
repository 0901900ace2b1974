"""Studies of a recorded history: models are trained on some runs and scored on others."""
