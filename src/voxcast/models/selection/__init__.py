"""How a model is chosen: search, cross-validation, blends, leaderboard, promotion rule."""
