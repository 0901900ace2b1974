"""The page and the summary of ten lines: results and their limits."""
