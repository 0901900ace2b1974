"""The HTTP service of ``voxcast serve``: predictions, recommendations, requests, and a page."""
