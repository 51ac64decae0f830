"""A policy on a vLLM server, asked in token ids: prompts are those of a model in this process."""

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from jax_t2sql.assembly import episode_config
from jax_t2sql.errors import UserError
from jax_t2sql.eval.concurrent import answered_in_bursts
from jax_t2sql.eval.episodes import answer_row, unanswered
from jax_t2sql.eval.local_policy import adapter_digest
from jax_t2sql.eval.options import EvalArgs
from jax_t2sql.eval.prompting import make_prompts, problems_of, prompt_config, prompts_digest
from jax_t2sql.eval.questions import Asked, problem_of
from jax_t2sql.eval.specs import PolicySpec
from jax_t2sql.eval.tasks import Task
from jax_t2sql.grading import GradingPool
from jax_t2sql.models import LoadedModel, ModelConfig, Tokenizer
from jax_t2sql.models.checkpoints import weight_files
from jax_t2sql.models.files import digest_files, read_json
from jax_t2sql.sample_episodes import play_turns
from jax_t2sql.sampling.chat import ChatCodec
from jax_t2sql.sampling.policy import SampleRequest
from jax_t2sql.sampling.vllm import AdapterGone, Refused, ServedModel, VllmClient
from jax_t2sql.sampling.vllm_adapters import AdapterHost, Unproven
from jax_t2sql.scores.records import AnswerRow
from jax_t2sql.text2sql.completion import Completion

_START_SECONDS = 60.0


class ServerPolicy:
    """Finds out what the server serves, and loads the adapter if it is a folder.

    Raises:
      UserError: no server answers, it serves several bases, the tokenizer is not found here, or the
        adapter cannot be loaded.
    """

    def __init__(
        self,
        spec: PolicySpec,
        args: EvalArgs,
        asked: Asked,
        tasks: Sequence[Task],
        pool: GradingPool,
    ):
        self._args, self._pool = args, pool
        self._url = spec.target.rstrip("/").removesuffix("/v1")
        self._runner = asyncio.Runner()
        served = self._ask(self._models())
        base = _base(served, spec)
        folder = _tokenizer_folder(args.model, base)
        shape = ModelConfig.from_hf(read_json(folder / "config.json"))
        tokenizer = Tokenizer.from_directory(folder)
        files = [*weight_files(folder), folder / "config.json"]
        model = LoadedModel(shape, None, tokenizer, str(folder), digest_files(files))
        codec = ChatCodec(tokenizer)
        episode = episode_config(
            prompt_config(args),
            model,
            default_context=min(8192, base.max_model_len or 8192),
            options="--",
        )
        self._prompts = make_prompts(asked, codec, episode, args)
        self._client = VllmClient(
            self._url,
            vocab_size=shape.vocab_size,
            stop_ids=tuple(codec.stop_ids),
            on_trouble=_tell,
            request_seconds=args.request_seconds,
        )
        self._too_long = dict(self._prompts.split_by_length(problems_of(tasks))[1])
        self._name = base.name
        if spec.adapter:
            self._name = self._ask(self._serve(spec.adapter, served, base, shape, tasks))
        self.facts = {
            "model": {"sha256": model.sha256, "served_as": base.name},
            "adapter_sha256": adapter_digest(spec.adapter) if _is_folder(spec.adapter) else None,
            "adapter": None if _is_folder(spec.adapter) else spec.adapter,
            "prompt_sha256": prompts_digest(self._prompts, tasks),
            "tool_format": episode.options.tool_format,
            "max_context": episode.max_context,
            "schemas_cut": len(self._prompts.cut_schemas),
        }

    def answer(self, tasks: Sequence[Task]) -> Iterator[list[AnswerRow]]:
        """One row a task, as they are finished."""
        return answered_in_bursts(
            tasks, self._play, runner=self._runner, concurrency=self._args.concurrency
        )

    def close(self) -> None:
        """Ends what is under way, and the connections."""
        with self._runner:
            self._runner.run(self._client.close())

    async def _play(self, task: Task) -> AnswerRow:
        problem = problem_of(task.row, evidence=task.evidence)
        if problem in self._too_long:
            return unanswered(task, "prompt_too_long", self._too_long[problem])
        started = time.monotonic()
        try:
            state = await play_turns(
                problem,
                task.seed,
                sample=self._sample,
                prompts=self._prompts,
                pool=self._pool,
                temperature=0.0 if task.greedy else self._args.temperature,
            )
        except (Refused, TimeoutError) as error:
            return unanswered(task, "error", str(error) or "the server gave no answer in time")
        except AdapterGone as error:
            raise UserError(f"{self._url} does not serve {self._name} any more: {error}") from None
        return answer_row(task, state, seconds=time.monotonic() - started)

    async def _sample(self, request: SampleRequest, stops: tuple[str, ...]) -> Completion:
        # The client asks again for as long as it takes; here somebody waits for the end.
        async with asyncio.timeout(2 * self._args.request_seconds):
            return await self._client.sample(
                request, adapter=self._name, version=0, stop_strings=stops
            )

    async def _models(self) -> dict[str, ServedModel]:
        client = VllmClient(self._url, vocab_size=1, stop_ids=(), on_trouble=_tell)
        try:
            return await client.models()
        finally:
            await client.close()

    async def _serve(
        self,
        adapter: str,
        served: dict[str, ServedModel],
        base: ServedModel,
        shape: ModelConfig,
        tasks: Sequence[Task],
    ) -> str:
        """The adapter's name on the server; its folder is loaded under a name of its content."""
        if adapter in served:
            return adapter
        if not _is_folder(adapter):
            raise UserError(
                f"{self._url} serves no {adapter!r} (it has {', '.join(served)}), and there is no"
                " such folder here"
            )
        name = f"eval-{adapter_digest(adapter)[:16]}"
        if name in served:
            return name
        canary = self._prompts.ids(problem_of(tasks[0].row))
        host = AdapterHost(self._client, config=shape, base=base.name, canary=canary)
        await host.advance(name, version=0, directory=Path(adapter))
        return name

    def _ask(self, question):
        async def timed():
            async with asyncio.timeout(_START_SECONDS):
                return await question

        try:
            return self._runner.run(timed())
        except TimeoutError:
            raise UserError(
                f"{self._url} gave no answer in {_START_SECONDS:g} s; start the server, or correct"
                " --policy"
            ) from None
        except (Refused, Unproven) as error:
            raise UserError(f"{self._url}: {error}") from None


def _base(served: dict[str, ServedModel], spec: PolicySpec) -> ServedModel:
    bases = [model for model in served.values() if model.parent is None]
    if len(bases) != 1:
        raise UserError(
            f"{spec.target} serves {len(bases)} base models ({', '.join(m.name for m in bases)});"
            " exactly one is needed"
        )
    return bases[0]


def _tokenizer_folder(given: str | None, base: ServedModel) -> Path:
    folder = Path(given or base.root or "")
    if not (folder / "config.json").is_file() or not (folder / "tokenizer.json").is_file():
        raise UserError(
            f"{str(folder)!r} is no folder here with config.json and tokenizer.json of the served"
            f" model {base.name}; name one with --model, or use openai:URL, which needs none"
        )
    return folder


def _is_folder(adapter: str | None) -> bool:
    return adapter is not None and Path(adapter).is_dir()


def _tell(line: str) -> None:
    if line:
        print(f"note: {line}", file=sys.stderr, flush=True)
