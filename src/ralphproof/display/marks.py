"""The signs that lines begin with: emoji, or plain text that every terminal and every log can hold."""

from __future__ import annotations

from ralphproof.value import value


@value
class Marks:
    """One sign for each kind of line, with the space that follows it."""

    call: str
    ok: str
    error: str
    denied: str
    asked: str
    limited: str
    note: str
    todos: str
    done: str
    active: str
    pending: str
    progress: str
    first: str  # before the first line of a tool's output
    below: str  # before the others
    arrow: str
    cut: str


EMOJI = Marks(
    call="⏺ ", ok="✅ ", error="❌ ", denied="🚫 ", asked="❓ ", limited="⏳ ", note="· ", todos="📋 ", done="✅ ",
    active="🔄 ", pending="⏸️ ", progress="📊 ", first="  ⎿  ", below="     ", arrow="←", cut="…",
)  # fmt: skip
TEXT = Marks(
    call="> ", ok="[OK] ", error="[ERR] ", denied="[!] ", asked="[?] ", limited="[!] ", note="- ", todos="",
    done="[x] ", active="[>] ", pending="[ ] ", progress="", first="  |  ", below="     ", arrow="<-", cut="...",
)  # fmt: skip
