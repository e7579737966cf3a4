"""Secrets in what a run was asked to do are kept by the names of their variables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ralphproof.cli.hidden import hidden, revealed
from ralphproof.errors import Refused
from ralphproof.secret import mask, secrets_in

if TYPE_CHECKING:
    from ralphproof.value import Json

ENVIRON = {
    "API_KEY": "canary-1234-abcd",
    "HTTPS_PROXY": "http://me:password-in-a-url@proxy:3128",
    "HOME": "/home/me",
}
WISH: Json = {
    "wish": {"prompt": ["use canary-1234-abcd", None], "plain": ["curl", "-u", "password-in-a-url"]},
    "flags": {"agent": {"command": "tool --key canary-1234-abcd --home /home/me"}, "maximumIterations": 3},
}


def masked(text: str) -> str:
    return mask(text, (*secrets_in(ENVIRON), "only-in-settings"))


def test_secrets_come_back_and_are_never_written() -> None:
    kept = json.dumps(hidden(WISH, ENVIRON, masked))
    assert "canary" not in kept
    assert "password-in" not in kept
    assert revealed(json.loads(kept), ENVIRON) == WISH


def test_a_key_that_changed_since_is_taken_as_it_now_is() -> None:
    kept = hidden({"command": "tool canary-1234-abcd"}, ENVIRON, masked)
    assert revealed(kept, ENVIRON | {"API_KEY": "a-newer-key"}) == {"command": "tool a-newer-key"}


def test_a_variable_that_is_gone_is_named() -> None:
    kept = hidden({"command": "tool canary-1234-abcd"}, ENVIRON, masked)
    with pytest.raises(Refused, match="API_KEY, which is not set now"):
        revealed(kept, {})


def test_what_no_variable_holds_is_masked() -> None:
    assert hidden(["say only-in-settings"], ENVIRON, masked) == ["say ***"]
