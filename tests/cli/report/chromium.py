"""A page in headless Chromium, over its debugging pipe: what it logs, asks for and computes at a given width."""
import base64
import json
import os
import select
import shutil
import subprocess
import time

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LIMIT = 60.0


class Chromium:
    """Commands are those of the Chrome DevTools protocol, as JSON that ends with a NUL."""

    def __init__(self, folder):
        here, there = os.pipe(), os.pipe()  # what the browser reads, what it writes

        def move():  # to 3 and 4, past whatever lies there
            reads, writes = os.dup2(here[0], 100), os.dup2(there[1], 101)
            os.dup2(reads, 3), os.dup2(writes, 4)

        self.log = open(os.path.join(folder, "chromium.log"), "wb")
        self.process = subprocess.Popen(
            [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", f"--user-data-dir={folder}/profile", "about:blank"],
            preexec_fn=move, close_fds=False, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(here[0]), os.close(there[1])
        self.output, self.input = here[1], there[0]
        self.rest, self.count, self.session, self.events = b"", 0, None, []

    def __enter__(self):
        pages = [target for target in self.send("Target.getTargets")["targetInfos"] if target["type"] == "page"]
        page = pages[0]["targetId"] if pages else self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(domain + ".enable")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.output), os.close(self.input)
        self.log.close()

    def receive(self, end):
        while b"\0" not in self.rest:
            if not select.select([self.input], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            got = os.read(self.input, 1 << 16)
            if not got:
                raise EOFError("Chromium ended")
            self.rest += got
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def send(self, method, **parameters):
        self.count += 1
        request = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.output, data):]
        end = time.monotonic() + LIMIT
        while True:
            message = self.receive(end)
            if message.get("id") == self.count:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def open(self, path, width, height=900, dark=False):
        """Shows a file; `events` then holds what happened since."""
        self.events = []
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.send("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + LIMIT
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.receive(end))

    def value(self, expression):
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def faults(self):
        """What the page logged, threw or was refused."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.loadingFailed")
        return [event for event in self.events if event.get("method") in kinds]

    def requests(self):
        return [event["params"]["request"]["url"] for event in self.events
                if event.get("method") == "Network.requestWillBeSent"]

    def pdf(self, path):
        path.write_bytes(base64.b64decode(self.send("Page.printToPDF", printBackground=False)["data"]))
