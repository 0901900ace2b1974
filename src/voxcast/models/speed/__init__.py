"""How fast machines are: estimated from runs, apart from the work that an image takes."""
