"""Tells systemd how the daemon is (the sd_notify protocol): one datagram to $NOTIFY_SOCKET, nothing without it."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress


class Notifier:
    """Sends states; a systemd that does not listen is no reason to fail."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        address = (os.environ if environment is None else environment).get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of Linux's abstract namespace.
        self._address = "\0" + address[1:] if address.startswith("@") else address

    @property
    def enabled(self) -> bool:
        return bool(self._address)

    def ready(self, status: str = "") -> None:
        self._send("READY=1", status)

    def beat(self, status: str = "") -> None:
        """A sign of life for WatchdogSec=."""
        self._send("WATCHDOG=1", status)

    def reloading(self) -> None:
        """Must be followed by ``ready``. systemd 253 and newer wait for ever without the monotonic time."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, state: str, status: str = "") -> None:
        if not self._address:
            return
        message = f"{state}\nSTATUS={status.splitlines()[0]}" if status else state
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(message.encode(), self._address)
