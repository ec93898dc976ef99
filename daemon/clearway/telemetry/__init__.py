"""What the daemon tells of itself: Prometheus metrics and log lines."""
