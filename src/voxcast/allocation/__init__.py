"""What a run costs and which allocation to ask for."""
