"""Requested against used resources of a cluster's jobs, from its accounting."""
