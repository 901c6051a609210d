from __future__ import annotations

import sys
from pathlib import Path

# The driver that also runs the tests of refusals.
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "driver"))
