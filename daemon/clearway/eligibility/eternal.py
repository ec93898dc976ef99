"""Which jobs are eternal: they run in partitions for eternal jobs only. Pure."""

from clearway.config.configuration import EternalConfig
from clearway.model.cluster import Job


def is_eternal(job: Job, settings: EternalConfig) -> bool:
    """Whether this job is in partitions for eternal jobs only."""
    return bool(settings.partitions and job.partitions) and set(job.partitions) <= set(settings.partitions)
