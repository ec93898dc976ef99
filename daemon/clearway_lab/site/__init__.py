"""A site's own record again, by the daemon's own cycle."""
