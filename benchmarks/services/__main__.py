"""Run a service on loopback until Ctrl-C, and print its URL when it is ready.

    python -m benchmarks.services libretranslate|llama_server [--port 0] [--pinned] [--threads N] [OPTION ...]

llama_server takes `--slots N` and `--context TOKENS` as well. Further options go to the service's program.
"""

import argparse
import sys

from benchmarks.services.base import serve_until_stopped, service_arguments
from benchmarks.services.libretranslate import libretranslate
from benchmarks.services.llama_server import llama_server

SERVICES = {"libretranslate": libretranslate, "llama_server": llama_server}

if __name__ == "__main__":
    parser = service_arguments(str(__doc__), port=0)
    parser.add_argument("service", choices=SERVICES)
    for option in ("threads", "slots", "context"):
        parser.add_argument(f"--{option}", type=int, default=argparse.SUPPRESS)
    arguments, others = parser.parse_known_args()
    settings = vars(arguments)
    sys.exit(serve_until_stopped(SERVICES[settings.pop("service")](**settings, options=others)))
