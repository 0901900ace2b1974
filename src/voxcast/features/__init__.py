"""Features of models, from what is known before a run."""
