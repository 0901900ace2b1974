"""From what is known before a run to the columns that a model sees."""
