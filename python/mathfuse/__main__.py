"""The command line: mathfuse info."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import mathfuse


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mathfuse", description="Fused linear algebra and FFT on CPUs and GPUs.")
    parser.add_argument("--version", action="version", version=f"mathfuse {mathfuse.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="the libraries found on this machine, and what is missing")
    info.add_argument("device", nargs="?", help='a device or target to describe too: "cuda", "cuda:1", "sm_90a"')
    info.add_argument("--json", action="store_true", help="machine-readable")
    given = parser.parse_args(arguments)
    try:
        print(mathfuse.info(given.device, json=given.json))
    except mathfuse.Error as error:
        print(f"mathfuse: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
