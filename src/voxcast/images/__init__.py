"""Images: headers, volumes, characteristics, and image sets with their catalogue."""
