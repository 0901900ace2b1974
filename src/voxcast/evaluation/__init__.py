"""Evaluation: errors and bounds for the question that a user has, for every contender alike."""
