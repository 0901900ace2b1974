"""Generated heads: recipes drawn from a seed, and the volumes rendered from them."""
