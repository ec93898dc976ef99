"""Moving jobs for the sake of their nodes. Pure, like planning: decisions only."""
