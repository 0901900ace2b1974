"""Checks before a request is answered: names, tokens, rates, sizes, and the log."""
