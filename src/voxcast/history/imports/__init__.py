"""Other people's histories, read into rows of ours: one module a kind of source."""
