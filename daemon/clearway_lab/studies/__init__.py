"""The papers' experiments, each with its report."""
