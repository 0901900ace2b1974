"""Images that come over HTTP, read in processes with bounds of memory and time."""
