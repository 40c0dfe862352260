"""Print what completes this command in a shell.

In bash: eval "$(beeline completion bash)"; in zsh, behind compinit: eval "$(beeline completion zsh)"
"""
import re
import subprocess

from . import preload
from .words import Refused

USAGE = "beeline completion bash|zsh"

# What follows the options of run is a command of its own.
BASH = """_beeline() {{
    local i=2 word=${{COMP_WORDS[COMP_CWORD]}} words=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    else
        case ${{COMP_WORDS[1]}} in
{cases}        esac
    fi
    if [ "${{COMP_WORDS[1]}}" = run ] && [ "$COMP_CWORD" -gt 1 ]; then
        while [ $i -lt "$COMP_CWORD" ] && [[ ${{COMP_WORDS[i]}} == -* ]]; do i=$((i + 1)); done
        if [ $i -lt "$COMP_CWORD" ] || [[ $word != -* ]]; then
            if declare -F _command_offset > /dev/null; then _command_offset $i
            elif [ $i -eq "$COMP_CWORD" ]; then mapfile -t COMPREPLY < <(compgen -c -- "$word"); fi
            return
        fi
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}}
complete -o default -F _beeline beeline
"""
ZSH = """#compdef beeline
_beeline() {{
    local i=3 words_of=
    if (( CURRENT == 2 )); then compadd -- {commands}; return; fi
    case $words[2] in
{cases}    esac
    if [[ $words[2] == run ]]; then
        while (( i < CURRENT )) && [[ $words[i] == -* ]]; do (( i++ )); done
        if (( i < CURRENT )) || [[ $PREFIX != -* ]]; then
            shift $(( i - 1 )) words
            (( CURRENT -= i - 1 ))
            _normal
            return
        fi
    fi
    compadd -- ${{=words_of}} || _files
}}
if [[ $funcstack[1] == _beeline ]]; then _beeline "$@"; else compdef _beeline beeline; fi
"""
SHELLS = {"bash": (BASH, '        {name}) words="{words}" ;;\n'), "zsh": (ZSH, '        {name}) words_of="{words}" ;;\n')}


def arguments(parser):
    parser.add_argument("shell", choices=SHELLS)


def options_of(parser):
    return sorted(option for action in parser._actions for option in action.option_strings)  # pylint: disable=protected-access


def perf_options():
    """beeline-perf's own, if it is there."""
    try:
        done = subprocess.run([preload.find_perf(), "--help"], capture_output=True, text=True, check=False)
    except (Refused, OSError):
        return []
    return sorted(set(re.findall(r"(?<!\S)--[a-z][a-z-]+", done.stdout)))


def main(options, parser):
    script, case = SHELLS[options.shell]
    cases = ""
    for name, command in parser.commands.items():
        words = perf_options() if name == "perf" else options_of(command) + (list(SHELLS) if name == "completion" else [])
        cases += case.format(name=name, words=" ".join(words))
    print(script.format(commands=" ".join([*parser.commands, *options_of(parser)]), cases=cases), end="")
    return 0
