"""What a prompt may say beside the question: evidence blocks, dialect, tool format, example."""

from dataclasses import dataclass
from typing import Literal

from jax_t2sql.text2sql.tool_formats import HERMES, TOOL_FORMATS, ToolFormat, ToolFormatName

Evidence = Literal["plain", "structured"]
Dialect = Literal["sqlite", "snowflake"]
Effort = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions:
    """Choices of a prompt. Each holds for the tools style, and where it can for direct.

    Attributes:
      evidence: plain shows external knowledge as it is; structured numbers its pieces and asks for
        a requirement and a verification entry for each (see `evidence`).
      dialect: of the queries asked for.
      tool_format: how the model's family writes calls.
      worked_example: show one solved question.
      reasoning_effort: say how much to think before acting; None says nothing.
    """

    evidence: Evidence = "plain"
    dialect: Dialect = "sqlite"
    tool_format: ToolFormatName = HERMES.name
    worked_example: bool = True
    reasoning_effort: Effort | None = None

    @property
    def tools(self) -> ToolFormat:
        """The tool format that the name stands for."""
        return TOOL_FORMATS[self.tool_format]


PLAIN = PromptOptions()
