"""C++ that users wrote, as far as it must be understood: its functor, and what that takes."""

from __future__ import annotations

import dataclasses
import re
from typing import NamedTuple

__all__ = [
    "Struct",
    "Variable",
    "find_function",
    "find_struct",
    "is_name",
    "is_standard_macro",
    "without_comments",
]

_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t
        char32_t class compl const const_cast constexpr continue decltype default delete do double
        dynamic_cast else enum explicit export extern false float for friend goto if inline int long
        mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public
        register reinterpret_cast return short signed sizeof static static_assert static_cast struct
        switch template this thread_local throw true try typedef typeid typename union unsigned
        using virtual void volatile wchar_t while xor xor_eq
        """,
    )
)

# Macros of C and CUDA that are there without a header.
_STANDARD_MACRO = re.compile(
    r"M_(E|LOG2E|LOG10E|LN2|LN10|PI|PI_2|PI_4|1_PI|2_PI|2_SQRTPI|SQRT2|SQRT1_2)|CUDART_\w+|"
    r"(FLT|DBL|LDBL)_\w+|(U?INT(8|16|32|64|PTR|MAX)?|S?CHAR|UCHAR|U?SHRT|U?LL?ONG|SIZE|RAND)_(MAX|MIN)|"
    r"HUGE_VALF?|INFINITY|NAN|NULL|CHAR_BIT|assert"
)

# Words of compilers, as __device__ and __LINE__, and macros of this package's headers.
_RESERVED = re.compile(r"\w*__\w*|_[A-Z]\w*|JAX_ELEMENTWISE_\w*")

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


def is_standard_macro(name: str) -> bool:
    """Whether it is a macro that the text of other functors needs."""
    return _STANDARD_MACRO.fullmatch(name) is not None


def is_name(word: str) -> bool:
    """Whether a variable may be called so: a macro would put something else in its place."""
    if not re.fullmatch(r"[A-Za-z_]\w*", word, re.ASCII) or word in _KEYWORDS:
        return False
    return not is_standard_macro(word) and not _RESERVED.fullmatch(word)


class Variable(NamedTuple):
    """A parameter or a member, by its declaration.

    Attributes:
      name: empty where it has none.
      type: without ``const`` and ``&``.
      has_value: whether it is initialised.
    """

    name: str
    type: str
    has_value: bool


@dataclasses.dataclass(frozen=True)
class Struct:
    """A class with an ``operator()``.

    Attributes:
      name: of the class.
      template: its parameter, where it is a template of one type; further ones have defaults.
      has_default: whether the template's parameter has one.
      parameters: those of ``operator()``.
      returns_void: whether results are parameters.
      members: its data, in order; None where more than that decides what they are: a constructor,
        a base, an array.
    """

    name: str
    template: str | None
    has_default: bool
    parameters: tuple[Variable, ...]
    returns_void: bool
    members: tuple[Variable, ...] | None

    def of_template(self, inputs: int, scalars: int) -> list[tuple[int, str]]:
        """The operands, by number, whose type is the template's parameter, and their names.

        Args:
          inputs: how many operands are the first parameters of ``operator()``.
          scalars: how many are the first members. Of a constructor the parameters are not known.
        """
        declared = [*self.parameters[:inputs], *(self.members or ())[:scalars]]
        return [(i, each.name) for i, each in enumerate(declared) if each.type == self.template]


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
    parameter = re.fullmatch(r"\s*(?:class|typename)\s+(\w+)\s*(=.*)?", first)
    if not parameter or any("=" not in other for other in others):
        raise ValueError(
            f"{name!r} is a template of more than one type. Make its operator() the template, or "
            "call it: give the struct as preamble, and as source what creates and calls it"
        )
    is_derived = ":" in match[0].replace("::", "")
    return Struct(
        name,
        None if template is None else parameter[1],
        parameter[2] is not None,
        _parameters(own[call.end() :]),
        call[1] == "void",
        None if is_derived else _members(name, code[match.end() :]),
    )


def _members(name: str, code: str) -> tuple[Variable, ...] | None:
    """The data of a class, from the code after its brace on."""
    members: list[Variable] = []
    for statement in _statements(code):
        declared = re.split(r"[={]", statement, maxsplit=1)[0]
        if re.search(rf"\b{name}\s*\(", declared) or "[" in declared:
            return None
        if "(" in declared or _NO_DATA.match(declared):
            continue
        parts = re.sub(r"\([^()]*\)", "", statement).split(",")
        first = _variable(parts[0])
        others = [_variable(part)._replace(type=first.type) for part in parts[1:]]
        members += [variable for variable in (first, *others) if variable.name]
    return tuple(members)


def _variable(declaration: str) -> Variable:
    """What a declaration declares."""
    declarator, *initialiser = re.split(r"[={]", declaration, maxsplit=1)
    *words, name = re.findall(r"[\w:]+|<.*>|\*", declarator) or [""]
    plain = (word for word in words if word not in ("const", "volatile", "mutable"))
    return Variable(name, " ".join(plain), bool(initialiser))


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


def _parameters(code: str) -> tuple[Variable, ...]:
    """The parameters that code begins with, up to the parenthesis."""
    depth, parts = 0, [""]
    for character in code:
        if character == ")" and depth == 0:
            break
        depth += (character in "(<[{") - (character in ")>]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    variables = tuple(map(_variable, parts))
    return () if [each.name for each in variables] in ([""], ["void"]) else variables
