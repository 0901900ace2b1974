"""The campaign on a borrowed machine with a GPU: what travels there, runs, and comes back."""
