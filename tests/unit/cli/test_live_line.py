"""A line that is written anew on a terminal, and now and then elsewhere."""

import io

from mainstem.cli.output.live_line import ERASE, LiveLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_one_line_written_anew() -> None:
    out = Terminal()
    line = LiveLine(out)
    line.show("one")
    line.show("two")
    line.print_line("done")
    assert out.getvalue() == f"one{ERASE}two{ERASE}done\n"


def test_a_file_gets_few_states_each_on_a_line() -> None:
    out = io.StringIO()
    line = LiveLine(out)
    for number in range(100):
        line.show(str(number))
    line.print_line("done")
    line.show("soon")
    line.show("now", at_once=True)
    assert out.getvalue() == "0\ndone\nnow\n"
