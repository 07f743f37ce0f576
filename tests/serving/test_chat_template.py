"""Chat templates are rendered as transformers renders them, and cannot reach beyond the messages."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from given.tokenizer import Tokenizer

from grader import KIT

pytest.importorskip("jinja2", reason="jinja2 is not installed: make setup EXTRAS=model")

from grader.serving.chat_template import ChatTemplate, ChatTemplateError, find_template

TINY = KIT / "reference_outputs/tiny/model"
QUESTION = [{"role": "user", "content": "Who is there?"}]
LINES = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if message['role'] not in ('system', 'user', 'assistant') %}
        {{- raise_exception('no role ' ~ message['role']) }}
    {%- endif %}
    {{- message['role'] | upper }}: {{ message['content'] | trim }}
{% endfor %}
{% if add_generation_prompt %}
ASSISTANT:
{%- endif %}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(TINY / "tokenizer.json", tmp_path)
    return tmp_path


def write(folder: Path, template: Any, **settings: Any) -> ChatTemplate:
    values = {"bos_token": "<|begin_of_text|>", **settings, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(values), encoding="utf-8")
    return found(folder)


def found(folder: Path) -> ChatTemplate:
    template = find_template(folder)
    assert template
    return template


def test_a_conversation(folder: Path) -> None:
    template = write(folder, LINES)
    messages = [{"role": "system", "content": "Be brief.\n"}, *QUESTION]
    text = template.render(messages)
    assert text == "<|begin_of_text|>SYSTEM: Be brief.\nUSER: Who is there?\nASSISTANT:"
    begin, *rest = template.encode(messages)
    assert begin == 1020  # once: the template says it, the tokenizer does not add another
    assert 1020 not in rest
    assert Tokenizer.from_folder(folder).decode(rest) == text.removeprefix("<|begin_of_text|>")


def test_where_a_template_may_lie(folder: Path) -> None:
    assert write(folder, "a").render(QUESTION) == "a"
    named = [{"name": "tool_use", "template": "b"}, {"name": "default", "template": "c"}]
    assert write(folder, named).render(QUESTION) == "c"
    assert write(folder, "{{ bos_token }}", bos_token={"content": "<s>", "lstrip": False}).render(QUESTION) == "<s>"
    (folder / "chat_template.jinja").write_text("d", encoding="utf-8")
    assert found(folder).render(QUESTION) == "d"


def test_a_model_without_template(folder: Path) -> None:
    assert find_template(folder) is None
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>", "chat_template": null}', encoding="utf-8")
    assert find_template(folder) is None


@pytest.mark.parametrize(
    "template", ["{% for %}", "{{ messages", "{% unknown %}", "{% for m in messages %}" * 30 + "{% endfor %}" * 30]
)
def test_a_faulty_template(folder: Path, template: str) -> None:
    with pytest.raises(ChatTemplateError, match=r"tokenizer_config\.json: the chat template is faulty: "):
        write(folder, template)
    (folder / "tokenizer_config.json").unlink()
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    with pytest.raises(ChatTemplateError, match=r"chat_template\.jinja: the chat template is faulty: "):
        find_template(folder)


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("chat_template.jinja", b"\xff", "cannot be read"),
        ("tokenizer_config.json", b"\xff", "cannot be read"),
        ("tokenizer_config.json", b"{", "is not JSON"),
        ("tokenizer_config.json", b"[]", "holds a list"),
        ("tokenizer_config.json", b'{"chat_template": 1}', '"chat_template" must be a text'),
        ("tokenizer_config.json", b'{"chat_template": [{"name": ["default"], "template": "a"}]}', "must be a text"),
    ],
)
def test_a_template_that_cannot_be_read_is_not_taken_for_none(
    folder: Path, name: str, content: bytes, wanted: str
) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(ChatTemplateError) as caught:
        find_template(folder)
    assert str(caught.value).startswith(str(folder / name))
    assert wanted in str(caught.value)


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ([], "at least one message"),
        ([{"role": "user"}], 'message 0 must have a "role" and a "content", both texts'),
        ([*QUESTION, {"role": "user", "content": ["?"]}], "message 1"),
        ([{"role": "ghost", "content": "boo"}], "refuses these messages: no role ghost"),
    ],
)
def test_messages_that_are_refused(folder: Path, messages: Any, wanted: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        write(folder, LINES).render(messages)
    assert wanted in str(caught.value)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ raise_exception.__globals__.json }}",
        "{{ messages.append(1) }}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{{ 1 / 0 }}",
        "{{ messages['x'].y }}",
    ],
)
def test_a_template_reaches_nothing_else(folder: Path, template: str) -> None:
    with pytest.raises(ChatTemplateError, match="refuses these messages"):
        write(folder, template).render(QUESTION)


def test_json_and_loop_controls(folder: Path) -> None:
    source = "{% for m in messages %}{{ m.content | tojson }}{% break %}{% endfor %}"
    assert write(folder, source).render([{"role": "user", "content": "<é>"}, *QUESTION]) == '"<é>"'
