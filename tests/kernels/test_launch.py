"""The arithmetic of the launcher, in C++."""

from support import simt


def test_division_by_multiplication_is_exact_and_grids_and_spans_are_right():
    source = simt.ROOT / "tests" / "csrc" / "launch_test.cc"
    program = simt.compile_cpp([source], "launch_test", simt.SANITIZERS)
    assert simt.run_binary(program) == "0 failures\n"
