"""``clearway lab``."""
