"""What a recorded history can tell: questions put to the whole way from runs to bounds."""
