"""A vLLM server: is it fit for a run? And one of one's own: started, watched, stopped."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.sampling.vllm import AdapterGone, Refused, VllmClient
from jax_t2sql.sampling.vllm_http import HttpClient, Unreachable

_STOP_SECONDS = 15.0
_TAIL_BYTES = 2000
# Deaths in a row, before it was ever healthy, after which starting it again is hopeless.
_HOPELESS = 3
# Looks at its health in a row without an answer, or with a bad one, after which it is ended.
_UNWELL = 5
_MEMORY_SIGNS = ("memory utilization", "Free memory on device", "out of memory")
_MEMORY_HINT = '; give it less, such as --vllm-args="--gpu-memory-utilization 0.3"'


async def check_server(
    client: VllmClient, *, base: str | None, canary: Sequence[int], max_context: int
) -> str:
    """Is this server fit to sample for a run? The name of the base that it serves.

    base: its name where the server has several.

    Raises:
      UserError: no such base, too short a context, or log-probs that ignore the temperature.
    """
    try:
        served = await client.models()
    except Refused as error:
        raise UserError(
            f"{client.http.url} does not answer as a vLLM server does: {error}"
        ) from error
    bases = {name: m for name, m in served.items() if m.parent is None}
    if base is None and len(bases) == 1:
        base = next(iter(bases))
    if base not in bases:
        raise UserError(
            f"{client.http.url} serves {', '.join(bases) or 'nothing'}; name the base model with "
            "--served-model-name" + (f" (not {base!r})" if base else "")
        )
    length = bases[base].max_model_len
    if length is not None and length < max_context:
        raise UserError(
            f"{client.http.url} takes {length} tokens, episodes have up to {max_context}; restart "
            f"vLLM with --max-model-len {max_context}"
        )
    try:
        warm = await client.top_logprob(canary, adapter=base, temperature=1.0)
        hot = await client.top_logprob(canary, adapter=base, temperature=2.0)
    except (AdapterGone, Refused) as error:
        raise UserError(f"{client.http.url} cannot sample: {error}") from error
    if warm == hot:
        raise UserError(
            f"{client.http.url} reports log-probs that ignore the temperature; restart vLLM with "
            "--logprobs-mode processed_logprobs"
        )
    return base


def server_command(
    python: str,
    *,
    model: str,
    port: int,
    max_context: int,
    max_rank: int,
    extra: Sequence[str] = (),
) -> list[str]:
    """The command line of a vLLM server that is fit to sample for a run.

    Args:
      python: interpreter of the environment that has vLLM.
      max_rank: of the adapters; the next size that vLLM knows is taken.
      extra: more options, which win over those before them.
    """
    sizes = (8, 16, 32, 64, 128, 256, 320, 512)
    rank = next((size for size in sizes if size >= max_rank), None)
    if rank is None:
        raise UserError(f"vLLM serves adapters up to rank {sizes[-1]}, this run has {max_rank}")
    options = {
        "--model": model,
        "--served-model-name": "base",
        "--host": "127.0.0.1",
        "--port": str(port),
        "--max-model-len": str(max_context),
        "--max-lora-rank": str(rank),
        "--max-loras": "2",
        "--max-cpu-loras": "4",
        "--logprobs-mode": "processed_logprobs",
    }
    flat = [word for option in options.items() for word in option]
    return [python, "-m", "vllm.entrypoints.openai.api_server", *flat, "--enable-lora", *extra]


async def _is_well(http: HttpClient) -> bool:
    with contextlib.suppress(Unreachable):
        status, _ = await http.ask("GET", "/health")
        return status == 200
    return False


class VllmServer:
    """Keeps one server process alive.

    Args:
      command: its command line. log: file that takes what it prints.
      url: where it answers. start_seconds: until it must be healthy.
      say: told in a line whenever it starts or dies.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        url: str,
        log: Path,
        start_seconds: float = 600.0,
        health_seconds: float = 10.0,
        answer_seconds: float = 30.0,
        say: Callable[[str], None] = print,
    ):
        self.command, self.url, self.log = list(command), url, log
        self.start_seconds, self.say = start_seconds, say
        self.health_seconds, self.answer_seconds = health_seconds, answer_seconds
        self.process: subprocess.Popen | None = None
        self._deaths = 0
        self._log_start = 0

    async def watch(self) -> None:
        """Runs until cancelled; starts the server, and again whenever it is gone or lost its wits.

        A process whose engine died, or which hangs, does not end by itself: it is ended.

        Raises:
          UserError: it died several times in a row without ever answering.
        """
        try:
            while True:
                await self._start()
                await self._alive()
                self._died()
        finally:
            await asyncio.to_thread(self.stop)

    def stop(self) -> None:
        """Ends the server and all that it started."""
        if self.process is None or self.process.poll() is not None:
            return
        for number, seconds in ((signal.SIGTERM, _STOP_SECONDS), (signal.SIGKILL, _STOP_SECONDS)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
                return

    async def _alive(self) -> None:
        """Returns when the process has ended, or was ended since it answers no more."""
        http = HttpClient(self.url, timeout=self.answer_seconds)
        unwell, due = 0, time.monotonic() + self.health_seconds
        try:
            while self.process.poll() is None:
                await asyncio.sleep(min(0.5, self.health_seconds))
                if time.monotonic() < due:
                    continue
                unwell = 0 if await _is_well(http) else unwell + 1
                due = time.monotonic() + self.health_seconds
                if unwell >= _UNWELL:
                    self.say(f"the vLLM server on {self.url} does not answer; it is ended")
                    await asyncio.to_thread(self.stop)
        finally:
            await http.close()

    async def _start(self) -> None:
        environment = {
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_NO_USAGE_STATS": "1",
            **os.environ,
        }
        # A sampler's own choice of a device must not keep the server from its accelerator, nor may
        # our own modules shadow its.
        for name in ("JAX_PLATFORMS", "PYTHONPATH"):
            environment.pop(name, None)
        try:
            with open(self.log, "ab") as log:
                self._log_start = log.tell()
                self.process = subprocess.Popen(
                    self.command,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise UserError(
                f"the server cannot be started ({error}); check --vllm-python and the disk"
            ) from error
        self.say(f"starting a vLLM server on {self.url} (its output: {self.log})")
        http = HttpClient(self.url, timeout=5.0)
        try:
            async with asyncio.timeout(self.start_seconds):
                while self.process.poll() is None:
                    if await _is_well(http):
                        self._deaths = 0
                        self.say(f"the vLLM server on {self.url} is up")
                        return
                    await asyncio.sleep(0.5)
        except TimeoutError:
            raise UserError(
                f"the vLLM server was not up in {self.start_seconds:g} s; the end of {self.log}: "
                f"{self._tail()}"
            ) from None
        finally:
            await http.close()

    def _died(self) -> None:
        self._deaths += 1
        status = self.process.returncode
        why = f": {line}" if (line := self._last_error()) else ""
        self.say(f"the vLLM server on {self.url} died (status {status}{why}); it is started again")
        # What it leaves behind would hold the port or the accelerator.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self._deaths >= _HOPELESS:
            raise UserError(
                f"the vLLM server died {self._deaths} times in a row before it answered (status "
                f"{status}); the end of {self.log}: {self._tail()}"
            )

    def _last_error(self) -> str:
        """The last line that names an error since it was started; "" if none does."""
        try:
            with open(self.log, "rb") as file:
                file.seek(self._log_start)
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if "Error: " in line]
        # How it ends whatever the cause was.
        causes = [line for line in lines if "Engine core initialization failed" not in line]
        if not causes:
            return ""
        hint = _MEMORY_HINT if any(sign in causes[-1] for sign in _MEMORY_SIGNS) else ""
        return causes[-1][-300:] + hint

    def _tail(self) -> str:
        try:
            data = self.log.read_bytes()[-_TAIL_BYTES:]
        except OSError:
            return "(nothing)"
        return " ".join(data.decode("utf-8", "replace").split())
