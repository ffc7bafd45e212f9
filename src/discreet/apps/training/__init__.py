"""From a TOML file to a trained model, its privacy statement and its report, in one folder."""

from discreet.apps.training.config import Config, read_config
from discreet.apps.training.work import Outcome, carry_out

__all__ = ["Config", "Outcome", "carry_out", "read_config"]
