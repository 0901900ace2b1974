"""What measured runs show before anything is learned from them: numbers, no page."""
