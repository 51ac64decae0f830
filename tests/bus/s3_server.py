"""An S3 server for tests that can misbehave as real ones do: ``s3_server.py``, prints its port.

Moto behind a layer of faults. ``PUT /faults`` takes a JSON list of [what, method, part of the
path]; each fault strikes the first request that it fits, once:

- store-500: does what was asked, and answers 500;
- store-drop: does what was asked, and closes the connection without an answer;
- refuse-500, refuse-409: answers so, and does nothing (409 as S3 does when two conditional puts of
  one key meet);
- reverse: a listing in the opposite order.

``GET /requests`` gives the [method, path] of all requests since the last time it was asked.
"""

import contextlib
import json
import re
import socket
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUSY = (
    b"<?xml version='1.0'?><Error><Code>ConditionalRequestConflict</Code>"
    b"<Message>At least one of the preconditions conflicts</Message></Error>"
)


class Faulty:
    def __init__(self, app):
        self.app = app
        self.faults = []
        self.requests = []
        # Moto looks for a key and then stores it; two at once would both find nothing.
        self.one_put = threading.Lock()

    def __call__(self, environ, start_response):
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path == "/faults":
            size = int(environ.get("CONTENT_LENGTH") or 0)
            self.faults = json.loads(environ["wsgi.input"].read(size))
            return answer(start_response, "200 OK", b"")
        if path == "/requests":
            body = json.dumps(self.requests).encode()
            self.requests = []
            return answer(start_response, "200 OK", body)
        self.requests.append([method, path])
        what = self.take(method, f"{path}?{environ['QUERY_STRING']}")
        if what == "refuse-500":
            return answer(start_response, "500 Internal Server Error", b"")
        if what == "refuse-409":
            return answer(start_response, "409 Conflict", BUSY)
        kept = []
        with self.one_put if method == "PUT" else contextlib.nullcontext():
            body = b"".join(self.app(environ, lambda *status: kept.append(status)))
        if what is None:
            start_response(*kept[0])
            return [body]
        if what == "store-500":
            return answer(start_response, "500 Internal Server Error", b"")
        if what == "store-drop":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return answer(start_response, "500 Internal Server Error", b"")
        entries = re.findall(rb"<Contents>.*?</Contents>", body, re.DOTALL)
        first, last = body.index(entries[0]), body.index(entries[-1]) + len(entries[-1])
        body = body[:first] + b"".join(reversed(entries)) + body[last:]
        headers = [(k, v) for k, v in kept[0][1] if k.lower() != "content-length"]
        start_response(kept[0][0], [*headers, ("Content-Length", str(len(body)))])
        return [body]

    def take(self, method, path):
        for fault in self.faults:
            if fault[1] == method and fault[2] in path:
                self.faults.remove(fault)
                return fault[0]
        return None


def answer(start_response, status, body):
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
    start_response(status, headers)
    return [body]


if __name__ == "__main__":
    application = Faulty(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()
