"""Model families: encoder, regressors, the network, and the list of them."""
