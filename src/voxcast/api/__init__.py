"""What people use from Python, and what the command line calls: questions, plans, submissions."""
