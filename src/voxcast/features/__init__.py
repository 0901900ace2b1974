"""Features of models, known before a run."""
