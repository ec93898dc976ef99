"""What must hold at a site before Clearway may act: one list of checks, for serve, check-config and doctor."""
