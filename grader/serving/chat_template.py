"""A conversation as the text, and the token ids, that a chat model was trained on: by its own Jinja template."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from given.tokenizer import Tokenizer
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
"""Special tokens that a template may name; their texts are in tokenizer_config.json."""


class ChatTemplateError(ValueError):
    """A model has no usable chat template, or its template refuses these messages."""


class ChatTemplate:
    """The chat template of one model, which turns messages into a prompt."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], tokenizer: Tokenizer) -> None:
        """`special_tokens` are texts by their names in SPECIAL. Raises ChatTemplateError for a faulty template."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals.update(raise_exception=_refuse, strftime_now=datetime.now().strftime)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ChatTemplateError(f"the model's chat template is faulty: {error}") from None
        self._special_tokens = dict(special_tokens)
        self._tokenizer = tokenizer

    @classmethod
    def from_folder(cls, model_dir: str | Path) -> "ChatTemplate":
        """Read chat_template.jinja (or the one in tokenizer_config.json) and tokenizer.json of a model's folder.

        Raises ChatTemplateError, also when the model has no template, and TokenizerError.
        """
        folder = Path(model_dir)
        settings = _settings(folder / "tokenizer_config.json")
        special = {name: _text(settings.get(name)) for name in SPECIAL if _text(settings.get(name))}
        return cls(_source(folder, settings), special, Tokenizer.from_folder(folder))

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The text of a conversation, each message {"role", "content"}, up to where the assistant's answer begins.

        Raises ChatTemplateError for messages of another form, and for those that the template refuses.
        """
        if not messages:
            raise ChatTemplateError("a conversation needs at least one message")
        for index, message in enumerate(messages):
            if not all(isinstance(message.get(key), str) for key in ("role", "content")):
                raise ChatTemplateError(f'message {index} must have a "role" and a "content", both texts')
        try:
            return str(
                self._template.render(messages=list(messages), add_generation_prompt=True, **self._special_tokens)
            )
        except (TemplateError, TypeError, ArithmeticError, LookupError) as error:
            raise ChatTemplateError(f"the model's chat template refuses these messages: {error}") from None

    def encode(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The token ids of `render(messages)`; nothing is put around them, since the template already did.

        Raises ChatTemplateError as `render` does.
        """
        return self._tokenizer.encode(self.render(messages), add_special_tokens=False)


def _source(folder: Path, settings: Mapping[str, Any]) -> str:
    file = folder / "chat_template.jinja"
    source: Any = settings.get("chat_template")
    if isinstance(source, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("default")
    if file.is_file():
        try:
            source = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ChatTemplateError(f"{file} cannot be read ({error})") from None
    if not isinstance(source, str):
        raise ChatTemplateError(
            f"{folder} has no chat template (chat_template.jinja), so it is no chat model: let it complete texts"
        )
    return source


def _settings(file: Path) -> Mapping[str, Any]:
    """The content of tokenizer_config.json, empty where there is none."""
    if not file.is_file():
        return {}
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ChatTemplateError(f"{file} cannot be read ({error})") from None
    if not isinstance(settings, dict):
        raise ChatTemplateError(f"{file} holds a {type(settings).__name__}, wanted an object of settings")
    return settings


def _text(token: Any) -> str:
    """A special token's text: files give it as it is, or as an object with its properties."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)  # Jinja's own would escape for HTML


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
