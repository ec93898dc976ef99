"""The papers' studies, their reports and figures, and a site's own replay."""
