"""A headless Chromium for the browser tests and the screenshots in the docs.

It speaks the DevTools protocol over two pipes (`--remote-debugging-pipe`): JSON messages that end in a zero byte. It
needs no package besides the browser.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find() -> str | None:
    """The path of Chromium, or None if it is not installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser with one page. Use it in a `with` statement."""

    def __init__(self, timeout: float = 60.0) -> None:
        program = find()
        if program is None:
            raise FileNotFoundError("chromium is not installed: apt-get install chromium")
        self._timeout = timeout
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # The browser reads from descriptor 3 and writes to descriptor 4.
        command = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, program, *_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._count = 0
        self._session: str | None = None
        self.messages: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def open(self, path: Path, *, width: int, height: int, dark: bool = False, media: str = "screen") -> None:
        """Open a file in a window of this size, and wait until it has loaded."""
        self.open_url(path.resolve().as_uri(), width=width, height=height, dark=dark, media=media)

    def open_url(self, url: str, *, width: int, height: int, dark: bool = False, media: str = "screen") -> None:
        """Open an address in a window of this size, and wait until it has loaded."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.messages.clear()
        self.requests.clear()
        self.call("Page.navigate", url=url)
        self._wait("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """Evaluate a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["text"])
        return result["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Save the visible part, or the whole page, as a PNG file."""
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(image["data"]))

    def accessibility(self) -> list[dict[str, Any]]:
        """The nodes of the accessibility tree, which screen readers use."""
        nodes: list[dict[str, Any]] = self.call("Accessibility.getFullAXTree")["nodes"]
        return [node for node in nodes if not node.get("ignored")]

    def pdf(self, path: Path) -> None:
        """Print the page to a PDF file."""
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))

    def call(self, method: str, **parameters: Any) -> Any:
        """Send one command of the DevTools protocol and return its result."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def _wait(self, method: str) -> None:
        while self._read().get("method") != method:
            pass

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + self._timeout
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(self._in, 1 << 16) if ready else b""
            if not more:
                raise TimeoutError("the browser does not respond")
            self._buffer += more
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.consoleAPICalled":
                self.messages.append(f"console.{parameters['type']}")
            case "Runtime.exceptionThrown":
                self.messages.append(parameters["exceptionDetails"]["text"])
            case "Log.entryAdded":
                self.messages.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])

    def close(self) -> None:
        """Close the browser and remove its profile."""
        self._process.terminate()
        self._process.wait(timeout=self._timeout)
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
