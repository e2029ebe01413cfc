"""Where the headers that users' C++ includes are written out."""

import re

import pytest
from support.sources import parsed

from jax_elementwise._cuda_functor.codegen import declaration


def test_headers_stand_where_they_are_included():
    headers = {"a.h": "A1\nA2", "b.h": '#pragma once\n#include "a.h"\nB', "unused.h": "U"}
    source = parsed(
        "x\n#include <a.h>  // again\n+ y",
        inputs="x, y",
        name="f",
        preamble='P1\n#include "b.h"\n  #  include <b.h> /* not again */\nP2',
        headers=headers,
    )
    assert source.preamble.split("\n") == [
        "P1",
        "#ifndef JAX_ELEMENTWISE_HEADER_1",
        "#define JAX_ELEMENTWISE_HEADER_1",
        '#line 1 "b.h"',
        "",
        '#line 1 "a.h"',
        "A1",
        "A2",
        '#line 3 "b.h"',
        "B",
        "#endif",
        '#line 3 "f, preamble"',
        "",
        "P2",
    ]  # fmt: skip
    assert source.text.split("\n") == [
        "x", '#line 1 "a.h"', "A1", "A2", '#line 3 "f"', "+ y",
    ]  # fmt: skip


def test_headers_at_the_head_of_a_body_go_before_it():
    source = parsed('#include "a.h"\nx', inputs="x", preamble="P", headers={"a.h": "A"}, name="f")
    assert source.text == "\nx"  # the lines of the user's text keep their numbers
    assert source.preamble == 'P\n#line 1 "f"\n#line 1 "a.h"\nA\n#line 2 "f"'
    text = (
        '// what it needs\n#define K \\\n  2\n#if K > 1\n#include "a.h"\n#endif\n#define L 3\nx * K'
    )
    source = parsed(text, inputs="x", headers={"a.h": "A"}, name="f")
    assert source.text == "\n" * 7 + "x * K"
    assert source.preamble.startswith(
        '#line 1 "f"\n// what it needs\n#define K \\\n  2\n#if K > 1\n'
    )
    assert source.preamble.endswith('A\n#line 6 "f"\n#endif\n#define L 3')
    unbalanced = '#if K\n#include "a.h"\nx\n#else\n2 * x\n#endif'
    source = parsed(unbalanced, inputs="x", headers={"a.h": "A"}, name="f")
    assert not source.preamble
    assert source.text.startswith('#if K\n#line 1 "a.h"\nA\n')


def test_what_is_included_in_a_comment_is_not():
    text = '/* as in\n#include "a.h"\n*/\n// #include "b.h"\n// and \\\n#include "c.h"\nx'
    assert parsed(text, inputs="x").text == text


def test_headers_under_a_condition_are_left_to_the_compiler():
    preamble = '#if 0\n#include "a.h"\n#include "missing.h"\n#endif\n#include "a.h"'
    for header in ("#pragma once\nA", "#ifndef A_H\n#define A_H\nA\n#endif", "A"):
        source = parsed("x", inputs="x", preamble=preamble, headers={"a.h": header})
        assert source.preamble.split("\n").count("A") == 2
        assert "\n#error the header 'missing.h' is not there: give its text" in source.preamble


@pytest.mark.parametrize(
    "header",
    ["cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cuda_runtime.h", "cuda.h", "math.h", "cmath",
     "stdint.h", "cstdint", "stddef.h", "cstddef"],
)  # fmt: skip
def test_headers_that_are_there_are_dropped(header):
    assert parsed(f"#include <{header}>\nx", inputs="x").text == "\nx"
    replaced = parsed(f"#include <{header}>\nx", inputs="x", headers={header: "mine"})
    assert "\nmine\n" in replaced.preamble


@pytest.mark.parametrize(
    "header",
    ["// licence\n/* more\n */\n#ifndef A_H\n#define A_H\nint a;\n#endif\n",
     "// licence\n#pragma once\nint a;\n"],
    ids=["macro", "pragma"],
)  # fmt: skip
def test_a_header_with_a_guard_is_read_once_per_functor(header):
    b = '#ifndef B_H\n#define B_H\n#include "a.h"\n#endif'
    includes = '#include "b.h"\n#include "a.h"\n#include "b.h"'
    source = parsed("x", inputs="x", preamble=includes, headers={"a.h": header, "b.h": b})
    assert source.preamble.count("int a;") == 1
    (guard,) = set(re.findall(r"define (A_H|JAX_ELEMENTWISE_\w+)", source.preamble))
    assert declaration(source, ["float32"], [], "space").endswith(
        "".join(sorted((f"#undef {guard}\n", "#undef B_H\n"), key=lambda line: "B_H" not in line))
    )


def test_a_header_that_includes_itself_is_there_once():
    headers = {"a.h": '#include "b.h"\nA', "b.h": '#include "a.h"\nB'}
    source = parsed("x", inputs="x", preamble='#include "a.h"', headers=headers)
    assert (source.preamble.count("A"), source.preamble.count("B")) == (1, 1)
