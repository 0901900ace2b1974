"""Runtime distributions: families and their fits, modes, quantiles, empirical laws."""
