"""How the command speaks: refusals in one line, sizes, columns, progress on a terminal."""
import argparse
import sys


class Refused(Exception):
    """What stops a command, in words for the person who typed it."""

    def __init__(self, text, status=2):
        super().__init__(text)
        self.status = status


class Parser(argparse.ArgumentParser):
    """One line for what is not accepted."""

    def error(self, message):
        raise Refused(f"{self.prog.partition(' ')[2]}{': ' if ' ' in self.prog else ''}{message}; {self.prog} --help says what is accepted")


def size_text(size):
    """256, 1K, 64K, 1M; bytes where no unit divides."""
    for unit in ("", "K", "M", "G"):
        if size < 1024 or size % 1024:
            return f"{size}{unit}"
        size //= 1024
    return f"{size}T"


def size_of(text):
    """The bytes of what size_text says; ValueError if it is none."""
    if not text[:1].isdigit():
        raise ValueError(text)
    return int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]] if text[-1] in "KMG" else int(text)


def amount(size):
    """About as much, in three digits: 812, 1.43 M, 140 G."""
    for unit in ("", " K", " M", " G", " T"):
        if size < 999.5 or unit == " T":
            break
        size /= 1024
    return f"{size:.0f}{unit}" if not unit or size >= 99.95 else f"{size:.1f}{unit}" if size >= 9.995 else f"{size:.2f}{unit}"


def columns(rows, right=()):
    """Lines, of rows of texts; those columns to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(text.rjust(width) if i in right else text.ljust(width) for i, (text, width) in enumerate(zip(row, widths))).rstrip()
            for row in rows]


class Progress:
    """A line on the terminal about what takes long; nothing elsewhere."""

    def __init__(self):
        self.shown = sys.stderr.isatty()

    def say(self, text):
        if self.shown:
            print(f"\r\033[K{text[:79]}", end="", file=sys.stderr, flush=True)

    def end(self):
        self.say("")
