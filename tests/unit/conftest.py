from __future__ import annotations

from hypothesis import settings

# An example has no deadline of its own: the machine may be busy with the lab.
settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")
