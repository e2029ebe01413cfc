"""C++ that users wrote, as far as it must be understood: its functor, and what that takes."""

from __future__ import annotations

import dataclasses
import re

__all__ = ["Struct", "find_function", "find_struct", "without_comments"]

# Comments, strings and characters; the quotes of 1'000'000 are between digits.
_NO_CODE = re.compile(
    r"//(?:\\\n|[^\n])*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|"
    r"(?<!\w)(?:u8|[uUL])?'(?:\\[^']+|\\'|[^'\\])'",
    re.DOTALL,
)
_CALL = re.compile(r"(\w+|[>&*)])\s*\boperator\s*\(\s*\)\s*\(")

# A class and its brace; one that is a template's parameter, or an enum, is none.
_CLASS = re.compile(
    r"(\btemplate\s*<([^<>]*)>\s*)?(?<!\benum )\b(?:struct|class)\s+"
    r"(?:(?:alignas|__align__)\s*\([^()]*\)\s*|\[\[[^][]*\]\]\s*)*(\w+)\b[^;{(<>]*\{"
)
_NO_DATA = re.compile(
    r"((inline|constexpr)\s+)*(using|typedef|static|friend|enum|struct|class|union|template)\b"
)
_STATEMENTS = ("if", "for", "while", "switch", "constexpr")  # what is before a parenthesis there


def without_comments(text: str) -> str:
    """The text with spaces in the place of comments, strings and characters, line by line."""
    return _NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


@dataclasses.dataclass(frozen=True)
class Struct:
    """A class with an ``operator()``.

    Attributes:
      name: of the class.
      is_template: whether it is a template of one type, which is then that of the first input;
        further parameters have defaults.
      parameters: the names of those of ``operator()``.
      returns_void: whether results are parameters.
      members: the names of its data, in order, and whether each has an initialiser; None where
        more than that decides what they are: a constructor, a base, an array.
    """

    name: str
    is_template: bool
    parameters: tuple[str, ...]
    returns_void: bool
    members: tuple[tuple[str, bool], ...] | None


def find_struct(text: str, name: str | None) -> Struct | None:
    """The class with an ``operator()``: the one of that name, or else the last one.

    Raises:
      ValueError: for an ``operator()`` outside of a class, and for a template of more than a type.
    """
    code = without_comments(text)
    if not re.search(r"\boperator\s*\(\s*\)", code):
        return None
    found: dict[str, Struct] = {}
    end = 0
    for match in _CLASS.finditer(code):
        if match.start() < end:  # inside of the one before
            continue
        own = _own(code, match.end())
        end = match.end() + len(own)
        if call := _CALL.search(own):
            found[match[3]] = _struct(match, call, code, own)
    if not found:
        raise ValueError("source has an operator() but no struct around it")
    return found[name] if name in found else found[list(found)[-1]]


def _own(code: str, start: int) -> str:
    """The code of a class, from after its brace on, with spaces for what is in braces inside."""
    depth, own = 1, []
    for character in code[start:]:
        depth -= character == "}"
        if depth == 0:
            break
        own.append(character if depth == 1 or character == "\n" else " ")
        depth += character == "{"
    return "".join(own)


def find_function(text: str) -> str | None:
    """The name of the function whose definition a text begins with."""
    words = r"(?:[\w:*&]+\s+|template\s*<[^{}()]*>\s*)+"
    code = without_comments(re.sub(r'^\s*extern\s*"C"', "", text)).strip()
    match = re.match(rf"{words}[*&]*(\w+)\s*\([^(){{}};]*\)\s*(?:noexcept\s*)?\{{", code)
    return match[1] if match and match[1] not in _STATEMENTS else None


def _struct(match: re.Match[str], call: re.Match[str], code: str, own: str) -> Struct:
    name, template = match[3], match[2]
    first, *others = (template or "class T").split(",")
    is_type = re.fullmatch(r"\s*(class|typename)\s+\w+\s*(=.*)?", first)
    if not is_type or any("=" not in other for other in others):
        raise ValueError(
            f"{name!r} is a template of more than one type. Make its operator() the template, or "
            "call it: give the struct as preamble, and as source what creates and calls it"
        )
    is_derived = ":" in match[0].replace("::", "")
    return Struct(
        name,
        template is not None,
        _parameters(own[call.end() :]),
        call[1] == "void",
        None if is_derived else _members(name, code[match.end() :]),
    )


def _members(name: str, code: str) -> tuple[tuple[str, bool], ...] | None:
    """The data of a class, from the code after its brace on."""
    members: list[tuple[str, bool]] = []
    for statement in _statements(code):
        declared = re.split(r"[={]", statement, maxsplit=1)[0]
        if re.search(rf"\b{name}\s*\(", declared) or "[" in declared:
            return None
        if "(" in declared or _NO_DATA.match(declared):
            continue
        for part in re.sub(r"\([^()]*\)", "", statement).split(","):
            declarator, *initialiser = re.split(r"[={]", part, maxsplit=1)
            members += [(word, bool(initialiser)) for word in re.findall(r"\w+", declarator)[-1:]]
    return tuple(members)


def _statements(code: str) -> list[str]:
    """Those of a class, up to its end, with ``{}`` for all that is in braces inside."""
    depth, text = 1, ""
    for character in re.sub(r"^[ \t]*#.*$", "", code, flags=re.MULTILINE):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            break
        if depth == 1 or (depth == 2 and character == "{"):
            text += character
    text = re.sub(r"\b(public|private|protected)\s*:", ";", text)
    while text != (text := re.sub(r"<[^<>;]*>", " ", text)):  # arguments of templates
        continue
    # A function's body ends a statement, too; an initialiser's braces do not.
    text = re.sub(r"(\)[^;{}()]*\{\})", r"\1;", text)
    return [part.strip() for part in text.split(";") if part.strip()]


def _parameters(code: str) -> tuple[str, ...]:
    """The names of the parameters that code begins with, up to the parenthesis."""
    depth, parts = 0, [""]
    for character in code:
        if character == ")" and depth == 0:
            break
        depth += (character in "(<[{") - (character in ")>]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    words = [re.findall(r"\w+", part.split("=")[0]) for part in parts]
    names = tuple(each[-1] if each else "" for each in words)
    return () if names in (("",), ("void",)) else names
