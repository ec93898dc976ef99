"""The filters that several lists have."""

from typing import Annotated

from fastapi import Query

JOB_ID = r"^[0-9]{1,10}([_+][0-9]{1,10})?$"
LONGEST_NAME = 255  # characters of a user or a node

UserFilter = Annotated[
    str | None, Query(max_length=LONGEST_NAME, description="only what concerns jobs of this user; null: all")
]
JobFilter = Annotated[
    str | None, Query(pattern=JOB_ID, description="only what concerns this job, by either form of its id; null: all")
]
