"""What the library does, as records of Python's logging."""

from __future__ import annotations

import logging

from mathfuse import _core


def _receive(topic: str, text: str) -> None:
    logging.getLogger(f"mathfuse.{topic}").info("%s", text)


def log_records(topics: str = "plan,tune") -> None:
    """Send records of these topics to the loggers "mathfuse.plan", "mathfuse.tune" and so on, at level INFO.

    `topics`: a list of "plan" (how each step runs), "run", "tune" (what was tried), "cache", "load" (libraries), or "all"; "": none.
    """
    _core.log_to(topics, _receive if topics else None)
