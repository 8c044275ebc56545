"""A server that W&B's own client takes for W&B: enough of its GraphQL for `wandb sweep` and `wandb agent`, on a port of this machine.

    UpsertSweep      keeps the sweep, warns of top-level keys that W&B's schema does not have
    SweepWithRuns    gives it back to an agent
    CreateAgent
    Heartbeat        hands out a run where none is running, stops one where the test says so, and ends the agent behind the last

What it handed out and what the agent said of it stays in its attributes, for a test to read.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

SCHEMA = {
    *("apiVersion", "kind", "controller", "description", "program", "job", "image_uri", "entity", "project", "method", "command", "name"),
    *("run_cap", "metric", "metrics", "scheduler", "early_terminate", "parameters"),
}
"""The top level of W&B's schema (PyPI: sweeps 0.3.0); it takes no other key."""
ENTITY, PROJECT, SWEEP = "tests", "mlm_lab", "sweep0001"
KEY = "0123456789abcdef" * 2 + "01234567"


class Stub:
    """The server's state.

    Attributes:
        config: the sweep file as the client sent it.
        limit: how many of the grid's points are handed out.
        stop_when: asked at each heartbeat of a running run; true sends the agent a stop for it.
        started: the values of each run that was handed out, by its id.
    """

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.limit = 2
        self.stop_when: Callable[[], bool] = lambda: False
        self.started: dict[str, dict[str, Any]] = {}
        self.stopped: list[str] = []
        self.restart: dict[str, Any] | None = None
        self.url = ""

    def environment(self) -> dict[str, str]:
        """What the client needs to come here, and the runs to record on disk."""
        return {
            "WANDB_BASE_URL": self.url,
            "WANDB_API_KEY": KEY,
            "WANDB_ENTITY": ENTITY,
            "WANDB_PROJECT": PROJECT,
            "WANDB_MODE": "offline",
            "WANDB_ERROR_REPORTING": "false",
            "WANDB_SILENT": "false",
        }

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """The data of a GraphQL request."""
        operation = re.search(r"\b(?:query|mutation)\s+(\w+)", query)[1]
        answers = {"UpsertSweep": self._upsert, "SweepWithRuns": self._sweep, "CreateAgent": self._agent, "Heartbeat": self._heartbeat}
        return answers[operation](variables) if operation in answers else self._viewer()

    def _viewer(self) -> dict[str, Any]:
        names = {"id": "user", "name": ENTITY, "username": ENTITY, "entity": ENTITY, "email": "", "admin": False, "flags": "{}"}
        return {"viewer": {**names, "teams": {"edges": []}, "apiKeys": {"edges": []}}, "serverInfo": None}

    def _upsert(self, variables: dict[str, Any]) -> dict[str, Any]:
        self.config = yaml.safe_load(variables["config"])
        unknown = [f"Additional properties are not allowed ('{key}' was unexpected)" for key in self.config if key not in SCHEMA]
        project = {"id": "project", "name": PROJECT, "entity": {"id": "entity", "name": ENTITY}}
        return {"upsertSweep": {"sweep": {"name": SWEEP, "project": project}, "configValidationWarnings": unknown}}

    def _sweep(self, variables: dict[str, Any]) -> dict[str, Any]:
        sweep = {"id": SWEEP, "name": SWEEP, "state": "RUNNING", "config": yaml.safe_dump(self.config), "runs": {"edges": []}}
        return {"project": {"sweep": sweep}}

    def _agent(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {"createAgent": {"agent": {"id": "agent0001"}}}

    def _heartbeat(self, variables: dict[str, Any]) -> dict[str, Any]:
        running = [name for name, state in json.loads(variables["runState"]).items() if state]
        return {"agentHeartbeat": {"agent": {"id": "agent0001"}, "commands": json.dumps(self._commands(running))}}

    def _commands(self, running: list[str]) -> list[dict[str, Any]]:
        if running:
            if not self.stop_when():
                return []
            self.stopped += running
            return [{"type": "stop", "run_id": name} for name in running]
        points = self._points()
        if len(self.started) >= len(points):
            return [{"type": "exit"}]
        run_id, values = f"run{len(self.started):05d}", points[len(self.started)]
        self.started[run_id] = values
        arguments = {key: {"value": value} for key, value in values.items()}
        return [{"type": "run", "run_id": run_id, "program": self.config["program"], "args": arguments}]

    def _points(self) -> list[dict[str, Any]]:
        """The first points of the grid, in W&B's order."""
        lists = {key: given["values"] for key, given in self.config["parameters"].items()}
        return [dict(zip(lists, values, strict=True)) for values in itertools.islice(itertools.product(*lists.values()), self.limit)]


@contextmanager
def serve() -> Iterator[Stub]:
    """A server for as long as the context is open."""
    stub = Stub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps({"data": stub.answer(request["query"], request.get("variables") or {})}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
