"""A server of one's own: started, watched, ended and started again, on one that only pretends."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import urllib.request
from pathlib import Path

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.sampling.vllm_server import VllmServer, server_command

FAKE = Path(__file__).resolve().parent.parent / "fake_vllm.py"


class Watched:
    """A server under watch; `until` waits for what it says next."""

    def __init__(self, folder, command=None, **options):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        settings = {"vocab": 50, "stop": 7, "port": self.port}
        self.said = asyncio.Queue()
        self.server = VllmServer(
            command or [sys.executable, str(FAKE), json.dumps(settings)],
            url=self.url,
            log=folder / "vllm.log",
            say=self.said.put_nowait,
            **({"health_seconds": 0.05, "answer_seconds": 60.0} | options),
        )

    async def until(self, words):
        while words not in (line := await self.said.get()):
            pass
        return line

    def ask(self, method, path, value=None):
        data = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        with urllib.request.urlopen(request) as reply:
            return reply.read()


def watch(folder, act, **options):
    """Runs ``act(watched)`` beside the watch, which is cancelled then."""

    async def go():
        watched = Watched(folder, **options)
        watching = asyncio.create_task(watched.server.watch())
        acting = asyncio.create_task(act(watched))
        await asyncio.wait({watching, acting}, return_when=asyncio.FIRST_COMPLETED)
        acting.cancel()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        assert watched.server.process.poll() is not None, "it ends with its watch"
        return await acting

    return asyncio.run(go())


def test_a_server_that_dies_is_started_again(tmp_path):
    async def act(watched):
        await watched.until("is up")
        for _ in range(4):  # more than may die without ever answering
            first = watched.server.process.pid
            os.kill(first, signal.SIGKILL)
            assert "status -9" in await watched.until("died")
            await watched.until("is up")
            assert watched.server.process.pid != first

    watch(tmp_path, act)


def test_a_server_whose_engine_died_is_ended_and_started_again(tmp_path):
    async def act(watched):
        await watched.until("is up")
        first = watched.server.process.pid
        await asyncio.to_thread(watched.ask, "PUT", "/faults", [["503", "health", 999]])
        await watched.until("does not answer; it is ended")
        await watched.until("is up")
        assert watched.server.process.pid != first

    watch(tmp_path, act)


def test_a_server_that_hangs_is_ended_and_started_again(tmp_path):
    async def act(watched):
        await watched.until("is up")
        first = watched.server.process.pid
        os.kill(first, signal.SIGSTOP)
        await watched.until("does not answer; it is ended")
        os.kill(first, signal.SIGCONT)  # one that is stopped does not see that it is to end
        await watched.until("is up")
        assert watched.server.process.pid != first

    watch(tmp_path, act, answer_seconds=1.0)


def test_a_passing_weakness_is_forgiven(tmp_path):
    async def act(watched):
        await watched.until("is up")
        first = watched.server.process.pid
        for _ in range(3):
            await asyncio.to_thread(watched.ask, "PUT", "/faults", [["503", "health", 3]])
            await asyncio.to_thread(watched.ask, "GET", "/seen")  # what came before
            looks = 0
            while looks < 5:
                seen = json.loads(await asyncio.to_thread(watched.ask, "GET", "/seen"))
                looks += sum(path == "/health" for path, _ in seen["requests"])
        assert watched.server.process.pid == first and watched.said.empty()

    watch(tmp_path, act)


def test_one_that_never_answers_is_given_up_with_the_end_of_its_log(tmp_path):
    async def act(watched):
        await asyncio.Event().wait()

    program = [sys.executable, "-c", "print('no such model'); raise SystemExit(4)"]
    with pytest.raises(UserError, match=r"died 3 times .*status 4.*no such model"):
        watch(tmp_path, act, command=program)


def test_what_it_died_of_is_said_and_is_not_an_earlier_death(tmp_path):
    (tmp_path / "vllm.log").write_text("OSError: of another time\n")
    says = (
        "import sys; print('ValueError: Free memory on device is less than desired'); "
        "print('RuntimeError: Engine core initialization failed.'); sys.exit(1)"
    )

    async def act(watched):
        line = await watched.until("died (status")
        assert "status 1: ValueError: Free memory on device is less" in line
        assert "--gpu-memory-utilization 0.3" in line

    watch(tmp_path, act, command=[sys.executable, "-c", says])

    async def silent(watched):
        assert "(status 3);" in await watched.until("died (status")

    watch(tmp_path, silent, command=[sys.executable, "-c", "import sys; sys.exit(3)"])


def test_one_that_takes_too_long_is_given_up(tmp_path):
    async def act(watched):
        await asyncio.Event().wait()

    program = [sys.executable, "-c", "import time; print('loading', flush=True); time.sleep(99)"]
    with pytest.raises(UserError, match="was not up in 2 s"):
        watch(tmp_path, act, command=program, start_seconds=2.0)


def test_a_program_that_is_not_there_is_one_error(tmp_path):
    async def act(watched):
        await asyncio.Event().wait()

    async def go():
        await Watched(tmp_path, command=["/no/python"]).server.watch()

    with pytest.raises(UserError, match="check --vllm-python"):
        asyncio.run(go())


def test_the_command_serves_adapters_of_the_runs_rank():
    command = server_command("py", model="m", port=1, max_context=99, max_rank=20, extra=["--x"])
    assert command[:3] == ["py", "-m", "vllm.entrypoints.openai.api_server"]
    assert command[command.index("--max-lora-rank") + 1] == "32" and command[-1] == "--x"
    with pytest.raises(UserError, match="up to rank 512, this run has 513"):
        server_command("py", model="m", port=1, max_context=99, max_rank=513)
