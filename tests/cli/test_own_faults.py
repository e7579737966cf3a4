"""A fault of the program's own is one clear line and exit code 3, never a traceback."""

from __future__ import annotations

import pytest

from ralphproof.cli import dispatch


def broken(_: list[str]) -> int:
    raise KeyError("what must not happen")


@pytest.mark.parametrize(("flags", "shown"), [([], False), (["-V"], True)])
def test_what_must_not_happen_is_told_in_one_line(
    flags: list[str], shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dispatch, "verb_function", lambda verb, kind: broken)
    assert dispatch.dispatch(["status", *flags]) == 3
    said = capsys.readouterr().err
    assert "internal error (KeyError: 'what must not happen')" in said
    assert ("Traceback" in said) == shown
