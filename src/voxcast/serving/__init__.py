"""The served model: its files and facts, questions about rows and images, and answers."""
