"""Communication traces of parallel programs: recorded, and read into one table of events."""
