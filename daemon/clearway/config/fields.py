"""What the sections of the configuration are made of."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from clearway.model.durations import Duration


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def key(default: Any, meaning: str, **limits: Any) -> Any:
    """A key that may be left out; ``meaning`` goes into the documentation."""
    return Field(default, description=meaning, **limits)


Names = tuple[str, ...]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[Finite, Field(gt=0)]
Period = Annotated[Duration, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Weight = Annotated[float, Field(ge=0, le=1_000)]
