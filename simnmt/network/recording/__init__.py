"""Recording of a network: probes of round trips, short transfers, the responder at the far end, and the recorded files.

To read it, start with `recorder.py` (plan and schedule of a recording), `protocol.py` (frames between recorder and responder)
and `samples.py` (columns and files of a recording).
"""

from __future__ import annotations
