"""What all tests share: they must pass on a busy machine too."""

from __future__ import annotations

from hypothesis import settings

# A busy machine may take longer than hypothesis' default deadline of 0.2 s for one example.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
