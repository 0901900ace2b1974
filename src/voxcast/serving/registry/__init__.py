"""Reading the registry: versions, where their files are, and whether they are those registered."""
