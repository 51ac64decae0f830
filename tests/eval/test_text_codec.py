"""Text as ids: exact, and as long as the bounds of an episode allow."""

from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.eval.text_codec import TextCodec, completion_of

CODEC = TextCodec()


@given(text=st.text(max_size=200), limit=st.integers(2, 40), cut_off=st.booleans())
def test_a_completion_holds_its_text_and_keeps_to_the_limit(text, limit, cut_off):
    completion = completion_of(text, cut_off=cut_off, stops=(), max_tokens=limit)
    assert CODEC.decode(completion.ids) == text
    assert len(completion.ids) <= limit
    assert (completion.stop == "length") == cut_off


def test_a_turn_ends_with_its_first_stop_string_outside_of_reasoning():
    stops = CODEC.stop_strings("tools")
    text = "<think></solution></think>a<solution>SELECT 1</solution><solution>2</solution>"
    completion = completion_of(text, cut_off=True, stops=stops, max_tokens=100)
    assert CODEC.decode(completion.ids).endswith("a<solution>SELECT 1</solution>")
    assert completion.stop == "stop_token"
