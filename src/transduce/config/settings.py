"""What every part of the configuration has in common."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Frozen and strict: an unknown key, a wrong type or a value out of range is refused at once."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, strict=True, allow_inf_nan=False
    )
