"""MLflow: runs and registry. Nothing below this floor knows of it."""
