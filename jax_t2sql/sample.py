"""Sample for a run: claim tasks from its bus, answer them on a vLLM server, hand groups over.

    python -m jax_t2sql.sample --bus B --policy vllm:http://HOST:PORT

Everything else is read from the log's first entry. Start as many as there are servers, on any
machine that sees the bus and has the run's base model, questions and databases. The server must run
with --enable-lora, --logprobs-mode processed_logprobs and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True;
--spawn-vllm starts one so, watches it and starts it again when it dies.

Where there is no run on the bus yet, it waits for one. Ends with the run. Ctrl-C or SIGTERM: what
is not finished is offered to others at once.
"""

import asyncio
import contextlib
import os
import re
import shlex
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro

from jax_t2sql.addresses import server_address
from jax_t2sql.errors import UserError
from jax_t2sql.programs import run_program

_LONGEST_REQUEST = 86_400  # seconds; infinity would be a hang
_END_LOOK_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class SampleArgs:
    """Options of the program."""

    bus: str
    """Directory or URL of the run's bus, usually WORKDIR/bus."""
    policy: str
    """Which server samples: vllm:http://HOST:PORT."""
    groups: int | None = None
    """Groups under way at once; each is a question with all its rollouts. By default what the
    learner's --fleet.groups-in-flight says."""
    name: str | None = None
    """Of this sampler, unique in the fleet; by default from host name and process id."""
    served_model_name: str | None = None
    """The base's name on the server, where that serves several."""
    model: Path | None = None
    """Folder of the base model on this machine; by default where the learner has it."""
    data: Path | None = None
    """Question file on this machine; likewise."""
    databases: Path | None = None
    """Folder of databases on this machine; likewise."""
    eval_data: Path | None = None
    """Held-out question file on this machine; likewise."""
    eval_databases: Path | None = None
    """Databases of the held-out questions on this machine; likewise."""
    hints: Path | None = None
    """File of hints on this machine, where the run has them; likewise."""
    notes: Path | None = None
    """Notes on the databases on this machine, where the run has them; likewise."""
    workdir: Path | None = None
    """The run's folder, for the built-in world; by default the one that the bus lies in."""
    sql_workers: int | None = None
    """Processes that run SQL here; by default as many as the learner's configuration says."""
    adapter_cache: Path | None = None
    """Folder for adapters fetched from a bucket, which the server sees under the same path; by
    default a temporary one."""
    wait_seconds: float = 3600.0
    """How long to wait for a run to begin on the bus; 0 for not at all."""
    request_seconds: float = 600.0
    """A turn that takes longer counts as no answer, and is asked for again."""
    spawn_vllm: bool = False
    """Start and watch a server on the policy's port."""
    vllm_python: str = sys.executable
    """Interpreter of the environment that has vLLM, for --spawn-vllm."""
    vllm_args: str = ""
    """More options for that server, in quotes: --vllm-args="--tensor-parallel-size 2"."""
    vllm_log: Path | None = None
    """File for what that server prints; by default vllm-NAME.log in the current folder."""


