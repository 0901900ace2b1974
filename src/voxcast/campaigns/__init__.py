"""Campaigns: which runs to make, made one after the other, each recorded once."""
