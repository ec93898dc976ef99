"""Running jobs that move to other nodes: compaction and promotion."""
