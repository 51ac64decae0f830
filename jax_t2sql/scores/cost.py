"""What an evaluation cost: tokens, dollars a question and dollars a thousand right answers."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jax_t2sql.errors import UserError
from jax_t2sql.scores.records import AnswerRow

_FIELDS = ("input", "output", "cached")
_EXAMPLE = (
    '{"read": "2026-11-30", "models": {"my-model": {"input": 0.5, "cached": 0.05, "output": 1.5}}}'
)


@dataclass(frozen=True)
class Price:
    """US dollars a million tokens. `cached` is the price of input that the endpoint had cached."""

    input: float
    output: float
    cached: float
    of: str
    source: str


def read_prices(path: Path | None = None) -> dict[str, Price]:
    """Prices by model: those that come with the package, replaced and extended by a user's file.

    Raises:
      UserError: the file cannot be read, or a price in it is none.
    """
    packaged = files("jax_t2sql.scores").joinpath("prices.json").read_text("utf-8")
    prices = _parse(packaged, "the package's prices")
    if path is not None:
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--prices {path} cannot be read ({error}); give a JSON file") from None
        prices |= _parse(text, f"--prices {path}")
    return prices


def _parse(text: str, where: str) -> dict[str, Price]:
    try:
        table = json.loads(text)
        models = table["models"]
        return {
            str(name): _price(name, row, table.get("read", ""), where)
            for name, row in models.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{where}: no price table ({error!r}); write it as {_EXAMPLE}") from None


def _price(name: str, row: Mapping[str, Any], read: str, where: str) -> Price:
    numbers = {field: row.get(field) for field in _FIELDS}
    if numbers["cached"] is None:
        numbers["cached"] = numbers["input"]
    for field, value in numbers.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:
            raise UserError(
                f"{where}: {field} of {name!r} is {value!r}; give US dollars a million tokens"
            )
    return Price(**numbers, of=str(row.get("of", read)), source=str(row.get("source", where)))


def price_of(model: str, prices: Mapping[str, Price]) -> tuple[str, Price] | None:
    """The price of a model by its name, or by the name before a date or variant.

    >>> table = {"gpt-5.4": 1, "gpt-5.4-mini": 2}
    >>> price_of("gpt-5.4-mini-2026-03-01", table), price_of("org/gpt-5.4", table)
    (('gpt-5.4-mini', 2), ('gpt-5.4', 1))
    >>> price_of("gpt-5.40", table) is None
    True
    """
    plain = model.rpartition("/")[2].lower()
    fitting = [
        name for name in prices if plain == name.lower() or plain.startswith(name.lower() + "-")
    ]
    if model in prices:
        fitting = [model]
    return max(((name, prices[name]) for name in fitting), key=lambda p: len(p[0]), default=None)


def cost(
    answers: Sequence[AnswerRow],
    correct: int,
    *,
    model: str = "",
    prices: Path | None = None,
    device_hours: float | None = None,
    device_hour_price: float | None = None,
) -> dict[str, Any]:
    """Tokens and, where a price is known, dollars.

    Args:
      answers: all that were paid for: samples too, not only the first answers.
      correct: questions that the evaluation got right.
      model: its name in the price table.
      prices: a user's table.
      device_hours, device_hour_price: for a model served on one's own machines: hours of devices,
        and dollars for one. If given they count instead of tokens.

    Returns: questions, answers; prompt_tokens, cached_tokens, completion_tokens, and of how many
      answers they are known; seconds (of answering, added up); dollars, dollars_per_question,
      dollars_per_1000_correct (None where there is no price, or nothing correct); priced_by, in
      words.

    Raises:
      UserError: a price without hours, a negative one, or a bad table.
    """
    for name, value in (
        ("--device-hours", device_hours),
        ("--device-hour-price", device_hour_price),
    ):
        if value is not None and not 0 <= value < math.inf:
            raise UserError(f"{name} is {value}; it must be 0 or more, and finite")
    counted = [
        a for a in answers if a.prompt_tokens is not None and a.completion_tokens is not None
    ]
    tokens = {
        "prompt_tokens": sum(a.prompt_tokens for a in counted),
        "cached_tokens": sum(a.cached_tokens or 0 for a in counted),
        "completion_tokens": sum(a.completion_tokens for a in counted),
    }
    questions = len({answer.question_id for answer in answers})
    dollars, priced_by = _dollars(
        tokens, len(counted), model, prices, device_hours, device_hour_price
    )
    return {
        "questions": questions,
        "answers": len(answers),
        "tokens_known_of": len(counted),
        **tokens,
        "seconds": math.fsum(a.seconds or 0.0 for a in answers),
        "device_hours": device_hours,
        "dollars": dollars,
        "dollars_per_question": None if dollars is None or not questions else dollars / questions,
        "dollars_per_1000_correct": (
            None if dollars is None or not correct else 1000 * dollars / correct
        ),
        "priced_by": priced_by,
    }


def _dollars(
    tokens: Mapping[str, int],
    counted: int,
    model: str,
    prices: Path | None,
    device_hours: float | None,
    device_hour_price: float | None,
) -> tuple[float | None, str]:
    if device_hour_price is not None:
        if device_hours is None:
            raise UserError(
                "--device-hour-price needs --device-hours: devices times hours that answering took"
            )
        told = f"{device_hours:g} device-hours at ${device_hour_price:g}"
        return device_hours * device_hour_price, told
    found = price_of(model, read_prices(prices)) if model else None
    if found is None:
        name = repr(model) if model else "the model"
        return None, f"no price of {name} is known; give --prices or --device-hour-price"
    name, price = found
    if not counted:
        return None, "the answers do not tell their tokens"
    fresh = tokens["prompt_tokens"] - tokens["cached_tokens"]
    dollars = (
        fresh * price.input
        + tokens["cached_tokens"] * price.cached
        + tokens["completion_tokens"] * price.output
    ) / 1e6
    return dollars, (
        f"{name}: ${price.input:g} in, ${price.cached:g} cached, ${price.output:g} out a million"
        f" tokens (of {price.of or 'unknown date'}; {price.source})"
    )
