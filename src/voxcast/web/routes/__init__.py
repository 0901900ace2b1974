"""The questions of the service, each with its answer."""
