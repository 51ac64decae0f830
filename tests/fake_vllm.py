"""A server that speaks vLLM's HTTP and misbehaves on demand: ``fake_vllm.py JSON``.

JSON: {"vocab": size, "stop": id of the end token, and optionally "port", "context", "tokenizer":
folder, "answers": {question: SQL}, "raw": true for log-probs that ignore the temperature}. Prints
its port. Without answers it samples ids at random; with them it answers the question that it finds
in the prompt, rightly in half of all cases. A log-prob is a hash of weights, position and id.

``PUT /faults`` takes a JSON list of [what, part of the path, times]; ``GET /seen`` gives
{"requests": [[path, model], …], "adapters": [names]} since the last time it was asked.
"""

import hashlib
import json
import os
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


class Model:
    def __init__(self, options):
        self.options = options
        self.adapters = {}  # name to (path, weights)
        self.faults, self.requests = [], []
        self.lock = threading.Lock()
        self.tokenizer = None
        if "tokenizer" in options:
            from tokenizers import Tokenizer

            self.tokenizer = Tokenizer.from_file(f"{options['tokenizer']}/tokenizer.json")

    def take(self, path):
        for fault in self.faults:
            if fault[1] in path and fault[2] > 0:
                fault[2] -= 1
                return fault[0]
        return None

    def load(self, name, path):
        if name in self.adapters:
            return 400, error("already loaded")
        try:
            tensors = load_file(f"{path}/adapter_model.safetensors")
        except OSError:
            return 404, error(f"no adapter in {path}")
        changes = any(np.any(v) for k, v in tensors.items() if "lora_B" in k)
        data = Path(f"{path}/adapter_model.safetensors").read_bytes()
        self.adapters[name] = (path, hashlib.sha256(data).hexdigest() if changes else "base")
        return 200, None

    def logprob(self, weights, position, token, temperature):
        digest = hashlib.sha256(f"{weights} {position} {token}".encode()).digest()
        scale = 1.0 if self.options.get("raw") else max(temperature, 0.1)
        return -3.0 * int.from_bytes(digest[:4], "big") / 2**32 / scale

    def sample(self, request):
        rng = random.Random(f"{request.get('seed')} {request['prompt']}")
        limit, stop = request["max_tokens"], self.options["stop"]
        if self.tokenizer is not None:
            text = self.tokenizer.decode(request["prompt"], skip_special_tokens=False)
            asked = [q for q in self.options["answers"] if q in text]
            right = rng.random() < 0.5 if request["temperature"] else True
            gold = self.options["answers"][max(asked, key=text.rfind)] if asked else "SELECT 2"
            ids = self.tokenizer.encode(gold if right else "SELECT 1", add_special_tokens=False).ids
            ids = [*ids, stop]
        else:
            count = rng.randint(1, 2 * limit)
            ids = [rng.randrange(self.options["vocab"]) for _ in range(count - 1)] + [stop]
        return (ids, "stop") if len(ids) <= limit else (ids[:limit], "length")

    def complete(self, request, fault):
        name = request["model"]
        if name == "base":
            weights = "base"
        elif name in self.adapters:
            weights = "base" if fault == "ignore" else self.adapters[name][1]
        else:
            return 404, error(f"The model `{name}` does not exist.")
        if len(request["prompt"]) + request["max_tokens"] > self.options.get("context", 4096):
            return 400, error("too long")
        temperature = request["temperature"]
        ids, ended = self.sample(request)
        start = len(request["prompt"])
        logprobs = [self.logprob(weights, start + n, i, temperature) for n, i in enumerate(ids)]
        if fault == "nan":
            logprobs[0] = float("nan")
        if fault == "short":
            logprobs.pop()
        if fault == "foreign-id":
            ids[0] = self.options["vocab"]
        if fault == "no-end":
            ids[-1] = (self.options["stop"] + 1) % self.options["vocab"]
        choice = {
            "index": 0,
            "text": "",
            "token_ids": ids,
            "finish_reason": "abort" if fault == "abort" else ended,
            "stop_reason": None,
            "logprobs": {"token_logprobs": logprobs},
        }
        if request.get("logprobs"):
            choice["logprobs"]["top_logprobs"] = [
                {"a": self.logprob(weights, start, 0, temperature)}
            ]
        answered_by = "base" if fault == "substitute" else name
        return 200, {"model": answered_by, "choices": [choice]}

    def models(self):
        base = {"id": "base", "root": "base", "parent": None,
                "max_model_len": self.options.get("context", 4096)}  # fmt: skip
        adapters = [
            {"id": name, "root": path, "parent": "base", "max_model_len": None}
            for name, (path, _) in self.adapters.items()
        ]
        return {"data": [base, *adapters]}


def error(message):
    return {"error": {"message": message}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.handle_one({})

    def do_PUT(self):
        self.handle_one(self.body())

    def do_POST(self):
        self.handle_one(self.body())

    def body(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")

    def handle_one(self, request):
        model = self.model
        if self.path == "/faults":
            model.faults = request
            return self.answer(200, {})
        if self.path == "/seen":
            seen = {"requests": model.requests, "adapters": sorted(model.adapters)}
            model.requests = []
            return self.answer(200, seen)
        with model.lock:
            name = request.get("model") or request.get("lora_name")
            model.requests.append([self.path, name])
            fault = model.take(f"{self.path} {name}")
        if fault == "die":
            os._exit(9)
        if fault == "drop":
            self.close_connection = True
            return None
        if fault == "hang":
            time.sleep(30)
            self.close_connection = True
            return None
        if fault == "garbage":
            return self.answer(200, "garbage")
        if fault == "forget":
            model.adapters.clear()
        if fault and fault.isdigit():
            return self.answer(int(fault), error(f"fault {fault}"))
        return self.answer(*self.route(request, fault))

    def route(self, request, fault):
        model = self.model
        if self.path == "/health":
            return 200, {}
        if self.path == "/v1/models":
            listed = model.models()
            return 200, {"data": listed["data"][:1]} if fault == "hide" else listed
        if self.path == "/v1/completions":
            return model.complete(request, fault)
        if self.path == "/v1/load_lora_adapter" and not model.options.get("static"):
            return model.load(request["lora_name"], request["lora_path"])
        if self.path == "/v1/unload_lora_adapter":
            known = model.adapters.pop(request["lora_name"], None)
            return (200, None) if known else (404, error("cannot be found"))
        return 404, {"detail": "Not Found"}

    def answer(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    Handler.model = Model(settings)
    server = Server(("127.0.0.1", settings.get("port", 0)), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
