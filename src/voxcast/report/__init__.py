"""The page and the ten lines that tell people what was found and how far to trust it."""
