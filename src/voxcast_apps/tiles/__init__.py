"""Tissue segmentation by a network on overlapping tiles, after the structure of SLANT."""
