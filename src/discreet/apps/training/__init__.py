"""Training from a TOML file: the model, its privacy statement and its report go into one folder."""

from discreet.apps.training.config import Config, read_config
from discreet.apps.training.workflow import Outcome, carry_out

__all__ = ["Config", "Outcome", "carry_out", "read_config"]
