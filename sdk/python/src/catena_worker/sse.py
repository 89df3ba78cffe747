"""Server-sent events: bytes to events."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    event: str
    data: str
    id: str | None


class Parser:
    """Collects lines into frames."""

    def __init__(self) -> None:
        self.retry_s: float | None = None
        """The wait before reconnecting, if the stream stated one."""
        self._event = ""
        self._id: str | None = None
        self._data: list[str] = []

    def push_line(self, line: str) -> Frame | None:
        """Takes a line without its end. Returns the frame that it completes."""
        if not line:
            return self._complete()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self._id = value
        elif name == "retry" and value.isdigit():
            self.retry_s = int(value) / 1000
        return None

    def _complete(self) -> Frame | None:
        frame = Frame(self._event or "message", "\n".join(self._data), self._id) if self._data else None
        self._event, self._id, self._data = "", None, []
        return frame
