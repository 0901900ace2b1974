"""Statistics of measured runs and of models: numbers only, no sentences and no figures."""
