"""What things will take: costs, run times, checkpoints, and what history teaches of them. Pure."""
