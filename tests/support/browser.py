"""Headless Chromium, driven through a pipe by its DevTools protocol, without a package."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-default-apps", "--disable-extensions", "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
LIMIT_S = 30.0
FONTS = "/usr/share/fonts/truetype/dejavu"
"""The only fonts that pages get, if they are there, so that text is as wide on every machine."""
ALIASES = {
    "system-ui": "DejaVu Sans",
    "sans-serif": "DejaVu Sans",
    "ui-monospace": "DejaVu Sans Mono",
    "monospace": "DejaVu Sans Mono",
}
KEYS = {"Tab": 9, "Enter": 13, "ArrowLeft": 37}
"""The codes of keys, by their names."""


def browser() -> str:
    """The path of a browser; fails the test where none is installed, rather than skip it."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.fail(
            f"expected a browser, one of {', '.join(NAMES)}, found none; install it, on Debian "
            "with `apt-get install chromium`"
        )
    return found


@dataclass
class Tab:
    """One page, with the messages of its console and its requests."""

    _to: int
    _from: int
    _session: str = ""
    _count: int = 0
    _rest: bytes = b""
    _loaded: bool = False
    console: list[str] = field(default_factory=list)
    """Messages of the console, errors of scripts, and violations of the page's policy."""
    requests: list[str] = field(default_factory=list)
    """The addresses that the page requested, over the network or not."""

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """The answer to a command of the protocol."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer["error"]
                return dict(answer["result"])

    def attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def open(self, address: str) -> None:
        """Opens an address, and returns when the page has loaded."""
        self._loaded = False
        if "loaderId" not in self.call("Page.navigate", url=address):
            return  # another place of the same document
        end = time.monotonic() + LIMIT_S
        while not self._loaded:
            assert time.monotonic() < end, f"{address} did not load within {LIMIT_S:.0f} s"
            self.value("0")  # takes in what has happened

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression; for a promise, the value that it resolves to."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str, limit_s: float = LIMIT_S) -> None:
        """Waits until a JavaScript expression is true, and fails after `limit_s` seconds."""
        end = time.monotonic() + limit_s
        while not self.value(expression):
            assert time.monotonic() < end, f"expected {expression} within {limit_s:.0f} s"
            time.sleep(0.05)

    def size(self, width: int, height: int = 1000) -> None:
        """Sets the size of the window, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=False,
        )  # fmt: skip

    def media(self, theme: str = "light", kind: str = "screen") -> None:
        scheme = {"name": "prefers-color-scheme", "value": theme}
        self.call("Emulation.setEmulatedMedia", media=kind, features=[scheme])

    def shot(self, file: Path, most_height: int = 6000) -> None:
        """Writes an image of the page, from its top down to `most_height` pixels."""
        box = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": box["width"], "height": min(box["height"], most_height),
                "scale": 1}  # fmt: skip
        image = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(image))

    def key(self, name: str) -> None:
        """Presses a key and lets it go."""
        values: dict[str, Any] = {"key": name, "code": name, "windowsVirtualKeyCode": KEYS[name]}
        text = {"text": "\r"} if name == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **values, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **values)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._from, 1 << 16)
            assert read, "the browser ended"
            self._rest += read
        text, _, self._rest = self._rest.partition(b"\0")
        message = dict(json.loads(text))
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, values: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.consoleAPICalled":
            self.console.append(str(values["args"]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(values["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.console.append(f"{values['entry']['level']}: {values['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])


def _environment(folder: Path) -> dict[str, str]:
    """This process's, with a configuration of fonts in the folder that has `FONTS` alone."""
    if not Path(FONTS).is_dir():
        return dict(os.environ)
    file = folder / "fonts.conf"
    cache = folder / "fonts"
    aliases = "".join(
        f"<alias><family>{family}</family><prefer><family>{font}</family></prefer></alias>"
        for family, font in ALIASES.items()
    )
    file.write_text(
        f"<fontconfig><dir>{FONTS}</dir><cachedir>{cache}</cachedir>{aliases}</fontconfig>"
    )
    return {**os.environ, "FONTCONFIG_FILE": str(file)}


@contextmanager
def opened(folder: Path) -> Iterator[Tab]:
    """A browser with a fresh profile in a folder; it ends with the block."""
    their_in, to = os.pipe()
    back, their_out = os.pipe()
    script = f'exec "$0" "$@" 3<&{their_in} 4>&{their_out}'
    process = subprocess.Popen(
        ["bash", "-c", script, browser(), *QUIET, f"--user-data-dir={folder / 'profile'}"],
        pass_fds=(their_in, their_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=_environment(folder),
    )  # fmt: skip
    os.close(their_in)
    os.close(their_out)
    try:
        tab = Tab(to, back)
        tab.attach()
        yield tab
    finally:
        os.close(to)
        os.close(back)
        process.terminate()
        process.wait(timeout=20)
