"""Running tasks on a cluster: requests, submission, following, collection."""
