"""Model families: encoder, regressors, the network, and the zoo that lists them."""
