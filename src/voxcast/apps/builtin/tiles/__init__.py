"""The parts of the tiled segmentation: grid and tiles, network, weights, alignment, training."""
