"""Completion scripts for bash, zsh and fish."""

from __future__ import annotations

from collections.abc import Iterator

from ralphproof.base.value import value

COMMON_FLAGS = ("--help", "--version")
PROGRAMS = ("ralph", "ralphproof")

BASH_TEMPLATE = """\
# bash completion for ralph; use it with: source <(ralph completion bash)
_ralph() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{verbs}"
    else
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _ralph {programs}
"""
ZSH_TEMPLATE = """\
#compdef {programs}
# zsh completion for ralph; put it into a folder of $fpath under the name _ralph
_ralph() {{
    local -a verbs
    if (( CURRENT == 2 )); then
        verbs=(
{verbs}
        )
        _describe command verbs
        return
    fi
    case "${{words[2]}}" in
{cases}
    esac
    _files
}}
if [ "$funcstack[1]" = _ralph ]; then _ralph "$@"; else compdef _ralph {programs}; fi
"""


@value
class CompletedFlag:
    """One flag with all its spellings; `takes` says whether a value follows it."""

    spellings: tuple[str, ...]
    about: str
    takes: bool


@value
class CompletedVerb:
    """A verb, its flags, and the words that may stand after it: some of these are verbs themselves."""

    name: str
    about: str
    flags: tuple[CompletedFlag, ...]
    words: tuple[str, ...]
    inner: tuple[CompletedVerb, ...] = ()

    @property
    def all_words(self) -> str:
        return " ".join([*self.words, *(spelling for flag in self.flags for spelling in flag.spellings)])


def bash_script(verbs: list[CompletedVerb]) -> str:
    """For bash 4 and later."""
    cases = "\n".join(f"            {verb.name}) {_bash_words(verb)} ;;" for verb in verbs)
    names = " ".join([*(verb.name for verb in verbs), *COMMON_FLAGS])
    return BASH_TEMPLATE.format(verbs=names, cases=cases, programs=" ".join(PROGRAMS))


def _bash_words(verb: CompletedVerb) -> str:
    first = f'words="{verb.all_words}"'
    if not verb.inner:
        return first
    cases = " ".join(f'{one.name}) words="{one.all_words}" ;;' for one in verb.inner)
    return f'{first}; [ "$COMP_CWORD" -eq 2 ] || case "${{COMP_WORDS[2]}}" in {cases} esac'


def zsh_script(verbs: list[CompletedVerb]) -> str:
    """For zsh with its completion system."""
    names = "\n".join(f"            {_quote(f'{verb.name}:{verb.about}')}" for verb in verbs)
    cases = "\n".join(f"        {verb.name}) {_zsh_words(verb)} ;;" for verb in verbs)
    return ZSH_TEMPLATE.format(verbs=names, cases=cases, programs=" ".join(PROGRAMS))


def _zsh_words(verb: CompletedVerb) -> str:
    first = f"compadd -- {verb.all_words}"
    if not verb.inner:
        return first
    cases = " ".join(f"{one.name}) compadd -- {one.all_words} ;;" for one in verb.inner)
    return f'if (( CURRENT == 3 )); then {first}; else case "${{words[3]}}" in {cases} esac; fi'


def fish_script(verbs: list[CompletedVerb]) -> str:
    """For fish 3 and later."""
    lines = ["# fish completion for ralph"]
    for program in PROGRAMS:
        for verb in verbs:
            about = _fish_text(verb.about)
            lines.append(f"complete -c {program} -f -n __fish_use_subcommand -a {verb.name} -d '{about}'")
            lines += _fish_verb(f"complete -c {program} -n '__fish_seen_subcommand_from {verb.name}", verb)
    return "\n".join(lines) + "\n"


def _fish_verb(seen: str, verb: CompletedVerb) -> Iterator[str]:
    """What may stand after a verb; `seen` is the beginning of a line that asks for it, its quotation still open."""
    for one in verb.inner:
        yield from _fish_verb(f"{seen}; and __fish_seen_subcommand_from {one.name}", one)
    abouts = {one.name: f" -d '{_fish_text(one.about)}'" for one in verb.inner}
    fresh = f"; and not __fish_seen_subcommand_from {' '.join(abouts)}" if abouts else ""
    yield from (f"{seen}{fresh}' -f -a {word}{abouts.get(word, '')}" for word in verb.words)
    yield from (f"{seen}{fresh}' {_fish_flag(flag)}" for flag in verb.flags)


def _fish_flag(flag: CompletedFlag) -> str:
    named = [f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in flag.spellings]
    return " ".join([*named, *(["-r"] if flag.takes else []), f"-d '{_fish_text(flag.about)}'"])


def _fish_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
