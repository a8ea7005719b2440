"""A diagnosis: what was read, where a request's time goes, what is the matter, and whether a study could run."""
