"""MLflow runs and the model registry; only this package and `voxcast.serving` use MLflow."""
