"""Print what completes this command in a shell.

In bash: eval "$(beeline completion bash)"
"""
import re
import subprocess

from . import preload
from .words import Refused

USAGE = "beeline completion bash"

BASH = """_beeline() {{
    local i=2 word=${{COMP_WORDS[COMP_CWORD]}} words=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    else
        case ${{COMP_WORDS[1]}} in
{cases}        esac
    fi
    if [ "${{COMP_WORDS[1]}}" = run ] && [ "$COMP_CWORD" -gt 1 ] && [[ $word != -* ]]; then # a command of its own
        while [[ ${{COMP_WORDS[i]}} == -* ]]; do i=$((i + 1)); done
        if declare -F _command_offset > /dev/null; then _command_offset $i; return; fi
        if [ $i -eq "$COMP_CWORD" ]; then mapfile -t COMPREPLY < <(compgen -c -- "$word"); return; fi
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}}
complete -o default -F _beeline beeline
"""


def arguments(parser):
    parser.add_argument("shell", choices=("bash",))


def options_of(parser):
    return sorted(option for action in parser._actions for option in action.option_strings)  # pylint: disable=protected-access


def perf_options():
    """beeline-perf's own, if it is there."""
    try:
        done = subprocess.run([preload.find_perf(), "--help"], capture_output=True, text=True, check=False)
    except (Refused, OSError):
        return []
    return sorted(set(re.findall(r"(?<!\S)--[a-z][a-z-]+", done.stdout)))


def main(_options, parser):
    cases = ""
    for name, command in parser.commands.items():
        words = perf_options() if name == "perf" else options_of(command)
        cases += f"        {name}) words=\"{' '.join(words + (['bash'] if name == 'completion' else []))}\" ;;\n"
    print(BASH.format(commands=" ".join([*parser.commands, *options_of(parser)]), cases=cases), end="")
    return 0
