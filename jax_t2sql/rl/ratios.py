"""Do samplers and learner mean the same weights? Tokens of the learner's own version must tell."""

from jax_t2sql.rl.loop import Loop, Step

# Kernels in bfloat16 differ by a few hundredths of a nat a token; their mean by far less.
_TOLERANCE = 0.1
_SAY_EVERY = 10  # steps


class RatioWatch:
    """A hook for `Hooks.after_step`: warns when on-policy tokens have a mean ratio far from 1.

    The ratio is π/π_sampler. Only a batch that was sampled wholly with the version that it updates
    is judged, since there the two must agree. A wrong base, a lost adapter or log-probs of another
    temperature show here, while loss and reward look healthy.
    """

    def __init__(self):
        self._said: int | None = None

    def __call__(self, loop: Loop, step: Step) -> None:
        versions = {group.oldest_version for group in step.trained}
        ratio = step.metrics.get("ratio_mean")
        if step.replayed or ratio is None or versions != {step.batch.step}:
            return
        step.metrics["ratio_on_policy"] = ratio
        recent = self._said is not None and step.version - self._said < _SAY_EVERY
        if abs(ratio - 1) <= _TOLERANCE or recent:
            return
        self._said = step.version
        names = ", ".join(sorted({group.sampler for group in step.trained}))
        loop.say(
            f"warning at step {step.version}: tokens sampled with the learner's own weights have a"
            f" mean ratio of {ratio:.3f}, which should be 1: {names} and the learner do not compute"
            " the same. Compare base model and precision, and see that the servers run with"
            " --logprobs-mode processed_logprobs"
        )
