"""gunicorn with each kind of worker, and clients that keep or close their connections."""

import http.client
import os
import random
import socket
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

SIZES = [0, 1, 1000, 20_000, 700_000]
KINDS = {"sync": [], "gthread": ["--threads", "8"], "gevent": []}


def application(environ, start_response):
    """The application for gunicorn: returns the body of the request."""
    data = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Length", str(len(data)))])
    return [data[at : at + 4096] for at in range(0, len(data), 4096)]


class Server:
    def __init__(self, kind):
        listener = socket.create_server(("127.0.0.1", 0))
        listener.listen(512)
        self.port = listener.getsockname()[1]
        number = listener.fileno()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--worker-class", kind, "--workers", "2", *KINDS[kind], "--bind", f"fd://{number}"]
            + ["--keep-alive", "20", "--graceful-timeout", "20", "--chdir", os.path.dirname(__file__), "gunicorn_workload:application"],
            pass_fds=[number],
        )
        listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def ask(connection, size):
    data = random.Random(size).randbytes(size)
    connection.request("POST", "/", data)
    assert connection.getresponse().read() == data


def kept(port, number):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for _ in range(8):
        for size in SIZES:
            ask(connection, size + number)
    connection.close()


def closed(port, number):
    for size in SIZES * 5:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        ask(connection, size + number)
        connection.close()


def run(port, work):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: work(port, number), range(8)))


def main():
    only = os.environ.get("ONLY")
    chosen = set(open(only).read().split()) if only else None
    for kind in KINDS:
        with Server(kind) as server:
            for work in (kept, closed):
                name = f"{kind}.{work.__name__}"
                if chosen and name not in chosen:
                    continue
                outcome = "passed"
                try:
                    run(server.port, work)
                except Exception:
                    traceback.print_exc()
                    outcome = "failed"
                with open(os.environ["RESULTS"], "a") as results:
                    results.write(f"{outcome}\t{name}\n")


if __name__ == "__main__":
    main()
