"""The usual optimizer for language-model reinforcement learning. Any optax transform will do."""

from __future__ import annotations

import optax


def warmup_cosine(
    *, peak_lr: float, warmup_steps: int, total_steps: int, final_fraction: float = 0.1
) -> optax.Schedule:
    """Learning rate by update count: a linear rise to `peak_lr`, then half a cosine.

    The first of w warm-up updates uses peak_lr / w (a rate of 0 would waste it), the w-th uses
    peak_lr; from update `total_steps` on the rate is final_fraction · peak_lr.

    Raises:
      ValueError: warmup_steps is negative or not below total_steps.

    >>> lr = warmup_cosine(peak_lr=1.0, warmup_steps=2, total_steps=12)
    >>> [round(float(lr(count)), 3) for count in (0, 1, 6, 11, 99)]
    [0.5, 1.0, 0.55, 0.1, 0.1]
    """
    if not 0 <= warmup_steps < total_steps:
        raise ValueError(
            f"warmup_steps={warmup_steps} must be at least 0 and below total_steps={total_steps}"
        )
    peak_at = max(warmup_steps - 1, 0)
    rise = optax.linear_schedule(peak_lr / max(warmup_steps, 1), peak_lr, max(peak_at, 1))
    fall = optax.cosine_decay_schedule(peak_lr, max(total_steps - 1 - peak_at, 1), final_fraction)
    return optax.join_schedules([rise, fall], [peak_at])


def make_optimizer(
    *,
    peak_lr: float,
    warmup_steps: int,
    total_steps: int,
    final_fraction: float = 0.1,
    b1: float = 0.9,
    b2: float = 0.95,
    weight_decay: float = 0.0,
    clip_norm: float = 1.0,
) -> optax.GradientTransformation:
    """AdamW (arXiv 1711.05101) under `warmup_cosine`, gradients clipped to a global norm.

    Args:
      b1, b2: decay of the first and the second moment; 0.95 forgets a burst of large gradients
        in tens of updates, where the usual 0.999 takes a thousand.
      weight_decay: decoupled; multiplied by the learning rate.
      clip_norm: largest Euclidean norm of the gradient of all trainable arrays together.
    """
    schedule = warmup_cosine(
        peak_lr=peak_lr,
        warmup_steps=warmup_steps,
        total_steps=total_steps,
        final_fraction=final_fraction,
    )
    return optax.chain(
        optax.clip_by_global_norm(clip_norm),
        optax.adamw(schedule, b1=b1, b2=b2, weight_decay=weight_decay),
    )
