"""Model families: their list, the encoder, the regressors and the network."""
