"""What an operator says who approves a plan."""

from pydantic import BaseModel, ConfigDict, Field


class ApprovalRequest(BaseModel):
    """Other fields are passed over, as before there were any."""

    model_config = ConfigDict(frozen=True)

    revision: int | None = Field(
        None, ge=0, description="of the plan that was read: one that was changed since is not approved; null: any"
    )
