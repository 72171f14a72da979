"""Recording of a network: probes of round trips and short transfers, the responder at the far end, the files they become.

To read it, start with `recorder.py` (plan and schedule of a recording), `protocol.py` (frames between recorder and responder)
and `samples.py` (columns and files of a recording).
"""

from __future__ import annotations
