"""Reads which sections and symbols a shared object has: ELF (Linux) and Mach-O (macOS), both of 64 bits."""

import re
import struct
from typing import NamedTuple

CODE = ".text"
"""The section of the functions. Those of Mach-O get the names that ELF gives to theirs."""
THREAD_LOCAL = "thread local"
"""The section of thread-local variables; their address is the offset in the block that each thread has of them."""
_ELF_SYMBOLS, _ELF_IS_LOADED, _ELF_IS_THREAD_LOCAL = 2, 0x2, 0x400
_ELF_KINDS = (1, 2, 6)  # of symbols: variable, function, thread-local variable
_SEGMENT, _SYMBOLS = 0x19, 2  # load commands
_MACH_O_THREAD_LOCAL = (0x11, 0x12)  # types of sections: with content, and zeros
_STAB, _IN_SECTION = 0xE0, 0x0E
_INITIAL = "$tlv$init"  # behind the name of a thread-local variable: its content in a new thread


class Symbol(NamedTuple):
    """A variable or function that the file defines."""

    name: str
    section: str
    address: int
    """In the file, which is loaded anywhere."""
    size: int
    """Bytes. Mach-O notes none: there, those up to the next symbol, and so the padding between them too."""


class ObjectFile(NamedTuple):
    """What a shared object says of itself."""

    sections: dict[str, tuple[int, int]]
    """What is loaded: name to address in the file and bytes."""
    symbols: list[Symbol]
    """Those that are defined in these sections."""
    undefined: list[str]
    """The names of those that the file needs of others."""


def read_object(content: bytes) -> ObjectFile:
    """Of the bytes of the file."""
    return _read_elf(content) if content.startswith(b"\x7fELF") else _read_mach_o(content)


def _read_elf(content: bytes) -> ObjectFile:
    (table,) = struct.unpack_from("<Q", content, 0x28)
    entry, count, names_at = struct.unpack_from("<HHH", content, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", content, table + i * entry) for i in range(count)]
    names = [_text(content, headers[names_at][4] + header[0]) for header in headers]
    symbols, undefined = [], set()
    for _, kind, _, _, begin, size, link, *_ in headers:
        if kind != _ELF_SYMBOLS:
            continue
        for name, info, _, section, address, bytes in struct.iter_unpack("<IBBHQQ", content[begin : begin + size]):
            if section == 0:
                undefined.add(_text(content, headers[link][4] + name).partition("@")[0])
            if 0 < section < count and info & 0xF in _ELF_KINDS:
                where = THREAD_LOCAL if headers[section][2] & _ELF_IS_THREAD_LOCAL else names[section]
                symbols.append(Symbol(_text(content, headers[link][4] + name), where, address, bytes))
    loaded = {names[i]: (header[3], header[5]) for i, header in enumerate(headers) if header[2] & _ELF_IS_LOADED}
    return ObjectFile(loaded, symbols, sorted(undefined - {""}))


def _read_mach_o(content: bytes) -> ObjectFile:
    sections: list[tuple[str, int, int, bool]] = []  # name, address, bytes, whether thread-local
    undefined: list[str] = []
    found: list[tuple[str, int, int]] = []  # name, position of its section, address
    position = 32
    for _ in range(struct.unpack_from("<I", content, 16)[0]):
        command, length = struct.unpack_from("<II", content, position)
        if command == _SEGMENT:
            (count,) = struct.unpack_from("<I", content, position + 64)
            first = position + 72
            for name, _, begin, size, flags in struct.iter_unpack("<16s16sQQ16xI12x", content[first:][: 80 * count]):
                title = name.rstrip(b"\0").decode()
                sections.append((re.sub("^__", ".", title), begin, size, flags & 0xFF in _MACH_O_THREAD_LOCAL))
        elif command == _SYMBOLS:
            first, count, names, _ = struct.unpack_from("<IIII", content, position + 8)
            for name, kind, section, _, address in struct.iter_unpack("<IBBHQ", content[first:][: 16 * count]):
                if not kind & (_STAB | _IN_SECTION):
                    undefined.append(_text(content, names + name).removeprefix("_"))
                elif not kind & _STAB and kind & _IN_SECTION == _IN_SECTION:
                    found.append((_text(content, names + name), section - 1, address))
        position += length
    block = min((begin for _, begin, _, is_thread_local in sections if is_thread_local), default=0)
    symbols = []
    for name, number, address in found:
        where, begin, size, is_thread_local = sections[number]
        following = (other for _, its_number, other in found if its_number == number and other > address)
        extent = min(following, default=begin + size) - address
        if is_thread_local:
            where, address = THREAD_LOCAL, address - block
        symbols.append(Symbol(name.removeprefix("_").removesuffix(_INITIAL), where, address, extent))
    return ObjectFile({name: (begin, size) for name, begin, size, _ in sections}, symbols, undefined)


def _text(content: bytes, begin: int) -> str:
    return content[begin : content.index(b"\0", begin)].decode()
