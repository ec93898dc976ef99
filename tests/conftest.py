"""No limit in seconds for an example of hypothesis: a machine that others share may stand still for as long."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
