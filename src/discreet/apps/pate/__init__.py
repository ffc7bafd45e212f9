"""PATE from a TOML file: labels for public inputs, a student and their privacy statement go into one folder."""

from discreet.apps.pate.config import PateConfig, read_pate_config
from discreet.apps.pate.workflow import Labeled, label

__all__ = ["Labeled", "PateConfig", "label", "read_pate_config"]