def sampler_name() -> str:
    """A name that no other process has."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname().partition(".")[0]).strip("-_")
    return f"{host[:48] or 'sampler'}-{os.getpid()}"


def server_url(policy: str) -> str:
    """The address in ``vllm:URL``. Raises UserError for anything else."""
    kind, colon, url = policy.partition(":")
    if kind != "vllm" or not colon or not url:
        raise UserError(f"--policy {policy!r} is unknown; give vllm:http://HOST:PORT")
    return server_address(url, option=f"--policy {policy}")


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        SampleArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m jax_t2sql.sample",
        description=__doc__,
    )
    url = server_url(args.policy)
    _check_numbers(args)
    # Adapters are read with JAX, which must leave the accelerator to the server.
    os.environ["JAX_PLATFORMS"] = "cpu"
    from jax_t2sql.bus import End
    from jax_t2sql.bus.keys import check_name
    from jax_t2sql.sample_setup import Places, assemble_sampler, await_run, make_sampler_pool
    from jax_t2sql.sample_setup import run_config as read_config

    if args.name is not None:
        try:
            check_name(args.name)
        except ValueError as error:
            raise UserError(f"--name: {error}") from error
    store, entries = await_run(args.bus, seconds=args.wait_seconds)
    if isinstance(entries[-1], End):
        print(f"the run has ended ({entries[-1].reason})")
        return 0
    config = read_config(entries[0])
    if config.adapter.kind == "full":
        raise UserError("the run trains all weights; a server can only be given adapters (lora)")
    places = Places(
        workdir=args.workdir or _workdir_of(args.bus),
        model=args.model,
        data=args.data,
        databases=args.databases,
        eval_data=args.eval_data,
        eval_databases=args.eval_databases,
        hints=args.hints,
        notes=args.notes,
    )
    with (
        make_sampler_pool(config, workers=args.sql_workers) as pool,
        tempfile.TemporaryDirectory(prefix="jax_t2sql-adapters-") as temporary,
    ):
        run, model = assemble_sampler(config, places, pool)
        cache = args.adapter_cache or Path(temporary)
        asyncio.run(_sample(args, url, store, run, model=model, cache=cache))
    return 0


def _check_numbers(args: SampleArgs) -> None:
    """Raises UserError for the first that is out of its bounds."""
    for name, low in (("groups", 1), ("sql_workers", 1), ("wait_seconds", 0)):
        value = getattr(args, name)
        if value is not None and not value >= low:
            option = name.replace("_", "-")
            raise UserError(f"--{option} is {value:g}; it must be at least {low}")
    if not 0 < args.request_seconds <= _LONGEST_REQUEST:
        raise UserError(
            f"--request-seconds is {args.request_seconds:g}; it must be more than 0 and at most"
            f" {_LONGEST_REQUEST:,}"
        )


def _workdir_of(bus: str) -> Path | None:
    return None if "://" in bus else Path(bus).resolve().parent


async def _sample(args: SampleArgs, url: str, store, run, *, model: Path, cache: Path) -> None:
    """Everything that needs the event loop: server, checks, work."""
    from jax_t2sql.bus import End, SamplerBus
    from jax_t2sql.contract import make_contract
    from jax_t2sql.experts_record import recorded_experts
    from jax_t2sql.sample_voice import Voice
    from jax_t2sql.sample_worker import Worker
    from jax_t2sql.sampling.vllm import VllmClient
    from jax_t2sql.sampling.vllm_adapters import AdapterHost
    from jax_t2sql.sampling.vllm_server import check_server

    def say(line: str) -> None:
        print(line, flush=True)

    name = args.name or sampler_name()
    bus = SamplerBus(store, sampler=name, contract=make_contract(run))
    client = VllmClient(
        url,
        vocab_size=run.model.config.vocab_size,
        stop_ids=run.model.tokenizer.stop_ids,
        request_seconds=args.request_seconds,
        experts=recorded_experts(run.config, run.model.config),
    )
    voice = Voice(say)
    client.on_trouble = voice.server
    server = None
    if args.spawn_vllm:
        server = asyncio.create_task(_server(args, url, run, model, name, say).watch())
    canary = run.prompts.ids(run.questions.train[0])[:512]
    job = asyncio.create_task(
        check_server(
            client,
            base=args.served_model_name,
            canary=canary,
            max_context=run.prompts.episode.max_context,
        )
    )
    try:
        base = await _first(job, server, asyncio.create_task(_ended(store, bus, voice)))
        if isinstance(base, End):
            say(f"the run has ended ({base.reason})")
            with contextlib.suppress(OSError):
                bus.heartbeat(left=True)
            await client.close()
            return
        host = AdapterHost(
            client, config=run.model.config, base=base, canary=canary, owner=bus.incarnation
        )
        fleet = run.config.fleet
        worker = Worker(
            run=run,
            bus=bus,
            client=client,
            host=host,
            groups=args.groups or fleet.groups_in_flight,
            cache=cache,
            voice=voice,
            still_seconds=fleet.still_seconds,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop.set)
        say(f"sampler {name} works for run {bus.state.start.run}")
        await _first(asyncio.create_task(worker.work()), server)
        say(f"{worker.delivered} groups delivered")
    finally:
        if server is not None:
            server.cancel()
            await asyncio.gather(server, return_exceptions=True)


def _server(args: SampleArgs, url: str, run, model: Path, name: str, say):
    from urllib.parse import urlsplit

    from jax_t2sql.sampling.vllm_server import VllmServer, server_command

    command = server_command(
        args.vllm_python,
        model=str(model),
        port=urlsplit(url).port or 8000,
        max_context=run.prompts.episode.max_context,
        max_rank=run.config.adapter.rank,
        extra=[
            *["--enable-return-routed-experts"] * run.config.sampler.record_experts,
            *shlex.split(args.vllm_args),
        ],
    )
    log = args.vllm_log or Path(f"vllm-{name}.log")
    return VllmServer(command, url=url, log=log, say=say)


async def _ended(store, bus, voice):
    """The log's last entry, as soon as the run has ended.

    Until then others see that this sampler lives, and what it waits for.
    """
    from jax_t2sql.bus import End, Log

    log = Log(store)  # its own: a look that is under way when this is cancelled harms nobody
    while not (log.entries and isinstance(log.entries[-1], End)):
        with contextlib.suppress(OSError):  # the bus is away
            await asyncio.to_thread(bus.heartbeat, last_error=voice.last_error)
            await asyncio.to_thread(log.follow)
        await asyncio.sleep(_END_LOOK_SECONDS)
    return log.entries[-1]


async def _first(job: asyncio.Task, *others: asyncio.Task | None):
    """The job's result; that of another, or what it raises, should it end first."""
    tasks = [task for task in (job, *others) if task is not None]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done()).result()
    finally:
        # The server's watch goes on beside the next job.
        for task in (job, *others[1:]):
            task.cancel()
        await asyncio.gather(job, *others[1:], return_exceptions=True)


if __name__ == "__main__":
    run_program(main, interrupted="interrupted; what was not finished is offered to others")
