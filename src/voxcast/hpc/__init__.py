"""Jobs of a cluster: requests, escalation, submission, a pool of work, and what became of them."""
