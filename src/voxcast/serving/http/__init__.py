"""Clients of a server of predictions: addresses, connections, retries, uploads."""
