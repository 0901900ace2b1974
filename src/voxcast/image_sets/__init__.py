"""Sets of volumes: listed or generated, catalogued, and what is on record of them."""
