"""The page that the daemon serves at `/`: files that are shipped as they are, and reads and asks over REST."""
