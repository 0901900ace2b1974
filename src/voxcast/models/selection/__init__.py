"""Model selection: search, cross-validation, blends, leaderboard, promotion rule."""
