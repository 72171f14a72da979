"""Run a service on loopback until Ctrl-C, and print its URL when it is ready.

    python -m benchmarks.services libretranslate|llama_server [--port 0] [--pinned] [--threads N] [OPTION ...]

llama_server takes `--slots N` and `--context TOKENS` as well. Further options go to the service's program.
"""

import argparse
import sys

from benchmarks.services.base import serve_until_stopped
from benchmarks.services.libretranslate import libretranslate
from benchmarks.services.llama_server import llama_server

SERVICES = {"libretranslate": libretranslate, "llama_server": llama_server}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("service", choices=SERVICES)
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--pinned", action="store_true", help="one core and one thread")
    for option in ("threads", "slots", "context"):
        parser.add_argument(f"--{option}", type=int, default=argparse.SUPPRESS)
    arguments, others = parser.parse_known_args()
    settings = vars(arguments)
    name = settings.pop("service")
    if name != "llama_server" and {"slots", "context"} & settings.keys():
        parser.error("--slots and --context are options of llama_server")
    sys.exit(serve_until_stopped(SERVICES[name](**settings, options=others)))
