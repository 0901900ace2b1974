"""Laws of runtime: families, how well they fit, how many modes there are, and the runs alone."""
