"""A headless Chromium that shows one page: what it logs, asks the network for, and how wide it is.

It speaks the DevTools protocol over a pipe (messages of JSON that end in a zero byte), so nothing is installed for it.

    python tests/report/chromium.py PAGE PNG WIDTH light|dark      # a screenshot of the whole page
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PATIENCE = 60
"""Seconds for one answer."""


def find_chromium():
    """The path of a Chromium or Chrome; None if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


class Chromium:
    """`with Chromium() as browser`: a page at a time. errors: what its pages logged. requests: addresses asked for."""

    def __init__(self):
        self.errors, self.requests, self.buffer, self.number, self.session = [], [], b"", 0, None

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--hide-scrollbars", f"--user-data-dir={self.profile.name}",
                 "--remote-debugging-pipe"]  # fmt: skip
        # Chromium reads commands from descriptor 3 and answers on 4
        command = ["sh", "-c", 'exec "$0" "$@" 3<&0 4>&1', find_chromium(), *flags]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.profile.cleanup()

    def show(self, path, width, scheme="light"):
        """Load a file at that width in pixels and colour scheme ("light" or "dark")."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.call("Page.navigate", url=Path(path).absolute().as_uri())
        while self.read().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression):
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self):
        """The whole page as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
        )
        return base64.b64decode(answer["data"])

    def call(self, method, **params):
        """The answer to a command; events that come before it are noted."""
        self.number += 1
        session = {"sessionId": self.session} if self.session else {}
        message = {"id": self.number, "method": method, "params": params, **session}
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def read(self):
        """The next message. Raises TimeoutError after PATIENCE seconds of silence."""
        while b"\0" not in self.buffer:
            if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
                raise TimeoutError("Chromium says nothing")
            received = os.read(self.process.stdout.fileno(), 1 << 20)
            if not received:
                raise EOFError(f"Chromium ended with {self.process.wait()}")
            self.buffer += received
        text, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(text)
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.errors.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.errors.append(str(params["args"]))
            case "Log.entryAdded":
                self.errors.append(params["entry"]["text"])
        return message


if __name__ == "__main__":
    page, picture, pixels, colours = sys.argv[1:]
    with Chromium() as browser:
        browser.show(page, int(pixels), colours)
        Path(picture).write_bytes(browser.screenshot())
        print(
            browser.evaluate(
                "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
            )
        )
        print(browser.errors, browser.requests)
