"""Chat templates: Jinja programs that come with a model, run in a sandbox."""

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from jax_t2sql.errors import UserError

Message = Mapping[str, Any]

# One turn a message, no default system prompt; for models that know the ChatML tokens but come
# without a template.
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def render_chat(
    template: str,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool,
    special_tokens: Mapping[str, str],
) -> str:
    """Renders `messages` as the template says; the same environment as transformers gives it.

    Args:
      messages: dicts with "role" and "content".
      add_generation_prompt: end with the header of an assistant turn.
      special_tokens: values of bos_token, eos_token, … that templates may use.

    Raises:
      UserError: the template does not compile, refuses these messages, or tries to leave the
        sandbox (templates of downloaded models are foreign code).
    """
    import jinja2

    try:
        return _compile(template).render(
            messages=[dict(message) for message in messages],
            add_generation_prompt=add_generation_prompt,
            tools=None,
            documents=None,
            **special_tokens,
        )
    # A template is a program: besides Jinja's own errors it can fail with any Python error of the
    # values that it handles.
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise UserError(f"the model's chat template failed: {error}") from error


@functools.lru_cache(maxsize=8)
def _compile(template: str):
    from jinja2 import TemplateError
    from jinja2.ext import Extension
    from jinja2.nodes import Scope
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks what an assistant says, for masks; it prints what it holds."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return Scope(body, lineno=line)

    def raise_exception(message: str):
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        # Jinja's own filter escapes HTML characters, which a prompt must not.
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment.from_string(template)
