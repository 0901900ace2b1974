"""The page and the summary: results and their limits."""
