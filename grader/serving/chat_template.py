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
    """A model's chat template is faulty or cannot be read, or it refuses these messages."""


class ChatTemplate:
    """The chat template of one model, which turns messages into a prompt."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], tokenizer: Tokenizer) -> None:
        """`special_tokens` are texts by their names in SPECIAL. Raises what Jinja raises for a faulty template."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals.update(raise_exception=_refuse, strftime_now=datetime.now().strftime)
        self._template = environment.from_string(source)
        self._special_tokens = dict(special_tokens)
        self._tokenizer = tokenizer

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


def find_template(folder: Path) -> ChatTemplate | None:
    """The template in a model's chat_template.jinja or tokenizer_config.json; None where there is none.

    Raises ChatTemplateError, which names the file, for one that is faulty or cannot be read, and TokenizerError.
    """
    settings_file, file = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    settings = _settings(settings_file)
    if file.is_file():
        source: Any = _read(file)
    else:
        file, source = settings_file, settings.get("chat_template")
    if source is None:
        return None
    if isinstance(source, list):  # several, by name
        entries = [entry for entry in source if isinstance(entry, dict) and entry.get("name") == "default"]
        source = entries[0].get("template") if entries else None
    if not isinstance(source, str):
        raise ChatTemplateError(f'{file}: "chat_template" must be a text, or a list with one that is named "default"')
    special = {name: _text(settings.get(name)) for name in SPECIAL if _text(settings.get(name))}
    tokenizer = Tokenizer.from_folder(folder)
    try:
        return ChatTemplate(source, special, tokenizer)
    except (TemplateError, SyntaxError, RecursionError) as error:  # the last two for blocks in blocks in blocks …
        raise ChatTemplateError(f"{file}: the chat template is faulty: {error}") from None


def _settings(file: Path) -> Mapping[str, Any]:
    """The content of tokenizer_config.json, empty where there is none."""
    if not file.is_file():
        return {}
    text = _read(file)
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ChatTemplateError(f"{file} is not JSON ({error})") from None
    if not isinstance(settings, dict):
        raise ChatTemplateError(f"{file} holds a {type(settings).__name__}, wanted an object of settings")
    return settings


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ChatTemplateError(f"{file} cannot be read ({error})") from None


def _text(token: Any) -> str:
    """A special token's text: files give it as it is, or as an object with its properties."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)  # Jinja's own would escape for HTML


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
