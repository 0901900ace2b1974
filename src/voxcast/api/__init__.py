"""Questions, plans and submissions, for Python and for the command line."""
