"""Applications as data, how they are started, and the protocol by which they log phases."""
