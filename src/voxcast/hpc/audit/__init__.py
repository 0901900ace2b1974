"""Audit of a site's accounting: what jobs asked for and used, what failed, what would be saved."""
