"""What a request meets before it is answered: names, tokens, rates, sizes, and the log."""
