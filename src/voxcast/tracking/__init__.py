"""MLflow runs and the model registry; besides `voxcast.serving`, the only user of MLflow."""
