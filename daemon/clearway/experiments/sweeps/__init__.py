"""One function over many tasks, on the processors of one machine or of a cluster."""
